"""The layout of the barrier memory: a few cache lines shared by all ranks of one host.

Line 0 is common: the abort flag, the number of polls before a waiting rank sleeps, and whether each
rank has a processor of its own. Only rank r writes line 1 + r: the number of barriers that it has
entered, and small values that it publishes. The compiled barrier (`magmath.comm.barrier`) and the
communicators read and write it. This module defines the offsets and does not import the compiler.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from magmath.core.resources import processor_count
from magmath.errors import WorkerLost

Flags = NDArray[np.uint64]

LINE = 8
"""Words of a cache line."""
ABORT = 0
"""Word that is nonzero after a rank has aborted."""
SPIN_COUNT = 1
"""Word with the number of polls before a waiting rank sleeps."""

SEPARATE = 2
"""Word that is nonzero if there are at least as many processors as ranks."""

ENTERED = 0
"""First of two words of a rank's line: barriers entered, and whether ranks sleep until the next
entry."""
VALUES = 2
"""First of two words of a rank's line: values for `allreduce_max`, used alternately."""
ADDRESSES = 4
"""First of two pairs of words of a rank's line: the address of a tensor, used alternately."""

_SPIN = 2000
_SPIN_OVERSUBSCRIBED = 50


def flags_length(size: int) -> int:
    """Return the number of words of barrier memory for `size` ranks."""
    return LINE * (1 + size)


def prepare_flags(flags: Flags, size: int, processors: int) -> None:
    """Write the initial state into barrier memory. One rank calls it before the others use it.

    `processors`: the number of processors for all ranks; with fewer than ranks, a waiting
    rank sleeps sooner.
    """
    flags[:] = 0
    flags[SEPARATE] = size <= processors
    flags[SPIN_COUNT] = _SPIN if size <= processors else _SPIN_OVERSUBSCRIBED


def allocate_flags(size: int) -> Flags:
    """Allocate barrier memory for `size` threads of this process, aligned to cache lines."""
    words = flags_length(size)
    memory = np.zeros(words + LINE, np.uint64)
    skip = -memory.ctypes.data % (LINE * 8) // 8
    flags = memory[skip : skip + words]
    prepare_flags(flags, size, processor_count())
    return flags


def raise_if_aborted(flags: Flags) -> None:
    """Raise WorkerLost if a rank has aborted."""
    if flags[ABORT]:
        raise aborted_error()


def aborted_error() -> WorkerLost:
    """Return the error of a rank that waits after another rank has aborted."""
    return WorkerLost(
        "communication was aborted because another worker failed; the pool is closed, "
        "start a new one with mm.init"
    )
