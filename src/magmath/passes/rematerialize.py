"""Rematerialization: computes values a second time instead of storing them, if a program needs more
memory than it may.

A training step stores most values of the forward pass until the backward pass reads them. The pass
interrupts the lifetimes of such values at their longest gap between two accesses. The readers
behind the gap read a second computation, which starts from values that are still stored at that
position, and computes all others again. So the values between two stored ones form a recomputed
segment, as in Chen et al. (2016), "Training deep nets with sublinear memory cost".

First the pass drops, in the order of the schedule, each value whose removal lowers the memory where
it is too large and raises it nowhere above the bound. So the bound determines where a recomputed
segment ends and a value stays stored. Then the pass keeps values again, those with most predicted
seconds for a byte first, as long as the bound allows.

Random numbers depend on the position and the number of the draw, so a second computation returns
the same ones. Exchanges between workers are not repeated: their results are small, or stored
throughout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import final

import numpy as np

from magmath.graph import Graph, Node
from magmath.graph.placed_nodes import layout_of, local_bytes
from magmath.passes.assign_buffers import BufferAssignment
from magmath.passes.environment import Environment
from magmath.passes.liveness import (
    Lifetimes,
    Occupation,
    Recomputed,
    computations,
    reads_second,
)
from magmath.passes.node_cost import node_seconds
from magmath.passes.schedule import ExecutionOrder, writer_of

SMALL = 16
"""Operands of less than this part of the bytes of a dropped value stay stored. A value may be
dropped that raises the memory elsewhere by less than this part."""


@final
@dataclass(frozen=True)
class Rematerialized:
    """A graph with second computations, its schedule, and for each of them the first one."""

    graph: Graph
    schedule: ExecutionOrder
    originals: Mapping[Node, Node]


def rematerialize(
    graph: Graph,
    schedule: ExecutionOrder,
    buffers: BufferAssignment,
    environment: Environment,
    excess: int,
) -> Rematerialized:
    """Return the graph in which temporaries need at least `excess` bytes less on a worker, or as
    few as the pass can reach."""
    recomputed = _Selection(graph, schedule, buffers, environment).recomputed(excess)
    first: dict[Node, Node] = {}
    second: dict[Node, Node] = {}
    order: list[Node] = []
    positions = {node: position for position, node in enumerate(schedule.order)}
    for position, node, is_second in computations(enumerate(schedule.order), positions, recomputed):
        inputs = tuple(
            [second[x] if reads_second(x, position, recomputed) else first[x] for x in node.inputs]
        )
        image = node.replace(inputs) if is_second else node.with_inputs(inputs)
        (second if is_second else first)[node] = image
        order.append(image)
    return Rematerialized(
        graph.mapped(first),
        ExecutionOrder(
            order,
            frozenset([first[node] for node in schedule.late]),
            frozenset([first[node] for node in schedule.invariant]),
        ),
        {image: first[node] for node, image in second.items()},
    )


@final
@dataclass(frozen=True)
class _Dropped:
    """Values in one memory that are computed twice, and the seconds of that for a byte."""

    values: Recomputed
    seconds_per_byte: float


@final
class _Selection:
    """The selection of the values that are computed twice."""

    def __init__(
        self,
        graph: Graph,
        schedule: ExecutionOrder,
        buffers: BufferAssignment,
        environment: Environment,
    ) -> None:
        self._lifetimes = Lifetimes(graph, schedule, buffers)
        self._buffers = buffers
        self._environment = environment
        self._place = self._lifetimes.place
        self._overwritten = _overwritten(graph, schedule)
        self._lasting = {*graph.roots, *schedule.invariant}

    def recomputed(self, excess: int) -> Recomputed:
        """Return the values that are computed twice to lower the peak by `excess` bytes."""
        start = self._lifetimes.occupation({})
        bound = start.peak - excess
        recomputed, dropped, now = self._dropped(start, bound)
        if now.peak > bound:
            return recomputed
        for entry in sorted(dropped, key=lambda entry: -entry.seconds_per_byte):
            fewer = {x: position for x, position in recomputed.items() if x not in entry.values}
            if self._lifetimes.occupation(fewer).peak <= bound:
                recomputed = fewer
        return recomputed

    def _dropped(
        self, start: Occupation, bound: int
    ) -> tuple[Recomputed, list[_Dropped], Occupation]:
        """Return all values that can be computed twice within the bound, also as a list, and the
        memory then."""
        recomputed: Recomputed = {}
        dropped: list[_Dropped] = []
        now, excess = start, start.nbytes > bound
        for owner, members in self._lifetimes.members.items():
            late = self._late(members, now)
            more = self._with(recomputed, late, now) if late else None
            if more is None:
                continue
            then = self._lifetimes.occupation(more)
            little = local_bytes(owner) // SMALL
            is_lower = bool(np.any((then.nbytes < now.nbytes - little) & excess))
            if is_lower and np.all(then.nbytes <= np.maximum(now.nbytes + little, bound)):
                seconds = sum([self._seconds(node) for node in more if node not in recomputed])
                dropped.append(_Dropped(late, seconds / max(local_bytes(owner), 1)))
                recomputed, now = more, then
        return recomputed, dropped, now

    def _late(self, members: Sequence[Node], now: Occupation) -> Recomputed:
        """Return the values in one memory that are read behind its longest gap between two
        accesses, with the positions of these readers; none if no such value can be dropped."""
        reads = [at for node in members for at in now.readers.get(node, ())]
        accesses = sorted({*reads, *[self._place[node] for node in members]})
        gaps = [(after - before, after) for before, after in pairwise(accesses)]
        if not gaps:
            return {}
        length, end = max(gaps)
        late = {}
        for node in members if length > 1 else ():
            behind = [at for at in now.readers.get(node, ()) if at >= end]
            if behind and self._place[node] < end:
                late[node] = behind[0]
        return late if all(map(self._is_repeatable, late)) else {}

    def _with(self, recomputed: Recomputed, late: Recomputed, now: Occupation) -> Recomputed | None:
        """Return the recomputed values with further ones, and with those from which they can be
        computed; None if one of these is overwritten before."""
        extended = dict(recomputed)
        stack = list(late.items())
        while stack:
            node, at = stack.pop()
            if reads_second(node, at, extended):
                continue
            extended[node] = at
            for source in node.inputs:
                if self._is_stored(source, at, now) and source not in late:
                    continue
                if not self._is_available(source, at):
                    return None
                if source in extended or source in late or self._is_worth(source, node):
                    stack.append((source, min(at, late.get(source, at))))
        return extended

    def _is_stored(self, node: Node, at: int, now: Occupation) -> bool:
        """Return True if the first computation of a value is read at a position or later, or stored
        throughout."""
        root = self._buffers.root(node)
        if node.is_leaf or root.is_leaf:
            return self._overwritten.get(root, at) >= at
        if node.name == "constant" or node in self._lasting or root in self._lasting:
            return True
        if root in self._buffers.peer_readable or layout_of(root).shared:
            return True
        return max(now.readers.get(node, (-1,))) >= at

    def _is_available(self, node: Node, at: int) -> bool:
        """Return False for a leaf, or a view of one, whose memory is overwritten before a
        position."""
        root = self._buffers.root(node)
        return not root.is_leaf or self._overwritten.get(root, at) >= at

    def _is_worth(self, source: Node, node: Node) -> bool:
        """Return True if an operand of a dropped value should be computed twice, too, instead of
        being stored longer."""
        return self._is_repeatable(source) and SMALL * local_bytes(source) > local_bytes(node)

    def _is_repeatable(self, node: Node) -> bool:
        """Return True for a value that a worker can compute a second time without exchanges."""
        root = self._buffers.root(node)
        if node.is_leaf_or_constant or node.name == "recompute" or node in self._lasting:
            return False
        if root.is_leaf or root in self._lasting or root in self._buffers.peer_readable:
            return False
        if node.name == "redistribute":
            return self._buffers.alias.get(node) is node.inputs[0]
        exchanges = node.operation.collective is not None or node.operation.uses_lapack
        return not (exchanges and self._environment.workers > 1)

    def _seconds(self, node: Node) -> float:
        return node_seconds(node, self._environment)


def _overwritten(graph: Graph, schedule: ExecutionOrder) -> Mapping[Node, int]:
    """Return for each target that is updated in place the position of its first writer."""
    positions = {node: at for at, node in enumerate(schedule.order)}
    writers = {}
    for output, target in graph.outputs_and_targets:
        if target is not None and output not in schedule.late:
            writers[target] = min(positions[output], positions[writer_of(output)])
    return writers
