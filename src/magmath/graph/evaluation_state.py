"""The setters of the slots of a node that change: its evaluation state, and a variable's layout.

Nodes are immutable otherwise (`graph/operation.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Any

from magmath.graph.graph import topological
from magmath.graph.operation import Node, WeakResult
from magmath.layout import Layout

set_value: Callable[[Node, Any], None] = Node.__dict__["value"].__set__
set_result: Callable[[Node, WeakResult], None] = Node.__dict__["result"].__set__
set_user_array: Callable[[Node, Callable[[], Any]], None] = Node.__dict__["user_array"].__set__
"""Set a weak reference to the array of the user's code that refers to the node."""
_set_layout: Callable[[Node, Layout], None] = Node.__dict__["layout"].__set__
_set_inputs: Callable[[Node, tuple[Node, ...]], None] = Node.__dict__["inputs"].__set__
_set_depth: Callable[[Node, int], None] = Node.__dict__["depth"].__set__


def read_leaves(node: Node, known: AbstractSet[Node]) -> None:
    """Replace inputs of a node whose values are known by the leaves that hold these values.

    The expression is the same. An array that a loop updates in each step thus does not refer to the
    expressions of all former steps.
    """
    if not known.isdisjoint(node.inputs):
        _set_inputs(node, tuple([x.value if x in known else x for x in node.inputs]))


def update_depth(node: Node) -> list[Node]:
    """Count the depths of an expression's nodes again, of which some may have been evaluated since
    they were made; return the nodes, each after its inputs."""
    order = topological((node,), pending=True)
    for x in order:
        below = [source.depth for source in x.inputs if source.value is None]
        _set_depth(x, 1 + max(below, default=0) if x.inputs else 0)
    return order


def set_variable_layout(leaf: Node, layout: Layout) -> None:
    """Set the layout of a variable's leaf, after the variable is redistributed.

    It stays the same leaf, so that gradients with respect to the variable stay valid.
    """
    assert leaf.operation.name == "variable", leaf
    _set_layout(leaf, layout)
