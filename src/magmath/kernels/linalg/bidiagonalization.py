"""Reduction of one matrix, divided over workers by columns, to bidiagonal or tridiagonal form.

Householder reflections are applied in panels: within a panel the matrix is unchanged, and the
changes by the panel's reflections are stored as a product of two thin matrices, which is applied to
the trailing matrix at the end of the panel (LAPACK's `labrd` and `latrd`). Each step sums over the
workers twice for bidiagonal and once for tridiagonal form, one or two columns each time. Every
worker has the whole current reflection, and otherwise only its own columns.

The workers' columns are the rows of `x`, (own columns, rows of the matrix), so that a column is
contiguous. The reflections are stored in place of the elements that they set to zero. Sources:
Golub and Van Loan (2013), sections 5.4.8 and 8.3.1; Dongarra, Sorensen and Hammarling (1989) for
the panels.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from magmath.core.svd_workspace import REDUCTION_PANEL, REFLECTOR_BLOCK
from magmath.kernels.scratch import Scratch

if TYPE_CHECKING:
    from magmath.comm import Communicator


@final
@dataclass
class Columns:
    """This worker's columns of a matrix.

    x        (own columns, rows), overwritten
    numbers  the numbers of these columns in the matrix, ascending, int64
    count    the number of columns of the whole matrix
    comm     connects the workers
    scratch  memory for panels
    """

    x: Tensor
    numbers: Tensor
    count: int
    comm: Communicator
    scratch: Scratch

    def __post_init__(self) -> None:
        self._numbers = numbers = self.numbers.tolist()
        self._local_indices = {column: index for index, column in enumerate(numbers)}
        self._after = np.searchsorted(numbers, np.arange(self.count), "right").tolist()

    def after(self, column: int) -> int:
        """Return the index of the first own column after a column."""
        after: int = self._after[column]
        return after

    def local_index(self, column: int) -> int | None:
        """Return the index of a column among the own ones; None if it is not an own one."""
        return self._local_indices.get(column)

    def within(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the number and the index of each own column in a range of numbers."""
        first, last = bisect_left(self._numbers, start), bisect_left(self._numbers, stop)
        yield from zip(self._numbers[first:last], range(first, last), strict=True)

    def zeros(self, *shape: int) -> Tensor:
        """Return a small tensor of zeros with the matrix's type and device."""
        return torch.zeros(shape, dtype=self.x.dtype, device=self.x.device)

    def panel(self, *shape: int) -> Tensor:
        """Return a large tensor of zeros in the scratch memory."""
        return self.scratch.take(self.x.dtype, *shape).zero_()

    def total(self, tensor: Tensor, op: str = "sum") -> None:
        """Replace a contiguous tensor by its allreduce, with the same bits on every worker."""
        self.comm.allreduce(torch.view_as_real(tensor) if tensor.is_complex() else tensor, op)


def reflection(a: Tensor) -> tuple[Tensor, complex, float]:
    """Return v with v[0] = 1, τ, and real β such that (I - τ·v·vᴴ)ᴴ·a = β·e₁. Overwrites a with
    v."""
    alpha = complex(a[0])
    tail_norm = float(torch.linalg.vector_norm(a[1:])) if len(a) > 1 else 0.0
    if tail_norm == 0 and alpha.imag == 0:
        a.zero_()
        a[0] = 1
        return a, 0.0, alpha.real
    beta = -np.copysign(np.hypot(abs(alpha), tail_norm), alpha.real)
    a /= alpha - beta if a.is_complex() else alpha.real - beta
    a[0] = 1
    tau = (beta - alpha) / beta
    return a, tau if a.is_complex() else tau.real, float(beta)


@final
@dataclass
class _Panel:
    """The pending update of x, which becomes x - conj(own)·whole.

    `own` is (own columns, 2·REDUCTION_PANEL), `whole` is (2·REDUCTION_PANEL, rows).
    """

    whole: Tensor
    own: Tensor

    @classmethod
    def of(cls, columns: Columns) -> _Panel:
        own_count, rows = columns.x.shape
        return cls(
            columns.panel(2 * REDUCTION_PANEL, rows), columns.panel(own_count, 2 * REDUCTION_PANEL)
        )

    def times(self, x: Tensor, first: int, row: int, used: int, v: Tensor) -> Tensor:
        """Return conj(y[first:, row:])·v, the products of own columns with v, where y is x after
        this update."""
        v = v.conj().resolve_conj()
        products = (x[first:, row:] @ v).conj()
        return products - self.own[first:, :used] @ (self.whole[:used, row:] @ v).conj()

    def column(self, x: Tensor, local: int, row: int, used: int) -> Tensor:
        """Return the updated x[local, row:]."""
        return x[local, row:] - self.own[local, :used].conj() @ self.whole[:used, row:]

    def apply(self, x: Tensor, first: int, row: int, used: int) -> None:
        """Update x[first:, row:], then clear the pending update."""
        x[first:, row:].addmm_(self.own[first:, :used].conj(), self.whole[:used, row:], alpha=-1)
        self.whole.zero_()
        self.own.zero_()


@final
class Bidiagonalization(NamedTuple):
    """The reduction of a matrix C = H₀H₁…·B·(G₀G₁…)ᴴ: the diagonal and the superdiagonal of B, both
    real, and the τ of the reflections H and G."""

    diagonal: list[float]
    superdiagonal: list[float]
    left_taus: list[complex]
    right_taus: list[complex]


@final
class Tridiagonalization(NamedTuple):
    """The reduction of a Hermitian matrix A = H₀H₁…·T·(H₀H₁…)ᴴ: the diagonal and the subdiagonal of
    T, both real, and the τ of the reflections."""

    diagonal: list[float]
    subdiagonal: list[float]
    taus: list[complex]


def bidiagonalize(columns: Columns) -> Bidiagonalization:
    """Reduce a matrix with at least as many rows as columns to bidiagonal form. Collective.

    The vectors of the reflections are stored in x: those of H in columns from the diagonal on,
    those of G in rows after it.
    """
    x, n = columns.x, columns.count
    rows = x.shape[1]
    result = Bidiagonalization([], [], [], [])
    panel = _Panel.of(columns)
    current = _fetched(columns, 0)
    for j in range(n):
        i = 2 * (j % REDUCTION_PANEL)
        u, tau, value = reflection(current)
        result.diagonal.append(value)
        result.left_taus.append(tau)
        panel.whole[i, j:] = u
        if (local := columns.local_index(j)) is not None:
            x[local, j:] = u
        first = columns.after(j)
        if j + 1 == n:
            break
        panel.own[first:, i] = tau * panel.times(x, first, j, i, u)
        v, tau, value = reflection(_fetched_row(columns, panel, j, i + 1))
        result.superdiagonal.append(value)
        result.right_taus.append(tau)
        v_own = v[columns.numbers[first:] - j - 1]
        pair = columns.zeros(2, rows - j - 1)
        weights = panel.own[first:, : i + 1].conj().T @ v_own
        pair[0] = v_own @ x[first:, j + 1 :] - weights @ panel.whole[: i + 1, j + 1 :]
        if (local := columns.local_index(j + 1)) is not None:
            pair[1] = panel.column(x, local, j + 1, i + 1)
        columns.total(pair)
        pair[0] *= tau
        panel.whole[i + 1, j + 1 :] = pair[0]
        panel.own[first:, i + 1] = v_own
        x[first:, j] = v_own
        current = pair[1] - pair[0]
        if (j + 1) % REDUCTION_PANEL == 0:
            panel.apply(x, first, j + 1, i + 2)
    return result


def tridiagonalize(columns: Columns) -> Tridiagonalization:
    """Reduce a Hermitian matrix to tridiagonal form. Collective.

    The vectors of the reflections are stored in x, each in its column below the diagonal.
    """
    x, n = columns.x, columns.count
    result = Tridiagonalization([], [], [])
    panel = _Panel.of(columns)
    current = _fetched(columns, 0)
    for j in range(n):
        i = 2 * (j % REDUCTION_PANEL)
        result.diagonal.append(float(current[0].real))
        if j + 1 == n:
            break
        v, tau, value = reflection(current[1:])
        result.subdiagonal.append(value)
        result.taus.append(tau)
        if (local := columns.local_index(j)) is not None:
            x[local, j + 1 :] = v
        first = columns.after(j)
        pair = columns.zeros(2, n - j - 1)
        own_positions = columns.numbers[first:] - j - 1
        pair[0, own_positions] = tau * panel.times(x, first, j + 1, i, v)
        if (local := columns.local_index(j + 1)) is not None:
            pair[1] = panel.column(x, local, j + 1, i)
        columns.total(pair)
        half = 0.5 * np.conj(tau) * complex(torch.vdot(v, pair[0]))
        w = pair[0] - half.real * v
        panel.whole[i, j + 1 :], panel.whole[i + 1, j + 1 :] = v, w
        panel.own[first:, i], panel.own[first:, i + 1] = w[own_positions], v[own_positions]
        current = pair[1] - w[0].conj() * v - w
        if (j + 1) % REDUCTION_PANEL == 0:
            panel.apply(x, first, j + 1, i + 2)
    return result


def _fetched_row(columns: Columns, panel: _Panel, row: int, used: int) -> Tensor:
    """Return the conjugate of a row of the updated matrix, right of the diagonal, on all workers.
    Collective."""
    first = columns.after(row)
    updated = columns.x[first:, row]
    updated = updated - panel.own[first:, :used].conj() @ panel.whole[:used, row]
    whole = columns.zeros(columns.count - row - 1)
    whole[columns.numbers[first:] - row - 1] = updated.conj()
    columns.total(whole)
    return whole


def _fetched(columns: Columns, column: int) -> Tensor:
    """Return a column, on all workers. Collective."""
    fetched = columns.zeros(columns.x.shape[1] if columns.count else 0)
    if (local := columns.local_index(column)) is not None:
        fetched.copy_(columns.x[local])
    columns.total(fetched)
    return fetched


def complete(columns: Columns) -> None:
    """Replace rows of a Hermitian matrix, of which only the elements up to the diagonal are valid,
    by the complete columns with the same numbers. Collective."""
    x, numbers = columns.x, columns.numbers
    if x.is_complex():
        torch.conj_physical_(x)
        local_indices = torch.arange(len(numbers), device=x.device)
        torch.view_as_real(x)[local_indices, numbers, 1] = 0  # a real diagonal, as in LAPACK
    for start, stop in _blocks(columns.count):
        with columns.scratch.returning():
            rows = columns.panel(stop - start, stop)
            for j, local in columns.within(start, stop):
                rows[j - start, :j] = x[local, :j]
            columns.total(rows)
            before = columns.after(stop - 1)
            right = torch.arange(start, stop, device=x.device) > numbers[:before, None]
            part = x[:before, start:stop]
            part.copy_(torch.where(right, rows[:, numbers[:before]].mH, part))


def _blocks(count: int) -> list[tuple[int, int]]:
    """Return the starts and stops of blocks of reflectors, the last block first."""
    return list(pairwise([*range(0, count, REFLECTOR_BLOCK), count]))[::-1]


def reflect_by_columns(columns: Columns, taus: list[complex], below: int, out: Tensor) -> None:
    """Compute out = H₀H₁…·out in place, with the vectors in the columns of x, which start `below`
    rows below the diagonal. Collective."""
    rows = columns.x.shape[1]
    for start, stop in _blocks(len(taus)):
        with columns.scratch.returning():
            vectors = columns.panel(stop - start, rows - start - below)
            for j, local in columns.within(start, stop):
                vectors[j - start, j - start :] = columns.x[local, j + below :]
            columns.total(vectors)
            _reflect(columns.scratch, vectors, taus[start:stop], out[start + below :])


def reflect_by_rows(columns: Columns, taus: list[complex], out: Tensor) -> None:
    """Compute out = G₀G₁…·out in place, with the vectors in the rows of the matrix, right of the
    diagonal. Collective."""
    for start, stop in _blocks(len(taus)):
        with columns.scratch.returning():
            vectors = columns.panel(stop - start, columns.count - start - 1)
            for j in range(start, stop):
                first = columns.after(j)
                vectors[j - start, columns.numbers[first:] - start - 1] = columns.x[first:, j]
            columns.total(vectors)
            _reflect(columns.scratch, vectors, taus[start:stop], out[start + 1 :])


def _reflect(scratch: Scratch, vectors: Tensor, taus: list[complex], out: Tensor) -> None:
    """Compute out = (I - V·T·Vᴴ)·out in place, the product of reflections; the columns of V are the
    rows of `vectors`.

    T⁻¹ is the upper triangle of VᴴV with 1/τ on its diagonal (Puglisi, 1992).
    """
    if not out.numel():
        return
    vectors[torch.tensor([tau == 0 for tau in taus], device=out.device)] = 0
    adjoint = scratch.take(out.dtype, *vectors.shape)
    torch.conj_physical(vectors, out=adjoint)
    inverse = torch.triu(adjoint @ vectors.T, 1)
    diagonal = [1 / tau if tau else 1 for tau in taus]
    inverse += torch.diag(torch.tensor(diagonal, dtype=out.dtype, device=out.device))
    weights = scratch.take(out.dtype, len(taus), out.shape[1])
    torch.mm(adjoint, out, out=weights)
    solve = torch.linalg.solve_triangular
    out.addmm_(vectors.T, solve(inverse, weights, upper=True), alpha=-1)
