"""Triangular systems whose matrix is distributed over the workers by block-cyclic rows.

Every worker solves for its own columns of the right-hand side, with the panels of the matrix that
are broadcast one after the other. A system that needs the panels from the last to the first
receives them in that order; a transposed one uses the rows of a panel as columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from magmath.core.block_cyclic import PERMUTED_COLUMNS, BlockCyclicRows
from magmath.kernels import fortran
from magmath.kernels.linalg.blocked_factorization import measured, subtract, view
from magmath.kernels.linalg.lapack import Triangle, check_diagonal, lu_systems
from magmath.kernels.linalg.lapack_candidates import DIVIDE

if TYPE_CHECKING:
    from magmath.comm.panel_broadcast import PanelBroadcast


def solve_triangular(
    shares: BlockCyclicRows,
    ring: PanelBroadcast,
    scratch: Tensor,
    out: Tensor,
    a: Tensor,
    b: Tensor,
    *,
    lower: bool,
    transpose: bool,
    unit: bool,
) -> None:
    """Compute this worker's columns of out = op(a)⁻¹·b, from one triangle of a, (n, n), of which it
    stores rows. Collective.

    Raises LinAlgError on all workers if the diagonal of a contains a zero and `unit` is False.
    """
    out.copy_(b)
    ring.start()
    _sweep(shares, ring, 0, a, out, "solve_triangular", Triangle(lower, transpose, unit))


def lu_solve(
    shares: BlockCyclicRows,
    ring: PanelBroadcast,
    scratch: Tensor,
    out: Tensor,
    factors: Tensor,
    b: Tensor,
    *,
    transpose: bool,
) -> None:
    """Compute this worker's columns of out = a⁻¹·b, or a⁻ᵀ·b, from its rows of the result of `lu`.
    Collective.

    Raises LinAlgError on all workers for a singular matrix.
    """
    triangles = factors[1:] if shares.rank == 0 else factors
    ring.start()
    nbytes = shares.extent * out.itemsize
    if shares.rank == 0:
        view(ring.make(0, nbytes), out, shares.extent).copy_(factors[0])
        ring.publish(0, nbytes)
    memory, _ = ring.read(0, 0, nbytes)
    order = view(memory, out, shares.extent).real.long()
    ring.release(0)
    if transpose:
        torch.index_select(b, 0, order, out=out)
    else:
        out.copy_(b)
    for i, system in enumerate(lu_systems(transpose)):
        _sweep(shares, ring, 1 + i * shares.count, triangles, out, "solve", system)
    if not transpose:
        for columns in torch.split(out, PERMUTED_COLUMNS, dim=1):  # out[order] = out
            columns[order] = view(scratch, out, *columns.shape).copy_(columns)


def _sweep(
    shares: BlockCyclicRows,
    ring: PanelBroadcast,
    first: int,
    matrix: Tensor,
    x: Tensor,
    name: str,
    system: Triangle,
) -> None:
    """Compute x = op(matrix)⁻¹·x in place; the panels are numbered in the ring from `first` on."""
    lower, transpose, unit = system
    panels: Sequence[int] = range(shares.count)
    if lower == transpose:  # from the last unknown to the first
        panels = panels[::-1]

    def bounds(panel: int) -> tuple[int, int]:
        """Return the first column of a panel in the triangle, and the one after the last."""
        start, stop = shares.bounds(panel)
        return (0, stop) if lower else (start, shares.extent)

    def check(rows: Tensor) -> None:
        if not unit:
            check_diagonal(name, rows[:, -len(rows) :] if lower else rows[:, : len(rows)])

    def use(panel: int, rows: Tensor) -> None:
        start, stop = shares.bounds(panel)
        own_x, width = x[start:stop], stop - start
        block = rows[:, start:] if lower else rows[:, :width]
        coefficients = rows[:, :start] if lower else rows[:, width:]
        other_x = x[:start] if lower else x[stop:]
        if not x.numel():
            return
        if not transpose and len(other_x):
            subtract(own_x, coefficients, other_x)
        if fortran.is_in_host_memory(own_x):
            DIVIDE(measured(), own_x, block, flags=system.flags)
        else:
            own_x.copy_(system.by_torch(block, own_x))
        if transpose and len(other_x):
            subtract(other_x, coefficients.mT, own_x)

    _for_each_panel(shares, ring, first, panels, matrix, bounds, check, use)


def _for_each_panel(
    shares: BlockCyclicRows,
    ring: PanelBroadcast,
    first: int,
    panels: Sequence[int],
    matrix: Tensor,
    bounds: Callable[[int], tuple[int, int]],
    check: Callable[[Tensor], None],
    use: Callable[[int, Tensor], None],
) -> None:
    """Broadcast the panels of a matrix in this order; every worker checks and uses each one.

    The owner of the next panel sends it before it uses the current one, but after the check of the
    current one: if the check raises an error, no worker would read the next panel.
    """

    def shape(panel: int) -> tuple[int, int]:
        (start, stop), (left, right) = shares.bounds(panel), bounds(panel)
        return stop - start, right - left

    def nbytes(panel: int) -> int:
        rows, width = shape(panel)
        return rows * width * matrix.itemsize

    def offer(position: int) -> None:
        if position < len(panels) and shares.is_own(panels[position]):
            panel = panels[position]
            left, right = bounds(panel)
            memory = ring.make(first + position, nbytes(panel))
            view(memory, matrix, *shape(panel)).copy_(matrix[shares.local_rows(panel), left:right])
            ring.publish(first + position, nbytes(panel))

    offer(0)
    for position, panel in enumerate(panels):
        memory, _ = ring.read(first + position, shares.owner(panel), nbytes(panel))
        rows = view(memory, matrix, *shape(panel))
        check(rows)
        offer(position + 1)
        use(panel, rows)
        ring.release(first + position)
