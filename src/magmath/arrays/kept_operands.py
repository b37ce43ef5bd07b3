"""The operands that evaluated arrays keep alive, so that gradients and `minimize` find them.

A list of losses would keep the batch, or the former parameters, of every step. So the arrays keep
a limited number of bytes in total: beyond it, those that were evaluated first release theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from weakref import ref

from magmath.graph import Node

MAX_BYTES = 256 << 20
"""Bytes of all operands that are kept."""
FEWEST = 4096
"""Number of arrays above which those that do not exist any more are dropped."""


class Keeping(Protocol):
    """The attributes of an array that this module uses."""

    _operands: Sequence[Node]


_keeping: list[ref[Keeping]] = []
"""The arrays that keep operands, the oldest first."""
_most = FEWEST
_added = 0
"""Bytes of the operands that were added since the last search."""


def keep(array: Keeping, operands: Sequence[Node]) -> None:
    """Keep operands alive as long as an array exists, and at most `MAX_BYTES` of all."""
    global _added, _most
    array._operands = operands
    if not operands:
        return
    _keeping.append(ref(array))
    _added += sum([x.nbytes for x in operands])
    if _added > MAX_BYTES or len(_keeping) > _most:
        _release_oldest()
        _added, _most = 0, max(FEWEST, 2 * len(_keeping))


def _release_oldest() -> None:
    """Release the operands of the oldest arrays; several arrays may keep one operand."""
    arrays = [array for reference in _keeping if (array := reference()) is not None]
    kept: set[Node] = set()
    nbytes, first = 0, len(arrays)
    while first and nbytes <= MAX_BYTES:
        first -= 1
        new = set(arrays[first]._operands) - kept
        nbytes += sum([x.nbytes for x in new])
        kept |= new
    for array in arrays[:first]:
        array._operands = ()
    _keeping[:] = [ref(array) for array in arrays[first:]]
