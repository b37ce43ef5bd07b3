"""Properties of nodes that have a layout: leaves with data, and all nodes of a placed graph."""

from __future__ import annotations

from magmath.graph.operation import Node
from magmath.layout import Layout


def layout_of(node: Node) -> Layout:
    """Return the layout of a node that has one."""
    assert node.layout is not None, f"{node} has no layout"
    return node.layout


def local_bytes(node: Node) -> int:
    """Return the bytes of a node on the worker that stores most of it."""
    return layout_of(node).max_local_size * node.dtype.itemsize
