"""Factorisations, systems of equations and what is made of them."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import strategies as st

from magmath.memory.torch_dtypes import to_torch
from magmath.ops import OPERATIONS
from operation_table.dice import ANY, LAPACK, REAL_FLOATS, Case, Dice, Row, Shape


def _normal(dice: Dice, shape: Shape) -> torch.Tensor:
    """Normally distributed numbers."""
    values = dice.random.standard_normal(shape)
    if dice.dtype.kind == "complex":
        values = values + 1j * dice.random.standard_normal(shape)
    return torch.from_numpy(np.asarray(values)).to(to_torch(dice.dtype))


def _stack(dice: Dice) -> Shape:
    return dice.shape(0, 2, (0, 3))


def _square(dice: Dice, stack: Shape) -> torch.Tensor:
    """Square matrices that are far from singular."""
    n = dice.draw(st.integers(1 if dice.smooth else 0, 5))
    twice = 2 * torch.eye(n).to(to_torch(dice.dtype))
    return _normal(dice, (*stack, n, n)) / max(n, 1) ** 0.5 + twice


def _square_matrix(dice: Dice) -> Case:
    return Case((_square(dice, _stack(dice)).to(to_torch(dice.dtype)),), {})


def _definite(dice: Dice) -> Case:
    """The lower triangle counts; what is above it does not."""
    a = _square(dice, _stack(dice))
    definite = torch.tril(a @ a.mH) + torch.triu(torch.rand_like(a.real), 1)
    return Case((definite.to(to_torch(dice.dtype)),), {})


def _matrix(dice: Dice, stack: Shape) -> torch.Tensor:
    m, n = (dice.draw(st.integers(1 if dice.smooth else 0, 5)) for _ in range(2))
    return _normal(dice, (*stack, m, n))


def _any_matrix(dice: Dice) -> Case:
    return Case((_matrix(dice, _stack(dice)),), {})


def _qr(dice: Dice) -> Case:
    a = _matrix(dice, _stack(dice))
    differentiable = not dice.smooth or a.shape[-2] <= a.shape[-1]
    return Case((a,), {"full": differentiable and dice.draw(st.booleans())})


def _system(dice: Dice) -> tuple[torch.Tensor, torch.Tensor]:
    a = _square(dice, _stack(dice)).to(to_torch(dice.dtype))
    return a, _normal(dice, (*a.shape[:-1], dice.draw(st.integers(0, 3))))


def _triangular_system(dice: Dice) -> Case:
    keys = ("lower", "transpose", "unit")
    return Case(_system(dice), {key: dice.draw(st.booleans()) for key in keys})


def _linear_system(dice: Dice) -> Case:
    return Case(_system(dice), {"transpose": dice.draw(st.booleans())})


def _factored_system(dice: Dice) -> Case:
    a, b = _system(dice)
    factors = OPERATIONS["lu"].reference(a.numpy())
    return Case((torch.from_numpy(factors), b), {"transpose": dice.draw(st.booleans())})


def _diagonal(dice: Dice) -> Case:
    n = dice.draw(st.integers(0, 4))
    return Case((dice.numbers((*_stack(dice), n, n)),), {})


def _orders(dice: Dice) -> Case:
    stack, n = _stack(dice), dice.draw(st.integers(0, 6))
    orders = dice.random.permuted(np.broadcast_to(np.arange(n), (*stack, n)), axis=-1)
    return Case((torch.from_numpy(orders).to(to_torch(dice.dtype)),), {})


def _tolerance(a: torch.Tensor) -> torch.Tensor:
    return torch.full(a.shape[:-2], 1e-4, dtype=a.real.dtype)


def _pinv(dice: Dice) -> Case:
    a = _matrix(dice, _stack(dice))
    return Case((a, _tolerance(a)), {})


def _lstsq(dice: Dice) -> Case:
    a = _matrix(dice, _stack(dice))
    b = _normal(dice, (*a.shape[:-1], dice.draw(st.integers(0, 3))))
    return Case((a, b, _tolerance(a)), {})


ROWS: dict[str, Row] = {
    "cholesky": Row(_definite, LAPACK, (0,)),
    "solve_triangular": Row(_triangular_system, LAPACK, (0, 1)),
    "lu": Row(_any_matrix, LAPACK, (0,)),
    "qr": Row(_qr, LAPACK, (0,)),
    "solve": Row(_linear_system, LAPACK, (0, 1)),
    "inv": Row(_square_matrix, LAPACK, (0,)),
    "diagonal": Row(_diagonal, ANY, (0,)),
    "parity": Row(_orders, REAL_FLOATS[2:]),
    "det": Row(_square_matrix, LAPACK, (0,)),
    "logabsdet": Row(_square_matrix, LAPACK, (0,)),
    "det_sign": Row(_square_matrix, LAPACK),
    "eigvalsh": Row(_definite, LAPACK, (0,)),
    "svdvals": Row(_any_matrix, LAPACK, (0,)),
    "pinv": Row(_pinv, LAPACK, (0,)),
    "lstsq": Row(_lstsq, LAPACK, (0, 1)),
}

FOLDED = {"lu_solve": Row(_factored_system, LAPACK)}
