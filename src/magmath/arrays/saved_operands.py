"""The operands of evaluated arrays, which stay alive for later gradients and for `minimize`.

A list of losses would keep the batch, or the former parameters, of every step. So the arrays keep
a limited number of bytes in total: beyond it, those that were evaluated first release theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final
from weakref import ref

from magmath.graph import Node

MAX_BYTES = 256 << 20
"""Bytes of all operands that are kept; between two searches as many more may be added."""
MIN_SEARCHED = 4096
"""Number of records above which those that do not exist any more are dropped."""


@final
class SavedOperands:
    """What an evaluated array keeps alive, as long as it exists.

    operands  the arrays from which it was computed, until the bound of all operands is exceeded
    values    the values of variables among them, until the variables have others
    """

    __slots__ = ("__weakref__", "operands", "values")

    def __init__(self, operands: Sequence[Node], values: Sequence[Node] = ()) -> None:
        self.operands, self.values = operands, values
        if operands:
            _register(self)


_kept: list[ref[SavedOperands]] = []
"""The operands of all arrays, the oldest first."""
_search_above = MIN_SEARCHED
_bytes_since_search = 0
"""Bytes of the operands that were added since the last search."""


def _register(kept: SavedOperands) -> None:
    """Add operands to the list of all; release the oldest ones if they exceed the bound."""
    global _bytes_since_search, _search_above
    _kept.append(ref(kept))
    _bytes_since_search += sum([x.nbytes for x in kept.operands])
    if _bytes_since_search > MAX_BYTES or len(_kept) > _search_above:
        _release_oldest()
        _bytes_since_search = 0
        _search_above = max(MIN_SEARCHED, 2 * len(_kept))


def _release_oldest() -> None:
    """Release the operands of the oldest arrays; several arrays may keep one operand."""
    existing = [kept for reference in _kept if (kept := reference()) is not None]
    retained: set[Node] = set()
    nbytes, first = 0, len(existing)
    while first:
        new = set(existing[first - 1].operands) - retained
        nbytes += sum([x.nbytes for x in new])
        if nbytes > MAX_BYTES and first < len(existing):  # the newest one is kept in any case
            break
        retained |= new
        first -= 1
    for kept in existing[:first]:
        kept.operands = ()
    _kept[:] = [ref(kept) for kept in existing[first:]]
