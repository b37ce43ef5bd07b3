"""The cache of redistributed copies of evaluated arrays (dMath's "keep what you've seen").

Array values never change, so a copy is never stale. A copy is released with its array, or in
least-recently-used order when the copies exceed their budget.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING
from weakref import ref

from magmath.core.resources import memory_share
from magmath.layout import Layout

if TYPE_CHECKING:
    from magmath.engine.remote_array import RemoteArray

BUDGET_SHARE = 8
"""Copies use at most 1 / BUDGET_SHARE of a worker's memory."""


class RelayoutCache:
    """The cached copies on one pool.

    budget   maximum bytes of all copies on a worker
    limit    maximum bytes of all arrays on a worker, or None. When arrays and copies together
             exceed half of it, the copies are released and no new ones are cached.
    """

    def __init__(self, workers: int, limit: int | None) -> None:
        self.budget = (limit or memory_share(workers)) // BUDGET_SHARE
        self.limit = limit
        self._recent: OrderedDict[tuple[int, Layout], ref[RemoteArray]] = OrderedDict()

    def find(self, data: RemoteArray, layout: Layout) -> RemoteArray | None:
        """Return the copy of an array in a layout, or None."""
        copy = data.copies.get(layout)
        if copy is not None:
            self._recent.move_to_end((data.handle, layout))
        return copy

    def keep(self, data: RemoteArray, layout: Layout, copy: RemoteArray, held: int) -> None:
        """Cache a copy of an array if memory allows; `held`: bytes that a worker stores now."""
        if copy.nbytes > self.budget or self._is_short(held):
            return
        data.copies[layout] = copy
        self._recent[data.handle, layout] = ref(data)
        self._evict(self.budget)

    def make_room(self, held: int) -> None:
        """Release all copies if memory is short."""
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
