"""Lifetimes: the bytes that the temporaries of a scheduled graph occupy at each position of the
schedule, with or without second computations of some values for their late readers.

The second computation of a value, and of the values from which it is computed, comes directly
before its first late reader. Its result is stored until its last reader.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, final

import numpy as np
import numpy.typing as npt

from magmath.graph import Graph, Node
from magmath.graph.placed_nodes import layout_of, local_bytes
from magmath.passes.schedule import ExecutionOrder
from magmath.passes.storage_sharing import Storage, outputs_with_own_storage

IGNORED: Final = 512
"""Values of less than this part of the peak do not count."""
IntArray = npt.NDArray[np.int64]
Splits = Mapping[Node, int]
"""Values that are computed twice: readers from this position of the schedule on read the second
computation."""


def walk(
    order: Iterable[tuple[int, Node]], place: Mapping[Node, int], splits: Splits
) -> Iterator[tuple[int, Node, bool]]:
    """Yield each computation in the order of execution: its position in the schedule, its node, and
    whether it is the second one of the node."""
    done: set[Node] = set()
    for at, node in order:
        needed: set[Node] = set()
        stack = [node] if splits else []
        while stack:
            for source in stack.pop().inputs:
                again = splits.get(source, at + 1) <= at
                if again and source not in done and source not in needed:
                    needed.add(source)
                    stack.append(source)
        for source in sorted(needed, key=place.__getitem__):
            yield at, source, True
        done |= needed
        yield at, node, False


@final
@dataclass(frozen=True)
class Occupation:
    """The memory of the temporaries of a schedule.

    nbytes   the bytes at each position
    readers  the positions at which the first computation of a value is read, in ascending order
    """

    nbytes: IntArray
    readers: Mapping[Node, Sequence[int]]

    @property
    def peak(self) -> int:
        """The largest number of bytes."""
        return int(self.nbytes.max(initial=0))


@final
class Lifetimes:
    """The temporaries of a scheduled graph with storage, without small ones."""

    def __init__(self, graph: Graph, schedule: ExecutionOrder, storage: Storage) -> None:
        self.place: Final = {node: at for at, node in enumerate(schedule.order)}
        self._storage = storage
        self._own_outputs = outputs_with_own_storage(graph, storage)
        self._invariant = schedule.invariant
        self._order: Sequence[tuple[int, Node]] = list(enumerate(schedule.order))
        self._owner = {node: self._owner_of(node) for node in schedule.order}
        min_bytes = self.occupation({}).peak // IGNORED
        self._owner = {
            node: None if owner is None or local_bytes(owner) < min_bytes else owner
            for node, owner in self._owner.items()
        }
        self._order = [
            (at, node)
            for at, node in self._order
            if any(self._owner[x] is not None for x in (node, *node.inputs))
        ]

    def _owner_of(self, node: Node) -> Node | None:
        """Return the node that owns the memory of a temporary that is not stored throughout."""
        owner = self._storage.root(node)
        is_stored = owner.is_leaf_or_constant
        throughout = owner in self._storage.window or layout_of(owner).shared
        throughout = throughout or node in self._invariant or owner in self._invariant
        return None if is_stored or throughout or owner in self._own_outputs else owner

    @cached_property
    def members(self) -> Mapping[Node, Sequence[Node]]:
        """The nodes in the memory of each owner, in the order of the schedule."""
        members: defaultdict[Node, list[Node]] = defaultdict(list)
        for node, owner in self._owner.items():
            if owner is not None:
                members[owner].append(node)
        return members

    def occupation(self, splits: Splits) -> Occupation:
        """Return the memory over time if these values are computed twice.

        A value that is computed in the memory of a second computation stays there.
        """
        readers: defaultdict[Node, list[int]] = defaultdict(list)
        alive: dict[tuple[Node, bool], tuple[int, int]] = {}
        owners, moved = self._owner, set[Node]()

        def touch(owner: Node | None, again: bool, at: int) -> None:
            if owner is not None:
                first, _ = alive.get((owner, again), (at, at))
                alive[owner, again] = (first, at)

        for at, node, second in walk(self._order, self.place, splits):
            owner, inside = owners[node], second
            for source in node.inputs:
                again = splits.get(source, at + 1) <= at
                if not again:
                    readers[source].append(at)
                again = again or source in moved
                inside = inside or (again and owners[source] is owner)
                touch(owners[source], again, at)
            if inside and not second:
                moved.add(node)
            touch(owner, inside, at)
        change = np.zeros(len(self.place) + 1, dtype=np.int64)
        for (owner, _), (first, last) in alive.items():
            change[first] += local_bytes(owner)
            change[last + 1] -= local_bytes(owner)
        return Occupation(np.cumsum(change[:-1]), readers)
