"""The return of unused pages to the system, without a change of addresses."""

from __future__ import annotations

import ctypes
import mmap
from functools import cache
from typing import Any

from torch import Tensor


def return_pages(memory: Tensor) -> None:
    """Return the whole pages of host memory to the system. They are zero at the next access.

    The pages of a memory file are removed from the file, for all processes that map it; those of
    private memory from this process.
    """
    begin = -(-memory.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
    end = (memory.data_ptr() + memory.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if end <= begin:
        return
    address, length = ctypes.c_void_p(begin), ctypes.c_size_t(end - begin)
    if _madvise()(address, length, mmap.MADV_REMOVE):  # fails for private memory
        _madvise()(address, length, mmap.MADV_DONTNEED)


@cache
def _madvise() -> Any:
    return ctypes.CDLL(None, use_errno=True).madvise
