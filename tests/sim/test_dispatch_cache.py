"""Calls of functions on small arrays, which are repeated from the third call with a key on: the same
values, gradients, errors and effects as the first call."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import magmath as mm
from magmath.arrays.protocols.cached_functions import dispatch_cached
from magmath.engine.session import eager_indexing

CALLS = 5
"""A form is noted by the first call, recorded by the second, and repeated by the others."""


@pytest.fixture(autouse=True, params=[0, 2])
def pool(request: pytest.FixtureRequest) -> Iterator[None]:
    with mm.init(workers=request.param, launcher="threads"):
        yield


def _values(shape: tuple[int, ...], seed: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).uniform(0.5, 2.0, shape)


def _remade(lib: Any, x: Any) -> Any:
    """Return x from its factors, each of several results of one call."""
    q, r = lib.linalg.qr(x)
    u, s, vh = lib.linalg.svd(x, full_matrices=False)
    return 0.25 * (q @ r) + 0.75 * ((u * s) @ vh)


FUNCTIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "operators": lambda lib, x, y: (x + y) * 2.5 - 3 / x + (1 - y) ** 2 + x * x,
    "comparisons": lambda lib, x, y: ((x < y) | (x == 1.0) | (y >= x)) & (x != y),
    "integers": lambda lib, x, y: ((x * 7).astype(lib.int64) // 3 + 5) % 4 - 2,
    "reductions": lambda lib, x, y: lib.sum(x, axis=0) + lib.mean(y, axis=0) - lib.std(x) * y.max(),
    "positions": lambda lib, x, y: x.argmax(axis=1) + lib.argmin(y, axis=1) + lib.argsort(x)[:, 0],
    "keepdims": lambda lib, x, y: x - lib.mean(x, axis=1, keepdims=True) + lib.var(y, axis=-1)[:, None],
    "where": lambda lib, x, y: lib.where(x > 1.2, x, 0.25) + lib.clip(y, 0.7, 1.5),
    "products": lambda lib, x, y: x @ y.T + lib.dot(x, y.T) - lib.outer(x[0], y[0])[:4, :4],
    "parts": lambda lib, x, y: x[1:] - x[:-1] + y[2, ::2].sum() + x[-1, 3],
    "lists": lambda lib, x, y: lib.concatenate([x, y[:2]], axis=0) + lib.stack([x[0], y[1]]).sum(),
    "sorted": lambda lib, x, y: lib.sort(x, axis=1) + lib.cumsum(y, axis=0) + lib.median(x),
    "quantiles": lambda lib, x, y: lib.percentile(x, 30) + lib.quantile(y, 0.7, axis=0),
    "views": lambda lib, x, y: x.reshape(5, 4).sum(axis=1) + y.ravel()[3] + x.T[0].sum(),
    "fourier": lambda lib, x, y: lib.fft.irfft(lib.fft.rfft(x), n=5) + lib.real(lib.fft.fft(y)),
    "norms": lambda lib, x, y: lib.linalg.norm(x) + lib.linalg.norm(y, axis=1),
    "solve": lambda lib, x, y: lib.linalg.solve(x @ x.T + lib.eye(4), y),
    "picked": lambda lib, x, y: x[lib.asarray([2, 0, 2])] + y[lib.asarray([1]), 1:2],
    "factors": lambda lib, x, y: _remade(lib, x) + y * lib.linalg.slogdet(x @ x.T)[1],
    "spectrum": lambda lib, x, y: lib.linalg.eigh(x @ x.T)[0] @ y + lib.linalg.svd(y, full_matrices=False)[1][0],
    "least squares": lambda lib, x, y: lib.linalg.lstsq(x.T, y.T, rcond=None)[0] + x[:, :4],
    "grids": lambda lib, x, y: lib.meshgrid(x[0], y[:, 0])[0] * lib.meshgrid(x[0], y[0])[1][:4],
    "numbers": lambda lib, x, y: x @ lib.eye(5) + y * lib.arange(5.0) - lib.linspace(0.0, 1.0, 5),
    "at numbers": lambda lib, x, y: x[lib.arange(4), lib.asarray([4, 0, 4, 1])] + lib.eye(5)[[1, 3]].sum() * y[:, 0],
    "convolved": lambda lib, x, y: lib.convolve(x[0], y[0, :3]) * lib.correlate(y[1], x[1], "full")[1:8],
    "interpolated": lambda lib, x, y: lib.interp(x, [0.0, 1.0, 3.0], y[0, :3]) + lib.trapezoid(y)[:, None],
    "counts": lambda lib, x, y: lib.histogram(x, bins=4)[0] + lib.digitize(y[:, 0], [0.6, 1.0, 1.7]) + lib.bincount((x[0] * 2).astype(lib.int64), minlength=4),
    "masked": lambda lib, x, y: lib.sum(x[x > 1.0]) + y[lib.asarray([True, False, True, True])].sum(),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_repeated_calls_give_numpys_values(name: str) -> None:
    function = FUNCTIONS[name]
    for seed in range(CALLS):
        x, y = _values((4, 5), seed), _values((4, 5), seed + 100)
        expected = function(np, x, y)
        result = function(mm, mm.asarray(x), mm.asarray(y))
        assert result.shape == expected.shape
        assert result.dtype == expected.dtype
        np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-12, atol=1e-12)


DIFFERENTIABLE = [
    name
    for name in FUNCTIONS
    if name not in ("comparisons", "integers", "positions", "counts", "interpolated")
]


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_pass_through_repeated_calls(name: str) -> None:
    """The gradient of computed arrays is that of the function, which is traced anew."""
    function = FUNCTIONS[name]
    for seed in range(CALLS):
        x, y = mm.asarray(_values((4, 5), seed)), mm.asarray(_values((4, 5), seed + 100))
        result = mm.sum(function(mm, x, y) ** 2)
        result.numpy()
        computed = mm.grad(result, [x, y])
        traced = mm.grad(lambda a, b: mm.sum(function(mm, a, b) ** 2), argnums=(0, 1))(x, y)
        for own, other in zip(computed, traced, strict=True):
            np.testing.assert_allclose(own.numpy(), other.numpy(), rtol=1e-10, atol=1e-10)


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "write",
                "row",
                "column",
                "scaled",
                "update",
                "number",
                "copy",
                "picked",
                "mask",
                "put",
            ]
        ),
        st.integers(0, 3),
        st.floats(-2, 2, width=32),
    ),
    min_size=1,
    max_size=12,
)


def _run(lib: Any, values: np.ndarray[Any, Any], steps: list[tuple[str, int, float]]) -> list[Any]:
    x = lib.array(values) if lib is np else lib.asarray(values.copy())
    views, results = [x[1:], x[:, 2], x.T], []
    for kind, i, number in steps:
        if kind == "write":
            x[i, 1] = number
        elif kind == "row":
            x[i] = x[(i + 1) % 4] * number
        elif kind == "column":
            x[:, i] = views[1] + number
        elif kind == "scaled":
            x *= 1.0 + number / 8
        elif kind == "update":
            x[i : i + 2] += number
        elif kind == "number":
            results.append(x[i, i] + number)
        elif kind == "mask":
            x[x > number] = i
            x[x < 1.0] *= number
        elif kind == "put":
            x[lib.asarray([i, 2]), 1:3] = number
            x[lib.asarray([2, i])] = x[:2]
        elif kind == "copy":
            results.append(x[i].copy())
        else:
            results.append(x[lib.asarray([i, 0])].sum(axis=0))
    return [*results, x, *views]


@given(steps=_STEPS, rounds=st.integers(3, 4))
def test_programs_of_writes_and_views_equal_numpy(
    steps: list[tuple[str, int, float]], rounds: int
) -> None:
    for seed in range(rounds):
        values = _values((4, 5), seed)
        for own, expected in zip(_run(mm, values, steps), _run(np, values, steps), strict=True):
            np.testing.assert_allclose(np.asarray(own), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "float32", "float64", "bool"])
@pytest.mark.parametrize("number", [2, 2.5, -1, 300])
def test_numbers_take_part_as_in_the_first_call(dtype: str, number: Any) -> None:
    """Types and errors do not depend on how often a form was used, nor on the numbers before."""
    x = mm.asarray(np.asarray([1, 0, 1]), dtype=dtype)
    for operation in (
        lambda x, n: x + n, lambda x, n: n - x, lambda x, n: x * n, lambda x, n: x < n,
        lambda x, n: n == x, lambda x, n: x / n,
    ):  # fmt: skip
        with mm.init():
            first = _outcome(operation, mm.asarray(np.asarray([1, 0, 1]), dtype=dtype), number)
        with mm.init():
            x = mm.asarray(np.asarray([1, 0, 1]), dtype=dtype)
            for _ in range(CALLS):
                _outcome(operation, x, type(number)(1))
            assert _outcome(operation, x, number) == first


def _outcome(operation: Callable[..., Any], *arguments: Any) -> Any:
    try:
        result = operation(*arguments)
    except (mm.errors.MagmathError, ValueError, TypeError) as error:
        return type(error), str(error)
    return str(result.dtype), result.numpy().tolist()


def test_errors_of_repeated_calls_are_raised_at_the_users_line() -> None:
    regular, singular = mm.asarray(np.eye(3)), mm.asarray(np.zeros((3, 3)))
    b, x = mm.asarray(np.ones(3)), mm.asarray(np.arange(4.0))
    inside, outside = mm.asarray(np.asarray([1, 2])), mm.asarray(np.asarray([1, 9]))
    for _ in range(CALLS):
        mm.linalg.solve(regular, b)
        x[inside]
    with pytest.raises(np.linalg.LinAlgError):
        mm.linalg.solve(singular, b).numpy()
    with pytest.raises(IndexError, match="9"):
        x[outside]
    with pytest.raises(IndexError):
        x[7]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=5, max_size=12))
def test_one_array_may_be_several_arguments(pairs: list[tuple[int, int]]) -> None:
    """f(x, x) and f(x, y) have the same shapes and types, and are different calls."""
    values = [_values((4, 4), seed) for seed in range(3)]
    arrays = [mm.asarray(one) for one in values]
    for i, j in pairs:
        for function in (
            lambda lib, x, y: lib.dot(x, y),
            lambda lib, x, y: x @ y,
            lambda lib, x, y: lib.where(x > 1.0, x, y),
            lambda lib, x, y: lib.outer(x, y) + lib.kron(x, y),
            lambda lib, x, y: lib.concatenate([x, y, x]),
            lambda lib, x, y: lib.maximum(x, y) - y / x,
            lambda lib, x, y: lib.sum(x, axis=0, where=y > 1.0),
        ):
            own = function(mm, arrays[i], arrays[j])
            np.testing.assert_allclose(np.asarray(own), function(np, values[i], values[j]))


def test_warnings_are_issued_by_every_call() -> None:
    x = mm.zeros((0,))
    for _ in range(CALLS):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            mm.mean(x)
        assert [one.category for one in caught] == [RuntimeWarning]


def test_the_default_type_is_a_part_of_the_form() -> None:
    x = mm.asarray(np.arange(6, dtype=np.int8))
    try:
        for name in ("float32", "float64", "float32"):
            mm.set_default_dtype(name)
            for _ in range(CALLS):
                for result in (
                    mm.mean(x), x + 1.5, 2.0 - x, x / 3, 2 / x, x * 1.5, x / x, x / (x + 1),
                    x**0.5, mm.hypot(x, 3),
                ):  # fmt: skip
                    assert result.dtype == name
    finally:
        mm.set_default_dtype("float32")


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(3, 5)), min_size=4, max_size=8))
def test_arrays_that_are_bounds_of_slices_may_change(bounds: list[tuple[int, int]]) -> None:
    """The form of a key has the bounds of its slices by value."""
    values = _values((4, 5), 0)
    rows, mask = [2, 0], [True, False, True, True]
    start, stop = mm.asarray(0), mm.asarray(5)
    for first, last in bounds:
        start[...], stop[...] = first, last
        for own_rows in (mm.asarray(rows), mm.asarray(mask)):
            key = rows if own_rows.dtype == mm.int64 else mask
            for cut in (slice(start, stop), slice(np.int64(first), np.asarray(last))):
                x, expected = mm.asarray(values), values.copy()
                own = x[own_rows, cut]
                assert own.shape == values[key, first:last].shape
                np.testing.assert_array_equal(np.asarray(own), values[key, first:last])
                x[own_rows, cut] = 7.0
                expected[key, first:last] = 7.0
                np.testing.assert_array_equal(np.asarray(x), expected)


def test_results_are_written_where_the_call_says() -> None:
    out = mm.zeros((4,))
    mask = mm.asarray(np.asarray([True, False, True, True]))
    for seed in range(CALLS):
        values = _values((3, 4), seed)
        x = mm.asarray(values)
        assert mm.sum(x, axis=0, out=out) is out
        np.testing.assert_allclose(out.numpy(), values.sum(axis=0), rtol=1e-6)
        mm.mean(x, 0, None, out)
        np.testing.assert_allclose(out.numpy(), values.mean(axis=0), rtol=1e-6)
        mm.clip(x[0], 1.0, 1.5, out=out)
        np.testing.assert_allclose(out.numpy(), values[0].clip(1, 1.5), rtol=1e-6)
        masked = mm.sum(x, axis=1, where=mask).numpy()
        np.testing.assert_allclose(masked, values[:, [0, 2, 3]].sum(axis=1), rtol=1e-6)


def test_stopped_gradients_are_no_constants() -> None:
    for seed in range(CALLS):
        values = _values((3, 4), seed)
        x = mm.asarray(values)
        np.testing.assert_allclose(mm.softmax(x).numpy().sum(axis=-1), 1.0, rtol=1e-6)
        np.testing.assert_allclose(
            mm.logsumexp(x, axis=1).numpy(), np.log(np.exp(values).sum(axis=1)), rtol=1e-12
        )


def test_results_that_are_views_stay_views() -> None:
    for _ in range(CALLS):
        x = mm.zeros((2, 3))
        flat, part = x.reshape(6), x[1]
        x[1, 2] = 5.0
        assert float(flat[5]) == float(part[2]) == 5.0
        flat[0] = 3.0
        assert float(x[0, 0]) == 3.0


def test_results_outlive_no_pool() -> None:
    """A form that one pool has recorded is recorded again by the next one."""
    for _ in range(2):
        with mm.init():
            x = mm.asarray(np.arange(4.0))
            for _ in range(CALLS):
                assert float(mm.sum(x) + mm.median(x)) == 7.5


FUNCTIONS_OF_TWO: dict[str, Callable[[Any, Any, Any], Any]] = {
    "operators": lambda lib, x, y: x - y / (x * y + y) + y**x,
    "functions": lambda lib, x, y: lib.maximum(x, y) + lib.hypot(x, y) - lib.arctan2(x, y),
    "matmul": lambda lib, x, y: x @ y,
    "dot": lambda lib, x, y: lib.dot(x, y) + lib.vdot(x, y) + lib.inner(x, y),
    "outer": lambda lib, x, y: lib.outer(x, y) + lib.kron(x, y).reshape(16, 16),
    "einsum": lambda lib, x, y: lib.einsum("ij,jk->ik", x, y) + lib.tensordot(x, y, axes=1),
    "lists": lambda lib, x, y: lib.concatenate([x, y, x]).sum(axis=1) + lib.stack((y, x)).sum(),
    "where": lambda lib, x, y: lib.where(x > 1.2, x, y) + lib.where(x > y, 1.0, 2.0),
    "clip": lambda lib, x, y: lib.clip(x, y, 1.9) + lib.clip(y, 0.6, x),
    "solve": lambda lib, x, y: lib.linalg.solve(x + 4 * lib.eye(4), y),
    "moments": lambda lib, x, y: lib.cov(x, y) + lib.corrcoef(x, y),
    "integral": lambda lib, x, y: lib.trapezoid(x, y) + lib.convolve(x[0], y[0])[:4],
}


@pytest.mark.parametrize("name", FUNCTIONS_OF_TWO)
@settings(max_examples=12)
@given(pairs=st.lists(st.sampled_from([(0, 0), (0, 1), (1, 0), (1, 1)]), min_size=4, max_size=8))
def test_one_array_in_two_places_is_another_form(name: str, pairs: list[tuple[int, int]]) -> None:
    """A call with the same array twice is not repeated for two arrays, nor the reverse."""
    function = FUNCTIONS_OF_TWO[name]
    _forget_calls()
    values = [_values((4, 4), seed) for seed in range(2)]
    arrays = [mm.asarray(x) for x in values]
    for i, j in pairs:
        expected = function(np, values[i], values[j])
        result = function(mm, arrays[i], arrays[j]).numpy()
        np.testing.assert_allclose(result, expected, rtol=1e-12, atol=1e-12)


_TYPES = ["bool", "uint8", "int32", "int64", "float32", "float64", "complex64", "complex128"]
_NUMBERS = st.sampled_from([
    True, 0, 1, 2, 3, -1, 300, 0.0, -0.0, 0.5, 2.0, -1.5, np.inf, np.nan,
    np.float64(2), np.float64(-0.0), np.float64(0.1), np.float32(2), np.float32(0.1), np.int64(3),
])  # fmt: skip
_OPERATIONS = [
    "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "pow", "minimum",
    "maximum", "less", "less_equal", "equal", "copysign", "arctan2", "hypot", "logaddexp", "fmin",
    "fmax", "fmod", "float_power", "heaviside", "nextafter", "bitwise_and", "bitwise_xor",
    "bitwise_left_shift", "bitwise_right_shift", "logical_or", "clip",
]  # fmt: skip


def _combine(name: str, x: Any, number: Any, is_reversed: bool) -> Any:
    function = getattr(mm, name)
    return function(number, x) if is_reversed else function(x, number)


@pytest.mark.parametrize("name", _OPERATIONS)
@settings(max_examples=12)
@given(
    dtype=st.sampled_from(_TYPES),
    numbers=st.lists(_NUMBERS, min_size=CALLS, max_size=2 * CALLS),
    is_reversed=st.booleans(),
)
def test_results_do_not_depend_on_the_numbers_before(
    name: str, dtype: str, numbers: list[Any], is_reversed: bool
) -> None:
    x = mm.asarray(np.asarray([3, 1, 0, 2]), dtype=dtype)
    _forget_calls()
    repeated = [_outcome(partial(_combine, name), x, n, is_reversed) for n in numbers]
    for number, known in zip(numbers, repeated, strict=True):
        _forget_calls()
        assert repr(known) == repr(_outcome(partial(_combine, name), x, number, is_reversed))


@given(
    dtype=st.sampled_from(["int32", "float32", "float64"]),
    kinds=st.lists(st.sampled_from([np.float32, np.float64, float]), min_size=4, max_size=8),
    seed=st.integers(0, 100),
)
def test_numpy_scalars_take_part_as_in_numpy(dtype: str, kinds: list[Any], seed: int) -> None:
    """A scalar of another type than the array's promotes it, whatever numbers came before."""
    values = (4 * _values((5,), seed)).astype(dtype)
    x = mm.asarray(values)
    mm.set_default_dtype("float64")
    try:
        for i, kind in enumerate(kinds):
            number = kind(0.1 + i)
            for operation in (
                lambda a, n: a + n, lambda a, n: n - a, lambda a, n: n / a, lambda a, n: a ** n,
                lambda a, n: a < n,
            ):  # fmt: skip
                result, expected = operation(x, number), operation(values, number)
                assert result.dtype == expected.dtype
                np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-6)
            if dtype != "int32":
                gradient = mm.grad(mm.sum(x * number), x)
                np.testing.assert_array_equal(gradient, np.full(5, number, dtype))
    finally:
        mm.set_default_dtype("float32")


@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(-6, 6), min_size=1, max_size=4),
            st.sampled_from(["int8", "int64", ">i4", "uint64"]),
        ),
        min_size=4,
        max_size=10,
    )
)
def test_numpys_arrays_are_positions(keys: list[tuple[list[int], str]]) -> None:
    """Elements, errors and gradients follow each array of positions, which may change later."""
    values = _values((5, 3), 0)
    x = mm.asarray(values)
    for positions, dtype in keys:
        key = np.asarray(positions).astype(dtype)
        extent = len(values)
        if not all(-extent <= i < extent for i in key.tolist()):  # NumPy wraps those of uint64
            for outside in (key, mm.asarray(key)):
                with pytest.raises(IndexError):
                    x[outside]
            continue
        expected = values[key]
        x[mm.asarray(key)]
        selected = x[key]
        counts = np.zeros_like(values)
        np.add.at(counts, key, 1.0)
        key[:] = 0
        np.testing.assert_array_equal(selected, expected)
        np.testing.assert_array_equal(mm.grad(mm.sum(selected), x), counts)
        selected[0] = 7.0
        np.testing.assert_array_equal(x, values)


def _forget_calls() -> None:
    eager = eager_indexing()
    assert eager is not None
    eager.dispatch_cache.clear()


def test_gradients_pass_through_long_loops_of_writes() -> None:
    """The writes share their memory, in a chain that is longer than Python's recursion limit."""
    x, v = mm.asarray(np.ones((3, 4))), mm.asarray(np.arange(4.0))
    x[1] = v
    for _ in range(1200):
        x[1, 2] = 1.0
    gradient = mm.grad(mm.sum((x @ v) ** 2), v)
    ones, values = np.ones(4), np.arange(4.0)
    row = np.where([True, True, False, True], values, 1.0)
    kept = np.where([True, True, False, True], values, 0.0)
    expected = 2 * 2 * (ones @ values) * ones + 2 * (row @ values) * (row + kept)
    np.testing.assert_allclose(gradient.numpy(), expected, rtol=1e-12)


WRITES: dict[str, Callable[[Any, Any, Any], None]] = {
    "a number, where a mask is true": lambda x, k, v: x.__setitem__(k, 5.0),
    "a number, in a column": lambda x, k, v: x.__setitem__((k, 0), 5.0),
    "a number, in a part of the columns": lambda x, k, v: x.__setitem__((k, slice(1, 3)), 5.0),
    "elements, where a mask is true": lambda x, k, v: x.__setitem__(k, v[k]),
    "elements, in a column": lambda x, k, v: x.__setitem__((k, 0), v[k, 1]),
    "a row for all": lambda x, k, v: x.__setitem__(k, v[0]),
    "an element": lambda x, k, v: x.__setitem__((4, 1), 1.5),
    "a number in a window": lambda x, k, v: x.__setitem__((slice(1, 3), slice(2, 3)), 2.5),
    "a number in most rows": lambda x, k, v: x.__setitem__((slice(1, None), 2), 0.5),
    "a column": lambda x, k, v: x.__setitem__((slice(None), 1), v[:, 2]),
    "rows at positions": lambda x, k, v: x.__setitem__(k.nonzero()[0], 3.5),
}


@pytest.mark.parametrize("name", WRITES)
@given(seed=st.integers(0, 1000))
def test_gradients_pass_through_writes_at_masks_of_any_number(name: str, seed: int) -> None:
    """Another mask of the same shape may select another number of elements."""
    random, write = np.random.default_rng(seed), WRITES[name]
    for _ in range(CALLS):
        values, others = random.uniform(0.5, 2.0, (2, 6, 3))
        mask = random.uniform(size=6) < random.uniform(0.2, 0.9)
        x, y = mm.asarray(values), mm.asarray(others)
        z = x * 2.0
        write(z, mm.asarray(mask), y)
        written = values * 2.0
        write(written, mask, others)
        np.testing.assert_array_equal(z.numpy(), written)
        loss = mm.sum(z * z)
        loss.numpy()
        here = np.full((6, 3), 2.0)
        write(here, mask, np.zeros((6, 3)))
        kept = np.where(here == 2.0, 2.0, 0.0)
        np.testing.assert_allclose(mm.grad(loss, x).numpy(), 2 * written * kept)


_SHAPES = [(5,), (1,), (2, 3), (3, 1), (2, 1, 3), (1, 1)]
_ELEMENT_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["read", "number", "copy", "add", "multiply"]),
        st.lists(st.integers(-4, 3), min_size=6, max_size=6),
        st.sampled_from([0, 1, 3, -2, 0.5, -1.25]),
    ),
    min_size=6,
    max_size=20,
)


def _element_steps(x: Any, steps: list[Any], *, as_position: bool = True) -> list[Any]:
    """Read and write elements of x; return what was read, or the class of the error."""
    results: list[Any] = []
    rank = len(x.shape)
    for kind, places, number in steps:
        first, second = tuple(places[:rank]), tuple(places[3 : 3 + rank])
        if rank == 1 and as_position:
            first, second = first[0], second[0]  # type: ignore[assignment]
        try:
            if kind == "read":
                results.append(x[first] * number)
            elif kind == "number":
                x[first] = number
            elif kind == "copy":
                x[first] = x[second]
            elif kind == "add":
                x[first] += number
            else:
                x[first] *= x[second]
        except (IndexError, TypeError) as error:
            results.append(IndexError if isinstance(error, IndexError) else TypeError)
    return results


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "uint8", "bool"])
@given(shape=st.sampled_from(_SHAPES), steps=_ELEMENT_STEPS)
def test_elements_at_any_positions_equal_numpys(
    dtype: str, shape: tuple[int, ...], steps: list[Any]
) -> None:
    if dtype in ("uint8", "bool"):  # whose numbers NumPy and the array API treat differently
        steps = [
            (kind, places, 1) for kind, places, _ in steps if kind in ("read", "number", "copy")
        ]
    elif dtype == "int64":
        steps = [(kind, places, int(number)) for kind, places, number in steps]
    values = (_values(shape, 1) * 3).astype(dtype)
    x = mm.asarray(values)
    expected = _element_steps(values, steps)
    results = _element_steps(x, steps)
    np.testing.assert_array_equal(np.asarray(x), values)
    assert len(results) == len(expected)
    for result, other in zip(results, expected, strict=True):
        if isinstance(other, type):
            assert result is other
        else:
            assert result.shape == ()
            np.testing.assert_array_equal(np.asarray(result), other)


@given(shape=st.sampled_from(_SHAPES), steps=_ELEMENT_STEPS, seed=st.integers(0, 100))
def test_gradients_pass_through_elements_at_any_positions(
    shape: tuple[int, ...], steps: list[Any], seed: int
) -> None:
    """Elements are read and written by repeated calls, whose gradients are PyTorch's."""
    places = [tuple(p % n for p, n in zip(part, shape)) for _, part, _ in steps]  # noqa: B905
    others = [tuple(p % n for p, n in zip(part[3:], shape)) for _, part, _ in steps]  # noqa: B905
    inside = [
        (kind, [*a, *[0] * (3 - len(a)), *b, 0, 0], number)
        for (kind, _, number), a, b in zip(steps, places, others, strict=True)
    ]
    values, weights = _values(shape, seed), _values(shape, seed + 1)
    x = mm.asarray(values)
    copy = x * 1.0
    read = _element_steps(copy, inside)
    total = mm.sum(copy * copy * mm.asarray(weights))
    for i, one in enumerate(read):
        total = total + one * one * (i + 1.0)
    (gradient,) = mm.grad(total, [x])

    counterpart = torch.tensor(values, requires_grad=True)
    written = counterpart * 1.0
    before: list[Any] = []
    for kind, places_, number in inside:
        first, second = tuple(places_[: len(shape)]), tuple(places_[3 : 3 + len(shape)])
        value = {
            "number": lambda n=number: torch.tensor(n, dtype=torch.float64),
            "copy": lambda: written[second],  # noqa: B023
            "add": lambda n=number: written[first] + n,  # noqa: B023
            "multiply": lambda: written[first] * written[second],  # noqa: B023
        }
        if kind == "read":
            before.append(written[first] * number)
            continue
        mask = torch.zeros(shape, dtype=torch.bool)
        mask[first] = True
        written = torch.where(mask, value[kind](), written)
    other = (written * written * torch.tensor(weights)).sum()
    for i, one in enumerate(before):
        other = other + one * one * (i + 1.0)
    other.backward()
    np.testing.assert_allclose(np.asarray(total), other.item(), rtol=1e-12)
    assert counterpart.grad is not None
    np.testing.assert_allclose(
        np.asarray(gradient), counterpart.grad.numpy(), rtol=1e-12, atol=1e-12
    )


_CUTS = st.one_of(
    st.integers(-4, 3),
    st.builds(slice, st.integers(-5, 5), st.integers(-5, 5), st.sampled_from([1, 2, -1, -2, None])),
    st.sampled_from([slice(None), slice(1, None), slice(None, -1), slice(None, None, -1)]),
)
_WINDOW_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["read", "number", "values", "add", "window"]),
        _CUTS,
        _CUTS,
        st.sampled_from([1.0, 2.5]),
        st.sampled_from([int, np.int64, mm.asarray]),
    ),
    min_size=5,
    max_size=12,
)


def _with_numbers(kind: Callable[[int], Any], key: Any) -> Any:
    """Return a key with its integers as numbers of this kind."""
    if isinstance(key, tuple):
        return tuple(_with_numbers(kind, item) for item in key)
    if isinstance(key, slice):
        return slice(*(_with_numbers(kind, x) for x in (key.start, key.stop, key.step)))
    return key if key is None else kind(key)


@given(shape=st.sampled_from([(4,), (9,), (4, 4), (5, 11)]), steps=_WINDOW_STEPS)
def test_windows_from_any_positions_on_equal_numpys(shape: tuple[int, ...], steps: Any) -> None:
    """Parts that differ only in where they begin are read and written by one call."""
    values = _values(shape, 2)
    start = mm.asarray(values)
    x = start * 1.0
    weights = np.zeros(shape)  # of the elements of `start` in the sum of what was read
    owned = np.ones(shape)  # 0 where an element was replaced
    scale = np.ones(shape)
    total = mm.asarray(0.0)
    expected = 0.0
    values = values * 1.0
    for kind, first, second, number, number_kind in steps:
        key = first if len(shape) == 1 else (first, second)
        own_key = _with_numbers(number_kind, key)
        if kind == "read":
            total = total + mm.sum(x[own_key]) * number
            expected += np.sum(values[key]) * number
            weights[key] += number * owned[key] * scale[key]
        elif kind == "number":
            x[own_key] = number
            values[key] = number
            owned[key] = 0
        elif kind == "values":
            part = np.full(np.shape(values[key]), number)
            x[own_key] = mm.asarray(part)
            values[key] = part
            owned[key] = 0
        elif kind == "window":
            whole = first if len(shape) == 1 else (first,)
            np.testing.assert_array_equal(np.asarray(x[whole]), values[whole])
        else:
            x[own_key] *= number
            values[key] *= number
            scale[key] *= number
    np.testing.assert_allclose(np.asarray(x), values, rtol=1e-13)
    np.testing.assert_allclose(float(total), expected, rtol=1e-12, atol=1e-12)
    (gradient,) = mm.grad(total + mm.sum(x), [start])
    np.testing.assert_allclose(np.asarray(gradient), weights + owned * scale, rtol=1e-12)


# calls with several results, calls that read numbers ----------------------------------------------


@given(st.lists(st.lists(st.integers(0, 9), min_size=4, max_size=4), min_size=4, max_size=14))
def test_calls_that_read_numbers_are_repeated_for_the_same_numbers_only(
    rows: list[list[int]],
) -> None:
    """The length of `bincount` is the largest integer, `digitize` asks whether its edges rise."""
    for row in rows:
        x, edges = mm.asarray(row), mm.asarray([float(row[0]), float(row[1])])
        for own, expected in (
            (mm.bincount(x), np.bincount(row)),
            (mm.digitize(x, edges), np.digitize(row, [float(row[0]), float(row[1])])),
            (mm.histogram(x, bins=3)[0], np.histogram(row, bins=3)[0]),
            (mm.histogram(x, bins=3)[1], np.histogram(row, bins=3)[1]),
        ):
            assert own.shape == expected.shape
            np.testing.assert_allclose(np.asarray(own), expected, rtol=1e-6)


@dispatch_cached
def _selected(x: mm.Array, mask: mm.Array) -> mm.Array:
    return x[mask] * 2.0


@given(st.lists(st.lists(st.booleans(), min_size=5, max_size=5), min_size=4, max_size=8))
def test_calls_that_select_by_a_mask_are_repeated_for_that_mask_only(
    masks: list[list[bool]],
) -> None:
    values = np.arange(5.0)
    for mask in masks:
        result = _selected(mm.asarray(values), mm.asarray(mask))
        np.testing.assert_array_equal(np.asarray(result), values[np.array(mask)] * 2.0)


def test_calls_that_read_numbers_raise_their_errors() -> None:
    for _ in range(CALLS):
        mm.bincount(mm.asarray([1, 0, 3]))
        mm.histogram(mm.asarray([1.0, 2.0]))
        mm.interp(mm.asarray([1.0]), mm.asarray([0.0, 2.0]), mm.asarray([1.0, 2.0]))
    with pytest.raises(mm.errors.RangeError, match="from 0"):
        mm.bincount(mm.asarray([1, -2, 3]))
    with pytest.raises(mm.errors.RangeError, match="finite"):
        mm.histogram(mm.asarray([1.0, float("nan")]))


def _weighted(parts: Any, used: list[int]) -> Any:
    """Return a sum of squares of some of several results, with different weights."""
    weights = [mm.asarray(_values(part.shape, 7 + i)) for i, part in enumerate(parts)]
    return sum(mm.sum(parts[i] * parts[i] * weights[i]) for i in used)


@given(st.lists(st.integers(0, 2), min_size=2, max_size=4), st.integers(0, 2))
def test_each_result_of_a_repeated_call_has_its_gradient(used: list[int], seed: int) -> None:
    """The results share a record, and an update of one of them changes no other one."""
    for _ in range(CALLS):
        x = mm.asarray(_values((5, 3), seed))
        parts = mm.linalg.svd(x, full_matrices=False)
        assert type(parts).__name__ == "SVDResult"
        total = _weighted(parts, used)
        traced = mm.grad(lambda x: _weighted(mm.linalg.svd(x, full_matrices=False), used))(x)
        np.testing.assert_allclose(
            np.asarray(mm.grad(total, x)), np.asarray(traced), rtol=1e-9, atol=1e-9
        )
        before = np.asarray(parts[1]).copy()
        parts[0][...] = 0.0
        np.testing.assert_array_equal(np.asarray(parts[1]), before)


# arrays of numbers alone --------------------------------------------------------------------------

CREATIONS: dict[str, Callable[[Any], Any]] = {
    "arange": lambda lib: lib.arange(1, 9, 2),
    "eye": lambda lib: lib.eye(3, 4, k=1),
    "linspace": lambda lib: lib.linspace(-1.0, 1.0, 4),
    "zeros": lambda lib: lib.zeros((2, 3)),
    "ones": lambda lib: lib.ones(4, dtype=lib.int64),
    "full": lambda lib: lib.full((2, 2), 2.5),
    "negative zero": lambda lib: lib.full(2, -0.0),
    "zero": lambda lib: lib.full(2, 0.0),
    "integers": lambda lib: lib.full(2, 1),
    "truth": lambda lib: lib.full(2, True),
}


@given(st.lists(st.tuples(st.sampled_from(sorted(CREATIONS)), st.booleans()), max_size=30))
def test_created_arrays_are_their_own(steps: list[tuple[str, bool]]) -> None:
    """Another call returns another array: an update of one leaves all others as they are."""
    mm.set_default_dtype("float64")
    try:
        for name, is_updated in steps * 3:
            own, expected = CREATIONS[name](mm), CREATIONS[name](np)
            assert (own.shape, str(own.dtype).removeprefix("magmath.")) == (
                expected.shape,
                expected.dtype.name,
            )
            np.testing.assert_array_equal(np.asarray(own), expected)
            np.testing.assert_array_equal(np.signbit(np.asarray(own)), np.signbit(expected))
            if is_updated:
                own += own.dtype is not mm.bool and 5
                own[0] = 1
    finally:
        mm.set_default_dtype("float32")


def test_gradients_tell_created_arrays_apart() -> None:
    for _ in range(CALLS):
        a, b = mm.ones(3), mm.ones(3)
        by_a, by_b = mm.grad(mm.sum(a * 2.0 + b * 3.0), [a, b])
        assert (by_a.numpy().tolist(), by_b.numpy().tolist()) == ([2.0] * 3, [3.0] * 3)


def test_created_arrays_outlive_a_pool() -> None:
    """Before their values are needed, they belong to none, however often they were made."""
    with mm.init():
        for _ in range(CALLS):
            pending = mm.arange(4), mm.eye(2), mm.linspace(0.0, 1.0, 3)
            mm.evaluate(mm.arange(4), mm.eye(2), mm.linspace(0.0, 1.0, 3))
    with mm.init(workers=2, launcher="threads"):
        assert [x.numpy().tolist() for x in pending] == [
            [0, 1, 2, 3], [[1.0, 0.0], [0.0, 1.0]], [0.0, 0.5, 1.0],
        ]  # fmt: skip
