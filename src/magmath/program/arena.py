"""Where temporaries lie in a program's arena: offsets by lifetime, smallest total first-fit.

Temporaries that are never alive together share memory. Sizes are the largest over the workers, so
every worker computes the same offsets and finds its peers' temporaries without asking.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from magmath.program.instructions import Program, Slot

ALIGNMENT = 64


@dataclass(frozen=True)
class Arena:
    """Offsets in bytes of the temporaries that own memory, and the bytes of the whole."""

    offsets: dict[int, int]
    nbytes: int


def arrange(program: Program) -> Arena:
    """The arena of a program: the largest temporaries first, each at the lowest free offset."""
    own = [
        (_nbytes(slot), i)
        for i, slot in enumerate(program.slots)
        if slot.kind == "temporary" and slot.alias is None
    ]
    placed: list[tuple[int, int, Slot]] = []  # (start, stop, slot)
    offsets: dict[int, int] = {}
    for nbytes, i in sorted(own, key=lambda entry: (-entry[0], entry[1])):
        slot = program.slots[i]
        busy = sorted((a, b) for a, b, other in placed if _overlap(slot, other))
        offsets[i] = _first_gap(busy, nbytes)
        placed.append((offsets[i], offsets[i] + nbytes, slot))
    return Arena(offsets, max((stop for _, stop, _ in placed), default=0))


def _nbytes(slot: Slot) -> int:
    nbytes = slot.layout.max_local_size * slot.dtype.itemsize
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _overlap(a: Slot, b: Slot) -> bool:
    return a.first <= b.last and b.first <= a.last


def _first_gap(busy: Sequence[tuple[int, int]], nbytes: int) -> int:
    start = 0
    for a, b in busy:
        if a - start >= nbytes:
            break
        start = max(start, b)
    return start
