"""Operations that fail for some values of their operands: a singular matrix, an index out of range.

Code that replaces values by those of such an expression waits until it is known to have succeeded,
and keeps the former values until then (`Evaluator.assign`, `arrays/variables/variable.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from magmath.graph import Graph, Node, topological
from magmath.ops.counted_loops import SCAN
from magmath.ops.leaves import SCALAR
from magmath.passes.expand import expand


def is_pending_and_fallible(node: Node) -> bool:
    """Return True for a pending operation that fails for some values of its operands."""
    return node.value is None and is_fallible(node)


def has_pending_fallible(order: Iterable[Node]) -> bool:
    """Return True if the nodes contain a pending operation that fails for some values."""
    return any(
        map(is_fallible, [x for x in order if x.value is None and not x.operation.is_elementwise])
    )


def is_fallible(node: Node) -> bool:
    """Return True for an operation, pending or not, that fails for some values of its operands."""
    operation = node.operation
    if operation is SCAN:
        return has_pending_fallible(topological(node.attributes["body"].outputs, pending=True))
    if operation.is_elementwise or operation.is_leaf or operation.is_version or operation.is_mark:
        return False
    if operation.uses_lapack or operation.expansion is not None:
        return True
    return operation.checks_indices and any(
        x.operation is not SCALAR for x in checked_indices(node)
    )


def is_fallible_program(graph: Graph, in_range: Collection[Node] = ()) -> bool:
    """Return True if a graph has an operation that fails for some values of its leaves.

    Indices that are computed from numbers of the program alone are in range, and so are those that
    are computed from the leaves `in_range`.
    """
    graph = expand(graph)
    varying: set[Node] = set()
    for node in graph.nodes:
        if node.is_leaf:
            if node.operation is not SCALAR and node not in in_range:
                varying.add(node)
        elif node.operation.uses_lapack or not varying.isdisjoint(checked_indices(node)):
            return True
        elif not varying.isdisjoint(node.inputs):
            varying.add(node)
    return False


def checked_indices(node: Node) -> Iterable[Node]:
    """Return the operands of a node that it checks as indices."""
    if not node.operation.checks_indices:
        return ()
    first = 2 if node.operation.overwrites_first else 1  # after the array and the written values
    return [x for x in node.inputs[first:] if x.dtype.is_integer]
