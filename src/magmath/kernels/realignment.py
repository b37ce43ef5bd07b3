"""Memory realignment on tensors, in place: ShiftRight inserts a column in front of a row-major
matrix, ShiftLeft removes it. `kernels/realignment_groups.py` has the algorithm and its proof.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import torch

from magmath.codegen.aot_cache import AotModule
from magmath.errors import ShapeError
from magmath.kernels.realignment_groups import Groups, Index

SERIAL_BYTES = 1 << 18
"""Matrices of at most this many bytes are moved by one thread."""

# All offsets are in bytes: `item` is the size of an element, `length` of a row without the column.
_SOURCE = """
def save(target: int64, source: int64, nbytes: int64):
    memcpy(target, source, nbytes)

def right(base: int64, length: int64, item: int64, first: int64, stop: int64, helper: int64,
          value: int64):
    wide = length + item
    safe = first * wide
    for i in range(stop - first):
        row = stop - 1 - i
        source = row * length
        target = base + row * wide + item
        saved = min(max(safe - source, 0), length)
        memmove(target + saved, base + source + saved, length - saved)
        memcpy(target, helper + source - first * length, saved)
        memcpy(target - item, value, item)

def left(base: int64, length: int64, item: int64, first: int64, stop: int64, helper: int64,
         safe: int64):
    wide = length + item
    for row in range(first, stop):
        source = row * wide + item
        target = base + row * length
        kept = min(max(safe - source, 0), length)
        memmove(target, base + source, kept)
        memcpy(target + kept, helper + max(source - safe, 0), length - kept)
"""


def shift_right(buffer: torch.Tensor, rows: int, columns: int, value: float = 1) -> None:
    """Insert a column of `value` in front of the matrix of the first rows·columns elements.

    `buffer` is one-dimensional and contiguous, of any type and device, and has rows·(columns+1)
    elements, all of which are written. Raises ShapeError otherwise.
    """
    _check("shift_right", buffer, rows, columns)
    if rows == 0:
        return
    if buffer.is_cuda:
        _triton().shift_right(buffer, rows, columns, value)
        return
    item = buffer.itemsize
    fill = torch.tensor([value], dtype=buffer.dtype)
    groups = Groups.even(rows, columns, _count(buffer, rows))
    begin, counts = groups.overwritten_right()
    move = _mover("right", buffer, columns, (fill.data_ptr(),) * len(counts))
    _move(buffer, groups, begin * item, counts * item, move)


def shift_left(buffer: torch.Tensor, rows: int, columns: int) -> None:
    """Remove the first column of the rows×(columns+1) matrix in `buffer`: the result is a matrix in
    its first rows·columns elements; the others are undefined.

    `buffer` is as for `shift_right`.
    """
    _check("shift_left", buffer, rows, columns)
    if rows == 0:
        return
    if buffer.is_cuda:
        _triton().shift_left(buffer, rows, columns)
        return
    item = buffer.itemsize
    groups = Groups.even(rows, columns, _count(buffer, rows))
    begin, counts = groups.overwritten_left()
    move = _mover("left", buffer, columns, tuple((begin * item).tolist()))
    _move(buffer, groups, begin * item, counts * item, move)


Move = Callable[[int, int, int, int], None]


def _mover(name: str, buffer: torch.Tensor, columns: int, last: tuple[int, ...]) -> Move:
    """Return the function (group, first row, past row, helper) that moves the rows of a group;
    `last` has the last argument of the compiled function for each group."""
    function, item, base = _function(name), buffer.itemsize, buffer.data_ptr()

    def move(group: int, first: int, stop: int, helper: int) -> None:
        function(base, columns * item, item, first, stop, helper, last[group])

    return move


def _move(buffer: torch.Tensor, groups: Groups, begin: Index, counts: Index, move: Move) -> None:
    """Save the damaged bytes of every group, then move the rows of every group."""
    helper = torch.empty(int(counts.sum()), dtype=torch.uint8)
    addresses = (helper.data_ptr() + np.cumsum(counts) - counts).tolist()
    starts, nbytes, cuts = begin.tolist(), counts.tolist(), groups.cuts.tolist()
    base, save = buffer.data_ptr(), _function("save")

    def saved(group: int) -> None:
        save(addresses[group], base + starts[group], nbytes[group])

    def moved(group: int) -> None:
        move(group, cuts[group], cuts[group + 1], addresses[group])

    count = len(counts)
    if count == 1:
        moved(0)
        return
    with ThreadPoolExecutor(count) as threads:
        list(threads.map(saved, range(count)))
        list(threads.map(moved, range(count)))


def _count(buffer: torch.Tensor, rows: int) -> int:
    """Return the number of groups: one for each thread, if the matrix is large enough."""
    if buffer.numel() * buffer.itemsize <= SERIAL_BYTES:
        return 1
    return min(torch.get_num_threads(), rows)


def _check(operation: str, buffer: torch.Tensor, rows: int, columns: int) -> None:
    wide = rows * (columns + 1)
    flat = buffer.ndim == 1 and buffer.is_contiguous()
    if not flat or len(buffer) != wide or min(rows, columns) < 0:
        raise ShapeError(
            f"{operation}: a {rows}×{columns} matrix needs a contiguous buffer of {wide} elements, "
            f"was given shape {tuple(buffer.shape)} with strides {buffer.stride()}"
        )


@cache
def _function(name: str) -> Callable[..., Any]:
    return _CODE.function(name)


_CODE = AotModule(_SOURCE, ["save", "right", "left"])


def _triton() -> Any:
    """Return the module of the Triton kernels, which is loaded for GPUs only."""
    from magmath.kernels import realignment_triton

    return realignment_triton
