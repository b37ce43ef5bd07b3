"""Operations that fail for some values of their operands: a singular matrix, an index out of range,
a negative power of an integer.

Code that replaces values by those of such an expression waits until it is known to have succeeded,
and keeps the former values until then (`Evaluator.assign`, `arrays/variables/variable.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple, final

from magmath.engine.number_checks import operands_checked_before_runs
from magmath.graph import Graph, Node, topological
from magmath.ops.counted_loops import SCAN
from magmath.ops.leaves import SCALAR, is_known_number


def is_pending_and_fallible(node: Node) -> bool:
    """Return True for a pending operation that fails for some values of its operands."""
    return node.value is None and is_fallible(node)


def has_pending_fallible(order: Iterable[Node]) -> bool:
    """Return True if the nodes contain a pending operation that fails for some values."""
    pending = [x for x in order if x.value is None]
    return any(map(is_fallible, [x for x in pending if x.operation.checked or x.operation is SCAN]))


def is_fallible(node: Node) -> bool:
    """Return True for an operation, pending or not, that fails for some values of its operands.

    Numbers whose values are known were checked at the user's line.
    """
    checked = node.operation.checked
    if checked is None:
        if node.operation is not SCAN:
            return False
        return has_pending_fallible(topological(node.attributes["body"].outputs, pending=True))
    return not all(is_known_number(node.inputs[i]) for i in checked.positions(node))


@final
class UncheckedOperands(NamedTuple):
    """The operands that can make a run of a program fail, after the checks before it
    (`NumberChecks`): each is the node of an operation, and the position of the operand.

    drawn     indices that depend on random numbers alone: their range is known (`DrawnIndices`)
    has_data  True if there are others
    """

    drawn: list[tuple[Node, int]]
    has_data: bool


def unchecked_operands(graph: Graph, in_range: Collection[Node] = ()) -> UncheckedOperands:
    """Return the operands that can make a run of a graph of operations that have kernels fail.

    `in_range`: leaves from which indices are computed that are in range.
    """
    varying, random = set[Node](), set[Node]()
    drawn, has_data = list[tuple[Node, int]](), False
    checked_before = set(operands_checked_before_runs(graph, graph.leaves))
    for node in graph.nodes:
        if node.is_leaf:
            if node.operation is not SCALAR and node not in in_range:
                varying.add(node)
            continue
        checked = node.operation.checked
        if checked is not None:
            for i in checked.positions(node):
                operand = node.inputs[i]
                if (node, i) in checked_before:
                    continue
                if operand.is_of_numbers or operand in varying or not checked.accepts_draws:
                    has_data = True
                elif operand in random:
                    drawn.append((node, i))
        if not varying.isdisjoint(node.inputs):
            varying.add(node)
        if node.operation.is_random or not random.isdisjoint(node.inputs):
            random.add(node)
    return UncheckedOperands(drawn, has_data)
