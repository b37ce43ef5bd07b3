"""Gradients by complex arrays against PyTorch's: those of the real parts, plus i times those of the
imaginary parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch

import magmath as mm
from engines import current
from magmath.ops.elementwise.tables import BINARY, UNARY
from operation_table import ROWS
from operation_table.draws import COMPLEX

POOLS = [("inline", 1), ("planned", 1), ("shared", 2), ("messages", 3)]
RANDOM = np.random.default_rng(6)
Z, W = RANDOM.normal(size=(2, 4, 4)) + 1j * RANDOM.normal(size=(2, 4, 4))
R = RANDOM.normal(size=(4, 4))


@pytest.fixture(autouse=True, params=POOLS, ids=lambda pool: f"{pool[0]}-{pool[1]}")
def pool(request: pytest.FixtureRequest) -> Iterator[None]:
    with current(*request.param):
        yield


FUNCTIONS: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "square of the absolute value": lambda xp, z, w, r: xp.sum(xp.abs(z) ** 2),
    "parts": lambda xp, z, w, r: xp.sum(z.real**3) + xp.sum(z.imag * r),
    "product": lambda xp, z, w, r: xp.sum((z * w).real),
    "quotient": lambda xp, z, w, r: xp.sum(xp.abs(z / w)),
    "matrix product": lambda xp, z, w, r: xp.sum(xp.abs(z @ w) ** 2),
    "with a real matrix": lambda xp, z, w, r: xp.sum(((z @ (r + 0j)) * w).imag),
    "conjugate": lambda xp, z, w, r: xp.sum((xp.conj(z) * z).real * r),
    "exponential": lambda xp, z, w, r: xp.sum(xp.abs(xp.exp(z) + xp.sin(w))),
    "logarithm": lambda xp, z, w, r: xp.sum(xp.log(z).imag),
    "root and power": lambda xp, z, w, r: xp.sum((xp.sqrt(z) * w**2).real),
    "transform": lambda xp, z, w, r: xp.sum(xp.abs(xp.fft.fft(z)) ** 2 * r),
    "inverse transform": lambda xp, z, w, r: xp.sum(xp.fft.ifft2(z * w).real * r),
    "real transform": lambda xp, z, w, r: xp.sum(xp.fft.irfft(z) ** 2),
    "system": lambda xp, z, w, r: xp.sum(xp.abs(xp.linalg.solve(z, w))),
    "inverse": lambda xp, z, w, r: xp.sum(xp.linalg.inv(z).real * r),
    "parts of an array": lambda xp, z, w, r: xp.sum(xp.abs(z[1:, ::2]) * 2) + z[0, 0].real,
    "choice": lambda xp, z, w, r: xp.sum(xp.where(z.real > 0, z, w).imag),
    "quantum": lambda xp, z, w, r: (xp.sum(xp.conj(z) * (w @ z)) / xp.sum(xp.abs(z) ** 2)).real,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_those_of_torch(name: str) -> None:
    function = FUNCTIONS[name]
    z, w = (torch.from_numpy(x).requires_grad_() for x in (Z, W))
    r = torch.from_numpy(R).requires_grad_()
    expected = torch.autograd.grad(
        function(torch, z, w, r), [z, w, r], allow_unused=True, materialize_grads=True
    )
    ours = [mm.asarray(x) for x in (Z, W, R)]
    of_function = mm.grad(lambda z, w, r: function(mm, z, w, r), argnums=(0, 1, 2))
    for actual in (
        mm.grad(function(mm, *ours), ours), of_function(*ours), mm.compile(of_function)(*ours),
    ):  # fmt: skip
        for one, other in zip(actual, expected, strict=True):
            assert one.dtype == str(other.dtype).removeprefix("torch.")
            np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-9, atol=1e-12)


ELEMENTWISE = [
    row.name
    for row in (*UNARY, *BINARY)
    if {*COMPLEX} <= {*ROWS[row.name].dtypes} and ROWS[row.name].slopes
]
STEP = 1e-5
POINTS = np.array([r * np.exp(1j * a * np.pi / 8) for r in (0.6, 1.5) for a in range(-7, 8, 2)])
"""Numbers in all quadrants, none on the cut of a function."""


def _differences(
    function: Callable[..., np.ndarray], points: Sequence[np.ndarray], position: int
) -> np.ndarray:
    """The gradients of an element-wise real function by an operand, by central differences."""
    parts = []
    for step in (STEP, 1j * STEP):
        ends = [[*points], [*points]]
        ends[0][position] = points[position] + step
        ends[1][position] = points[position] - step
        parts.append((function(*ends[0]) - function(*ends[1])) / (2 * STEP))
    return parts[0] + 1j * parts[1]


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_gradients_of_elementwise_functions_equal_finite_differences(name: str) -> None:
    """Of the first and the second order, on all branches of a function."""
    function: Callable[..., Any] = getattr(mm, name)
    points = [POINTS, 1.1 * POINTS[::-1]][: len(ROWS[name].slopes)]
    weights = np.random.default_rng(1).normal(size=(2, POINTS.size))
    factors = weights[0] + 1j * weights[1]
    operands = tuple(range(len(points)))

    def total(*z: mm.Array) -> mm.Array:
        return mm.sum(mm.real(function(*z) * mm.asarray(factors)))

    def slopes(*z: mm.Array) -> tuple[mm.Array, ...]:
        return mm.grad(total, argnums=operands)(*z)

    def length(*z: mm.Array) -> mm.Array:
        return mm.sum(sum(mm.abs(slope * mm.asarray(factors) + z[0]) ** 2 for slope in slopes(*z)))

    def totals(*z: np.ndarray) -> np.ndarray:
        return (function(*map(mm.asarray, z)).numpy() * factors).real

    def lengths(*z: np.ndarray) -> np.ndarray:
        actual = slopes(*map(mm.asarray, z))
        return sum(np.abs(slope.numpy() * factors + z[0]) ** 2 for slope in actual)

    for scalar, elements in ((total, totals), (length, lengths)):
        gradients = mm.grad(scalar, argnums=operands)(*map(mm.asarray, points))
        for i, gradient in enumerate(gradients):
            expected = _differences(elements, points, i)
            np.testing.assert_allclose(gradient.numpy(), expected, rtol=1e-5, atol=1e-5)


def test_second_derivatives_and_descent() -> None:
    z, t = mm.asarray(Z), torch.from_numpy(Z).requires_grad_()
    slope = mm.grad(mm.sum(mm.abs(z) ** 3), z, create_graph=True)
    (other,) = torch.autograd.grad((t.abs() ** 3).sum(), t, create_graph=True)
    second = mm.grad(mm.sum(mm.abs(slope) ** 2), z)
    (expected,) = torch.autograd.grad((other.abs() ** 2).sum(), t)
    np.testing.assert_allclose(second.numpy(), expected.numpy(), rtol=1e-10)
    for _ in range(200):
        z = z - 0.1 * mm.grad(mm.sum(mm.abs(z - W) ** 2), z)
    np.testing.assert_allclose(z.numpy(), W, atol=1e-8)
