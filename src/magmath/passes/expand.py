"""The expand pass: replaces an operation that exists only to define a gradient by the operations
that compute it."""

from __future__ import annotations

from magmath.graph import Graph, Node, rewrite
from magmath.graph.graph import topological_until


def expand(graph: Graph) -> Graph:
    """Return an equal graph of operations that have kernels."""
    if not any(node.operation.lower_to for node in graph.nodes):
        return graph
    return rewrite(graph, _expanded)


def _expanded(node: Node) -> Node | None:
    """Return the nodes that compute an operation; they all get the user's line of the operation."""
    if node.operation.lower_to is None:
        return None
    result = node.operation.lower_to(node)
    new = {source: source for source in node.inputs}
    for inner in topological_until([result], node.inputs):
        if inner not in new:
            inputs = tuple([new[source] for source in inner.inputs])
            new[inner] = inner.replace(inputs, line=node.line)
    return new[result]
