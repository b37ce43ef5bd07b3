"""QR of one matrix that is distributed over the workers by block-cyclic columns.

The owner of a panel factorizes it into reflections, I - V·T·Vᴴ, which all workers apply to their
columns after it; the owner of the next panel updates and factorizes its columns first. The same
reflections, from the last panel to the first, then form Q in the memory of V: a panel of Q is the
identity before its own reflections are applied. Sources: Schreiber and Van Loan (1989), "A
storage-efficient WY representation for products of Householder transformations"; Elmroth and
Gustavson (2000) for the panels (LAPACK's geqrt).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import torch
from torch import Tensor

from magmath.core.block_cyclic import BlockCyclicRows, round_to_cache_lines
from magmath.kernels import fortran
from magmath.kernels.fortran import call
from magmath.kernels.linalg.blocked_factorization import for_each_panel, subtract, view
from magmath.kernels.linalg.diagonal_signs import diagonal_signs

if TYPE_CHECKING:
    from magmath.comm.panel_broadcast import PanelBroadcast


@final
@dataclass(frozen=True, slots=True)
class _Panel:
    """The reflections of a panel of columns, in a ring.

    rows     (w, m), for a panel of w columns and m rows: V transposed in the first k = min(w, m)
             rows; the others are unused
    factor   T, (k, k), upper triangular
    signs    (k,): the numbers that R's diagonal is divided by to become non-negative
    """

    rows: Tensor
    factor: Tensor
    signs: Tensor

    @staticmethod
    def nbytes(w: int, m: int, itemsize: int) -> int:
        """Return the bytes of a panel."""
        k = min(w, m)
        return (
            round_to_cache_lines(w * m * itemsize)
            + round_to_cache_lines(k * k * itemsize)
            + k * itemsize
        )

    @staticmethod
    def within(memory: Tensor, like: Tensor, w: int, m: int) -> _Panel:
        """Return a panel in the given memory, with the type of `like`."""
        k = min(w, m)
        first = round_to_cache_lines(w * m * like.itemsize)
        second = first + round_to_cache_lines(k * k * like.itemsize)
        return _Panel(
            view(memory, like, w, m),
            view(memory[first:], like, k, k),
            view(memory[second:], like, k),
        )

    @property
    def v(self) -> Tensor:
        """V transposed: one reflection per row."""
        return self.rows[: len(self.signs)]

    def apply(self, columns: Tensor, scratch: Tensor, *, adjoint: bool) -> None:
        """Compute columns = (I - V·T·Vᴴ)·columns in place, or with the adjoint of the matrix."""
        k, n = len(self.signs), columns.shape[1]
        if not n or not k:
            return
        projections, weights = view(scratch, columns, 2, k, n)
        torch.mm(self.v.conj(), columns, out=projections)
        torch.mm(self.factor.mH if adjoint else self.factor, projections, out=weights)
        subtract(columns, self.v.mT, weights)


@final
class Reflections:
    """One worker's part of the QR of a, (m, n), with a non-negative diagonal of R.

    The whole result is Q, (m, j), above R, (j, n), in (m + j, max(j, n)); `out` is this worker's
    columns of it, and `shares` assigns these columns to workers. The columns of a are copied to the
    memory of Q. After the factorization of a panel, this memory contains V below the diagonal and T
    above it.
    """

    def __init__(
        self,
        shares: BlockCyclicRows,
        ring: PanelBroadcast,
        scratch: Tensor,
        out: Tensor,
        a: Tensor,
        n: int,
    ) -> None:
        self.shares, self.ring, self.scratch = shares, ring, scratch
        self.a, self.m, self.n = a, a.shape[0], n
        self.q, self.r = out[: self.m], out[self.m :]
        self.min_extent = min(self.m, n)
        self.steps = -(-self.min_extent // shares.rows)
        self.signs = out.new_ones(self.min_extent)

    def run(self) -> None:
        """Factorize, then form Q."""
        self.r.zero_()
        self.q[:, : self.a.shape[1]] = self.a
        for_each_panel(
            self.shares,
            self.ring,
            self.steps,
            self._nbytes,
            self._factorize_panel,
            self._apply_panel,
        )
        for panel in self.shares.own_panels():
            if panel >= self.steps:
                self._set_identity(panel)
        self._offer(self.steps)
        for number in range(self.steps, 2 * self.steps):
            self._form_q(number)

    def _shape(self, panel: int) -> tuple[int, int]:
        """Return the number of columns of a panel of a, and of the rows from its diagonal on."""
        start, stop = self.shares.bounds(panel)
        return min(stop, self.n) - start, self.m - start

    def _nbytes(self, panel: int) -> int:
        return _Panel.nbytes(*self._shape(panel), self.q.itemsize)

    def _in_ring(self, number: int, panel: int) -> _Panel:
        """Return memory of the ring for a panel, as its `number`-th content."""
        memory = self.ring.make(number, self._nbytes(panel))
        return _Panel.within(memory, self.q, *self._shape(panel))

    def _place(self, panel: int) -> Tensor:
        """Return the columns of a panel of this worker, from the row of its diagonal on."""
        start, _ = self.shares.bounds(panel)
        first = self.shares.local_rows(panel).start
        return self.q[start:, first : first + self._shape(panel)[0]]

    # forward sweep: a becomes R and the reflections

    def _factorize_panel(self, panel: int) -> None:
        """Factorize a panel of this worker; publish its reflections."""
        (start, _), columns = self.shares.bounds(panel), self._place(panel)
        reflections = self._in_ring(panel, panel)
        reflections.rows.copy_(columns.mT)
        k, w = len(reflections.signs), len(reflections.rows)
        _factorize(reflections.rows, reflections.factor)
        triangle = reflections.rows[:, :k].mT.triu()  # a copy: R
        reflections.signs.copy_(diagonal_signs(triangle))
        first = self.shares.local_rows(panel).start
        self.r[start : start + k, first : first + w] = triangle * reflections.signs.conj()[:, None]
        square = reflections.v[:, :k]
        square.triu_(1)
        columns[:, :k] = reflections.v.mT
        columns[:k, :k] += reflections.factor
        square.diagonal().fill_(1)
        self.ring.publish(panel, self._nbytes(panel))

    def _apply_panel(self, panel: int, memory: Tensor, status: int, own_columns: slice) -> None:
        """Apply the reflections of a panel to later columns of this worker."""
        start, _ = self.shares.bounds(panel)
        reflections = _Panel.within(memory, self.q, *self._shape(panel))
        k = len(reflections.signs)
        self.signs[start : start + k] = reflections.signs
        count = self.a.shape[1]
        columns = slice(
            own_columns.start, count if own_columns.stop is None else min(own_columns.stop, count)
        )
        changed = self.q[start:, columns]
        reflections.apply(changed, self.scratch, adjoint=True)
        self.r[start : start + k, columns] = changed[:k] * reflections.signs.conj()[:, None]

    # backward sweep: the reflections become Q

    def _form_q(self, number: int) -> None:
        """Apply the `number`-th content of the ring to the panels of Q from its own on."""
        panel = 2 * self.steps - 1 - number
        start, _ = self.shares.bounds(panel)
        memory, _ = self.ring.read(number, self.shares.owner(panel), self._nbytes(panel))
        self._offer(number + 1)
        own_columns = self.shares.after(panel)
        if self.shares.is_own(panel):
            self._set_identity(panel)
            own_columns = slice(self.shares.local_rows(panel).start, None)
        reflections = _Panel.within(memory, self.q, *self._shape(panel))
        reflections.apply(self.q[start:, own_columns], self.scratch, adjoint=False)
        self.ring.release(number)

    def _offer(self, number: int) -> None:
        """Publish the next reflections again if this worker stores them."""
        panel = 2 * self.steps - 1 - number
        if panel < 0 or not self.shares.is_own(panel):
            return
        reflections, columns = self._in_ring(number, panel), self._place(panel)
        k = len(reflections.signs)
        reflections.v.copy_(columns[:, :k].mT)
        reflections.factor.copy_(columns[:k, :k].triu())
        square = reflections.v[:, :k]
        square.triu_(1)
        square.diagonal().fill_(1)
        self.ring.publish(number, self._nbytes(panel))

    def _set_identity(self, panel: int) -> None:
        """Set a panel of Q to the identity with the signs of R's diagonal, and to zero beyond
        Q."""
        rows, (start, stop) = self.shares.local_rows(panel), self.shares.bounds(panel)
        self.q[:, rows] = 0
        stop = min(stop, len(self.r))
        if start < stop:
            diagonal = self.q[start:stop, rows].diagonal()
            diagonal.fill_(1)
            signed = min(stop, self.min_extent) - start
            if signed > 0:
                diagonal[:signed] = self.signs[start : start + signed]


# on one worker ------------------------------------------------------------------------------------


def _factorize(rows: Tensor, factor: Tensor) -> None:
    """Overwrite a panel, whose columns are `rows`, (w, m), with R and V; store T in `factor`."""
    (w, m), k = rows.shape, len(factor)
    if fortran.is_in_host_memory(rows):
        work, transposed = rows.new_empty(k * w), rows.new_empty(k, k)
        call("geqrt", rows, m, w, k, rows, m, transposed, k, work)
        factor.copy_(transposed.mT.triu())
        return
    packed, scales = torch.geqrf(rows.mT)
    rows.copy_(packed.mT)
    v = torch.tril(packed[:, :k], -1)
    v.diagonal().fill_(1)
    inner = v.mH @ v
    factor.zero_()
    for i, scale in enumerate(scales):  # LAPACK's larft
        factor[:i, i] = -scale * (factor[:i, :i] @ inner[:i, i])
        factor[i, i] = scale
