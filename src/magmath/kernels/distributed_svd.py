"""Singular values and vectors, or eigenvalues and -vectors, of one matrix that workers share.

Three steps: reduction to a condensed form (`condensed`), in which all workers take part; the
condensed problem by divide and conquer (`bidiagonal`), of which each worker makes the vectors that
it shall have; and these carried back by the reflections. No worker ever has more than its share of
the matrix, a copy of it, its share of the results, and panels. The method is backward stable, like
LAPACK's.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from magmath.core.svd_workspace import VECTOR_CHUNK
from magmath.errors import LinAlgError
from magmath.kernels.bidiagonal_svd import Bidiagonal, Reals
from magmath.kernels.bidiagonalization import (
    Columns,
    bidiagonalise,
    complete,
    reflect_by_columns,
    reflect_by_rows,
    tridiagonalise,
)


def singular(columns: Columns, first: int, left: Tensor | None, right: Tensor | None) -> Reals:
    """The singular values of a matrix C = U·diag(s)·Vᴴ with no fewer rows than columns, descending.

    left: (rows, w), becomes U's columns from `first` on, which may go beyond those of C: a basis of
    what is orthogonal to them. right: (columns, w), becomes V's, 0 beyond. Overwrites the columns.
    Raises LinAlgError on all workers alike if the matrix has NaN or infinity.
    """
    scale = _scaled("svd", columns)
    with columns.scratch.returning():
        d, e, taus_h, taus_g = bidiagonalise(columns)
    small, n = Bidiagonal(np.array(d), np.array(e)), columns.count
    if left is not None:
        _vectors(columns, small, left[:n], first, left=True)
        width = left.shape[1]
        beyond = torch.arange(min(max(n - first, 0), width), width, device=left.device)
        left[n:] = 0
        left[beyond + first, beyond] = 1
        reflect_by_columns(columns, taus_h, 0, left)
    if right is not None:
        _vectors(columns, small, right, first, left=False)
        reflect_by_rows(columns, taus_g, right)
    return small.values * scale


def eigen(columns: Columns, first: int, out: Tensor | None) -> Reals:
    """The eigenvalues of a Hermitian matrix, ascending. `out`, (n, w), becomes the eigenvectors
    from `first` on.

    Of the columns, the conjugate of what is above the diagonal counts, where the lower triangle's
    rows have it; they are overwritten. Raises LinAlgError like `singular`. The tridiagonal matrix T
    is shifted to be well-conditioned, T + c = BᵀB with B bidiagonal: the right singular vectors of
    B are the eigenvectors.
    """
    complete(columns)
    scale = _scaled("eigh", columns)
    with columns.scratch.returning():
        d, e, taus = tridiagonalise(columns)
    diagonal, below = np.array(d), np.array(e)
    shift = 2 * _radius(diagonal, below) or 1.0
    small = Bidiagonal(*_cholesky(diagonal + shift, below), ascending=True)
    if out is not None:
        _vectors(columns, small, out, first, left=False)
        reflect_by_columns(columns, taus, 1, out)
    return (np.square(small.values) - shift) * scale


def _scaled(name: str, columns: Columns) -> float:
    """Divide the columns by a power of two near their largest element, so that squares neither
    overflow nor vanish; the power."""
    x = columns.x
    parts = torch.view_as_real(x) if x.is_complex() else x
    largest = torch.zeros(1, dtype=parts.dtype, device=x.device)
    if x.numel():
        least, most = torch.aminmax(parts)
        largest[0] = torch.maximum(-least, most)
    columns.total(largest, "max")
    value = float(largest)
    if not math.isfinite(value):
        raise LinAlgError(f"{name}: the matrix has NaN or inf")
    power = 2.0 ** (math.frexp(value)[1] - 1) if value else 1.0
    x /= power
    return power


def _radius(diagonal: Reals, below: Reals) -> float:
    """A bound of the eigenvalues of a tridiagonal matrix (Gershgorin)."""
    sums = np.abs(diagonal)
    sums[1:] += np.abs(below)
    sums[:-1] += np.abs(below)
    return float(sums.max(initial=0.0))


def _cholesky(diagonal: Reals, below: Reals) -> tuple[Reals, Reals]:
    """The upper bidiagonal B with BᵀB tridiagonal and positive definite."""
    found, above = diagonal.copy(), below.copy()
    for i in range(len(found)):
        if i:
            found[i] -= above[i - 1] ** 2
        found[i] = math.sqrt(found[i])
        if i < len(above):
            above[i] /= found[i]
    return found, above


def _vectors(columns: Columns, small: Bidiagonal, out: Tensor, first: int, *, left: bool) -> None:
    """out, (n, w) = the vectors of the condensed problem from `first` on, and 0 after the last."""
    n = columns.count
    within = max(min(n - first, out.shape[1]), 0)
    out[:, within:] = 0
    kind, on_cpu = out.dtype.to_real(), out.device.type == "cpu"
    for start in range(0, within, VECTOR_CHUNK):
        stop = min(start + VECTOR_CHUNK, within)
        with columns.scratch.returning():
            made, spare = [
                columns.scratch.take(kind, n, stop - start)
                if on_cpu
                else torch.empty(n, stop - start, dtype=kind)
                for _ in range(2)
            ]
            small.vectors(made, spare, first + start, left=left)
            out[:, start:stop] = made
