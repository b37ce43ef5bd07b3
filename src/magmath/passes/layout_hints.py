"""Wanted: the layouts in which results are asked for, as far as that is known beforehand.

An output with a target ends in the target's layout. What is made from nothing, and is then asked
for in a layout, is made there at once: every worker computes its elements from their indices.
"""

from __future__ import annotations

from magmath.graph import Graph, Node
from magmath.layout import Layout
from magmath.ops import creation


def layout_hints(graph: Graph) -> dict[Node, Layout]:
    """The layout in which a node of a graph is wanted, for the nodes of which that is known."""
    targets = graph.targets or (None,) * len(graph.outputs)
    pairs = zip(graph.outputs, targets, strict=True)
    wanted = {node: t.layout for node, t in pairs if t is not None and t.layout is not None}
    made: set[Node] = set()
    for node in graph.nodes:
        if _is_made(node, made):
            made.add(node)
        elif node.name == "redistribute" and node.layout is not None:
            _want(node.inputs[0], node.layout, made, wanted)
    return wanted


def _is_made(node: Node, made: set[Node]) -> bool:
    """True for what is made of indices, random numbers and single numbers alone."""
    if node.name in creation.OPERATIONS:
        return True
    return node.operation.elementwise and all(x in made or x.shape == () for x in node.inputs)


def _want(node: Node, layout: Layout, made: set[Node], wanted: dict[Node, Layout]) -> None:
    """Want a node and all of its shape that it is made of in a layout."""
    stack = [node]
    while stack:
        node = stack.pop()
        if node in made and node not in wanted and node.shape == layout.shape:
            wanted[node] = layout
            stack.extend(node.inputs)
