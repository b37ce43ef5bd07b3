"""Factorizations, systems of equations, and operations composed of them."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import strategies as st

from magmath.memory.torch_dtypes import to_torch
from magmath.ops import OPERATIONS
from operation_table.draws import ANY, LAPACK, REAL_FLOATS, Case, Draws, Row, Shape


def _normal(draws: Draws, shape: Shape) -> torch.Tensor:
    """Normally distributed numbers."""
    values = draws.random.standard_normal(shape)
    if draws.dtype.kind == "complex":
        values = values + 1j * draws.random.standard_normal(shape)
    return torch.from_numpy(np.asarray(values)).to(to_torch(draws.dtype))


def _stack(draws: Draws) -> Shape:
    return draws.shape(0, 2, (0, 3))


def _square(draws: Draws, stack: Shape) -> torch.Tensor:
    """Square matrices that are far from singular."""
    n = draws.draw(st.integers(1 if draws.smooth else 0, 5))
    twice = 2 * torch.eye(n).to(to_torch(draws.dtype))
    return _normal(draws, (*stack, n, n)) / max(n, 1) ** 0.5 + twice


def _square_matrix(draws: Draws) -> Case:
    return Case((_square(draws, _stack(draws)).to(to_torch(draws.dtype)),), {})


def _pair_of_squares(draws: Draws) -> Case:
    a = _square(draws, _stack(draws))
    return Case((a, _normal(draws, tuple(a.shape))), {})


def _definite(draws: Draws) -> Case:
    """The lower triangle counts; what is above it does not. No eigenvalue is close to 0, where
    differences are no derivatives."""
    a = _square(draws, _stack(draws))
    product = a @ a.mH + torch.eye(a.shape[-1], dtype=a.dtype) / 2
    definite = torch.tril(product) + torch.triu(torch.rand_like(a.real), 1)
    return Case((definite.to(to_torch(draws.dtype)),), {})


def _matrix(draws: Draws, stack: Shape) -> torch.Tensor:
    """A matrix of any shape. For differences, its rank is full and not lost by a small change."""
    m, n = (draws.draw(st.integers(1 if draws.smooth else 0, 5)) for _ in range(2))
    matrix = _normal(draws, (*stack, m, n))
    if not draws.smooth:
        return matrix
    u, s, vh = torch.linalg.svd(matrix, full_matrices=False)
    return ((u * (s + 0.5)[..., None, :].to(u.dtype)) @ vh).contiguous()


def _any_matrix(draws: Draws) -> Case:
    return Case((_matrix(draws, _stack(draws)),), {})


def _qr(draws: Draws) -> Case:
    a = _matrix(draws, _stack(draws))
    differentiable = not draws.smooth or a.shape[-2] <= a.shape[-1]
    return Case((a,), {"full": differentiable and draws.draw(st.booleans())})


def _system(draws: Draws) -> tuple[torch.Tensor, torch.Tensor]:
    a = _square(draws, _stack(draws)).to(to_torch(draws.dtype))
    return a, _normal(draws, (*a.shape[:-1], draws.draw(st.integers(0, 3))))


def _triangular_system(draws: Draws) -> Case:
    keys = ("lower", "transpose", "unit")
    return Case(_system(draws), {key: draws.draw(st.booleans()) for key in keys})


def _linear_system(draws: Draws) -> Case:
    return Case(_system(draws), {"transpose": draws.draw(st.booleans())})


def _factored_system(draws: Draws) -> Case:
    a, b = _system(draws)
    factors = OPERATIONS["lu"].reference(a.numpy())
    return Case((torch.from_numpy(factors), b), {"transpose": draws.draw(st.booleans())})


def _diagonal(draws: Draws) -> Case:
    n = draws.draw(st.integers(0, 4))
    return Case((draws.numbers((*_stack(draws), n, n)),), {})


def _orders(draws: Draws) -> Case:
    stack, n = _stack(draws), draws.draw(st.integers(0, 6))
    orders = draws.random.permuted(np.broadcast_to(np.arange(n), (*stack, n)), axis=-1)
    return Case((torch.from_numpy(orders).to(to_torch(draws.dtype)),), {})


def _tolerance(a: torch.Tensor) -> torch.Tensor:
    return torch.full(a.shape[:-2], 1e-4, dtype=a.real.dtype)


def _pinv(draws: Draws) -> Case:
    a = _matrix(draws, _stack(draws))
    return Case((a, _tolerance(a)), {})


def _lstsq(draws: Draws) -> Case:
    a = _matrix(draws, _stack(draws))
    b = _normal(draws, (*a.shape[:-1], draws.draw(st.integers(0, 3))))
    return Case((a, b, _tolerance(a)), {})


ROWS: dict[str, Row] = {
    "cholesky": Row(_definite, LAPACK, (0,), hermitian=True),
    "solve_triangular": Row(_triangular_system, LAPACK, (0, 1)),
    "lu": Row(_any_matrix, LAPACK, (0,)),
    "qr": Row(_qr, LAPACK, (0,)),
    "solve": Row(_linear_system, LAPACK, (0, 1)),
    "inv": Row(_square_matrix, LAPACK, (0,)),
    "diagonal": Row(_diagonal, ANY, (0,)),
    "parity": Row(_orders, REAL_FLOATS[2:]),
    "cofactors": Row(_square_matrix, LAPACK, (0,)),
    "cofactors_gradient": Row(_pair_of_squares, LAPACK, (0, 1)),
    "det": Row(_square_matrix, LAPACK, (0,)),
    "slogdet": Row(_square_matrix, LAPACK, (0,)),
    "eigvalsh": Row(_definite, LAPACK, (0,), hermitian=True),
    "svdvals": Row(_any_matrix, LAPACK, (0,)),
    "pinv": Row(_pinv, LAPACK, (0,)),
    "lstsq": Row(_lstsq, LAPACK, (0, 1)),
}

FOLDED = {"lu_solve": Row(_factored_system, LAPACK)}
