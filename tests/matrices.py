"""Matrices for tests, and checks of their factorizations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import magmath as mm

Matrix = NDArray[Any]
TYPES = ("float32", "float64", "complex64", "complex128")


def normal(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Matrix:
    random = np.random.default_rng(seed)
    values = random.standard_normal(shape)
    if dtype.startswith("complex"):
        values = values + 1j * random.standard_normal(shape)
    return values.astype(dtype)


def adjoint(x: Matrix) -> Matrix:
    return np.conj(np.swapaxes(x, -1, -2))


def bound(x: Matrix) -> float:
    """50·n·ε times the size of a matrix: what a backward error may be."""
    n = max(*x.shape[-2:], 1)
    largest = np.linalg.norm(x, axis=(-2, -1)).max(initial=0.0) if x.size else 0.0
    return float(50 * n * np.finfo(x.dtype).eps * max(largest, 1.0))


def check_zero(x: Matrix, limit: float, what: object) -> None:
    assert np.abs(x).max(initial=0.0) <= limit, (what, np.abs(x).max(initial=0.0), limit)


def check_orthonormal(columns: Matrix, what: object) -> None:
    eye = np.eye(columns.shape[-1], dtype=columns.dtype)
    n = max(columns.shape[-2], 1)
    check_zero(adjoint(columns) @ columns - eye, 50 * n * np.finfo(columns.dtype).eps, what)


def check_qr(x: Matrix, a: mm.Array, modes: Sequence[str] = ("reduced", "complete")) -> None:
    for mode in modes:
        q, r = map(np.asarray, mm.linalg.qr(a, mode=mode))
        assert q.shape[-1] == (min(x.shape[-2:]) if mode == "reduced" else x.shape[-2])
        check_zero(q @ r - x, bound(x), ("qr", mode, x.shape))
        check_orthonormal(q, ("qr", mode, x.shape))
        check_zero(np.tril(r, -1), 0.0, "R")
        diagonal = np.diagonal(r, axis1=-2, axis2=-1)
        assert np.all(diagonal.imag == 0)
        assert np.all(diagonal.real >= 0)


def check_lu(x: Matrix, a: mm.Array) -> None:
    p, low, high = map(np.asarray, mm.linalg.lu(a))
    check_zero(p @ low @ high - x, bound(x), ("lu", x.shape))
    check_zero(np.triu(low, 1), 0.0, "L")
    check_zero(np.tril(high, -1), 0.0, "U")
    assert np.abs(low).max(initial=0.0) <= 1.5  # 1 for real matrices: LAPACK compares |re| + |im|
    np.testing.assert_array_equal(np.abs(p).sum(-1), np.ones(x.shape[:-1]))
