"""Operations that fail for some values of their operands: a singular matrix, an index out of range,
a negative power of an integer.

Code that replaces values by those of such an expression waits until it is known to have succeeded,
and keeps the former values until then (`Evaluator.assign`, `arrays/variables/variable.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from magmath.graph import Graph, Node, topological
from magmath.ops.counted_loops import SCAN
from magmath.ops.leaves import CONSTANT, SCALAR
from magmath.passes.expand import expand


def is_pending_and_fallible(node: Node) -> bool:
    """Return True for a pending operation that fails for some values of its operands."""
    return node.value is None and is_fallible(node)


def has_pending_fallible(order: Iterable[Node]) -> bool:
    """Return True if the nodes contain a pending operation that fails for some values."""
    pending = [x for x in order if x.value is None]
    return any(map(is_fallible, [x for x in pending if x.operation.checked or x.operation is SCAN]))


def is_fallible(node: Node, *, accepts_numbers: bool = True) -> bool:
    """Return True for an operation, pending or not, that fails for some values of its operands.

    Numbers whose values are known were checked at the user's line. `accepts_numbers`: so are those
    of a call, and the numbers of steps; not in a branch that may not be taken.
    """
    checked = node.operation.checked
    if checked is None:
        if node.operation is not SCAN:
            return False
        return has_pending_fallible(topological(node.attributes["body"].outputs, pending=True))
    operands = [node.inputs[i] for i in checked.positions(node)]
    accepts = accepts_numbers and checked.accepts_numbers
    return any(
        x.operation is not CONSTANT
        and not (x.operation is SCALAR and (accepts or x.value is not None))
        for x in operands
    )


def is_fallible_program(
    graph: Graph, in_range: Collection[Node] = (), *, are_numbers_fixed: bool = False
) -> bool:
    """Return True if a graph has an operation that fails for some values of its leaves.

    Indices that are computed from numbers of the program alone are in range, and so are those that
    are computed from the leaves `in_range`. `are_numbers_fixed`: numbers whose values are known,
    which were checked at the user's line, are the same in each run; other graphs with the program
    may have other ones.
    """
    graph = expand(graph)
    varying: set[Node] = set()
    for node in graph.nodes:
        checked = node.operation.checked
        if node.is_leaf:
            if node.operation is not SCALAR and node not in in_range:
                varying.add(node)
            continue
        if checked is not None:
            operands = [node.inputs[i] for i in checked.positions(node)]
            if checked.accepts_numbers:
                operands = [x for x in operands if x in varying]
            if not all(
                x.operation is CONSTANT
                or (are_numbers_fixed and x.operation is SCALAR and x.value is not None)
                for x in operands
            ):
                return True
        if not varying.isdisjoint(node.inputs):
            varying.add(node)
    return False
