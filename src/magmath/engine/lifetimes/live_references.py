"""Live references: finds the nodes that are referenced outside of an expression, by Python's
reference counts.

If an expression is the only reader of an array, the array's memory can be reused. If user code
holds an intermediate value, the value is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from sys import getrefcount
from typing import Any

from magmath.core.reference_counts import COUNTING, references
from magmath.graph import Node, user_arrays


def referenced_elsewhere(order: Sequence[Node]) -> set[Node]:
    """Return the nodes of an expression that have references outside its nodes and this list."""
    counts = zip(order, references(order), strict=True)  # nearly all nodes have one reference
    return _beyond_uses(order, [x for x in counts if x[1] > COUNTING + 1])


def live_intermediates(order: Sequence[Node], requested: Sequence[Node]) -> set[Node]:
    """Return unevaluated intermediates that user code still references."""
    pending = [node for node in order if node.value is None and node not in requested]
    counts = zip(pending, [count - 1 for count in references(pending)], strict=True)
    return _beyond_uses(order, [x for x in counts if x[1] > COUNTING + 1])


def _beyond_uses(order: Sequence[Node], counted: Sequence[tuple[Node, int]]) -> set[Node]:
    """Return the nodes with more references than those of the expression and its list."""
    if not counted:
        return set()
    uses = {node: 0 for node, _ in counted}
    shared: set[int] = set()  # nodes may share the tuple of their inputs
    for node in order:
        inputs = node.inputs
        if id(inputs) in shared:
            continue
        shared.add(id(inputs))
        for source in inputs:
            if source in uses:
                uses[source] += 1
    return {node for node, count in counted if count > COUNTING + uses[node]}


def _references_in_list(items: Sequence[Any]) -> int:
    for item in items:
        return getrefcount(item)
    return 0


# The count, in a loop over a list, of an object that only this list references.
_COUNTING_IN_LIST = _references_in_list([object()])


def are_unreferenced(leaves: Sequence[Node], data: Sequence[Any]) -> bool:
    """Return True if only their list refers to the leaves, and only the leaves and one list refer
    to their data."""
    for leaf in leaves:
        if getrefcount(leaf) > _COUNTING_IN_LIST:
            return False
    for value in data:  # noqa: SIM110  which counts them otherwise
        if getrefcount(value) > _COUNTING_IN_LIST + 1:
            return False
    return True


def is_value_owned(node: Node) -> bool:
    """Return True if only this evaluated node references its value, through all forwarding
    leaves."""
    return is_sole_owner(node) and (not isinstance(node.value, Node) or is_value_owned(node.value))


def exclusive_arrays(order: Sequence[Node]) -> list[Node]:
    """Return the evaluated arrays that only a pending expression references."""
    referenced = referenced_elsewhere(order)
    evaluated = [
        x for x in order if x not in referenced and (x.value is not None or x.name == "input")
    ]
    return [x for x in evaluated if x.operation.name != "scalar" and is_value_owned(x)]


def is_sole_owner(node: Node) -> bool:
    """Return True if only this evaluated node references its leaf, or its data."""
    (count,) = references([node.value])
    return count == COUNTING + 1


def is_referenced(former: list[Node], order: Sequence[Node] = ()) -> bool:
    """Return True if the value of a variable has references that do not count as the variable's
    own.

    Its own references are the variable, the list `former`, and versions of the variable in the
    expression `order` that have no references outside of it. The variable refers to the leaf and to
    its data; a version refers to the leaf twice.
    """
    versions = [node for node in order if node.operation.is_version and node.value is former[0]]
    if referenced_elsewhere(order).intersection(versions):
        return True
    leaf, data = _references_in_list(former), _references_in_list([former[0].value])
    return leaf > _COUNTING_IN_LIST + 1 + 2 * len(versions) or data > _COUNTING_IN_LIST + 2


def is_unobservable(order: Sequence[Node], own_nodes: Sequence[Node]) -> bool:
    """Return True if no live reference outside `own_nodes` could be differentiated later."""
    for node in order:
        unknown = node.is_leaf and node.value is None
        remembers = not node.is_leaf and node.value is not None and node.dtype.is_floating
        if node.name == "variable" or unknown or remembers:
            return False
    referenced = referenced_elsewhere(order)
    return not any(node.dtype.is_floating for node in referenced.difference(own_nodes))


def has_array(node: Node) -> bool:
    """Return True if an array of user code refers to this node."""
    return node.user_array is not None and any(x.refers_to(node) for x in user_arrays(node))
