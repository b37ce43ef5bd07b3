"""Factorizations of one matrix that is distributed over the workers by block-cyclic rows.

The owner of a panel factorizes it with LAPACK and broadcasts it through ring buffers; every worker
updates its own rows with matrix products. The owner of the next panel updates and factorizes its
rows first (lookahead), so that the panel is available when the other workers need it. A worker
stores only its own rows and the panels in the ring. All workers detect data that cannot be
factorized in the same panel, and all raise LinAlgError.

Source: Dongarra, van de Geijn and Walker (1994), "Scalability issues affecting the design of a
dense linear algebra library", with rows in place of columns, since tensors are stored by rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from magmath.core.block_cyclic import BlockCyclicRows, round_to_cache_lines
from magmath.kernels import fortran
from magmath.kernels.dispatch.tuner import tuner_for
from magmath.kernels.fortran import invoke
from magmath.kernels.linalg.lapack import not_definite_error, not_finite_error
from magmath.kernels.linalg.lapack_candidates import CHOLESKY, DIVIDE, LU, NOT_A_NUMBER, add_product

if TYPE_CHECKING:
    from magmath.comm.panel_broadcast import PanelBroadcast

measured = partial(tuner_for, deterministic=False)
"""Returns the measuring tuner. Here no element is computed by two workers, so workers may choose
different kernels."""


def cholesky(
    shares: BlockCyclicRows, ring: PanelBroadcast, scratch: Tensor, out: Tensor, a: Tensor
) -> None:
    """Compute this worker's rows of out = L with a = L·Lᴴ from the lower triangle of a, (n, n).
    Collective.

    A panel is updated with all previous panels at once (the left-looking variant), so that every
    element of L is written once. A panel in the ring has the width of the triangle at its last row.
    """
    for panel in shares.own_panels():
        rows, (_, stop) = shares.local_rows(panel), shares.bounds(panel)
        out[rows, :stop] = a[rows, :stop]
        out[rows, stop:] = 0

    def shape(panel: int) -> tuple[int, int]:
        start, stop = shares.bounds(panel)
        return stop - start, stop

    def make(panel: int) -> None:
        rows, (start, stop) = out[shares.local_rows(panel)], shares.bounds(panel)
        block = rows[:, start:stop]
        subtract(block, rows[:, :start], rows[:, :start].mH)
        info = _cholesky(block)
        nbytes = _nbytes(out, *shape(panel))
        view(ring.make(panel, nbytes), out, *shape(panel)).copy_(rows[:, :stop])
        ring.publish(panel, nbytes, info + start if info > 0 else info)

    def use(panel: int, memory: Tensor, status: int, own_rows: slice) -> None:
        start, stop = shares.bounds(panel)
        if status == NOT_A_NUMBER:
            raise not_finite_error("cholesky")
        if status:
            raise not_definite_error(status)
        rows, below = view(memory, out, *shape(panel)), out[own_rows, start:stop]
        subtract(below, out[own_rows, :start], rows[:, :start].mH)
        _divide(below, rows[:, start:])

    for_each_panel(shares, ring, shares.count, lambda panel: _nbytes(out, *shape(panel)), make, use)


def lu(
    shares: BlockCyclicRows, ring: PanelBroadcast, scratch: Tensor, out: Tensor, a: Tensor
) -> None:
    """Compute this worker's rows of the result of `magmath.kernels.linalg.lapack.lu` for a, (m, n):
    the order of the columns, which rank 0 stores, above [L\\U]. Collective."""
    factors = out[1:] if shares.rank == 0 else out
    n, max_rank = out.shape[1], min(shares.extent, out.shape[1])
    factors.copy_(a)
    pivots = _factorized(shares, ring, factors)
    for panel in shares.own_panels():
        _, stop = shares.bounds(panel)
        exchange(factors[shares.local_rows(panel)], pivots, min(stop, max_rank), max_rank)
    if shares.rank == 0:
        order = out[:1]
        order.copy_(torch.arange(n))
        exchange(order, pivots, 0, max_rank)


def _factorized(shares: BlockCyclicRows, ring: PanelBroadcast, factors: Tensor) -> Tensor:
    """Overwrite this worker's rows of a matrix with those of its factors, in which columns of a
    panel are exchanged by the pivots of this and earlier panels alone; return all pivots.

    A panel in the ring contains its pivots, and its rows from the first column right of the
    previous panels.
    """
    n, max_rank = factors.shape[1], min(shares.extent, factors.shape[1])
    pivots = torch.zeros(max_rank, dtype=torch.int32)

    def shape(panel: int) -> tuple[int, int]:
        start, stop = shares.bounds(panel)
        return stop - start, n - start

    def nbytes(panel: int) -> int:
        return round_to_cache_lines(4 * shares.rows) + _nbytes(factors, *shape(panel))

    def parts(memory: Tensor, panel: int) -> tuple[Tensor, Tensor]:
        """Return the pivots of a panel, relative to its first column, and its rows."""
        rows, width = shape(panel)
        panel_pivots = memory[: 4 * min(rows, width)].view(torch.int32)
        first = round_to_cache_lines(4 * shares.rows)
        return panel_pivots, view(memory[first:], factors, rows, width)

    def make(panel: int) -> None:
        rows, (start, _) = factors[shares.local_rows(panel)], shares.bounds(panel)
        own_pivots = _lu(rows[:, start:])
        panel_pivots, panel_rows = parts(ring.make(panel, nbytes(panel)), panel)
        panel_pivots.copy_(own_pivots)
        panel_rows.copy_(rows[:, start:])
        ring.publish(panel, nbytes(panel))

    def use(panel: int, memory: Tensor, status: int, own_rows: slice) -> None:
        start, _ = shares.bounds(panel)
        panel_pivots, rows = parts(memory, panel)
        stop = start + len(panel_pivots)
        pivots[start:stop].copy_(panel_pivots).add_(start)
        below = factors[own_rows]
        exchange(below, pivots, start, stop)
        _divide_unit(below[:, start:stop], rows[: stop - start])
        subtract(below[:, stop:], below[:, start:stop], rows[: stop - start, stop - start :])

    for_each_panel(shares, ring, -(-max_rank // shares.rows), nbytes, make, use)
    return pivots


def for_each_panel(
    shares: BlockCyclicRows,
    ring: PanelBroadcast,
    steps: int,
    nbytes: Callable[[int], int],
    make: Callable[[int], None],
    use: Callable[[int, Tensor, int, slice], None],
) -> None:
    """Process the first `steps` panels: the owner calls `make`, which writes the panel into the
    ring, and every worker calls `use` for its own rows after the panel.

    The owner of the next panel calls `use` for that panel's rows first, and then `make`. Arguments
    of `use`: the number of the panel, its memory in the ring, its status, a slice of own rows.
    """
    ring.start()
    if steps and shares.is_own(0):
        make(0)
    for panel in range(steps):
        memory, status = ring.read(panel, shares.owner(panel), nbytes(panel))
        own_rows = shares.after(panel)
        if panel + 1 < steps and shares.is_own(panel + 1):
            following = shares.local_rows(panel + 1)
            use(panel, memory, status, following)
            make(panel + 1)
            own_rows = slice(following.stop, None)
        use(panel, memory, status, own_rows)
        ring.release(panel)


def view(memory: Tensor, like: Tensor, *shape: int) -> Tensor:
    """Return the first bytes of `memory` as a tensor of the given shape and the type of `like`."""
    return memory[: _nbytes(like, *shape)].view(like.dtype).view(shape)


def _nbytes(like: Tensor, *shape: int) -> int:
    return torch.Size(shape).numel() * like.itemsize


# on the rows of one worker ------------------------------------------------------------------------


def subtract(target: Tensor, a: Tensor, b: Tensor) -> None:
    """Compute target -= a·b."""
    add_product(measured(), target, a, b, -1)


def _cholesky(block: Tensor) -> int:
    """Overwrite a matrix with its Cholesky factor; return the order of a minor that is not
    positive, `NOT_A_NUMBER`, or 0."""
    if fortran.is_in_host_memory(block):
        order = int(CHOLESKY(measured(), block))
        block.tril_()
        return order
    factor, info = torch.linalg.cholesky_ex(block)
    block.copy_(factor).tril_()
    if int(info):
        return int(info)
    return NOT_A_NUMBER if bool(torch.isnan(block.diagonal()).any()) else 0


def _lu(rows: Tensor) -> Tensor:
    """Overwrite rows, (w, n), with [L\\U], columns exchanged; return the pivots, counted from
    1."""
    pivots: Tensor
    if fortran.is_in_host_memory(rows):
        pivots, _ = LU(measured(), rows)
        return pivots
    packed, pivots, _ = torch.linalg.lu_factor_ex(rows.mT)
    rows.copy_(packed.mT)
    return pivots


def exchange(rows: Tensor, pivots: Tensor, start: int, stop: int) -> None:
    """Exchange columns i and pivots[i] - 1, for each i from start to stop - 1 in sequence."""
    m, n = rows.shape
    if not m or start == stop:
        return
    if fortran.is_in_host_memory(rows):
        invoke("laswp", rows, m, rows, rows.stride(0), start + 1, stop, pivots, 1)
        return
    order = list(range(n))
    for i, pivot in enumerate((pivots[start:stop] - 1).tolist(), start):
        order[i], order[pivot] = order[pivot], order[i]
    rows.copy_(rows[:, torch.tensor(order, device=rows.device)])


def _divide(rows: Tensor, lower: Tensor) -> None:
    """Compute rows = rows·lower⁻ᴴ in place."""
    if fortran.is_in_host_memory(rows):
        DIVIDE(measured(), rows, lower, flags="LUCN")
    else:
        rows.copy_(torch.linalg.solve_triangular(lower.mH, rows, upper=True, left=False))


def _divide_unit(rows: Tensor, upper: Tensor) -> None:
    """Compute rows = rows·upper⁻¹ in place, with the leading square block of `upper`, whose
    diagonal counts as ones."""
    square = upper[:, : len(upper)]
    if fortran.is_in_host_memory(rows):
        DIVIDE(measured(), rows, square, flags="LLNU")
    else:
        solve = torch.linalg.solve_triangular
        rows.copy_(solve(square, rows, upper=True, left=False, unitriangular=True))
