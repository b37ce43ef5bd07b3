"""Layout hints: the layouts of results that are known before placement.

An output with a target ends in the target's layout, and so do the element-wise expressions that
only it reads, such as the terms of an optimizer's update. An operation with prescribed layouts
reads its operands in these, such as the summands of a pending sum. An array that is computed from
no stored data and then redistributed is created in the target layout: every worker computes its
elements from their indices. Samples that were divided over the workers, to be read as a part of a
batch (`recompute` of a redistribution), stay divided: so do the values that have one element or row
for each sample, since a division that is cheaper for one operation moves values back and forth.
"""

from __future__ import annotations

from collections.abc import Mapping

from magmath.graph import Graph, Node, users_of
from magmath.graph.placed_nodes import layout_of
from magmath.layout import Layout, Mesh
from magmath.ops import creation

HintSource = Layout | Node
"""A layout, or the target whose layout a result should have."""


def layout_hints(graph: Graph, mesh: Mesh) -> dict[Node, Layout]:
    """Return the layout hints of a graph's nodes on the workers of a mesh, for the nodes that
    have one."""
    hints: dict[Node, Layout] = {}
    for node, source in hint_sources(graph, mesh).items():
        layout = source.layout if isinstance(source, Node) else source
        if layout is not None:
            hints[node] = layout
    return hints


def hint_sources(graph: Graph, mesh: Mesh) -> dict[Node, HintSource]:
    """Return, for each node with a layout hint, its layout, or the target that has it.

    The sources do not depend on the layouts of the targets.
    """
    pairs = graph.outputs_and_targets
    hints: dict[Node, HintSource] = {node: t for node, t in pairs if t is not None}
    _set_hints_of_terms(graph, hints)
    created: set[Node] = set()
    if mesh.size > 1:
        _set_hints_of_samples(graph, mesh, hints)
    for node in graph.nodes:
        if _is_made(node, created):
            created.add(node)
        elif node.operation.only_layouts is not None and mesh.size > 1:
            inputs, _ = node.operation.only_layouts(node, mesh.flattened())
            hints.update(zip(node.inputs, inputs, strict=True))
        elif node.name == "redistribute" and node.layout is not None:
            _set_hints(node.inputs[0], node.layout, created, hints)
    return hints


def _set_hints_of_terms(graph: Graph, hints: dict[Node, HintSource]) -> None:
    """Set the hints of element-wise nodes, and of reshaped arrays, that only element-wise nodes
    with a hint read."""
    users = users_of(graph.nodes)
    for node in reversed(graph.nodes):
        if node not in hints or not node.operation.is_elementwise:
            continue
        for x in node.inputs:
            term = x.operation.is_elementwise or x.name == "reshape"
            if term and x.shape == node.shape and users[x] == [node]:
                hints.setdefault(x, hints[node])


def _set_hints_of_samples(graph: Graph, mesh: Mesh, hints: dict[Node, HintSource]) -> None:
    """Set the hints of the values that are computed from divided samples, where one of their
    dimensions is that of the samples."""
    dimension: dict[Node, int] = {}
    for node in graph.nodes:
        if node.name == "recompute" and node.inputs[0].name == "redistribute":
            splits = layout_of(node.inputs[0]).splits
            split_dims = [d for d, split in enumerate(splits) if split is not None]
            dimension |= {node: split_dims[0]} if len(split_dims) == 1 else {}
        elif any(x in dimension for x in node.inputs):
            sample_dim = _dimension_of_samples(node, dimension)
            if sample_dim is not None and node.shape[sample_dim] >= mesh.size:
                dimension[node] = sample_dim
                hints.setdefault(node, Layout.even(node.shape, mesh.flattened(), sample_dim))


def _dimension_of_samples(node: Node, dimension: Mapping[Node, int]) -> int | None:
    """Return the dimension of a result that is that of the samples in its operands, or None."""
    notation = node.index_notation
    for letters, x in zip(notation.inputs, node.inputs, strict=True):
        letter = letters[dimension[x]] if x in dimension else "."
        if letter.islower() and letter in notation.output:
            return notation.output.index(letter)
    return None


def _is_made(node: Node, created: set[Node]) -> bool:
    """Return True for nodes that are computed from indices, random numbers and single numbers
    alone."""
    if node.name in creation.OPERATIONS:
        return True
    return node.operation.is_elementwise and all(x in created or x.shape == () for x in node.inputs)


def _set_hints(
    node: Node, layout: Layout, created: set[Node], hints: dict[Node, HintSource]
) -> None:
    """Set the hints of a node and of all nodes of its shape from which it is computed."""
    stack = [node]
    while stack:
        node = stack.pop()
        if node in created and node not in hints and node.shape == layout.shape:
            hints[node] = layout
            stack.extend(node.inputs)
