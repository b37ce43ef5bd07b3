"""Copies of evaluated arrays in other layouts, kept for the next use (dMath's "keep what you've
seen"). Arrays never change, so a copy is never stale; it is let go of with its array, or when the
budget is short, the one that was not used for longest first."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING
from weakref import ref

from magmath.core.resources import memory_share
from magmath.layout import Layout

if TYPE_CHECKING:
    from magmath.engine.remote_array import RemoteArray

BUDGET_SHARE = 8
"""Copies take at most one part in so many of a worker's memory."""


class RelayoutCache:
    """The copies kept on one pool.

    `budget`: bytes that they may take on a worker; `limit`: bytes that a worker may hold in all, or
    None. Where arrays and copies come near the limit, copies go and no new ones are kept.
    """

    def __init__(self, workers: int, limit: int | None) -> None:
        self.budget = (limit or memory_share(workers)) // BUDGET_SHARE
        self.limit = limit
        self._recent: OrderedDict[tuple[int, Layout], ref[RemoteArray]] = OrderedDict()

    def find(self, data: RemoteArray, layout: Layout) -> RemoteArray | None:
        """The copy of an array in a layout, if there is one."""
        copy = data.copies.get(layout)
        if copy is not None:
            self._recent.move_to_end((data.handle, layout))
        return copy

    def keep(self, data: RemoteArray, layout: Layout, copy: RemoteArray, held: int) -> None:
        """Keep a copy of an array, where memory allows; `held`: bytes that a worker holds now."""
        if copy.nbytes > self.budget or self._is_short(held):
            return
        data.copies[layout] = copy
        self._recent[data.handle, layout] = ref(data)
        self._evict(self.budget)

    def make_room(self, held: int) -> None:
        """Let go of all copies where memory is short."""
        if self._recent and self._is_short(held):
            self._evict(0)

    def _is_short(self, held: int) -> bool:
        return self.limit is not None and 2 * held > self.limit

    def _evict(self, budget: int) -> None:
        living = {key: data for key, known in self._recent.items() if (data := known()) is not None}
        self._recent = OrderedDict((key, ref(data)) for key, data in living.items())
        total = sum(data.copies[layout].nbytes for (_, layout), data in living.items())
        for (handle, layout), data in living.items():
            if total <= budget:
                break
            total -= data.copies.pop(layout).nbytes
            del self._recent[handle, layout]
