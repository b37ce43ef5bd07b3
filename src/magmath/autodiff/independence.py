"""Which arrays are gradients by sources on which a result does not depend.

`gradients` marks them. The mark is found through sums, multiples and conversions, as of gradients
that are accumulated or scaled, and in the provenance of evaluated arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from magmath.graph import Node, Operation, Provenance, provenance_of
from magmath.graph.provenance.provenance import provenance_before
from magmath.graph.provenance.recipe import RecipeStep
from magmath.ops.gradient_results import INDEPENDENT

MAX_DEPTH = 200
"""The number of operations behind which a mark is not looked for."""

_OF_ALL = frozenset(("add", "subtract"))
_OF_FIRST = frozenset(
    (
        "gradient",
        "stop_gradient",
        "astype",
        "negative",
        "conj",
        "reshape",
        "permute_dims",
        "sum",
        "divide",
    )
)
_Recorded: TypeAlias = tuple[Provenance, int]
"""A step of the recipe of an evaluated array, by its position."""


def is_independent(node: Node) -> bool:
    """Return True for a gradient by a source on which the result does not depend, and for a sum or
    a multiple of such gradients only."""
    return _is_marked(node, {}, MAX_DEPTH)


def _is_marked(x: Node | _Recorded, answers: dict[Node | _Recorded, bool], depth: int) -> bool:
    is_marked = answers.get(x)
    if is_marked is None:
        operation, inputs = _computed_by(x)
        is_marked = answers[x] = _has_mark(operation, inputs, answers, depth - 1)
    return is_marked


def _has_mark(
    operation: Operation | None,
    inputs: Sequence[Node | _Recorded],
    answers: dict[Node | _Recorded, bool],
    depth: int,
) -> bool:
    if operation is INDEPENDENT:
        return True
    if operation is None or not depth:
        return False
    if operation.name in _OF_FIRST:
        return _is_marked(inputs[0], answers, depth)
    if operation.name in _OF_ALL:
        return all(_is_marked(x, answers, depth) for x in inputs)
    return operation.name == "multiply" and any(_is_marked(x, answers, depth) for x in inputs)


def _computed_by(x: Node | _Recorded) -> tuple[Operation | None, Sequence[Node | _Recorded]]:
    """Return the operation of which a node or a step is the result, and its operands; None if it is
    not known."""
    if isinstance(x, Node):
        provenance = provenance_of(x.leaf_or_self)
        if provenance is not None:
            return _computed_by((provenance, provenance.output))
        return x.operation, x.inputs
    provenance, position = x
    recipe = provenance.recipe
    if recipe is None:
        return None, ()
    step = recipe.steps[position]
    if isinstance(step, RecipeStep):
        return step.operation, [(provenance, i) for i in step.sources]
    if isinstance(step, Node):
        return _computed_by(step)
    if step is not None:
        return None, ()
    operand = provenance.operands[recipe.operands.index(position)]
    node, before = operand.find(), provenance_before(operand)
    if node is not None:
        return _computed_by(node)
    return (None, ()) if before is None else _computed_by((before, before.output))
