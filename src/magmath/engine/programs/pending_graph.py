"""The pending part of a graph: a program begins at the values that are evaluated already."""

from __future__ import annotations

from collections.abc import Sequence

from magmath.graph import Graph, Node, topological


def pending_graph(graph: Graph, order: Sequence[Node] | None = None) -> Graph:
    """Return the graph with leaves in place of evaluated nodes.

    `order`, if it is known, holds the nodes that the outputs need, up to evaluated ones, in
    topological order.
    """
    new: dict[Node, Node] = {}
    nodes = topological(graph.roots, pending=True) if order is None or any(graph.targets) else order
    for node in nodes:
        if node.operation.is_leaf:
            new[node] = node
        elif node.value is not None:
            new[node] = node.value
        else:
            inputs = tuple([new[source] for source in node.inputs])
            new[node] = node.with_inputs(inputs)
    return graph.mapped(new)
