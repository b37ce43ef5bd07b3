"""Expressions of evaluated arrays, substituted for their leaves.

An evaluated array is a leaf. Gradients with respect to the operands of its expression, and
functions of variables, need the expression, which its provenance builds again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, final

from magmath.graph.operation import Node
from magmath.graph.provenance.dependence import Dependence
from magmath.graph.provenance.operand_references import OperandReference
from magmath.graph.provenance.provenance import Replace, provenance_of


def operand_node(operand: OperandReference) -> Node | None:
    """Return the node of an operand as it was read; None if it no longer exists."""
    return operand.find()


def is_no_end(node: Node) -> bool:
    """Return False: expressions are followed to their leaves."""
    return False


@final
class Rebuilt(NamedTuple):
    """Expressions in which leaves were replaced by the expressions of their values.

    roots   the new roots
    lost    the leaves whose expressions cannot be built again
    images  the new node for each node of the former expressions
    """

    roots: list[Node]
    lost: set[Node]
    images: Mapping[Node, Node]


def with_expressions(
    roots: Sequence[Node],
    kept_leaves: Collection[Node],
    dependence: Dependence,
    replace: Replace = operand_node,
    is_end: Callable[[Node], bool] = is_no_end,
) -> Rebuilt:
    """Return the roots with expressions in place of the leaves that depend on a source.

    These do not change: `kept_leaves`, nodes that are older than the sources, and the inputs of
    ends, which `is_end` accepts. `replace` returns the nodes for operands of rebuilt expressions.
    """
    expressions: dict[Node, Node] = {}
    lost: set[Node] = set()
    new: dict[Node, Node] = {}
    seen: set[Node] = set()
    stack: list[Node | None] = list(roots)
    while stack:
        node = stack.pop()
        if node is None:  # all inputs of the next node are mapped
            node = stack.pop()
            assert node is not None
            new[node] = _mapped(node, expressions, new)
            continue
        is_older = bool(node.inputs) and node.sequence_number < dependence.first_number
        if is_end(node) or is_older:  # the leaf of a result may be older than its value
            new[node] = node
            continue
        if node in seen:
            continue
        seen.add(node)
        provenance = provenance_of(node)
        if (
            provenance is not None
            and node not in kept_leaves
            and dependence.is_dependent(provenance)
        ):
            expression = provenance.expression(node, replace)
            if expression is None:
                lost.add(node)
            else:
                expressions[node] = expression
        below = (expressions[node],) if node in expressions else node.inputs
        stack += (node, None, *below)
    return Rebuilt([new[node] for node in roots], lost, new)


def _mapped(node: Node, expressions: dict[Node, Node], new: dict[Node, Node]) -> Node:
    if node in expressions:
        return new[expressions[node]]
    inputs = tuple([new[source] for source in node.inputs])
    return node.with_inputs(inputs)
