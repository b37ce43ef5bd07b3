"""The arena of a program: offsets of temporaries by lifetime, by first fit, largest first.

Temporaries that are never alive at the same time share memory. Sizes are maxima over the workers,
so every worker computes the same offsets and finds its peers' temporaries without communication.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from magmath.core.byte_sizes import block_bytes
from magmath.program.instructions import Program, Slot

IntArray = npt.NDArray[np.int64]


@final
@dataclass(frozen=True)
class Arena:
    """Offsets in bytes of the temporaries that own memory, and the total bytes."""

    offsets: dict[int, int]
    nbytes: int


def arrange(program: Program) -> Arena:
    """Return the arena of a program: the largest temporaries first, each at the lowest free offset.

    Each temporary is compared with all temporaries placed before by one vector operation.
    """
    temporaries = [
        (bytes_of(slot), i) for i, slot in enumerate(program.slots) if slot.has_arena_memory
    ]
    temporaries.sort(key=lambda entry: (-entry[0], entry[1]))
    # placed temporaries in the order of their offsets: start, stop, first and last use
    placed = np.empty((4, len(temporaries)), dtype=np.int64)
    offsets: dict[int, int] = {}
    total = 0
    for count, (nbytes, i) in enumerate(temporaries):
        slot = program.slots[i]
        start, stop, first, last = placed[:, :count]
        alive = (first <= slot.last) & (slot.first <= last)
        offset = offsets[i] = _lowest_gap(start[alive], stop[alive], nbytes)
        at = int(np.searchsorted(start, offset))
        placed[:, at + 1 : count + 1] = placed[:, at:count].copy()
        placed[:, at] = offset, offset + nbytes, slot.first, slot.last
        total = max(total, offset + nbytes)
    return Arena(offsets, total)


def bytes_of(slot: Slot) -> int:
    """Return the bytes of the memory of a slot on the worker that needs most."""
    return block_bytes(slot.local_bytes)


def _lowest_gap(start: IntArray, stop: IntArray, nbytes: int) -> int:
    """Return the lowest offset of `nbytes` free bytes between occupied ranges, sorted by their
    starts."""
    if not len(start):
        return 0
    occupied = np.maximum.accumulate(stop)  # the end of occupied memory after each range
    below = np.concatenate(([0], occupied[:-1]))
    fits = np.flatnonzero(start - below >= nbytes)
    return int(below[fits[0]] if len(fits) else occupied[-1])
