"""Reduction of one matrix, divided over workers by columns, to bidiagonal or tridiagonal form.

Householder's reflections, in panels: within a panel the matrix stays as it was, and what the
panel's reflections change about it is kept as a product of two thin matrices, which is applied to
the rest at the panel's end (LAPACK's `labrd` and `latrd`). A step has two sums over the workers for
a bidiagonal and one for a tridiagonal form, of one or two columns each. Every worker knows the
current reflection whole; of all else it has its own columns.

The workers' columns are the rows of `x`, (own columns, rows of the matrix), so that a column is
contiguous. The reflections replace what they have made zero. Sources: Golub and Van Loan (2013),
sections 5.4.8 and 8.3.1; Dongarra, Sorensen and Hammarling (1989) for the panels.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from magmath.core.svd_workspace import REDUCTION_PANEL, REFLECTOR_BLOCK
from magmath.kernels.scratch import Scratch

if TYPE_CHECKING:
    from magmath.comm import Communicator


@dataclass
class Columns:
    """This worker's columns of a matrix.

    x        (own columns, rows), overwritten
    mine     which columns these are, ascending, int64
    count    the number of columns of the whole matrix
    comm     connects the workers
    scratch  memory for panels
    """

    x: Tensor
    mine: Tensor
    count: int
    comm: Communicator
    scratch: Scratch

    def __post_init__(self) -> None:
        numbers = self.mine.tolist()
        self._places = {column: place for place, column in enumerate(numbers)}
        self._after = np.searchsorted(numbers, np.arange(self.count), "right").tolist()

    def after(self, column: int) -> int:
        """The first own column after a column."""
        after: int = self._after[column]
        return after

    def place(self, column: int) -> int | None:
        """Where a column is among the own ones."""
        return self._places.get(column)

    def zeros(self, *shape: int) -> Tensor:
        """A small tensor of the matrix's type and device."""
        return torch.zeros(shape, dtype=self.x.dtype, device=self.x.device)

    def panel(self, *shape: int) -> Tensor:
        """A large tensor of zeros, from the scratch."""
        return self.scratch.take(self.x.dtype, *shape).zero_()

    def total(self, tensor: Tensor, op: str = "sum") -> None:
        """Replace a contiguous tensor by its sum over the workers, the same bits on each."""
        self.comm.allreduce(torch.view_as_real(tensor) if tensor.is_complex() else tensor, op)


def reflection(a: Tensor) -> tuple[Tensor, complex, float]:
    """v with v[0] = 1, τ and β, real, with (I - τ·v·vᴴ)ᴴ·a = β·e₁; overwrites a with v."""
    alpha = complex(a[0])
    rest = float(torch.linalg.vector_norm(a[1:])) if len(a) > 1 else 0.0
    if rest == 0 and alpha.imag == 0:
        a.zero_()
        a[0] = 1
        return a, 0.0, alpha.real
    beta = -np.copysign(np.hypot(abs(alpha), rest), alpha.real)
    a /= alpha - beta if a.is_complex() else alpha.real - beta
    a[0] = 1
    tau = (beta - alpha) / beta
    return a, tau if a.is_complex() else tau.real, float(beta)


@dataclass
class _Panel:
    """What becomes of x: x - conj(own)·whole, of (own columns, 2·PANEL) and (2·PANEL, rows)."""

    whole: Tensor
    own: Tensor

    @classmethod
    def of(cls, columns: Columns) -> _Panel:
        held, rows = columns.x.shape
        return cls(
            columns.panel(2 * REDUCTION_PANEL, rows), columns.panel(held, 2 * REDUCTION_PANEL)
        )

    def times(self, x: Tensor, first: int, row: int, used: int, v: Tensor) -> Tensor:
        """conj(x[first:, row:])·v, as it would be: what own columns have of v."""
        v = v.conj().resolve_conj()
        made = (x[first:, row:] @ v).conj()
        return made - self.own[first:, :used] @ (self.whole[:used, row:] @ v).conj()

    def column(self, x: Tensor, place: int, row: int, used: int) -> Tensor:
        """x[place, row:] as it would be."""
        return x[place, row:] - self.own[place, :used].conj() @ self.whole[:used, row:]

    def apply(self, x: Tensor, first: int, row: int, used: int) -> None:
        """Make x[first:, row:] what it would be."""
        x[first:, row:].addmm_(self.own[first:, :used].conj(), self.whole[:used, row:], alpha=-1)
        self.whole.zero_()
        self.own.zero_()


def bidiagonalise(
    columns: Columns,
) -> tuple[list[float], list[float], list[complex], list[complex]]:
    """C = H₀H₁…·B·(G₀G₁…)ᴴ of a matrix with no fewer rows than columns.

    The diagonal of B and what is above it, real, and the τ of the reflections H and G. Their
    vectors are left in x: H's in its column from the diagonal on, G's in its row after it.
    """
    x, n = columns.x, columns.count
    rows = x.shape[1]
    diagonal, above, taus_h, taus_g = [], [], [], []
    panel = _Panel.of(columns)
    current = _fetched(columns, 0)
    for j in range(n):
        i = 2 * (j % REDUCTION_PANEL)
        u, tau, value = reflection(current)
        diagonal.append(value)
        taus_h.append(tau)
        panel.whole[i, j:] = u
        if (place := columns.place(j)) is not None:
            x[place, j:] = u
        first = columns.after(j)
        if j + 1 == n:
            break
        panel.own[first:, i] = tau * panel.times(x, first, j, i, u)
        row = x[first:, j] - panel.own[first:, : i + 1].conj() @ panel.whole[: i + 1, j]
        whole = columns.zeros(n - j - 1)
        whole[columns.mine[first:] - j - 1] = row.conj()
        columns.total(whole)
        v, tau, value = reflection(whole)
        above.append(value)
        taus_g.append(tau)
        v_own = v[columns.mine[first:] - j - 1]
        pair = columns.zeros(2, rows - j - 1)
        weights = panel.own[first:, : i + 1].conj().T @ v_own
        pair[0] = v_own @ x[first:, j + 1 :] - weights @ panel.whole[: i + 1, j + 1 :]
        if (place := columns.place(j + 1)) is not None:
            pair[1] = panel.column(x, place, j + 1, i + 1)
        columns.total(pair)
        pair[0] *= tau
        panel.whole[i + 1, j + 1 :] = pair[0]
        panel.own[first:, i + 1] = v_own
        x[first:, j] = v_own
        current = pair[1] - pair[0]
        if (j + 1) % REDUCTION_PANEL == 0:
            panel.apply(x, first, j + 1, i + 2)
    return diagonal, above, taus_h, taus_g


def tridiagonalise(columns: Columns) -> tuple[list[float], list[float], list[complex]]:
    """A = H₀H₁…·T·(H₀H₁…)ᴴ of a Hermitian matrix.

    The diagonal of T and what is below it, real, and the τ of the reflections, whose vectors are
    left in x, each in its column below the diagonal.
    """
    x, n = columns.x, columns.count
    diagonal, below, taus = [], [], []
    panel = _Panel.of(columns)
    current = _fetched(columns, 0)
    for j in range(n):
        i = 2 * (j % REDUCTION_PANEL)
        diagonal.append(float(current[0].real))
        if j + 1 == n:
            break
        v, tau, value = reflection(current[1:])
        below.append(value)
        taus.append(tau)
        if (place := columns.place(j)) is not None:
            x[place, j + 1 :] = v
        first = columns.after(j)
        pair = columns.zeros(2, n - j - 1)
        own = columns.mine[first:] - j - 1
        pair[0, own] = tau * panel.times(x, first, j + 1, i, v)
        if (place := columns.place(j + 1)) is not None:
            pair[1] = panel.column(x, place, j + 1, i)
        columns.total(pair)
        half = 0.5 * np.conj(tau) * complex(torch.vdot(v, pair[0]))
        w = pair[0] - half.real * v
        panel.whole[i, j + 1 :], panel.whole[i + 1, j + 1 :] = v, w
        panel.own[first:, i], panel.own[first:, i + 1] = w[own], v[own]
        current = pair[1] - w[0].conj() * v - w
        if (j + 1) % REDUCTION_PANEL == 0:
            panel.apply(x, first, j + 1, i + 2)
    return diagonal, below, taus


def _fetched(columns: Columns, column: int) -> Tensor:
    """A column, on all workers."""
    found = columns.zeros(columns.x.shape[1] if columns.count else 0)
    if (place := columns.place(column)) is not None:
        found.copy_(columns.x[place])
    columns.total(found)
    return found


def complete(columns: Columns) -> None:
    """Rows of a Hermitian matrix, of which only what is left of the diagonal counts, become the
    same columns, whole."""
    x, mine = columns.x, columns.mine
    if x.is_complex():
        torch.conj_physical_(x)
        held = torch.arange(len(mine), device=x.device)
        torch.view_as_real(x)[held, mine, 1] = 0  # as LAPACK takes the diagonal
    for start, stop in _blocks(columns.count):
        with columns.scratch.returning():
            rows = columns.panel(stop - start, stop)
            for j in range(start, stop):
                if (place := columns.place(j)) is not None:
                    rows[j - start, :j] = x[place, :j]
            columns.total(rows)
            before = columns.after(stop - 1)
            right = torch.arange(start, stop, device=x.device) > mine[:before, None]
            part = x[:before, start:stop]
            part.copy_(torch.where(right, rows[:, mine[:before]].mH, part))


def _blocks(count: int) -> list[tuple[int, int]]:
    """Starts and ends, from the last to the first."""
    return list(pairwise([*range(0, count, REFLECTOR_BLOCK), count]))[::-1]


def reflect_by_columns(columns: Columns, taus: list[complex], below: int, out: Tensor) -> None:
    """out = H₀H₁…·out, with the vectors that lie in the columns, `below` the diagonal."""
    rows = columns.x.shape[1]
    for start, stop in _blocks(len(taus)):
        with columns.scratch.returning():
            vectors = columns.panel(stop - start, rows - start - below)
            for j in range(start, stop):
                if (place := columns.place(j)) is not None:
                    vectors[j - start, j - start :] = columns.x[place, j + below :]
            columns.total(vectors)
            _reflect(columns.scratch, vectors, taus[start:stop], out[start + below :])


def reflect_by_rows(columns: Columns, taus: list[complex], out: Tensor) -> None:
    """out = G₀G₁…·out, with the vectors that lie in the rows, right of the diagonal."""
    for start, stop in _blocks(len(taus)):
        with columns.scratch.returning():
            vectors = columns.panel(stop - start, columns.count - start - 1)
            for j in range(start, stop):
                first = columns.after(j)
                vectors[j - start, columns.mine[first:] - start - 1] = columns.x[first:, j]
            columns.total(vectors)
            _reflect(columns.scratch, vectors, taus[start:stop], out[start + 1 :])


def _reflect(scratch: Scratch, vectors: Tensor, taus: list[complex], out: Tensor) -> None:
    """out = (I - V·T·Vᴴ)·out, the reflections' product; V's columns are the rows of `vectors`.

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
