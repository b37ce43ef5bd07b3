"""ShiftRight and ShiftLeft on a GPU, in Triton; `kernels/realignment_groups.py` has the index
arithmetic.

A program of the grid moves one group of rows in blocks of elements: for ShiftRight from the last
block to the first. Blocks of threads cannot wait for each other within a kernel, so a first kernel
saves the damaged elements and a second one moves. The second kernel has a barrier between reading
and writing a block, because the threads of a program run independently too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from magmath.kernels.realignment_groups import Groups, Index

BLOCK = 1024
PROGRAMS = 512
"""The largest number of groups; for at most as many rows a group is one row, as in the report."""


@triton.jit  # type: ignore[untyped-decorator]
def _save(
    buffer: Any, helper: Any, begin: Any, counts: Any, offsets: Any, BLOCK: tl.constexpr
) -> None:
    group = tl.program_id(0)
    source = buffer + tl.load(begin + group)
    target = helper + tl.load(offsets + group)
    count = tl.load(counts + group)
    for start in range(0, count, BLOCK):
        i = start + tl.arange(0, BLOCK)
        tl.store(target + i, tl.load(source + i, mask=i < count), mask=i < count)


@triton.jit  # type: ignore[untyped-decorator]
def _right(
    buffer: Any, helper: Any, cuts: Any, offsets: Any, columns: Any, value: Any, BLOCK: tl.constexpr
) -> None:
    group = tl.program_id(0)
    first, stop = tl.load(cuts + group), tl.load(cuts + group + 1)
    saved = helper + tl.load(offsets + group)
    count = (stop - first) * columns
    blocks = (count + BLOCK - 1) // BLOCK
    for done in range(blocks):
        i = (blocks - 1 - done) * BLOCK + tl.arange(0, BLOCK)
        row = first + i // columns
        source = first * columns + i
        inside = i < count
        damaged = source < first * (columns + 1)
        kept = tl.load(buffer + source, mask=inside & (damaged == 0), other=0)
        element = tl.where(damaged, tl.load(saved + i, mask=inside & damaged, other=0), kept)
        tl.debug_barrier()
        tl.store(buffer + source + row + 1, element, mask=inside)
        tl.store(buffer + source + row, value, mask=inside & (i % columns == 0))
        tl.debug_barrier()


@triton.jit  # type: ignore[untyped-decorator]
def _left(
    buffer: Any, helper: Any, cuts: Any, begin: Any, offsets: Any, columns: Any, BLOCK: tl.constexpr
) -> None:
    group = tl.program_id(0)
    first, stop = tl.load(cuts + group), tl.load(cuts + group + 1)
    saved, safe = helper + tl.load(offsets + group), tl.load(begin + group)
    count = (stop - first) * columns
    for start in range(0, count, BLOCK):
        i = start + tl.arange(0, BLOCK)
        row = first + i // columns
        source = first * columns + i + row + 1
        inside = i < count
        damaged = source >= safe
        kept = tl.load(buffer + source, mask=inside & (damaged == 0), other=0)
        lost = tl.load(saved + source - safe, mask=inside & damaged, other=0)
        element = tl.where(damaged, lost, kept)
        tl.debug_barrier()
        tl.store(buffer + first * columns + i, element, mask=inside)
        tl.debug_barrier()


def shift_right(buffer: torch.Tensor, rows: int, columns: int, value: float = 1) -> None:
    """Insert a column, as `realignment.shift_right` does."""
    if columns == 0:
        buffer.fill_(value)
        return
    groups = Groups.even(rows, columns, min(rows, PROGRAMS))
    begin, counts = groups.overwritten_right()
    helper, tables = _saved(buffer, begin, counts)
    cuts = torch.from_numpy(groups.cuts).to(buffer.device)
    _right[(len(counts),)](buffer, helper, cuts, tables[2], columns, value, BLOCK=BLOCK)


def shift_left(buffer: torch.Tensor, rows: int, columns: int) -> None:
    """Remove a column, as `realignment.shift_left` does."""
    if columns == 0:
        return
    groups = Groups.even(rows, columns, min(rows, PROGRAMS))
    begin, counts = groups.overwritten_left()
    helper, tables = _saved(buffer, begin, counts)
    cuts = torch.from_numpy(groups.cuts).to(buffer.device)
    _left[(len(counts),)](buffer, helper, cuts, tables[0], tables[2], columns, BLOCK=BLOCK)


def _saved(
    buffer: torch.Tensor, begin: Index, counts: Index
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Save the damaged elements; return them, and for each group begin, count and offset there."""
    offsets = np.cumsum(counts) - counts
    tables = [torch.from_numpy(table).to(buffer.device) for table in (begin, counts, offsets)]
    helper = torch.empty(max(int(counts.sum()), 1), dtype=buffer.dtype, device=buffer.device)
    _save[(len(counts),)](buffer, helper, *tables, BLOCK=BLOCK)
    return helper, tables
