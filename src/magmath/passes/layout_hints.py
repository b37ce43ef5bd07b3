"""Layout hints: the layouts of results that are known before placement.

An output with a target ends in the target's layout, and so do the element-wise expressions that
only it reads, such as the terms of an optimizer's update. An operation with prescribed layouts
reads its operands in these, such as the summands of a pending sum. An array that is computed from
no stored data and then redistributed is created in the target layout: every worker computes its
elements from their indices.
"""

from __future__ import annotations

from magmath.graph import Graph, Node, users_of
from magmath.layout import Layout, Mesh
from magmath.ops import creation

HintSource = Layout | Node
"""A wanted layout, or the target in whose layout a result is wanted."""


def layout_hints(graph: Graph, mesh: Mesh) -> dict[Node, Layout]:
    """Return the wanted layouts of a graph's nodes on the workers of a mesh, for the nodes that
    have one."""
    wanted: dict[Node, Layout] = {}
    for node, source in hint_sources(graph, mesh).items():
        layout = source.layout if isinstance(source, Node) else source
        if layout is not None:
            wanted[node] = layout
    return wanted


def hint_sources(graph: Graph, mesh: Mesh) -> dict[Node, HintSource]:
    """Return, for each node with a wanted layout, this layout, or the target that has it.

    The sources do not depend on the layouts of the targets.
    """
    pairs = zip(graph.outputs, graph.targets, strict=False)
    wanted: dict[Node, HintSource] = {node: t for node, t in pairs if t is not None}
    _want_terms(graph, wanted)
    made: set[Node] = set()
    for node in graph.nodes:
        if _is_made(node, made):
            made.add(node)
        elif node.operation.only_layouts is not None and mesh.size > 1:
            inputs, _ = node.operation.only_layouts(node, mesh.flattened())
            wanted.update(zip(node.inputs, inputs, strict=True))
        elif node.name == "redistribute" and node.layout is not None:
            _want(node.inputs[0], node.layout, made, wanted)
    return wanted


def _want_terms(graph: Graph, wanted: dict[Node, HintSource]) -> None:
    """Set the wanted layout of element-wise nodes, and of reshaped arrays, that only wanted
    element-wise nodes read."""
    users = users_of(graph.nodes)
    for node in reversed(graph.nodes):
        if node not in wanted or not node.operation.elementwise:
            continue
        for x in node.inputs:
            term = x.operation.elementwise or x.name == "reshape"
            if term and x.shape == node.shape and users[x] == [node]:
                wanted.setdefault(x, wanted[node])


def _is_made(node: Node, made: set[Node]) -> bool:
    """Return True for nodes that are computed from indices, random numbers and single numbers
    alone."""
    if node.name in creation.OPERATIONS:
        return True
    return node.operation.elementwise and all(x in made or x.shape == () for x in node.inputs)


def _want(node: Node, layout: Layout, made: set[Node], wanted: dict[Node, HintSource]) -> None:
    """Set the wanted layout of a node and of all nodes of its shape from which it is computed."""
    stack = [node]
    while stack:
        node = stack.pop()
        if node in made and node not in wanted and node.shape == layout.shape:
            wanted[node] = layout
            stack.extend(node.inputs)
