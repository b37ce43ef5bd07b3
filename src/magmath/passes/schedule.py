"""Schedule: chooses the order in which every worker computes the nodes.

Workers that read one another's memory must synchronize by barriers. The level of a node is the
number of barriers before it: reading data that another worker has just written takes one more.
Nodes are ordered by level, so that all nodes that can run before a barrier do, and one barrier
serves many transfers. Within a level, updates run as early as possible, and a leaf's storage is
overwritten only after its last reader. Nodes that no step changes come first: a loop over steps
computes them once.

Workers that do not share memory need no barriers, but exchange messages. Messages are sent as soon
as their data exist, and other work runs until they are needed.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from magmath.graph import Graph, Node, topological, users_of
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


def schedule(graph: Graph, workspace: int = 0, changing: Collection[Node] = ()) -> ExecutionOrder:
    """Return an order that respects data dependences, overwritten storage and barriers.

    `workspace`: bytes on a worker that may arrive before they are needed, if transfers are messages
    and can overlap with other work. `changing`: leaves that change between the steps of a run, in
    addition to the targets.
    """
    targets = [(n, t) for n, t in zip(graph.outputs, graph.targets, strict=False) if t is not None]
    depth = _depths(graph)
    nodes = topological(_last_roots(graph, depth), depth=depth)
    users = users_of(nodes)
    position = {node: i for i, node in enumerate(nodes)}
    position.update({node: position[node] - len(nodes) for node in _scalars(nodes)})
    after: dict[Node, set[Node]] = {node: set(node.inputs) for node in nodes}
    followers = {node: set(users[node]) for node in nodes}
    late: set[Node] = set()
    uses = Counter(graph.outputs)
    kept = {_source(node) for node in (*graph.outputs, *graph.emitted)}
    for output, target in targets:
        writer = _writer(output)
        readers = {r for r in _readers(target, users) if r not in (output, writer)}
        if uses[output] > 1 or target in kept or _is_reachable(writer, readers, followers):
            late.add(output)
            continue
        after[writer] |= readers
        for reader in readers:
            followers[reader].add(writer)
    invariant = _invariant(nodes, {target for _, target in targets}.union(changing))
    levels = _levels(nodes, after)
    last = max(levels.values(), default=0)
    levels.update({node: last for node, _ in targets if _copies_to_all(node)})
    levels.update(dict.fromkeys(invariant, -1))
    order = _ordered(nodes, after, position, levels)
    if last and _needs_more_memory(order, nodes):
        order = _ordered(nodes, after, position, {x: min(levels[x], 0) for x in nodes})
    if workspace:
        order = _early(order, after, workspace, len(invariant))
    return ExecutionOrder(order, frozenset(late), invariant)


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


def _needs_more_memory(order: list[Node], usual: list[Node]) -> bool:
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
        alive += _local_bytes(node)
        peak = max(peak, alive)
        alive -= sum([_local_bytes(x) for x in dict.fromkeys(node.inputs) if last[x] is node])
    return peak


def _local_bytes(node: Node) -> int:
    """Return the bytes of a value on a worker; 0 for leaves, which exist anyway."""
    if node.is_leaf or node.layout is None:
        return 0
    return node.layout.max_local_size * node.dtype.itemsize


def _copies_to_all(node: Node) -> bool:
    """Return True for a replicated result that one worker copies into storage that all workers
    share.

    The copy waits for the last barrier, so that it needs none of its own.
    """
    if node.name != "redistribute" or node.layout is None or not node.layout.shared:
        return False
    have = node.inputs[0].layout
    return have is not None and have.is_replicated


def _invariant(nodes: list[Node], changed: set[Node]) -> frozenset[Node]:
    """Return the nodes that depend on nothing that changes; none if nothing changes."""
    if not changed:
        return frozenset()
    invariant: set[Node] = set()
    for node in nodes:
        if node not in changed and all(source in invariant for source in node.inputs):
            invariant.add(node)
    return frozenset(invariant)


def _last_roots(graph: Graph, depth: Mapping[Node, int]) -> list[Node]:
    """Return the roots that no other one needs, the shallowest first.

    A root that others need is computed as a part of these. If it came first, all of its expression
    would be computed first, and its intermediate values, which the other roots read
    too, would occupy memory until these are computed.
    """
    needed = {source for node in graph.nodes for source in node.inputs}
    return sorted([x for x in graph.roots if x not in needed], key=depth.__getitem__)


def _depths(graph: Graph) -> Mapping[Node, int]:
    depth: dict[Node, int] = {}
    for node in graph.nodes:
        depth[node] = 1 + max((depth[source] for source in node.inputs), default=0)
    return depth


def _writer(output: Node) -> Node:
    """Return the node that computes the content of the target: the source of a redistribution."""
    return output.inputs[0] if output.name == "redistribute" else output


def _source(node: Node) -> Node:
    """Return the node in whose storage this one may be a view."""
    while node.operation.is_view:
        node = node.inputs[0]
    return node


def _readers(target: Node, users: Mapping[Node, list[Node]]) -> list[Node]:
    """Return the nodes that read the target's storage, directly or through possible views of it."""
    readers, stack = [], list(users[target])
    while stack:
        node = stack.pop()
        readers.append(node)
        if node.operation.is_view:
            stack.extend(users[node])
    return readers


def _is_reachable(start: Node, goals: set[Node], followers: Mapping[Node, set[Node]]) -> bool:
    seen, stack = {start}, [start]
    while stack:
        for user in followers[stack.pop()]:
            if user in goals:
                return True
            if user not in seen:
                seen.add(user)
                stack.append(user)
    return False


def _levels(nodes: list[Node], after: Mapping[Node, set[Node]]) -> dict[Node, int]:
    level: dict[Node, int] = {}
    for node in _any_order(nodes, after):
        level[node] = max(
            (level[before] + _step(before, node) for before in after[node]), default=0
        )
    return level


def _step(before: Node, node: Node) -> int:
    """Return 1 if a barrier must separate the two nodes, otherwise 0."""
    if before.is_leaf:
        return 0
    if before in node.inputs:
        published = before.layout is not None and before.layout.shared
        return int(published or _crosses(node))
    # `before` reads storage that `node` overwrites: peers may read it too
    return int(any(x.layout is not None and x.layout.shared for x in before.inputs))


def _crosses(node: Node) -> bool:
    if node.name != "redistribute":
        return False
    have, want = node.inputs[0].layout, node.layout
    assert have is not None
    assert want is not None
    return is_cross_worker(have, want)


def _any_order(nodes: list[Node], after: Mapping[Node, set[Node]]) -> list[Node]:
    position = {node: i for i, node in enumerate(nodes)}
    return _ordered(nodes, after, position, dict.fromkeys(nodes, 0))


def _ordered(
    nodes: list[Node],
    after: Mapping[Node, set[Node]],
    position: Mapping[Node, int],
    level: Mapping[Node, int],
) -> list[Node]:
    """Return a topological order by Kahn's algorithm: the ready node of lowest level first, then of
    earliest position."""
    waiting = {node: len(after[node]) for node in nodes}
    followers: dict[Node, list[Node]] = {node: [] for node in nodes}
    for node in nodes:
        for before in after[node]:
            followers[before].append(node)
    ready = [(level[n], position[n], n) for n in nodes if waiting[n] == 0]
    heapq.heapify(ready)
    order: list[Node] = []
    while ready:
        *_, node = heapq.heappop(ready)
        order.append(node)
        for follower in followers[node]:
            waiting[follower] -= 1
            if waiting[follower] == 0:
                heapq.heappush(ready, (level[follower], position[follower], follower))
    return order


def _early(
    order: list[Node], after: Mapping[Node, set[Node]], workspace: int, invariant: int
) -> list[Node]:
    """Return the order with transfers between workers as early as their operands exist, while at
    most `workspace` bytes wait for their use.

    The first `invariant` nodes remain in front.
    """
    staying = [node for node in order if not _crosses(node)]
    fixed = sum(not _crosses(node) for node in order[:invariant])
    place = {node: i for i, node in enumerate(staying)}
    gap: dict[Node, int] = {}  # of a transfer: the number of other nodes before it
    waiting = [0] * (len(staying) + 1)  # bytes that have arrived, in each gap
    passed = 0
    for number, node in enumerate(order):
        if node in place:
            passed += 1
            continue
        needed = [gap[x] if x in gap else place[x] + 1 for x in after[node]]
        first = max([0 if number < invariant else fixed, *needed])
        assert node.layout is not None
        nbytes = node.layout.max_local_size * node.dtype.itemsize
        begin = passed
        while begin > first and waiting[begin - 1] + nbytes <= workspace:
            begin -= 1
            waiting[begin] += nbytes
        gap[node] = begin
    begun: defaultdict[int, list[Node]] = defaultdict(list)
    for node, number in gap.items():
        begun[number].append(node)
    gaps = range(len(staying) + 1)
    return [node for i in gaps for node in (*begun[i], *staying[i : i + 1])]
