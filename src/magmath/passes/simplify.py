"""Simplify: one node for each value, and algebra that costs nothing.

Equal nodes become one; matrix products of transposed matrices become `gemm` with the transpose
folded in; stretching and filling disappear where the consumer broadcasts anyway; the mask of a
ReLU is taken from its result, so that its argument need not be kept.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from magmath.core.shapes import broadcast
from magmath.graph import Graph, Node, apply, rewrite, topological
from magmath.ops.elementwise import call
from magmath.ops.linalg import gemm


def simplify(graph: Graph) -> Graph:
    """An equal graph with fewer and cheaper nodes."""
    graph = rewrite(merge_equal(graph), _simpler)
    return _masks_from_results(merge_equal(graph))


def merge_equal(graph: Graph) -> Graph:
    """Nodes that compute the same value become one (common subexpressions)."""
    known: dict[Hashable, Node] = {}
    new: dict[Node, Node] = {}
    for node in graph.nodes:
        inputs = tuple(new[source] for source in node.inputs)
        if node.is_leaf:
            new[node] = node
            continue
        attributes = tuple(node.attributes.items())
        key = (node.name, attributes, tuple(map(id, inputs)), node.layout)
        if key not in known:
            known[key] = node if inputs == node.inputs else node.replace(inputs)
        new[node] = known[key]
    return graph.mapped(new)


def _simpler(node: Node) -> Node | None:
    if node.operation.elementwise:
        return _simpler_elementwise(node)
    if node.name == "matmul" and all(x.ndim == 2 for x in node.inputs):
        return _as_gemm(node)
    if node.name == "permute_dims" and node.inputs[0].name == "permute_dims":
        return _joined_permutation(node)
    return None


def _as_gemm(node: Node) -> Node:
    (a, transpose_a), (b, transpose_b) = map(_untransposed, node.inputs)
    made = gemm(a, b, transpose_a=transpose_a, transpose_b=transpose_b)
    made.line = node.line
    return made


def _untransposed(x: Node) -> tuple[Node, bool]:
    if x.name == "permute_dims" and x.attributes["axes"] == (1, 0):
        return x.inputs[0], True
    return x, False


def _joined_permutation(node: Node) -> Node:
    inner = node.inputs[0]
    first, second = inner.attributes["axes"], node.attributes["axes"]
    axes = tuple(first[d] for d in second)
    if axes == tuple(range(len(axes))):
        return inner.inputs[0]
    return apply(node.operation, inner.inputs[0], axes=axes)


def is_constant(node: Node, value: float) -> bool:
    """True for a baked-in number equal to `value`."""
    return node.name == "constant" and node.attributes["value"] == value


def _simpler_elementwise(node: Node) -> Node | None:
    x = node.inputs
    if node.name == "multiply":
        for one, other in ((x[0], x[1]), (x[1], x[0])):
            if is_constant(one, 1) and other.shape == node.shape:
                return other
    if node.name == "add" and x[1].name == "negative" and x[1].shape == node.shape:
        return call("subtract", x[0], x[1].inputs[0])
    if node.name == "stop_gradient":
        return x[0]
    inputs = list(x)
    for i in range(len(inputs)):
        inputs[i] = _unstretched(inputs, i, node)
    return None if inputs == list(x) else node.replace(tuple(inputs))


def _unstretched(inputs: Sequence[Node], position: int, consumer: Node) -> Node:
    """What was stretched or filled into one of the inputs, if the consumer's broadcasting does the
    same."""
    for inner in _stretched_from(inputs[position]):
        shapes = [inner.shape if i == position else x.shape for i, x in enumerate(inputs)]
        if broadcast(consumer.name, *shapes) == consumer.shape:
            return inner
    return inputs[position]


def _stretched_from(node: Node) -> list[Node]:
    """Smaller nodes that hold the same values, the smallest first: a single number, or what was
    stretched."""
    found: list[Node] = []
    inner = node
    while inner.name in ("broadcast_to", "full", "reshape"):
        exact = inner.name != "reshape" and (not found or inner is found[-1])
        inner = inner.inputs[0]
        if inner.shape == () or exact:
            found.append(inner)
    return found[::-1]


def _masks_from_results(graph: Graph) -> Graph:
    """`x > 0` becomes `max(x, 0) > 0` where that maximum is computed anyway."""
    maxima = {
        node.inputs[0]: node
        for node in graph.nodes
        if node.name == "maximum" and is_constant(node.inputs[1], 0)
    }
    if not maxima:
        return graph

    def rule(node: Node) -> Node | None:
        if node.name == "greater" and is_constant(node.inputs[1], 0):
            result = maxima.get(node.inputs[0])
            return None if result is None else call("greater", result, node.inputs[1])
        return None

    below = {source for node in maxima.values() for source in topological([node])}
    new: dict[Node, Node] = {}
    for node in graph.nodes:  # the maxima themselves and what they need stay as they are
        inputs = tuple(new[source] for source in node.inputs)
        if node in below:
            new[node] = node
            continue
        current = node if inputs == node.inputs else node.replace(inputs)
        new[node] = rule(current) or current
    return graph.mapped(new)
