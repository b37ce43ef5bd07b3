"""`x[mask]` in compiled functions: reads, writes and reductions of selected elements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import magmath as mm
from engines import current
from magmath.errors import TracingError

POOLS = [("inline", 1), ("planned", 1), ("shared", 2), ("messages", 3)]
RANDOM = np.random.default_rng(2)
X, Y = RANDOM.normal(size=(2, 8, 6))


@pytest.fixture(autouse=True, params=POOLS, ids=lambda pool: f"{pool[0]}-{pool[1]}")
def pool(request: pytest.FixtureRequest) -> Iterator[None]:
    mm.set_default_dtype("float64")
    with current(*request.param):
        yield
    mm.set_default_dtype("float32")


def _scaled(xp: Any, x: Any, y: Any) -> Any:
    x[x > 0] *= 2
    return x


def _of_another_array(xp: Any, x: Any, y: Any) -> Any:
    mask = y > 0.1
    x[mask] = xp.exp(y[mask]) - 3 * x[mask] / (1 + y[mask] ** 2)
    return x


def _rows(xp: Any, x: Any, y: Any) -> Any:
    x[y[:, 0] > 0] += xp.asarray([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    return x


def _columns(xp: Any, x: Any, y: Any) -> Any:
    mask = y[0] > 0
    x[:, mask] = 2 / x[:, mask]
    return x


def _equal_masks(xp: Any, x: Any, y: Any) -> Any:
    x[~(y > 0)] = -y[~(y > 0)]
    x[(x > 1) & (y < 1)] = 0.5
    return x


def _named(xp: Any, x: Any, y: Any) -> Any:
    mask = x > y
    part = x[mask]
    part += 1
    part = xp.minimum(part, 1.5) ** 2
    x[mask] = part
    return x


def _types(xp: Any, x: Any, y: Any) -> Any:
    counts = (x * 10).astype("int64")
    counts[x > 0] //= 3
    counts[counts < 0] = (y[counts < 0] * 5).astype("int64")
    return counts


def _nothing(xp: Any, x: Any, y: Any) -> Any:
    x[x > 100] /= 0
    return x


def _view(xp: Any, x: Any, y: Any) -> Any:
    part = x[2:6]
    part[part < 0] = abs(part[part < 0])
    return x


def _sums(xp: Any, x: Any, y: Any) -> Any:
    mask = y > 0
    parts = [x[mask].sum(), x[mask].mean(), xp.sqrt(x[x > 0]).sum(), (1 + 0.1 * x[mask]).prod()]
    return xp.stack(parts) * (x[mask] > 1).any() + (x[mask] < 9).all()


PROGRAMS = [
    _scaled, _of_another_array, _rows, _columns, _equal_masks, _named, _types, _nothing, _view,
    _sums,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_are_numpys(program: Callable[[Any, Any, Any], Any]) -> None:
    """Compiled, and not, where the elements are counted."""
    expected = program(np, X.copy(), Y)
    compiled = mm.compile(lambda x, y: program(mm, x * 1.0, y))
    for _ in range(2):
        actual = compiled(mm.asarray(X), mm.asarray(Y)).numpy()
        np.testing.assert_allclose(actual, expected, rtol=1e-12)
        assert actual.dtype == expected.dtype
    outside = program(mm, mm.asarray(X), mm.asarray(Y)).numpy()
    np.testing.assert_allclose(outside, expected, rtol=1e-12)


def _roots(xp: Any, x: Any, y: Any) -> Any:
    x = x * 1.0
    x[x > 0] = xp.log(x[x > 0]) * xp.sqrt(x[x > 0])
    return xp.sum(x * y)


def _from_one(xp: Any, x: Any, y: Any) -> Any:
    """Without the mask, the logarithm of 0 and a division by 0 would give nan."""
    x = x * 1.0
    mask = x > 1
    x[mask] = xp.log(x[mask] - 1) / (x[mask] - 1) + y[mask]
    return xp.sum(x) + xp.sqrt(x[mask]).sum() * 0


@pytest.mark.parametrize("program", [_roots, _from_one])
def test_gradients_are_those_of_torch(program: Callable[[Any, Any, Any], Any]) -> None:
    """Derivatives that are infinite where the mask is false reach no gradient."""
    start = np.concatenate([X, np.zeros((1, 6)), np.full((1, 6), 1.0)])
    other = np.concatenate([Y, np.ones((2, 6))])
    if program is _from_one:
        start[start > 1] += 8  # their logarithms have square roots
    x, y = (torch.from_numpy(v.copy()).requires_grad_() for v in (start, other))
    expected = torch.autograd.grad(program(torch, x, y), [x, y])
    slope = mm.compile(mm.grad(lambda x, y: program(mm, x, y), argnums=(0, 1)))
    for actual, known in zip(slope(mm.asarray(start), mm.asarray(other)), expected, strict=True):
        np.testing.assert_allclose(actual.numpy(), known.numpy(), rtol=1e-10)


@pytest.mark.parametrize(
    ("use", "needs"),
    [
        (lambda x: x[x > 0], "a result"),
        (lambda x: len(x[x > 0]), "a value, a length or an iteration"),
        (lambda x: float(x[x > 0]), "a value, a length or an iteration"),
        (lambda x: x[x > 0][0], "a value, a length or an iteration"),
        (lambda x: mm.sort(x[x > 0]), "sort"),
        (lambda x: x[x > 0] @ x[x > 0], "a matrix product"),
        (lambda x: x @ x[x > 0], "a matrix product"),
        (lambda x: mm.where(x > 0, x[x > 0], 0), "where"),
        (lambda x: x[x > 0].shape, r"x\[mask\]\.shape"),
        (
            lambda x: mm.sum(x[x > 0], where=x > 1),
            "sum with other arguments than axis, keepdims and dtype by name",
        ),
        (lambda x: x[x[:, 0] > 0] / x[x[:, 0] > 0].sum(axis=1), "divide of selected elements of"),
        (lambda x: x.__setitem__(x[:, 0] > 0, x[:, 0][x[:, 0] > 0]), "writing selected elements"),
        (lambda x: x[x > 0] + x, "add with an array along the selected dimension"),
        (lambda x: x[x > 0] + x[x > 1], "add of elements that two masks select"),
        (lambda x: x.__setitem__(x < 0, x[x > 0]), "writing elements that another mask selects"),
        (lambda x: x.__setitem__(0, x[x > 0]), "writing elements that another mask selects"),
    ],
)
def test_what_needs_their_number_is_refused(use: Callable[[Any], Any], needs: str) -> None:
    message = f"{needs}.* needs .* unknown while mm.compile traces a function .* mm.where"
    with pytest.raises(TracingError, match=message):
        mm.compile(lambda x: use(x * 1.0))(mm.asarray(X))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (mm.relu, torch.relu),
        (mm.sigmoid, torch.sigmoid),
        (mm.softplus, torch.nn.functional.softplus),
        (lambda x: mm.clip(x, -0.5, 0.5), lambda x: torch.clamp(x, -0.5, 0.5)),
        (lambda x: x.clip(-0.5, 0.5) if isinstance(x, mm.Array) else mm.clip(x, min=-0.5, max=0.5),
         lambda x: torch.clamp(x, -0.5, 0.5)),
        (lambda x: mm.round(x, 1), lambda x: torch.round(x, decimals=1)),
        (mm.sinc, torch.sinc),
        (mm.exp2, torch.exp2),
        (lambda x: mm.fmax(x, 0.3), lambda x: torch.clamp(x, 0.3, None)),
        (lambda x: mm.nan_to_num(mm.log(x)), lambda x: torch.nan_to_num(torch.log(x))),
        (mm.nn.functional.gelu, torch.nn.functional.gelu),
        (lambda x: mm.nn.functional.leaky_relu(x, 0.2),
         lambda x: torch.nn.functional.leaky_relu(x, 0.2)),
        (lambda x: mm.nn.functional.silu(x), torch.nn.functional.silu),
        (lambda x: x * mm.logical_not(x > 0.2), lambda x: x * ~(x > 0.2)),
        (lambda x: x * mm.isclose(x, x), lambda x: x),
    ],
)  # fmt: skip
def test_composed_functions_of_selected_elements(
    ours: Callable[[Any], Any], theirs: Callable[[Any], Any]
) -> None:
    @mm.compile
    def written(x: Any, y: Any) -> Any:
        mask = y > 0.1
        x[mask] = ours(x[mask])
        return x

    x, y = torch.tensor(X), torch.tensor(Y)
    x[y > 0.1] = theirs(x[y > 0.1])
    np.testing.assert_allclose(written(mm.asarray(X), mm.asarray(Y)), x.numpy(), atol=1e-7)


def test_masks_of_long_expressions_are_compared_once() -> None:
    """Node by node: their number of paths is 2 to the number of steps."""

    def mask(x: Any) -> Any:
        for _ in range(60):
            x = x * x + x
        return x > 0

    def scaled(x: Any) -> Any:
        x[mask(x * 0.1)] = x[mask(x * 0.1)] * 2
        return x

    assert mm.compile(scaled)(mm.asarray([1.0, -1.0])).tolist() == [2.0, -1.0]
    noise = mm.compile(
        lambda x: x.__setitem__(mm.random.random(9) > 0.5, x[mm.random.random(9) > 0.5])
    )
    with pytest.raises(TracingError, match="another mask"):
        noise(mm.ones(9))


def test_variables_loops_and_batches() -> None:
    v = mm.variable("v", np.array([1.0, -2.0, 3.0]))

    @mm.compile
    def scaled(factor: Any) -> Any:
        v[v > 0] = v[v > 0] * factor
        v[v < 0] -= 1
        return v[v > 0].sum()

    assert [float(scaled(2.0)) for _ in range(2)] == [8.0, 16.0]
    assert v.tolist() == [4.0, -4.0, 12.0]

    def halved(i: Any, y: Any) -> Any:
        y[y > 0] *= 0.5
        return y

    looped = mm.compile(lambda x: mm.fori_loop(0, 3, halved, x))
    assert looped(mm.asarray([8.0, -8.0])).tolist() == [1.0, -8.0]
    batches = mm.compile(mm.vmap(lambda row: halved(0, row * 1.0)))
    assert batches(mm.asarray([[1.0, -1.0], [2.0, 3.0]])).tolist() == [[0.5, -1.0], [1.0, 1.5]]


REDUCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda xp, x: xp.sum(x[x > 0] ** 3),
    "mean": lambda xp, x: xp.mean(x[x > 0.2]),
    "max": lambda xp, x: xp.max(x[x < 1]),
    "min": lambda xp, x: x[x > 0].min(),
    "std": lambda xp, x: xp.std(x[x > 0]),
    "var": lambda xp, x: x[x > 0].var(ddof=1),
    "initial": lambda xp, x: xp.max(x[x > 0], initial=50.0) + x[x > 1].min(initial=-2.0),
    "prod": lambda xp, x: xp.prod(x[x > 1]),
    "any": lambda xp, x: xp.any(x[x > 0] > 1),
    "size": lambda xp, x: x[x > 0].sum() / x[x > 0].size,
    "logical_and": lambda xp, x: xp.any(xp.logical_and(x[x > 0] > 0.5, x[x > 0])),
    "logical_or": lambda xp, x: xp.all(xp.logical_or(x[x > 0] < 0.5, x[x > 0] - 0.7)),
    "logical_xor": lambda xp, x: xp.sum(xp.logical_xor(True, x[x > 0] > 0.5)),
    "rows": lambda xp, x: x[x[:, 0] > 0].sum(axis=0),
    "rows, kept": lambda xp, x: xp.mean(x[x[:, 0] > 0], axis=0, keepdims=True),
    "rows, largest": lambda xp, x: xp.max(x[x[:, 0] > 0], axis=0),
    "rows, then all": lambda xp, x: x[x[:, 0] > 0].sum(axis=1).max(),
    "rows, both": lambda xp, x: x[x[:, 0] > 0].std(axis=(0, 1)),
    "columns": lambda xp, x: x[:, x[0] > 0].sum(axis=1),
    "columns, last": lambda xp, x: xp.sum(x[:, x[0] > 0], axis=-1),
    "one column": lambda xp, x: x[x[:, 0] > 0, 1].sum(),
    "one row": lambda xp, x: x[2, x[2] > 0].mean(),
    "some columns": lambda xp, x: xp.sum(x[x[:, 0] > 0, 1:3] ** 2, axis=0),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_of_selected_elements(name: str) -> None:
    function = REDUCTIONS[name]
    actual = mm.compile(lambda x: function(mm, x))(mm.asarray(X))
    np.testing.assert_allclose(actual, function(np, X), rtol=1e-12)
    if np.asarray(actual).dtype.kind == "f" and "largest" not in name:
        slope = mm.compile(mm.grad(lambda x: mm.sum(function(mm, x))))(mm.asarray(X))
        expected = mm.grad(lambda x: mm.sum(function(mm, x)))(mm.asarray(X))
        np.testing.assert_allclose(slope, expected, atol=1e-12)


def _row_values(x: Any) -> Any:
    rows = x[:, 0] > 0
    x[rows] = x[0]
    return x


def _column_of_rows(x: Any) -> Any:
    rows = x[:, 0] > 0
    x[rows, 0] = 5
    x[rows, 1] += 1
    x[rows, 2:] *= 2
    x[1, x[1] > 0] -= 3
    x[~rows, 1:3] = x[0, 1:3]
    return x


@pytest.mark.parametrize("function", [_row_values, _column_of_rows])
def test_masks_with_positions_and_slices(function: Callable[[Any], Any]) -> None:
    result = mm.compile(lambda x: function(x * 1.0))(mm.asarray(X))
    np.testing.assert_allclose(result, function(X.copy()))


def test_masks_apart_from_positions_are_refused() -> None:
    """NumPy moves the selected dimension to the front there."""
    x = mm.asarray(RANDOM.normal(size=(3, 4, 5)))
    with pytest.raises(TracingError, match="unknown while mm.compile traces"):
        mm.compile(lambda x: x[0, :, x[0, 0] > 0].sum())(x)
