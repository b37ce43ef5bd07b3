"""The barrier memory: a few cache lines that all ranks of one host see.

Line 0 belongs to all: the abort flag, and how long to spin before yielding the processor. Line
1 + r is written by rank r alone: how many barriers it has entered, and the small values that it
shows to the others. The compiled barrier (`magmath.comm.barrier`) and the communicators read and
write it; this module fixes who finds what where, and needs no compiler.
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
"""Word that is not 0 once a rank has aborted."""
SPIN_COUNT = 1
"""Word that holds the number of looks at a flag before the processor is yielded."""

ENTERED = 0
"""First of two words of a rank's line: barriers entered, and whether somebody sleeps until the next
one is."""
VALUES = 2
"""First of two words of a rank's line: values for `allreduce_max`, used in turn."""
ADDRESSES = 4
"""First of two pairs of words of a rank's line: where a tensor lies, used in turn."""

_SPIN = 2000
_SPIN_OVERSUBSCRIBED = 50


def flags_length(size: int) -> int:
    """Words of barrier memory for `size` ranks."""
    return LINE * (1 + size)


def prepare_flags(flags: Flags, size: int, cores: int) -> None:
    """Write the initial state into barrier memory; for one rank, before any other uses it.

    `cores`: the processor cores that the ranks have together; where they are fewer than `size`,
    a rank that waits soon yields to others.
    """
    flags[:] = 0
    flags[SPIN_COUNT] = _SPIN if size <= cores else _SPIN_OVERSUBSCRIBED


def allocate_flags(size: int) -> Flags:
    """Barrier memory for `size` threads of this process, aligned to cache lines."""
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
    """The error of a rank that waits for ranks which will not come."""
    return WorkerLost(
        "communication was aborted because another worker failed; the pool is closed, "
        "start a new one with mm.init"
    )
