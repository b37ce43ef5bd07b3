"""`vjp`, `jvp`, `jacobian` and `hessian` against those of PyTorch."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import magmath as mm
from engines import current
from magmath.errors import DTypeError, MagmathError, ShapeError

POOLS = [("inline", 1), ("planned", 1), ("shared", 2), ("messages", 3)]
RANDOM = np.random.default_rng(4)
X, W = RANDOM.normal(size=(3, 2)), RANDOM.normal(size=(2, 4))
Function = Callable[[Any, Any, Any], Any]
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")


@pytest.fixture(autouse=True, params=POOLS, ids=lambda pool: f"{pool[0]}-{pool[1]}")
def pool(request: pytest.FixtureRequest) -> Iterator[None]:
    mm.set_default_dtype("float64")
    with current(*request.param):
        yield
    mm.set_default_dtype("float32")


def _layer(xp: Any, x: Any, w: Any) -> Any:
    return xp.tanh(x @ w)


def _norm(xp: Any, x: Any, w: Any) -> Any:
    return xp.sum((x @ w) ** 2) / (1 + xp.sum(x**2))


def _rows(xp: Any, x: Any, w: Any) -> Any:
    return xp.exp(x[0] * w[:, 1]) + x[2]


def _nested(xp: Any, x: Any, w: Any) -> Any:
    return {"product": x @ w, "sums": (xp.sum(x**3, 0), xp.sum(w))}


def _constant(xp: Any, x: Any, w: Any) -> Any:
    return xp.sin(w)


def _updating(xp: Any, x: Any, w: Any) -> Any:
    if xp is torch:
        x, w = x.clone(), w.clone()
    x *= 2
    w[0] += 1
    return x @ w


FUNCTIONS = [_layer, _norm, _rows, _nested, _constant, _updating]


def _pairs(actual: Any, expected: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(expected, dict):
        assert list(actual) == list(expected)
        for name in expected:
            yield from _pairs(actual[name], expected[name])
    elif isinstance(expected, (tuple, list)):
        assert len(actual) == len(expected)
        for one, other in zip(actual, expected, strict=True):
            yield from _pairs(one, other)
    else:
        yield actual, expected


def _check(actual: Any, expected: Any) -> None:
    for one, other in _pairs(actual, expected):
        np.testing.assert_allclose(np.asarray(one), other.detach().numpy(), rtol=1e-10, atol=1e-12)


def _tensors(*arrays: Any) -> list[torch.Tensor]:
    return [torch.from_numpy(a) for a in arrays]


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("argnums", [0, 1, (0, 1)])
def test_jacobians(function: Function, argnums: Any) -> None:
    def ours(x: Any, w: Any) -> Any:
        return function(mm, x, w)

    expected = torch.func.jacrev(lambda x, w: function(torch, x, w), argnums)(*_tensors(X, W))
    given = mm.asarray(X), mm.asarray(W)
    _check(mm.jacobian(ours, argnums)(*given), expected)
    _check(mm.compile(mm.jacobian(ours, argnums))(*given), expected)
    for array, values in zip(given, (X, W), strict=True):
        np.testing.assert_array_equal(np.asarray(array), values)


def _decay(xp: Any, points: Any, rates: Any, offset: Any) -> Any:
    return {"curve": xp.exp(points @ rates["a"]) * rates["b"] + offset, "offset": offset}


@pytest.mark.parametrize("argnums", [1, (1, 2), (2, 1)])
@pytest.mark.parametrize("size", [1, 4, 9, 40, 400])
def test_jacobians_of_few_and_of_many_results(size: int, argnums: Any) -> None:
    """The products are with the transposed Jacobian, or with the Jacobian if there are many."""
    points = np.random.default_rng(size).normal(size=(size, 2))
    a, b, offset = np.asarray([0.5, -0.2]), np.asarray(1.5), np.asarray([[0.1], [0.3]])
    tensors = _tensors(points, a, b, offset)
    expected = torch.func.jacrev(lambda *given: _decay(torch, *given), argnums)(
        tensors[0], {"a": tensors[1], "b": tensors[2]}, tensors[3]
    )
    given = mm.asarray(points), {"a": mm.asarray(a), "b": mm.asarray(b)}, mm.asarray(offset)
    jacobian = mm.jacobian(lambda *given: _decay(mm, *given), argnums)
    _check(jacobian(*given), expected)
    _check(mm.compile(jacobian)(*given), expected)
    (point,) = _tensors(np.asarray([0.5, -0.2]))
    second = mm.jacobian(mm.jacobian(lambda a: mm.sin(given[0] @ a)))(mm.asarray(a))
    _check(second, torch.func.hessian(lambda a: torch.sin(tensors[0] @ a))(point))


def test_the_jacobian_of_many_results_needs_no_square_of_their_number() -> None:
    points = mm.random.normal(shape=(20_000, 3))
    result = mm.jacobian(lambda w: mm.tanh(points @ w))(mm.zeros(3))
    assert result.explain().memory < 100 * points.nbytes
    np.testing.assert_allclose(np.asarray(result), np.asarray(points))


@pytest.mark.parametrize(
    ("given", "argnums"),
    [(np.int64(1), 1), (np.uint8(0), 0), (-1, 1), ((np.int64(1), -2), (1, 0)), ([-1], (1,))],
)
def test_positions_of_arguments_are_integers_of_any_class(given: Any, argnums: Any) -> None:
    def product(x: Any, w: Any) -> Any:
        return mm.sum(x * x) * mm.sum(w)

    x, w = mm.asarray(X), mm.asarray(W)
    by_x, by_w = 2 * X * W.sum(), np.full_like(W, (X * X).sum())
    expected = (
        (by_x, by_w)[argnums] if isinstance(argnums, int) else [(by_x, by_w)[i] for i in argnums]
    )
    for actual in (
        mm.grad(product, argnums=given)(x, w),
        mm.value_and_grad(product, argnums=given)(x, w)[1],
        mm.jacobian(product, given)(x, w),
    ):
        if isinstance(argnums, int):
            np.testing.assert_allclose(np.asarray(actual), expected)
        else:
            assert isinstance(actual, tuple)
            for one, other in zip(actual, expected, strict=True):
                np.testing.assert_allclose(np.asarray(one), other)


@pytest.mark.parametrize("argnums", [0, 1, (0, 1)])
def test_hessians(argnums: Any) -> None:
    expected = torch.func.hessian(lambda x, w: _norm(torch, x, w), argnums)(*_tensors(X, W))
    hessian = mm.hessian(lambda x, w: _norm(mm, x, w), argnums)
    _check(hessian(mm.asarray(X), mm.asarray(W)), expected)
    _check(mm.compile(hessian)(mm.asarray(X), mm.asarray(W)), expected)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("is_evaluated", [False, True])
def test_products_with_the_transposed_jacobian(function: Function, is_evaluated: bool) -> None:
    """Several, of one call of the function, also after its results were evaluated."""
    calls = []
    outputs, pullback = mm.vjp(
        lambda x, w: (calls.append(0), function(mm, x, w))[1], mm.asarray(X), mm.asarray(W)
    )
    known, pull = torch.func.vjp(lambda x, w: function(torch, x, w), *_tensors(X, W))
    if is_evaluated:
        _check(outputs, known)
    for factor in (1.0, -0.5):
        weights = torch.utils._pytree.tree_map(lambda y, f=factor: torch.cos(y) * f, known)
        given = torch.utils._pytree.tree_map(lambda y: y.detach().numpy(), weights)
        _check(pullback(given), pull(weights))
    assert len(calls) == 1
    _check(outputs, known)


@pytest.mark.parametrize("is_compiled", [False, True])
def test_cotangents_that_depend_on_the_arguments_are_constants(is_compiled: bool) -> None:
    """As in a linear solver: each cotangent is a product of the one before."""

    def repeated(vjp: Any, function: Any, x: Any) -> Any:
        outputs, pullback = vjp(function, x)
        cotangent = outputs * x
        for _ in range(3):
            (cotangent,) = pullback(cotangent + x)
        return cotangent

    def ours(x: Any) -> Any:
        return repeated(mm.vjp, lambda x: mm.sin(x) * mm.sum(x), x)

    def theirs(x: Any) -> Any:
        return repeated(torch.func.vjp, lambda x: torch.sin(x) * torch.sum(x), x)

    (x,) = _tensors(X)
    step = mm.compile if is_compiled else lambda f: f
    _check(step(ours)(mm.asarray(X)), theirs(x))
    slope = mm.grad(lambda x: mm.sum(ours(x) ** 2))
    _check(step(slope)(mm.asarray(X)), torch.func.grad(lambda x: torch.sum(theirs(x) ** 2))(x))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_products_with_the_jacobian(function: Function) -> None:
    tangents = np.cos(X), np.sin(W)
    known = torch.func.jvp(
        lambda x, w: function(torch, x, w), tuple(_tensors(X, W)), tuple(_tensors(*tangents))
    )
    actual = mm.jvp(lambda x, w: function(mm, x, w), (mm.asarray(X), mm.asarray(W)), tangents)
    _check(actual, known)


def test_functions_without_results_or_without_arguments() -> None:
    x = mm.asarray(X)
    outputs, pullback = mm.vjp(lambda x, y: {"a": [], "b": ()}, x, [2.0])
    first, (second,) = pullback(outputs)
    assert not np.any(first.numpy())
    assert first.shape == x.shape
    assert float(second) == 0
    assert mm.jvp(lambda x: (), (x,), (x,)) == ((), ())
    result, derivative = mm.jvp(lambda: x, (), ())
    np.testing.assert_array_equal(result.numpy(), X)
    assert not np.any(derivative.numpy())
    assert mm.jacobian(lambda x: [])(x) == []


def test_derivatives_of_higher_order_and_of_networks() -> None:
    """Along a coordinate, as equations of physics need them."""
    third = mm.jacobian(mm.jacobian(mm.jacobian(lambda t: t**4)))
    assert float(third(2.0)) == 48
    net = mm.nn.Sequential(mm.nn.Dense(8, "tanh"), mm.nn.Dense(1)).build((1, 2))
    points = mm.asarray(X)

    def value(x: Any) -> Any:
        return net(x[None])[0, 0]

    laplacian = mm.vmap(lambda x: mm.trace(mm.hessian(value)(x)))(points)
    h = 1e-4
    for i in range(3):
        around = [
            float(value(points[i] + h * mm.asarray(step)))
            for step in ([1, 0], [-1, 0], [0, 1], [0, -1], [0, 0])
        ]
        expected = (sum(around[:4]) - 4 * around[4]) / h**2
        assert float(laplacian[i]) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        (lambda x: mm.vjp(mm.sin, x)[1](np.ones(3)), ShapeError, r"outputs.* shapes \[\(3, 2\)\]"),
        (lambda x: mm.vjp(mm.sin, x)[1]([x]), ShapeError, "nested and shaped like the outputs"),
        (lambda x: mm.vjp(mm.sin, mm.arange(3)), DTypeError, "argument 0 has an array of type int"),
        (
            lambda x: mm.vjp(lambda d, y: y, {"a": x, "b": mm.arange(3)}, x),
            DTypeError,
            r"argument 0 has an array of type int64.* convert it with mm.astype\(x, mm.float32\)$",
        ),
        *[
            (use, DTypeError, "argument 0 has an array of type complex.* real and imaginary parts$")
            for use in (
                lambda x: mm.vjp(mm.abs, x + 0j),
                lambda x: mm.jvp(mm.abs, (x + 0j,), (x,)),
                lambda x: mm.jacobian(mm.abs)(x + 0j),
            )
        ],
        (lambda x: mm.vjp(3, x), TypeError, "vjp: needs a function, was given 3"),
        (lambda x: mm.jvp(mm.sin, (x,), (x, x)), ShapeError, "tangents must be nested and shaped"),
        (lambda x: mm.jvp(mm.sin, (x,), (x[0],)), ShapeError, "tangents must be nested"),
        (lambda x: mm.jacobian(lambda x: x > 0)(x), DTypeError, "the function returned bool"),
        (lambda x: mm.jacobian(lambda x: "a")(x), TypeError, "it returned a str"),
        (lambda x: mm.jacobian(mm.sin, 1)(x), MagmathError, "argnums names argument 1"),
        (lambda x: mm.hessian(mm.sin)(x), ShapeError, "must return a 0-d array"),
    ],
)
def test_mistakes(use: Callable[[Any], Any], error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        use(mm.asarray(X))


@pytest.mark.parametrize("wrap", [lambda f: f, mm.compile])
@pytest.mark.parametrize("size", [1, 20])
def test_all_derivatives_are_for_the_same_random_numbers(wrap: Any, size: int) -> None:
    """The function is called once, so that it also assigns variables once."""
    count, x = mm.variable("count", 0), mm.ones(3)

    def drawn(x: Any) -> Any:
        count.assign(count + 1)
        noise = mm.random.normal(shape=(size, 3))
        steps = mm.fori_loop(0, 2, lambda i, h: h + mm.random.normal(shape=3) * x, mm.zeros(3))
        return {"product": noise @ x, "steps": steps}

    def parts(derivative: Any) -> Any:
        mm.random.seed(3)
        found = wrap(derivative)(x)
        return [mm.asarray(found[name]) for name in ("product", "steps")]

    found = parts(mm.jacobian(drawn))
    tangents = parts(lambda x: mm.jvp(drawn, (x,), (x,))[1])
    results = parts(drawn)
    assert int(count) == 3
    for matrix, tangent, result in zip(found, tangents, results, strict=True):
        np.testing.assert_allclose(mm.sum(matrix, axis=1).numpy(), result.numpy(), rtol=1e-12)
        np.testing.assert_allclose(tangent.numpy(), result.numpy(), rtol=1e-12)
    hessian = wrap(mm.hessian(lambda x: mm.sum(mm.random.normal(shape=3) * x) ** 2))(x).numpy()
    np.testing.assert_allclose(hessian, hessian.T, rtol=1e-12)
    assert np.linalg.matrix_rank(hessian) == 1


def test_updates_of_the_results_change_no_derivative() -> None:
    outputs, pullback = mm.vjp(lambda x: 3.0 * x, mm.ones(2))
    outputs *= 2.0
    assert pullback(mm.ones(2))[0].tolist() == [3.0, 3.0]


def test_numbers_of_a_compiled_function_stay_numbers() -> None:
    """They take the type of the array, and their values if the function needs them."""
    x = mm.asarray(np.ones(6, "float32"))
    scaled = mm.compile(lambda x, n: mm.jacobian(lambda x, n: x * n)(x, n))
    assert scaled(x, 2.0).dtype is mm.float32
    folded = mm.compile(
        lambda x, n: mm.jacobian(lambda x, n: mm.sum(mm.reshape(x, (n, -1)), axis=0))(x, n)
    )
    assert [folded(x, n).shape for n in (2, 3)] == [(3, 6), (2, 6)]


def test_updates_of_keyword_arguments_stay_inside() -> None:
    def scaled(x: Any, *, by: Any) -> Any:
        by += 1
        return x * by

    by = mm.zeros(3)
    np.testing.assert_array_equal(mm.jacobian(scaled)(mm.ones(3), by=by), np.eye(3))
    np.testing.assert_array_equal(by, np.zeros(3))


class _Options(dict[str, float]):
    """A dictionary with attributes."""

    @property
    def scale(self) -> float:
        return self["scale"]


@pytest.mark.parametrize("way", ["jacobian", "hessian", "cond"])
def test_functions_are_given_the_objects_without_arrays_themselves(way: str) -> None:
    """At any depth, also beside arrays: what a function fills is filled, and classes stay."""
    counts, seen = Counter[str](), defaultdict[str, list[int]](list)
    log: list[int] = []

    def function(x: Any, options: _Options, nested: Any, counts: Any = None) -> Any:
        log.append(1)
        counts["calls"] += 1
        nested["seen"]["calls"].append(1)
        nested["bias"] += 1.0
        return mm.sum(x**2 * options.scale * nested["bias"])

    x, bias = mm.ones(3), mm.zeros(3)
    arguments = x, _Options(scale=2.0), {"seen": seen, "bias": bias}, counts
    if way == "cond":
        result, expected = mm.cond(True, function, function, *arguments), 6.0
    elif way == "jacobian":
        result, expected = mm.jacobian(function)(*arguments[:3], counts=counts), np.full(3, 4.0)
    else:
        result, expected = mm.hessian(function)(*arguments), 4.0 * np.eye(3)
    np.testing.assert_array_equal(result, expected)
    np.testing.assert_array_equal(bias, np.zeros(3))
    assert len(log) == counts["calls"] == len(seen["calls"]) > 0


def test_a_hessian_of_several_results_is_named() -> None:
    with pytest.raises(ShapeError, match=r"hessian: the function must return a 0-d array"):
        mm.hessian(lambda x: x * x)(mm.ones(3))
