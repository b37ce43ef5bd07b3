"""The operands of evaluated arrays, which stay alive for later gradients and for `minimize`.

A list of losses would keep the batch, or the former parameters, of every step. So the arrays keep
a limited number of bytes in total: beyond it, those that were evaluated first release theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import ref

from magmath.engine.array_handle import ArrayHandle
from magmath.graph import Node

MAX_BYTES = 256 << 20
"""Bytes of all operands that are kept; between two searches as many more may be added."""
MIN_SEARCHED = 4096
"""Number of arrays above which those that do not exist any more are dropped."""

_arrays: list[ref[ArrayHandle]] = []
"""The arrays that keep operands, the oldest first."""
_search_above = MIN_SEARCHED
_bytes_since_search = 0
"""Bytes of the operands that were added since the last search."""


def keep(array: ArrayHandle, operands: Sequence[Node]) -> None:
    """Keep operands alive as long as an array exists and the bound of all operands allows it."""
    global _bytes_since_search, _search_above
    array._operands = operands
    if not operands:
        return
    _arrays.append(ref(array))
    _bytes_since_search += sum([x.nbytes for x in operands])
    if _bytes_since_search > MAX_BYTES or len(_arrays) > _search_above:
        _release_oldest()
        _bytes_since_search = 0
        _search_above = max(MIN_SEARCHED, 2 * len(_arrays))


def _release_oldest() -> None:
    """Release the operands of the oldest arrays; several arrays may keep one operand."""
    arrays = [array for reference in _arrays if (array := reference()) is not None]
    retained: set[Node] = set()
    nbytes, first = 0, len(arrays)
    while first:
        new = set(arrays[first - 1]._operands) - retained
        nbytes += sum([x.nbytes for x in new])
        if nbytes > MAX_BYTES and first < len(arrays):  # the newest one is kept in any case
            break
        retained |= new
        first -= 1
    for array in arrays[:first]:
        array._operands = ()
    _arrays[:] = [ref(array) for array in arrays[first:]]
