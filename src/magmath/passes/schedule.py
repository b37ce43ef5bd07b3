"""Schedule: chooses the order in which every worker computes the nodes.

Workers that read one another's memory must synchronize by barriers. The level of a node is the
number of barriers before it: reading data that another worker has just written takes one more.
Nodes are ordered by level, so that all nodes that can run before a barrier do, and one barrier
serves many transfers. Within a level, transfers come first, updates run as early as possible, and
a leaf's buffer is overwritten only after its last reader. Nodes that no step changes come first: a
loop over steps computes them once.

Workers that do not share memory need no barriers, but exchange messages. Messages are sent as soon
as their data exist, and other work runs until they are needed.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from magmath.graph import Graph, Node, topological, users_of
from magmath.graph.placed_nodes import layout_of, local_bytes
from magmath.passes.aliasing import is_cross_worker

LITTLE_BYTES = 32 << 20
"""Bytes of waiting values up to which an order may save barriers at their expense."""
MAX_GROWTH = 2
"""Factor by which such an order may exceed the memory of another."""


@final
@dataclass(frozen=True)
class ExecutionOrder:
    """Nodes in the order of execution, and the outputs that may not overwrite their target at once.

    Outputs are `late`, copied at the end, if their target is read after they are computed, or if
    the old value of the target is an output itself. `invariant` nodes, which come first, depend on
    no target: they are the same in every step.
    """

    order: list[Node]
    late: frozenset[Node]
    invariant: frozenset[Node]


def schedule(graph: Graph, early_bytes: int = 0, changing: Collection[Node] = ()) -> ExecutionOrder:
    """Return an order that respects data dependences, overwritten buffers and barriers.

    `early_bytes`: bytes on a worker that may arrive before they are needed, if transfers are
    messages and can overlap with other work. `changing`: leaves that change between the steps of a
    run, in addition to the targets.
    """
    depth = _depths(graph)
    nodes = topological(_final_roots(graph, depth), depth=depth)
    dependences = _Dependences(nodes)
    late = _late_outputs(graph, dependences)
    targets = {target for target in graph.targets if target is not None}
    invariant = _invariant(nodes, targets.union(changing))
    position = {node: i for i, node in enumerate(nodes)}
    position.update({node: position[node] - len(nodes) for node in _scalars(nodes)})
    levels = _levels(nodes, dependences)
    _raise_to_level_of_reader(nodes, dependences, levels)
    last = max(levels.values(), default=0)
    copies = [x for x, target in graph.outputs_and_targets if target and _is_copy_to_all(x)]
    levels.update(dict.fromkeys(copies, last))
    levels.update(dict.fromkeys(invariant, -1))
    first = set[Node]() if early_bytes else _first_of_level(nodes)
    # The first of a level precede all others of it: positions of scalars begin at -len(nodes).
    rank = {node: position[node] - 2 * len(nodes) * (node in first) for node in nodes}
    order = dependences.ordered(nodes, lambda node: (levels[node], rank[node]))
    if last and _has_larger_peak(order, nodes):
        order = dependences.ordered(nodes, lambda node: (min(levels[node], 0), position[node]))
    if early_bytes:
        order = _with_early_transfers(order, dependences, early_bytes, len(invariant))
    return ExecutionOrder(order, late, invariant)


@final
class _Dependences:
    """What each node must wait for: its operands and, if it overwrites a target, the readers of
    the target's former value."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.users = users_of(nodes)
        self.predecessors = {node: set(node.inputs) for node in nodes}
        self._successors = {node: set(users) for node, users in self.users.items()}

    def add(self, before: Node, after: Node) -> None:
        """Let one node wait for another one."""
        self.predecessors[after].add(before)
        self._successors[before].add(after)

    def can_reach(self, start: Node, goals: Collection[Node]) -> bool:
        """Return True if one of the goals waits, directly or through others, for a node."""
        seen, stack = {start}, [start]
        while stack:
            for successor in self._successors[stack.pop()]:
                if successor in goals:
                    return True
                if successor not in seen:
                    seen.add(successor)
                    stack.append(successor)
        return False

    def ordered(
        self, nodes: Sequence[Node], priority: Callable[[Node], tuple[int, int]]
    ) -> list[Node]:
        """Return a topological order by Kahn's algorithm: of the ready nodes, the one whose
        priority is the least comes first. Priorities differ."""
        missing = {node: len(self.predecessors[node]) for node in nodes}
        ready = [(priority(node), node) for node in nodes if not missing[node]]
        heapq.heapify(ready)
        order: list[Node] = []
        while ready:
            _, node = heapq.heappop(ready)
            order.append(node)
            for successor in self._successors[node]:
                missing[successor] -= 1
                if not missing[successor]:
                    heapq.heappush(ready, (priority(successor), successor))
        return order


def _late_outputs(graph: Graph, dependences: _Dependences) -> frozenset[Node]:
    """Return the outputs that may not overwrite their target at once; let all others wait for the
    readers of their target."""
    late: set[Node] = set()
    uses = Counter(graph.outputs)
    returned = {_viewed(node) for node in (*graph.outputs, *graph.emitted)}
    for output, target in graph.outputs_and_targets:
        if target is None:
            continue
        writer = writer_of(output)
        readers = {x for x in _readers(target, dependences.users) if x not in (output, writer)}
        if uses[output] > 1 or target in returned or dependences.can_reach(writer, readers):
            late.add(output)
            continue
        for reader in readers:
            dependences.add(reader, writer)
    return frozenset(late)


def _scalars(nodes: Sequence[Node]) -> set[Node]:
    """Return the nodes without dimensions that are computed from such nodes alone.

    They come first: a call of a scalar function between operations on long arrays would divide
    these into two loops.
    """
    scalars: set[Node] = set()
    for node in nodes:
        if not node.ndim and all(x in scalars or (x.is_leaf and not x.ndim) for x in node.inputs):
            scalars.add(node)
    return scalars


def _first_of_level(nodes: Sequence[Node]) -> set[Node]:
    """Return the transfers between workers, and the views of earlier values that they read.

    Between operations on arrays they would divide the loops of these.
    """
    first: set[Node] = set()
    for node in filter(_is_cross_worker_move, nodes):
        first.add(node)
        source = node.inputs[0]
        while source.operation.is_view:
            first.add(source)
            source = source.inputs[0]
    return first


def _has_larger_peak(order: list[Node], usual: list[Node]) -> bool:
    """Return True if the values of an order need several times the memory of those of the usual
    order, depth first, and more than `LITTLE_BYTES`.

    Orders by level save barriers, but a value that is used after the next barrier waits for it.
    """
    needed = _peak_bytes(order)
    return needed > LITTLE_BYTES and needed > MAX_GROWTH * _peak_bytes(usual)


def _peak_bytes(order: list[Node]) -> int:
    """Return the largest sum of the bytes, on a worker, of the values that wait for their uses."""
    last = {source: node for node in order for source in node.inputs}
    alive = peak = 0
    for node in order:
        alive += _computed_bytes(node)
        peak = max(peak, alive)
        alive -= sum([_computed_bytes(x) for x in dict.fromkeys(node.inputs) if last[x] is node])
    return peak


def _computed_bytes(node: Node) -> int:
    """Return the bytes of a value on a worker; 0 for leaves, which exist anyway."""
    return 0 if node.is_leaf else local_bytes(node)


def _is_copy_to_all(node: Node) -> bool:
    """Return True for a replicated result that one worker copies into a buffer that all workers
    share.

    The copy waits for the last barrier, so that it needs none of its own.
    """
    if node.name != "redistribute" or not layout_of(node).shared:
        return False
    return layout_of(node.inputs[0]).is_replicated


def _invariant(nodes: list[Node], changed: set[Node]) -> frozenset[Node]:
    """Return the nodes that depend on nothing that changes; none if nothing changes."""
    if not changed:
        return frozenset()
    invariant: set[Node] = set()
    for node in nodes:
        if node not in changed and all(source in invariant for source in node.inputs):
            invariant.add(node)
    return frozenset(invariant)


def _final_roots(graph: Graph, depth: Mapping[Node, int]) -> list[Node]:
    """Return the roots that no other one needs, the shallowest first.

    A root that others need is computed as a part of these. If it came first, all of its expression
    would be computed first, and its intermediate values, which the other roots read too, would
    occupy memory until these are computed.
    """
    needed = {source for node in graph.nodes for source in node.inputs}
    return sorted([x for x in graph.roots if x not in needed], key=depth.__getitem__)


def _depths(graph: Graph) -> Mapping[Node, int]:
    depth: dict[Node, int] = {}
    for node in graph.nodes:
        depth[node] = 1 + max((depth[source] for source in node.inputs), default=0)
    return depth


def writer_of(output: Node) -> Node:
    """Return the node that computes the content of the target: the source of a redistribution."""
    return output.inputs[0] if output.name == "redistribute" else output


def _viewed(node: Node) -> Node:
    """Return the node in whose buffer this one may be a view."""
    while node.operation.is_view:
        node = node.inputs[0]
    return node


def _readers(target: Node, users: Mapping[Node, list[Node]]) -> list[Node]:
    """Return the nodes that read the target's buffer, directly or through possible views of it."""
    readers, stack = [], list(users[target])
    while stack:
        node = stack.pop()
        readers.append(node)
        if node.operation.is_view:
            stack.extend(users[node])
    return readers


def _levels(nodes: Sequence[Node], dependences: _Dependences) -> dict[Node, int]:
    """Return the number of barriers that must precede each node."""
    position = {node: i for i, node in enumerate(nodes)}
    level: dict[Node, int] = {}
    for node in dependences.ordered(nodes, lambda node: (0, position[node])):
        before = dependences.predecessors[node]
        level[node] = max([level[x] + _barriers_between(x, node) for x in before], default=0)
    return level


def _raise_to_level_of_reader(
    nodes: Sequence[Node], dependences: _Dependences, levels: dict[Node, int]
) -> None:
    """Raise each element-wise node with a single, element-wise reader to the level of its reader: a
    loop computes both, and the value is not stored."""
    for node in reversed(nodes):
        users = dependences.users[node]
        if node.operation.is_elementwise and len(users) == 1:
            user = users[0]
            if user.operation.is_elementwise and user.shape == node.shape:
                levels[node] = levels[user]


def _barriers_between(before: Node, node: Node) -> int:
    """Return 1 if a barrier must separate the two nodes, otherwise 0."""
    if before.is_leaf:
        return 0
    if before in node.inputs:
        return int(layout_of(before).shared or _is_cross_worker_move(node))
    # `before` reads a buffer that `node` overwrites: peers may read it too
    return int(any(layout_of(x).shared for x in before.inputs))


def _is_cross_worker_move(node: Node) -> bool:
    if node.name != "redistribute":
        return False
    return is_cross_worker(layout_of(node.inputs[0]), layout_of(node))


def _with_early_transfers(
    order: Sequence[Node], dependences: _Dependences, early_bytes: int, invariant: int
) -> list[Node]:
    """Return the order with transfers between workers as early as their operands exist, while at
    most `early_bytes` bytes wait for their use.

    The first `invariant` nodes remain in front.
    """
    local_nodes = [node for node in order if not _is_cross_worker_move(node)]
    fixed = sum(not _is_cross_worker_move(node) for node in order[:invariant])
    positions = {node: i for i, node in enumerate(local_nodes)}
    gap: dict[Node, int] = {}  # of a transfer: the number of other nodes before it
    arrived = [0] * (len(local_nodes) + 1)  # bytes that wait for their use, in each gap
    passed = 0
    for number, node in enumerate(order):
        if node in positions:
            passed += 1
            continue
        before = dependences.predecessors[node]
        needed = [gap[x] if x in gap else positions[x] + 1 for x in before]
        first = max([0 if number < invariant else fixed, *needed])
        nbytes = local_bytes(node)
        begin = passed
        while begin > first and arrived[begin - 1] + nbytes <= early_bytes:
            begin -= 1
            arrived[begin] += nbytes
        gap[node] = begin
    transfers: defaultdict[int, list[Node]] = defaultdict(list)
    for node, number in gap.items():
        transfers[number].append(node)
    gaps = range(len(local_nodes) + 1)
    return [node for i in gaps for node in (*transfers[i], *local_nodes[i : i + 1])]
