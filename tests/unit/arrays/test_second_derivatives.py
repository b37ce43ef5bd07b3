"""Second derivatives: of smooth functions, at the points where formulas divide by 0 or select, and by
results between."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import magmath as mm
from engines import current
from magmath.nn import losses

Function = Callable[[mm.Array], mm.Array]

F = mm.nn.functional
WEIGHTS = np.array([1.0, 2, 3, 4, 5])


def _square(x: mm.Array) -> mm.Array:
    return x.reshape(2, 2)


FUNCTIONS: dict[str, tuple[Function, list[float]]] = {
    "norm": (mm.linalg.norm, [0, 3, 4]),
    "norm of complex numbers": (lambda x: mm.linalg.norm(x * (1 + 2j)), [0, 1, 2]),
    "norm of a matrix": (lambda x: mm.linalg.norm(_square(x)), [0, 1, 2, 0]),
    "norm, ord 4": (lambda x: mm.linalg.norm(x, ord=4), [0, 1, 2]),
    "product, no zero": (mm.prod, [2, 3, -4]),
    "product, one zero": (mm.prod, [0, 3, 2, 5, 7]),
    "product, two zeros": (mm.prod, [0, 0, 2]),
    "products of columns": (lambda x: (mm.prod(_square(x), axis=0) ** 2).sum(), [0, 1, 0, 3]),
    "running product": (lambda x: (mm.cumprod(x) * mm.asarray(WEIGHTS)).sum(), [0, 3, 0, 5, 7]),
    "squared running product": (lambda x: (mm.cumprod(x) ** 2).sum(), [1, 3, 0, 5, 0]),
    "huber": (lambda x: losses.huber(x, x * 0), [0, 0.5, -3, 2, 0]),
    "x**0": (lambda x: (x**0 * x).sum(), [0, -1]),
    "x**1": (lambda x: (x**1 * x).sum(), [0, -1]),
    "x**2.0": (lambda x: (x**2.0).sum(), [0, -1]),
    "powers of an array": (lambda x: (x ** mm.asarray([2.0, 3.0, 1.0])).sum(), [0, 0, 0]),
    "sinc": (lambda x: mm.sinc(x).sum(), [0, 0.5, 1]),
    "i0": (lambda x: mm.i0(x).sum(), [0, 1]),
    "hypot": (lambda x: mm.hypot(x[0], x[1]), [0, 2]),
    "atan2": (lambda x: mm.atan2(x[0], x[1]), [0, 2]),
    "softplus": (lambda x: F.softplus(x).sum(), [0, 1, -1]),
    "gelu": (lambda x: F.gelu(x).sum(), [0, 1, -1]),
    "silu": (lambda x: F.silu(x).sum(), [0, 1, -1]),
    "log_sigmoid": (lambda x: F.log_sigmoid(x).sum(), [0, 1, -40]),
    "softmax": (lambda x: F.softmax(x)[0], [0, 0, 0]),
    "logaddexp": (lambda x: mm.logaddexp(x[0], x[1]), [0, 0]),
    "variance": (mm.var, [1, 1, 1]),
    "variance of complex numbers": (lambda x: mm.var(x * (1 + 2j)), [1, 1, 1]),
    "variance of some": (
        lambda x: mm.var(x * (1 + 2j), where=mm.asarray([True, False, True])),
        [1, 1, 1],
    ),
    "residuals": (lambda x: mm.linalg.lstsq(mm.ones((3, 1)), x)[1].sum(), [1, 1, 1]),
    "residuals of complex numbers": (
        lambda x: mm.linalg.lstsq(mm.ones((3, 1)) + 0j, x * (1 + 2j))[1].sum(),
        [1, 1, 1],
    ),
    "power": (lambda x: x[0] ** x[1], [2, 0]),
    "fractional parts": (lambda x: (mm.modf(x)[0] ** 2 + mm.modf(x)[0]).sum(), [0, 1.5, -0.5]),
    "einsum": (lambda x: mm.einsum("i,i,i->", x, x, x), [0, 1]),
    "matrix power": (lambda x: mm.linalg.matrix_power(_square(x), 3).sum(), [0, 0, 0, 0]),
    "inverse": (lambda x: mm.linalg.inv(_square(x) + mm.eye(2)).sum(), [0, 0, 0, 0]),
    "slogdet": (lambda x: mm.linalg.slogdet(_square(x) + 2 * mm.eye(2))[1], [0, 0, 0, 0]),
    "cholesky": (
        lambda x: mm.linalg.cholesky(_square(x) @ _square(x).T + mm.eye(2)).sum(),
        [0, 0, 0, 0],
    ),
}


def _differences(function: Callable[[np.ndarray], float | np.ndarray], x: np.ndarray) -> np.ndarray:
    steps = 1e-5 * np.eye(len(x))
    return np.stack([(function(x + h) - function(x - h)) / 2e-5 for h in steps])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_first_and_second_derivatives_equal_finite_differences(name: str) -> None:
    function, point = FUNCTIONS[name]
    slope = mm.grad(function)
    x = np.array(point, float)

    def component(i: int) -> mm.Array:
        return mm.grad(lambda y: slope(y)[i])(mm.asarray(x))

    first = _differences(lambda y: float(function(mm.asarray(y))), x)
    np.testing.assert_allclose(slope(mm.asarray(x)), first, atol=1e-7, rtol=1e-5)
    second = _differences(lambda y: np.asarray(slope(mm.asarray(y))), x)
    hessian = np.stack([np.asarray(component(i)) for i in range(len(x))])
    np.testing.assert_allclose(hessian, second, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("axis", [0, 1, 2, (0, 1), (1, 2), (0, 2), None])
def test_gradients_of_products_over_any_axes(axis: int | tuple[int, ...] | None) -> None:
    x = np.random.default_rng(0).standard_normal((3, 4, 5))
    x[0, 1, 2] = x[0, 1, 3] = x[2, 2, 2] = 0
    weights = np.random.default_rng(1).standard_normal(np.prod(x, axis=axis).shape)
    result = mm.grad(lambda y: (mm.prod(y, axis=axis) * mm.asarray(weights)).sum())(mm.asarray(x))
    step = 1e-6
    for i in [(0, 1, 2), (0, 1, 3), (2, 2, 2), (1, 0, 4), (0, 1, 0)]:
        sides = []
        for sign in (1, -1):
            moved = x.copy()
            moved[i] += sign * step
            sides.append((np.prod(moved, axis=axis) * weights).sum())
        assert float(result[i]) == pytest.approx((sides[0] - sides[1]) / (2 * step), abs=1e-8)


@pytest.mark.parametrize("workers", [2, 3])
def test_gradients_of_products_split_over_workers(workers: int) -> None:
    x = np.random.default_rng(0).standard_normal((6, 5))
    x[2, 3] = x[4, 3] = 0
    expected = mm.grad(lambda y: (mm.prod(y, axis=0) ** 2).sum() + mm.cumprod(y, axis=0).sum())
    alone = np.asarray(expected(mm.asarray(x)))
    with current("shared", workers):
        for layout in (mm.Layout.split(0), mm.Layout.split(1), mm.Layout.replicated()):
            actual = expected(mm.asarray(x, layout=layout))
            np.testing.assert_allclose(actual, alone, rtol=1e-12)


def test_angles_and_lengths_at_the_origin() -> None:
    """PyTorch's values."""
    origin = mm.asarray([0.0, 0.0])
    assert mm.grad(lambda x: mm.atan2(x[0], x[1]))(origin).tolist() == [0, 0]
    assert mm.grad(lambda x: mm.hypot(x[0], x[1]))(origin).tolist() == [0, 0]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["sinc", "i0", "softplus", "gelu", "silu", "log_sigmoid"])
def test_smooth_functions_near_zero(name: str, dtype: str) -> None:
    """A form of a function that cancels near 0 has wrong derivatives there, not only at 0."""
    function, _ = FUNCTIONS[name]
    near = mm.asarray(np.array([s * 10.0**-k for k in range(3, 13) for s in (1, -1)], dtype))
    zero = mm.asarray(np.zeros(1, dtype))

    def curvature(x: mm.Array) -> np.ndarray:
        return mm.grad(lambda z: mm.sum(mm.grad(function)(z)))(x).numpy()

    rounding = 20 * np.finfo(dtype).eps
    (at_zero,) = curvature(zero)
    np.testing.assert_allclose(curvature(near), at_zero, atol=2e-3)
    slopes = mm.grad(function)(near).numpy() - mm.grad(function)(zero).numpy()
    np.testing.assert_allclose(slopes, at_zero * near.numpy(), rtol=2e-3, atol=rounding)


@pytest.mark.parametrize("look", [False, True])
@pytest.mark.parametrize("n", [6, 20_000])
@pytest.mark.parametrize("kind", ["sin", "chain", "loop"])
def test_gradients_of_gradients_by_results_between(kind: str, n: int, look: bool) -> None:
    """A gradient by x depends on a result y that was computed from x, also if it was built through
    the expression of y; in every repetition."""
    data, weights = np.linspace(0.1, 1, n), np.linspace(-1, 1, n)
    for _ in range(4):
        x = mm.asarray(data)
        if kind == "loop":
            y = mm.fori_loop(0, 3, lambda _, z: mm.cos(z) + 0.5, x)
        else:
            inside = mm.sin(x)
            mm.evaluate(inside)
            y = inside if kind == "sin" else mm.cos(inside * 2.0)
        if look:
            y.numpy()
        (slope,) = mm.grad(mm.sum(mm.sin(y) * weights), [x])
        actual = mm.grad(mm.sum(slope * slope), y)
        inner = torch.tensor(data, requires_grad=True)
        if kind == "loop":
            outer = inner
            for _ in range(3):
                outer = torch.cos(outer) + 0.5
        else:
            outer = torch.sin(inner)
            outer = outer if kind == "sin" else torch.cos(outer * 2.0)
        (first,) = torch.autograd.grad(
            (torch.sin(outer) * torch.tensor(weights)).sum(), [inner], create_graph=True
        )
        (expected,) = torch.autograd.grad((first * first).sum(), [outer])
        np.testing.assert_allclose(actual.numpy(), expected.numpy(), rtol=1e-9)
