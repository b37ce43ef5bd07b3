"""The setters of the slots of a node that change: its evaluation state, and a variable's layout.

Nodes are immutable otherwise (`graph/operation.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Any, final

from magmath.graph.graph import topological
from magmath.graph.operation import Node, WeakResult
from magmath.layout import Layout

set_value: Callable[[Node, Any], None] = Node.__dict__["value"].__set__
set_result: Callable[[Node, WeakResult], None] = Node.__dict__["result"].__set__
_set_user_array: Callable[[Node, Callable[[], Any]], None] = Node.__dict__["user_array"].__set__
_set_layout: Callable[[Node, Layout], None] = Node.__dict__["layout"].__set__
_set_inputs: Callable[[Node, tuple[Node, ...]], None] = Node.__dict__["inputs"].__set__
_set_depth: Callable[[Node, int], None] = Node.__dict__["depth"].__set__


@final
class _SeveralArrays:
    """Weak references to several arrays that refer to a node, the latest one first: that is the
    result of a call, or an earlier one once it is gone."""

    __slots__ = ("references",)

    def __init__(self, references: list[Callable[[], Any]]) -> None:
        self.references = references

    def __call__(self) -> Any:
        return next((array for x in self.references if (array := x()) is not None), None)


def add_user_array(node: Node, reference: Callable[[], Any]) -> None:
    """Record a weak reference to an array of the user's code that refers to the node."""
    if node.user_array is not None:
        living = [x for x in _references(node.user_array) if x() is not None]
        if living:
            reference = _SeveralArrays([reference, *living])
    _set_user_array(node, reference)


def user_arrays(node: Node) -> list[Any]:
    """Return the arrays of the user's code that referred to the node and still exist."""
    if node.user_array is None:
        return []
    return [array for x in _references(node.user_array) if (array := x()) is not None]


def _references(recorded: Callable[[], Any]) -> list[Callable[[], Any]]:
    return recorded.references if type(recorded) is _SeveralArrays else [recorded]


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
