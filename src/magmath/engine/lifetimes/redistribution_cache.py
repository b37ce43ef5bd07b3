"""The cache of redistributed copies of evaluated arrays (dMath's "keep what you've seen").

A program that writes into the memory of an array returns another handle, which has no copies, and
`EagerCall.write`, which keeps the handle, refuses arrays that have some. So no copy is stale. A
copy is released with its array, or in least-recently-used order when the copies exceed their
budget. `NeededCopies` returns the copies that the program of a graph can use.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, final
from weakref import ref

from magmath.core.bounded_memo import RecentlyUsed
from magmath.core.resources import memory_share
from magmath.graph import Graph, Node, users_of
from magmath.layout import Layout
from magmath.passes.aliasing import is_cross_worker
from magmath.passes.environment import Environment
from magmath.passes.place import place
from magmath.passes.simplify import simplify

if TYPE_CHECKING:
    from magmath.engine.remote_array import RemoteArray

MAX_SHARE = 1 / 8
"""The share of a worker's memory that copies use at most."""
MIN_BYTES = 64 << 10
"""The size of the smallest array whose copies are cached."""
MAX_GRAPHS = 512


@final
class NeededCopy(NamedTuple):
    """The position of an array among the leaves of a graph, and the layout that the graph needs."""

    position: int
    layout: Layout


@final
class NeededCopies:
    """The arrays that graphs only redistribute between workers, by the structure of the graph."""

    def __init__(self) -> None:
        self._known: RecentlyUsed[Hashable, tuple[NeededCopy, ...]] = RecentlyUsed(MAX_GRAPHS)

    def of(self, graph: Graph, environment: Environment) -> tuple[NeededCopy, ...]:
        """Return the arrays that a graph only redistributes, and to which layouts."""
        if not any(_is_large(leaf) for leaf in graph.leaves):
            return ()
        key = graph.key
        needed = self._known.find(key)
        if needed is None:
            needed = tuple(_needed_copies(graph, environment))
            self._known.store(key, needed)
        return needed


def _is_large(leaf: Node) -> bool:
    return leaf.name == "input" and leaf.nbytes >= MIN_BYTES


def _needed_copies(graph: Graph, environment: Environment) -> Iterator[NeededCopy]:
    placed = place(simplify(graph), environment)
    users = users_of(placed.nodes)
    for position, leaf in enumerate(graph.leaves):
        using = users.get(leaf, [])
        if not _is_large(leaf) or leaf in placed.outputs:
            continue
        if len(using) == 1 and using[0].name == "redistribute":
            have, want = leaf.layout, using[0].layout
            if have and want and not want.has_overlaps and is_cross_worker(have, want):
                yield NeededCopy(position, want)


@final
class RedistributionCache:
    """The cached copies on one pool.

    workers  the number of workers, which share the memory of the host where there is no limit
    limit    maximum bytes of all arrays on a worker, or None. When arrays and copies in total
             exceed half of it, the copies are released and no new ones are cached.
    """

    def __init__(self, workers: int, limit: int | None) -> None:
        self._workers, self.limit = workers, limit
        self._recent: RecentlyUsed[tuple[ref[RemoteArray], Layout], int] = RecentlyUsed()
        """The bytes of copies, by the arrays and the layouts of their copies. An array is not known
        by its id, which changes if an abandoned run is repeated."""

    @cached_property
    def budget(self) -> int:
        """The maximum bytes of all copies on a worker."""
        return int((self.limit or memory_share(self._workers)) * MAX_SHARE)

    def find(self, data: RemoteArray, layout: Layout) -> RemoteArray | None:
        """Return the copy of an array in a layout, or None."""
        copy = data.copies.get(layout)
        if copy is not None:
            self._recent.find((ref(data), layout))
        return copy

    def keep(self, data: RemoteArray, layout: Layout, copy: RemoteArray, used: int) -> None:
        """Cache a copy of an array if memory allows; `used`: bytes of all arrays on a worker."""
        if copy.nbytes > self.budget or self._is_short(used):
            return
        data.copies[layout] = copy
        self._recent.store((ref(data), layout), copy.nbytes)
        self._evict(self.budget)

    def make_room(self, used: int, temporaries: int) -> None:
        """Release all copies if memory is short for a program that needs these temporaries."""
        if not self._recent or self.limit is None:
            return
        if self._is_short(used) or used + temporaries > self.limit:
            self._evict(0)

    def _is_short(self, used: int) -> bool:
        return self.limit is not None and 2 * used > self.limit

    def _evict(self, budget: int) -> None:
        for key in [key for key in list(self._recent) if key[0]() is None]:
            del self._recent[key]
        dropped = self._recent.drop_while(lambda _, total: total > budget, lambda nbytes: nbytes)
        for (array, layout), _ in dropped:
            if (data := array()) is not None:
                data.copies.pop(layout, None)
