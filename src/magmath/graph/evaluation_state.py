"""The setters of the slots of a node that change: its evaluation state, and a variable's layout.

Nodes are immutable otherwise (`graph/operation.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from magmath.graph.operation import Node, WeakResult
from magmath.layout import Layout

set_value: Callable[[Node, Any], None] = Node.__dict__["value"].__set__
set_result: Callable[[Node, WeakResult], None] = Node.__dict__["result"].__set__
set_user_array: Callable[[Node, Callable[[], Any]], None] = Node.__dict__["user_array"].__set__
"""Set a weak reference to the array of the user's code that refers to the node."""
_set_layout: Callable[[Node, Layout], None] = Node.__dict__["layout"].__set__


def set_variable_layout(leaf: Node, layout: Layout) -> None:
    """Set the layout of a variable's leaf, after the variable is redistributed.

    It stays the same leaf, so that gradients with respect to the variable stay valid.
    """
    assert leaf.operation.name == "variable", leaf
    _set_layout(leaf, layout)
