"""Memory realignment on tensors, in place: ShiftRight inserts a column in front of a row-major
matrix, ShiftLeft removes it.

`kernels/realignment_groups.py` has the algorithm and its proof. The threads of a worker take the
groups of rows from a counter: once to save what other groups damage, and once to move.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch

from magmath.codegen.aot_cache import AotModule
from magmath.core.type_aliases import BoundCall
from magmath.errors import ShapeError
from magmath.kernels.parallel_region import run_on_threads
from magmath.kernels.realignment_groups import Overwritten, RowGroups
from magmath.kernels.thread_workspace import thread_workspace

SERIAL_BYTES = 1 << 18
"""Matrices of at most this many bytes are moved by one thread."""
JOB: Final = ("base", "length", "item", "value", "groups", "helper", "next_group")
GROUP: Final = ("first", "stop", "overwritten", "nbytes", "saved")
"""The argument of the exported functions, 64-bit words: JOB, then GROUP for each group. Offsets and
lengths are in bytes.

base, value, helper   addresses of the buffer, of the number in the new column, of the copies
length, item          lengths of a row without the column, and of an element
groups, next_group    number of groups, and their counter
first, stop           bounds of the rows of a group
overwritten, nbytes   offset and length of the bytes that other groups overwrite
saved                 offset of their copy
"""

_SOURCE = """
def save(record: int64):
    job: int64[1] = record
    number = fetch_add(job, NEXT_GROUP, 1)
    while number < job[GROUPS]:
        group: int64[1] = record + (HEADER + number * WORDS) * 8
        memcpy(job[HELPER] + group[SAVED], job[BASE] + group[OVERWRITTEN], group[NBYTES])
        number = fetch_add(job, NEXT_GROUP, 1)

def right(record: int64):
    job: int64[1] = record
    length = job[LENGTH]
    wide = length + job[ITEM]
    number = fetch_add(job, NEXT_GROUP, 1)
    while number < job[GROUPS]:
        group: int64[1] = record + (HEADER + number * WORDS) * 8
        helper = job[HELPER] + group[SAVED] - group[OVERWRITTEN]
        safe = group[FIRST] * wide
        for i in range(group[STOP] - group[FIRST]):
            row = group[STOP] - 1 - i
            source = row * length
            target = job[BASE] + row * wide + job[ITEM]
            lost = min(max(safe - source, 0), length)
            memmove(target + lost, job[BASE] + source + lost, length - lost)
            memcpy(target, helper + source, lost)
            memcpy(target - job[ITEM], job[VALUE], job[ITEM])
        number = fetch_add(job, NEXT_GROUP, 1)

def left(record: int64):
    job: int64[1] = record
    length = job[LENGTH]
    wide = length + job[ITEM]
    number = fetch_add(job, NEXT_GROUP, 1)
    while number < job[GROUPS]:
        group: int64[1] = record + (HEADER + number * WORDS) * 8
        helper = job[HELPER] + group[SAVED] - group[OVERWRITTEN]
        for row in range(group[FIRST], group[STOP]):
            source = row * wide + job[ITEM]
            target = job[BASE] + row * length
            kept = min(max(group[OVERWRITTEN] - source, 0), length)
            memmove(target, job[BASE] + source, kept)
            memcpy(target + kept, helper + source + kept, length - kept)
        number = fetch_add(job, NEXT_GROUP, 1)
"""

_CODE = AotModule(
    _SOURCE,
    ("save", "right", "left"),
    constants={
        **{name.upper(): index for index, name in enumerate(JOB)},
        **{name.upper(): index for index, name in enumerate(GROUP)},
        "HEADER": len(JOB),
        "WORDS": len(GROUP),
    },
)


def shift_right(buffer: torch.Tensor, rows: int, columns: int, value: float = 1) -> None:
    """Insert a column of `value` in front of the matrix of the first rows·columns elements.

    `buffer` is one-dimensional and contiguous, of any type and device, and has rows·(columns+1)
    elements, all of which are written. Raises ShapeError otherwise.
    """
    bind_shift_right(buffer, rows, columns, value)()


def shift_left(buffer: torch.Tensor, rows: int, columns: int) -> None:
    """Remove the first column of the rows×(columns+1) matrix in `buffer`: the result is a matrix in
    its first rows·columns elements; the others are undefined.

    `buffer` is as for `shift_right`.
    """
    bind_shift_left(buffer, rows, columns)()


def bind_shift_right(buffer: torch.Tensor, rows: int, columns: int, value: float = 1) -> BoundCall:
    """Return a bound call of `shift_right` with these arguments."""
    _check("shift_right", buffer, rows, columns)
    if buffer.is_cuda:
        bound: BoundCall = _triton().bind_shift_right(buffer, rows, columns, value)
        return bound
    groups = RowGroups.even(rows, columns, _count(buffer, rows))
    fill = torch.tensor([value], dtype=buffer.dtype)
    return _bound("right", buffer, groups, groups.overwritten_right(), fill)


def bind_shift_left(buffer: torch.Tensor, rows: int, columns: int) -> BoundCall:
    """Return a bound call of `shift_left` with these arguments."""
    _check("shift_left", buffer, rows, columns)
    if buffer.is_cuda:
        bound: BoundCall = _triton().bind_shift_left(buffer, rows, columns)
        return bound
    groups = RowGroups.even(rows, columns, _count(buffer, rows))
    return _bound("left", buffer, groups, groups.overwritten_left(), buffer)


def _bound(
    name: str,
    buffer: torch.Tensor,
    groups: RowGroups,
    overwritten: Overwritten,
    fill: torch.Tensor,
) -> BoundCall:
    """Return the call that saves the overwritten elements of every group, then moves its rows."""
    item = buffer.itemsize
    begin, nbytes = overwritten.begin * item, overwritten.counts * item
    count, total = len(nbytes), int(nbytes.sum())
    header = [buffer.data_ptr(), groups.columns * item, item, fill.data_ptr(), count, 0, 0]
    columns = (groups.bounds[:-1], groups.bounds[1:], begin, nbytes, np.cumsum(nbytes) - nbytes)
    job = np.array([*header, *np.column_stack(columns).ravel()], np.int64)
    record, helper, counter = int(job.ctypes.data), JOB.index("helper"), JOB.index("next_group")
    functions = [_CODE.address(step) for step in (("save", name) if count > 1 else (name,))]

    def run() -> object:
        job[helper] = thread_workspace(total).data_ptr()
        for function in functions:
            job[counter] = 0
            run_on_threads(function, record, min(count, torch.get_num_threads()))
        return buffer, fill  # the addresses hold no reference

    return run


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


def _triton() -> Any:
    """Return the module of the Triton kernels, which is loaded for GPUs only."""
    from magmath.kernels import realignment_triton

    return realignment_triton
