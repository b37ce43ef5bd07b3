"""Expand: replaces operations that exist for their gradient by the operations that compute them."""

from __future__ import annotations

from magmath.graph import Graph, Node, rewrite


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
    if result in node.inputs:
        return result
    made, known = [result], {*node.inputs, result}
    while made:
        inner = made.pop()
        inner.line = node.line
        fresh = [source for source in inner.inputs if source not in known]
        known.update(fresh)
        made += fresh
    return result
