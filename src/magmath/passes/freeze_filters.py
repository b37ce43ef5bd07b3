"""Freeze filters: convolutions with filters that no call changes get the version of the filters.

The kernel of a convolution keeps the filters in the form that it computes with, as long as their
version is the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from magmath.core.dtypes import int64
from magmath.graph import Graph, Node, apply_to
from magmath.ops.leaves import scalar


def freeze_filters(graph: Graph, hoisted: Collection[Node]) -> tuple[Graph, Mapping[Node, Node]]:
    """Return the graph with versions as operands of convolutions whose filters are among the leaves
    `hoisted`, and the leaf of each version.

    A version is a number (int64), equal only while the data of the leaf are the same.
    """
    versions: dict[Node, Node] = {}  # of leaves
    new: dict[Node, Node] = {}
    for node in graph.nodes:
        inputs = tuple([new[x] for x in node.inputs])
        if node.name == "correlation" and node.inputs[1] in hoisted and len(inputs) == 2:
            version = versions.setdefault(node.inputs[1], scalar(None, int64))
            attributes = {**node.attributes, "frozen": True}
            inputs = (*inputs, version)
            new[node] = apply_to(node.operation, inputs, node.line, attributes, node.layout)
        else:
            new[node] = node.with_inputs(inputs)
    return graph.mapped(new), {version: leaf for leaf, version in versions.items()}
