"""Memory order: the order in which the program stores the dimensions of temporary arrays.

A convolution computes faster on images whose channels are adjacent in memory ("channels last"), and
element-wise operations are fast if all their arrays have one order. This pass joins the arrays that
element-wise operations connect into groups, and stores a group in the order that its convolutions
prefer, so that no conversion is needed inside a network. Shapes, layouts and indices stay as the
user wrote them: a tensor in another order is a strided view.

A group remains in row-major order if one of its arrays is visible outside of the program (inputs,
results, variables), is exchanged between workers, or is accessed by an operation whose kernel does
not support other orders (`Operation.memory_orders` is None).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import final

from magmath.core.optional_passes import ASSIGN_MEMORY_ORDERS
from magmath.graph import Graph, Node
from magmath.graph.operation import MemoryOrder
from magmath.passes.assign_buffers import BufferAssignment
from magmath.passes.environment import Environment
from magmath.passes.schedule import ExecutionOrder

NO_NODES: Mapping[Node, Node] = {}


def assign_memory_orders(
    graph: Graph,
    schedule: ExecutionOrder,
    buffers: BufferAssignment,
    environment: Environment,
    originals: Mapping[Node, Node] = NO_NODES,
) -> Mapping[Node, MemoryOrder]:
    """Return the orders of the nodes that own temporary memory and are not in row-major order.

    In deterministic mode all arrays are in row-major order: groups, and with them the rounding of
    kernels, can depend on the number of workers. `originals` maps nodes that compute the values of
    others a second time to those: both have one order, so the same kernel computes them.
    """
    orders: dict[Node, MemoryOrder] = {}
    if environment.deterministic or ASSIGN_MEMORY_ORDERS in environment.without:
        return orders
    if not _is_preferred(schedule.order):
        return orders
    groups = _Groups(buffers)
    groups.pin(_visible(graph, buffers))
    for node in schedule.order:
        groups.add(node)
    for again, node in originals.items():
        groups.join(again, node)
    for members, order in groups.chosen():
        orders |= {node: order for node in members if node.ndim == len(order)}
    return orders


def _is_preferred(nodes: Iterable[Node]) -> bool:
    """Return True if an operation prefers an order for one of its arrays."""
    rules = ((node, node.operation.memory_orders) for node in nodes)
    return any(rule is not None and any(rule(node)) for node, rule in rules)


def _visible(graph: Graph, buffers: BufferAssignment) -> Iterable[Node]:
    """Return the nodes whose memory is accessed outside of this worker's program."""
    yield from (node for node in graph.nodes if node.is_leaf)
    yield from graph.roots
    yield from buffers.peer_readable


@final
class _Groups:
    """Sets of nodes with one memory order, as a union-find structure over the owners of memory."""

    def __init__(self, buffers: BufferAssignment) -> None:
        self._buffers = buffers
        self._parent: dict[Node, Node] = {}
        self._pinned: set[Node] = set()
        self._votes: defaultdict[Node, Counter[MemoryOrder]] = defaultdict(Counter)
        """The bytes of the arrays for which kernels prefer each order: conversions move bytes."""

    def _group(self, node: Node) -> Node:
        """Return the representative of the group to which the memory of a node belongs."""
        node = self._buffers.root(node)
        parent = self._parent
        while (above := parent.setdefault(node, node)) is not node:
            parent[node] = parent[above]
            node = above
        return node

    def pin(self, nodes: Iterable[Node]) -> None:
        """Keep the groups of these nodes in row-major order."""
        self._pinned.update(map(self._group, nodes))

    def join(self, first: Node, second: Node) -> None:
        """Store two nodes in one order."""
        group, joined = self._group(first), self._group(second)
        if group is joined:
            return
        self._parent[joined] = group
        self._votes[group] += self._votes.pop(joined, Counter())
        if joined in self._pinned:
            self._pinned.add(group)

    def add(self, node: Node) -> None:
        """Apply the requirements of the operation that computes a node."""
        operation, arrays = node.operation, (*node.inputs, node)
        if operation.is_leaf or node.name in ("constant", "recompute"):
            return
        if operation.is_elementwise:
            for source in node.inputs:
                if source.shape == node.shape:
                    self.join(node, source)
        elif operation.memory_orders is None:
            self.pin(array for array in arrays if array.ndim > 1)
        else:
            for array, order in zip(arrays, operation.memory_orders(node), strict=True):
                if order is not None:
                    self._votes[self._group(array)][order] += array.nbytes

    def chosen(self) -> Iterable[tuple[Sequence[Node], MemoryOrder]]:
        """Return the groups that have a preferred order other than row-major."""
        members: defaultdict[Node, list[Node]] = defaultdict(list)
        for node in list(self._parent):
            members[self._group(node)].append(node)
        for group, nodes in members.items():
            votes = self._votes.get(group)
            if votes and group not in self._pinned:
                ((order, _),) = votes.most_common(1)
                yield nodes, order
