"""ShiftRight and ShiftLeft on a GPU, in Triton; `kernels/realignment_groups.py` has the index
arithmetic.

A program of the grid moves one group of rows in blocks of elements: for ShiftRight from the last
block to the first. Blocks of threads cannot wait for each other within a kernel, so a first kernel
saves the overwritten elements and a second one moves. The second kernel has a barrier between
reading and writing a block, because the threads of a program run independently too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import final

import numpy as np
import torch
import triton
import triton.language as tl

from magmath.core.type_aliases import BoundCall
from magmath.kernels.realignment_groups import Overwritten, RowGroups

BLOCK = 1024
PROGRAMS = 512
"""The largest number of groups; for at most as many rows a group is one row, as in the report."""


@triton.jit  # type: ignore[untyped-decorator]
def _save(buffer, helper, begin, counts, places, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    group = tl.program_id(0)
    source = buffer + tl.load(begin + group)
    target = helper + tl.load(places + group)
    count = tl.load(counts + group)
    start = 0
    while start < count:
        i = start + tl.arange(0, BLOCK)
        start += BLOCK
        tl.store(target + i, tl.load(source + i, mask=i < count), mask=i < count)


@triton.jit  # type: ignore[untyped-decorator]
def _right(buffer, helper, bounds, places, columns, value, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    group = tl.program_id(0)
    first, stop = tl.load(bounds + group), tl.load(bounds + group + 1)
    saved = helper + tl.load(places + group)
    count = (stop - first) * columns
    blocks = (count + BLOCK - 1) // BLOCK
    while blocks > 0:
        blocks -= 1
        i = blocks * BLOCK + tl.arange(0, BLOCK)
        row = first + i // columns
        source = first * columns + i
        inside = i < count
        overwritten = source < first * (columns + 1)
        current = tl.load(buffer + source, mask=inside & (overwritten == 0), other=0)
        element = tl.where(
            overwritten, tl.load(saved + i, mask=inside & overwritten, other=0), current
        )
        tl.debug_barrier()
        tl.store(buffer + source + row + 1, element, mask=inside)
        tl.store(buffer + source + row, value, mask=inside & (i % columns == 0))
        tl.debug_barrier()


@triton.jit  # type: ignore[untyped-decorator]
def _left(buffer, helper, bounds, begin, places, columns, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    group = tl.program_id(0)
    first, stop = tl.load(bounds + group), tl.load(bounds + group + 1)
    saved, safe = helper + tl.load(places + group), tl.load(begin + group)
    count = (stop - first) * columns
    start = 0
    while start < count:
        i = start + tl.arange(0, BLOCK)
        start += BLOCK
        row = first + i // columns
        source = first * columns + i + row + 1
        inside = i < count
        overwritten = source >= safe
        current = tl.load(buffer + source, mask=inside & (overwritten == 0), other=0)
        lost = tl.load(saved + source - safe, mask=inside & overwritten, other=0)
        element = tl.where(overwritten, lost, current)
        tl.debug_barrier()
        tl.store(buffer + first * columns + i, element, mask=inside)
        tl.debug_barrier()


def bind_shift_right(buffer: torch.Tensor, rows: int, columns: int, value: float = 1) -> BoundCall:
    """Return the call that inserts a column, as `realignment.bind_shift_right` does."""
    if rows * columns == 0:
        return partial(buffer.fill_, value)
    groups = RowGroups.even(rows, columns, min(rows, PROGRAMS))
    tables = _Tables.of(buffer, groups, groups.overwritten_right())

    def run() -> None:
        tables.save(buffer)
        _right[tables.grid](
            buffer, tables.helper, tables.bounds, tables.places, columns, value, BLOCK=BLOCK
        )

    return run


def bind_shift_left(buffer: torch.Tensor, rows: int, columns: int) -> BoundCall:
    """Return the call that removes a column, as `realignment.bind_shift_left` does."""
    groups = RowGroups.even(rows, columns, max(1, min(rows, PROGRAMS)))
    tables = _Tables.of(buffer, groups, groups.overwritten_left())

    def run() -> None:
        if rows * columns:
            tables.save(buffer)
            _left[tables.grid](
                buffer,
                tables.helper,
                tables.bounds,
                tables.begin,
                tables.places,
                columns,
                BLOCK=BLOCK,
            )

    return run


@final
@dataclass(frozen=True)
class _Tables:
    """The bounds of the groups, the first position, number and place in `helper` of the elements
    that each of them saves; all are on the device once, so that a call copies nothing there."""

    bounds: torch.Tensor
    begin: torch.Tensor
    counts: torch.Tensor
    places: torch.Tensor
    helper: torch.Tensor

    @staticmethod
    def of(buffer: torch.Tensor, groups: RowGroups, overwritten: Overwritten) -> _Tables:
        """Return the tables on the device of the buffer, and memory for what is saved."""
        begin, counts = overwritten
        bounds, first, number, places = (
            torch.from_numpy(table).to(buffer.device)
            for table in (groups.bounds, begin, counts, np.cumsum(counts) - counts)
        )
        helper = buffer.new_empty(max(int(counts.sum()), 1))
        return _Tables(bounds, first, number, places, helper)

    @property
    def grid(self) -> tuple[int]:
        """One program for each group."""
        return (len(self.counts),)

    def save(self, buffer: torch.Tensor) -> None:
        """Copy the elements that other groups damage."""
        _save[self.grid](buffer, self.helper, self.begin, self.counts, self.places, BLOCK=BLOCK)
