"""Block reduction: reductions compute operands that are too large to store block by block.

An operand that is computed by creation, broadcast and element-wise operations need not be stored if
only reductions read it. Every such operand that would take more than a share of a worker's memory
becomes part of the reductions (`ops/block_reduction.py`). Smaller operands remain stored, so the
plans of programs that fit comfortably do not change. The pass works on a placed graph.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final, final

from magmath.graph import Graph, Node, apply_to, users_of
from magmath.graph.placed_nodes import layout_of, local_bytes
from magmath.ops.block_reduction import REDUCE_BLOCKS, ExpressionStep
from magmath.ops.creation import BITS, FULL, IOTA, NORMAL, UNIFORM
from magmath.ops.redistribute import REDISTRIBUTE
from magmath.ops.reductions import REDUCTIONS
from magmath.ops.sums import BROADCAST
from magmath.passes.environment import Environment

STORED_SHARE: Final = 8
"""An operand is stored if it takes at most one part in this many of a worker's memory."""
CREATED: Final = (FULL, IOTA, UNIFORM, NORMAL, BITS)


def reduce_in_blocks(graph: Graph, environment: Environment) -> Graph:
    """Return the graph with reductions that compute operands which are too large to store."""
    if environment.memory_bound is None:
        return graph
    min_bytes = environment.memory_bound // STORED_SHARE
    large = {node for node in graph.nodes if not node.is_leaf and local_bytes(node) > min_bytes}
    if not large:
        return graph
    created = _created(graph, environment)
    unstored = _unstored(graph, large, created)
    new: dict[Node, Node] = {}
    for node in graph.nodes:
        inputs = tuple(new[source] for source in node.inputs)
        current = node.with_inputs(inputs)
        if _is_reduction(node) and node.inputs[0] in unstored:
            expression = _Expression(node.inputs[0], unstored, created)
            current = expression.reduced(node, [new[x] for x in expression.operands])
        new[node] = current
    return graph.mapped(new)


def _is_reduction(node: Node) -> bool:
    return node.operation in REDUCTIONS.values() and bool(node.attributes["axis"])


def _created(graph: Graph, environment: Environment) -> set[Node]:
    """Return the nodes that are computed only from creation operations and replicated numbers, so
    that each worker can compute any part of them."""
    created: set[Node] = set()
    for node in graph.nodes:
        everywhere = layout_of(node).mesh.size == environment.workers
        is_created = (
            node.operation in (*CREATED, BROADCAST, REDISTRIBUTE) or node.operation.is_elementwise
        )
        simple = all(x in created or _is_replicated_element(x) for x in node.inputs)
        if everywhere and is_created and simple and not _is_replicated_element(node):
            created.add(node)
    return created


def _is_replicated_element(node: Node) -> bool:
    """Return True for an array of one element that every worker stores."""
    return node.size == 1 and layout_of(node).is_replicated


def _unstored(graph: Graph, large: Collection[Node], created: Collection[Node]) -> set[Node]:
    """Return the large nodes that reductions can compute, because only reductions read them."""
    users, roots = users_of(graph.nodes), set(graph.roots)
    unstored: set[Node] = set()
    for node in reversed(graph.nodes):
        if node not in large or node in roots or not _is_computable(node, created):
            continue
        if all(user in unstored or _is_reduction(user) for user in users[node]):
            unstored.add(node)
    return unstored


def _is_computable(node: Node, created: Collection[Node]) -> bool:
    layout = layout_of(node)
    if layout.is_partial or layout.boxes:
        return False
    if node in created:
        return True
    pointwise = node.operation.is_elementwise or node.operation is BROADCAST
    return pointwise and all(_have_same_split(x, node) for x in node.inputs)


def _have_same_split(x: Node, node: Node) -> bool:
    """Return True if a worker computes its part of `node` from its own part of `x` alone."""
    have, want = layout_of(x), layout_of(node)
    if x.shape == ():
        return True
    if have.mesh != want.mesh or have.is_partial or have.boxes:
        return False
    splits = want.splits[node.ndim - x.ndim :]
    pairs = zip(x.shape, have.splits, splits, strict=True)
    return all(x_split == split or (n == 1 and x_split is None) for n, x_split, split in pairs)


@final
@dataclass
class _Expression:
    """The computation of an operand: its steps, and the stored nodes that they read."""

    operand: Node
    unstored: Collection[Node]
    created: Collection[Node]
    steps: list[ExpressionStep] = field(default_factory=list)
    operands: list[Node] = field(default_factory=list)
    flops: float = 0.0
    _known: dict[Node, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._add(self.operand, moved=False)

    def reduced(self, node: Node, operands: list[Node]) -> Node:
        """Return a reduction that computes its operand from the stored `operands`."""
        attributes = {
            "reduction": node.name,
            "axis": node.attributes["axis"],
            "keepdims": node.attributes["keepdims"],
            "dtype": node.dtype,
            "layout": layout_of(self.operand).encode(),
            "steps": tuple(map(tuple, self.steps)),
            "flops": self.flops + self.operand.size,
        }
        return apply_to(REDUCE_BLOCKS, tuple(operands), node.line, attributes, node.layout)

    def _add(self, node: Node, *, moved: bool) -> int:
        """Return the number of a node's step, or the negative number of the operand that it is.

        With `moved`, the node is stored in another layout; the step computes it again in this one.
        """
        if node.operation is REDISTRIBUTE and (moved or node in self.unstored):
            return self._add(node.inputs[0], moved=True)
        if node in self._known:
            return self._known[node]
        if node in self.unstored or (moved and node in self.created):
            sources = tuple([self._add(x, moved=moved) for x in node.inputs])
            attributes = tuple(node.attributes.items())
            self.steps.append(
                ExpressionStep(node.name, attributes, sources, node.shape, node.dtype)
            )
            self.flops += node.operation.flops(node)
            number = len(self.steps) - 1
        else:
            self.operands.append(node)
            number = -len(self.operands)
        self._known[node] = number
        return number
