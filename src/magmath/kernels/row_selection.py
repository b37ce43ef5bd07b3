"""Selection of rows by a list of positions, in compiled code.

torch copies each selected row by a call of its general copy, which takes longer than the copy of a
few hundred bytes. Here the threads of torch take shares of the positions from a counter, check them
and copy rows, or single numbers, in one pass.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import torch

from magmath.codegen.aot_cache import AotModule
from magmath.codegen.background_build import compile_in_background
from magmath.kernels.parallel_region import run_on_threads

LEAST_BYTES: Final = 1 << 15
"""Selections of fewer bytes are left to torch, whose call takes less time."""
SHARES: Final = 16
"""Number of shares of the positions."""
DIVIDED_BYTES: Final = 1 << 18
"""Minimum bytes of a selection that several threads divide."""

JOB: Final = (
    "source", "target", "places", "count", "extent", "nbytes", "share", "wrong", "next_place",
)  # fmt: skip
"""The argument of the exported function, 64-bit words: addresses of rows, of the result and of the
positions; the number of positions; the number of rows and their size in bytes; the positions in a
share; whether a position is out of range; and the counter of positions."""

_NUMBERS: Final = '''
def select_{T}(job: int64[1], first: int64, last: int64):
    """Copy single numbers."""
    x: {T}[1] = job[SOURCE]
    out: {T}[1] = job[TARGET]
    places: int64[1] = job[PLACES]
    extent = job[EXTENT]
    wrong = 0
    for i in range(first, last):
        place = places[i]
        place = place + extent if place < 0 else place
        outside = place < 0 or place >= extent
        wrong = 1 if outside else wrong
        out[i] = x[0 if outside else place]
    if wrong != 0:
        job[WRONG] = 1
'''
_SOURCE: Final = (
    _NUMBERS.format(T="int32")
    + _NUMBERS.format(T="int64")
    + '''
def select_rows(job: int64[1], first: int64, last: int64):
    """Copy rows of any size."""
    places: int64[1] = job[PLACES]
    extent = job[EXTENT]
    nbytes = job[NBYTES]
    for i in range(first, last):
        place = places[i]
        place = place + extent if place < 0 else place
        if place < 0 or place >= extent:
            job[WRONG] = 1
            place = 0
        memcpy(job[TARGET] + i * nbytes, job[SOURCE] + place * nbytes, nbytes)

def select(record: int64):
    """Copy the rows of one thread's shares of the positions."""
    job: int64[1] = record
    first = fetch_add(job, NEXT_PLACE, job[SHARE])
    while first < job[COUNT]:
        last = min(first + job[SHARE], job[COUNT])
        if job[NBYTES] == 8:
            select_int64(job, first, last)
        elif job[NBYTES] == 4:
            select_int32(job, first, last)
        else:
            select_rows(job, first, last)
        first = fetch_add(job, NEXT_PLACE, job[SHARE])
'''
)

CODE: Final = AotModule(
    _SOURCE, ("select",), constants={name.upper(): i for i, name in enumerate(JOB)}
)


def code(_: int) -> AotModule:
    """Return the compiled function, which takes the address of a JOB."""
    return CODE


def index_select(x: torch.Tensor, axis: int, index: torch.Tensor, out: torch.Tensor) -> None:
    """Select the elements of an axis by a list of positions, like `torch.index_select`.

    Raises IndexError or RuntimeError for a position out of range; negative positions may count from
    the end, or raise one of these.
    """
    if _takes(x, axis, index, out):
        _select(x, index, out)
    else:
        torch.index_select(x, axis, index, out=out)


def _takes(x: torch.Tensor, axis: int, index: torch.Tensor, out: torch.Tensor) -> bool:
    """Return True for rows that are contiguous in memory, if the code is compiled; otherwise it is
    compiled in the background."""
    nbytes = out.numel() * out.itemsize
    if axis != 0 or nbytes < LEAST_BYTES or x.device.type != "cpu" or not len(x):
        return False
    if index.dtype != torch.int64 or nbytes < 4 * len(index):
        return False
    if not (x.is_contiguous() and index.is_contiguous() and out.is_contiguous()):
        return False
    if not CODE.is_cached():
        compile_in_background("magmath.kernels.row_selection", 0)
        return False
    return True


def _select(x: torch.Tensor, index: torch.Tensor, out: torch.Tensor) -> None:
    count, nbytes = len(index), out.numel() * out.itemsize
    words = [x.data_ptr(), out.data_ptr(), index.data_ptr(), count, len(x), nbytes // count]
    job = np.array([*words, -(-count // SHARES), 0, 0], np.int64)
    threads = torch.get_num_threads() if nbytes >= DIVIDED_BYTES else 1
    run_on_threads(CODE.address("select"), int(job.ctypes.data), threads)
    if job[JOB.index("wrong")]:
        raise IndexError("a position is out of range")
