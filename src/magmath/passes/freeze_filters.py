"""Freeze filters: convolutions with filters that no call changes get their content id.

The kernel of a convolution keeps the filters in the form that it computes with, as long as their
content id (`RemoteArray.content_id`) is the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from magmath.core.dtypes import int64
from magmath.graph import Graph, Node, apply_to
from magmath.ops.leaves import scalar


def freeze_filters(graph: Graph, hoisted: Collection[Node]) -> tuple[Graph, Mapping[Node, Node]]:
    """Return the graph with content scalars as operands of convolutions whose filters are among
    the leaves `hoisted`, and the leaf of each of these scalars.

    A content scalar (int64) is equal in two calls only if the data of the leaf are the same.
    """
    content_scalars: dict[Node, Node] = {}  # of leaves
    new: dict[Node, Node] = {}
    for node in graph.nodes:
        inputs = tuple([new[x] for x in node.inputs])
        if node.name == "correlation" and node.inputs[1] in hoisted and len(inputs) == 2:
            content_scalar = content_scalars.setdefault(node.inputs[1], scalar(None, int64))
            attributes = {**node.attributes, "frozen": True}
            inputs = (*inputs, content_scalar)
            new[node] = apply_to(node.operation, inputs, node.line, attributes, node.layout)
        else:
            new[node] = node.with_inputs(inputs)
    return graph.mapped(new), {x: leaf for leaf, x in content_scalars.items()}
