"""Which arrays are gradients by sources on which a result does not depend.

`gradients` marks them. The mark is found through sums, multiples, conversions and limits by numbers
that leave zeros as they are, as of gradients that are accumulated, scaled or clipped, and in the
provenance of evaluated arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from magmath.graph import Node, Operation, Provenance, provenance_of
from magmath.graph.provenance.provenance import provenance_before
from magmath.graph.provenance.recipe import NumberStep, RecipeStep
from magmath.ops.gradient_results import INDEPENDENT
from magmath.ops.leaves import CONSTANT, is_known_number

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
_LIMITS = {"clamp_min": -1, "maximum": -1, "clamp_max": 1, "minimum": 1}
"""Operations that leave zeros as they are if the other operand has this sign or is 0."""
_Recorded: TypeAlias = tuple[Provenance, int]
"""A step of the recipe of an evaluated array, by its position."""


def is_independent(node: Node) -> bool:
    """Return True for a gradient by a source on which the result does not depend, and for a sum or
    a multiple of such gradients only, limited by numbers or not."""
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
    if operation.name in _LIMITS:
        sign = _LIMITS[operation.name]
        return any(
            _is_marked(x, answers, depth) and _is_number_of_sign(limit, sign)
            for x, limit in (inputs, inputs[::-1])
        )
    return operation.name == "multiply" and any(_is_marked(x, answers, depth) for x in inputs)


def _is_number_of_sign(x: Node | _Recorded, sign: int) -> bool:
    """Return True for a real number that is known, and has this sign or is 0."""
    if not isinstance(x, Node):
        provenance, position = x
        step = None if provenance.recipe is None else provenance.recipe.steps[position]
        if isinstance(step, Node):
            return _is_number_of_sign(step, sign)
        if not isinstance(step, NumberStep):
            return False
        value: Any = provenance.numbers().get(position, step.value)
    elif is_known_number(x):
        value = x.attributes["value"] if x.operation is CONSTANT else x.value
    else:
        return False
    return isinstance(value, (int, float)) and value * sign >= 0


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
