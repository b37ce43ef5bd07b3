"""Singular values and vectors, or eigenvalues and eigenvectors, of one matrix that is distributed
over workers.

There are three steps: the collective reduction to a condensed form
(`kernels/linalg/bidiagonalization.py`); the solution of the condensed problem by divide and conquer
(`kernels/linalg/bidiagonal_svd.py`), of which each worker computes its own vectors; and the
back-transformation of these by the reflections. A worker stores only its share of the matrix, a
copy of it, its share of the results, and panels. The method is backward stable, like LAPACK's.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from magmath.core.svd_workspace import VECTOR_CHUNK
from magmath.errors import LinAlgError
from magmath.kernels.linalg.bidiagonal_svd import Bidiagonal, Reals
from magmath.kernels.linalg.bidiagonalization import (
    Columns,
    bidiagonalize,
    complete,
    reflect_by_columns,
    reflect_by_rows,
    tridiagonalize,
)


def singular(columns: Columns, first: int, left: Tensor | None, right: Tensor | None) -> Reals:
    """Return the singular values of a matrix C = U·diag(s)·Vᴴ, descending, and store vectors.
    Collective.

    C has at least as many rows as columns; its columns are overwritten. left: (rows, w), receives
    the columns of U from `first` on; columns beyond those of C are a basis of the orthogonal
    complement. right: (columns, w), receives the columns of V from `first` on, with 0 beyond the
    last one. Raises LinAlgError on all workers if the matrix contains NaN or infinity.
    """
    scale = _scaled("svd", columns)
    with columns.scratch.returning():
        reduced = bidiagonalize(columns)
    small = Bidiagonal(np.array(reduced.diagonal), np.array(reduced.superdiagonal))
    n = columns.count
    if left is not None:
        _vectors(columns, small, left[:n], first, left=True)
        width = left.shape[1]
        beyond = torch.arange(min(max(n - first, 0), width), width, device=left.device)
        left[n:] = 0
        left[beyond + first, beyond] = 1
        reflect_by_columns(columns, reduced.left_taus, 0, left)
    if right is not None:
        _vectors(columns, small, right, first, left=False)
        reflect_by_rows(columns, reduced.right_taus, right)
    return small.values * scale


def eigen(columns: Columns, first: int, out: Tensor | None) -> Reals:
    """Return the eigenvalues of a Hermitian matrix, ascending; `out`, (n, w), receives the
    eigenvectors from `first` on. Collective.

    `columns.x` contains rows of the matrix, of which only the elements up to the diagonal are
    valid; it is overwritten. Raises LinAlgError like `singular`. The tridiagonal matrix T is
    shifted so that it is well-conditioned, T + c = BᵀB with B bidiagonal: the right singular
    vectors of B are the eigenvectors of T.
    """
    complete(columns)
    scale = _scaled("eigh", columns)
    with columns.scratch.returning():
        reduced = tridiagonalize(columns)
    diagonal, below = np.array(reduced.diagonal), np.array(reduced.subdiagonal)
    shift = 2 * _radius(diagonal, below) or 1.0
    small = Bidiagonal(*_cholesky(diagonal + shift, below), ascending=True)
    if out is not None:
        _vectors(columns, small, out, first, left=False)
        reflect_by_columns(columns, reduced.taus, 1, out)
    return (np.square(small.values) - shift) * scale


def _scaled(name: str, columns: Columns) -> float:
    """Divide the columns by a power of two near their largest element, so that squares neither
    overflow nor underflow; return the power."""
    x = columns.x
    parts = torch.view_as_real(x) if x.is_complex() else x
    largest = torch.zeros(1, dtype=parts.dtype, device=x.device)
    if x.numel():
        lowest, highest = torch.aminmax(parts)
        largest[0] = torch.maximum(-lowest, highest)
    columns.total(largest, "max")
    value = float(largest)
    if not math.isfinite(value):
        raise LinAlgError(f"{name}: the matrix has NaN or inf; replace them with mm.nan_to_num(x)")
    power = 2.0 ** (math.frexp(value)[1] - 1) if value else 1.0
    x /= power
    return power


def _radius(diagonal: Reals, below: Reals) -> float:
    """Return a bound of the absolute eigenvalues of a tridiagonal matrix (Gershgorin)."""
    sums = np.abs(diagonal)
    sums[1:] += np.abs(below)
    sums[:-1] += np.abs(below)
    return float(sums.max(initial=0.0))


def _cholesky(diagonal: Reals, below: Reals) -> tuple[Reals, Reals]:
    """Return the diagonal and superdiagonal of the bidiagonal B such that BᵀB is the given
    tridiagonal positive definite matrix."""
    factor, above = diagonal.copy(), below.copy()
    for i in range(len(factor)):
        if i:
            factor[i] -= above[i - 1] ** 2
        factor[i] = math.sqrt(factor[i])
        if i < len(above):
            above[i] /= factor[i]
    return factor, above


def _vectors(columns: Columns, small: Bidiagonal, out: Tensor, first: int, *, left: bool) -> None:
    """Fill out, (n, w), with the vectors of the condensed problem from `first` on, and with 0 after
    the last."""
    n = columns.count
    within = max(min(n - first, out.shape[1]), 0)
    out[:, within:] = 0
    kind, on_cpu = out.dtype.to_real(), out.device.type == "cpu"
    for start in range(0, within, VECTOR_CHUNK):
        stop = min(start + VECTOR_CHUNK, within)
        with columns.scratch.returning():
            vectors, spare = [
                columns.scratch.take(kind, n, stop - start)
                if on_cpu
                else torch.empty(n, stop - start, dtype=kind)
                for _ in range(2)
            ]
            small.vectors(vectors, spare, first + start, left=left)
            out[:, start:stop] = vectors
