"""Liveness: the bytes that the temporaries of a scheduled graph occupy at each position of the
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
from magmath.passes.assign_buffers import BufferAssignment, outputs_with_own_buffer
from magmath.passes.schedule import ExecutionOrder

IGNORED: Final = 512
"""Values of less than this part of the peak do not count."""
IntArray = npt.NDArray[np.int64]
Recomputed = Mapping[Node, int]
"""Values that are computed twice: readers from this position of the schedule on read the second
computation."""


Computation = tuple[int, Node, bool]
"""A position of the schedule, a node that is computed there or directly before, and True if its
value was computed before. No class, since the pass makes millions."""


def reads_second(node: Node, position: int, recomputed: Recomputed) -> bool:
    """Return True if a reader at this position reads the second computation of a node."""
    return recomputed.get(node, position + 1) <= position


def computations(
    order: Iterable[tuple[int, Node]], positions: Mapping[Node, int], recomputed: Recomputed
) -> Iterator[Computation]:
    """Yield each computation in the order of execution, for nodes with their positions."""
    recomputed_before: set[Node] = set()
    for position, node in order:
        needed: set[Node] = set()
        stack = [node] if recomputed else []
        while stack:
            for source in stack.pop().inputs:
                second = recomputed.get(source, position + 1) <= position  # `reads_second`
                if second and source not in recomputed_before and source not in needed:
                    needed.add(source)
                    stack.append(source)
        for source in sorted(needed, key=positions.__getitem__):
            yield position, source, True
        recomputed_before |= needed
        yield position, node, False


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
    """The temporaries of a scheduled graph with buffers, without small ones."""

    def __init__(self, graph: Graph, schedule: ExecutionOrder, buffers: BufferAssignment) -> None:
        self.place: Final = {node: position for position, node in enumerate(schedule.order)}
        self._buffers = buffers
        self._own_outputs = outputs_with_own_buffer(graph, buffers)
        self._invariant = schedule.invariant
        self._order: Sequence[tuple[int, Node]] = list(enumerate(schedule.order))
        self._owner = {node: self._owner_of(node) for node in schedule.order}
        min_bytes = self.occupation({}).peak // IGNORED
        self._owner = {
            node: None if owner is None or local_bytes(owner) < min_bytes else owner
            for node, owner in self._owner.items()
        }
        self._order = [
            (position, node)
            for position, node in self._order
            if any(self._owner[x] is not None for x in (node, *node.inputs))
        ]

    def _owner_of(self, node: Node) -> Node | None:
        """Return the node that owns the memory of a temporary that is not stored throughout."""
        owner = self._buffers.root(node)
        is_stored = owner.is_leaf_or_constant
        throughout = owner in self._buffers.peer_readable or layout_of(owner).shared
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

    def occupation(self, recomputed: Recomputed) -> Occupation:
        """Return the memory over time if these values are computed twice.

        A value that is computed in the memory of a second computation stays there.
        """
        readers: defaultdict[Node, list[int]] = defaultdict(list)
        alive: dict[tuple[Node, bool], tuple[int, int]] = {}  # (owner, is second) → first, last
        owners, moved = self._owner, set[Node]()

        def touch(owner: Node | None, is_second: bool, position: int) -> None:
            if owner is not None:
                first, _ = alive.get((owner, is_second), (position, position))
                alive[owner, is_second] = (first, position)

        for position, node, is_second in computations(self._order, self.place, recomputed):
            owner, in_second = owners[node], is_second
            for source in node.inputs:
                second = recomputed.get(source, position + 1) <= position  # `reads_second`
                if not second:
                    readers[source].append(position)
                second = second or source in moved
                in_second = in_second or (second and owners[source] is owner)
                touch(owners[source], second, position)
            if in_second and not is_second:
                moved.add(node)
            touch(owner, in_second, position)
        change = np.zeros(len(self.place) + 1, dtype=np.int64)
        for (owner, _), (first, last) in alive.items():
            change[first] += local_bytes(owner)
            change[last + 1] -= local_bytes(owner)
        return Occupation(np.cumsum(change[:-1]), readers)
