"""Cotangents of functions with gradients of their own (`mm.custom_gradient`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from magmath.autodiff.differentiability import has_cotangent
from magmath.errors import GradientError
from magmath.graph import Node
from magmath.graph.graph import topological_until
from magmath.graph.operation import Gradients
from magmath.ops.creation import full
from magmath.ops.custom_gradients import CUSTOM_CALL, GradientRule, parts_of_call
from magmath.ops.elementwise import ARGUMENT, STOP_GRADIENT
from magmath.ops.leaves import constant
from magmath.ops.sums import broadcast_to


def call_cotangents(call: Node, reached: Mapping[int, Node]) -> Gradients:
    """Return the cotangents of the inputs of a call; `reached` are those of its results, by their
    numbers."""
    rule: GradientRule = call.attributes["rule"]
    arguments, read, values = parts_of_call(call)
    cotangents = [
        broadcast_to(reached[i], x.shape) if i in reached else full(x.shape, constant(0, x.dtype))
        for i, x in enumerate(values)
    ]
    of_arguments = rule.applied(cotangents, read)
    return (*of_arguments, *[None] * (len(call.inputs) - len(arguments)))


def check_call(
    call: Node, value: Node, sources: Collection[Node], constants: Collection[Node]
) -> None:
    """Raise GradientError if a value of a call depends on a source of the whole gradient in another
    way than through its arguments: the rule has no gradient for it.

    `constants` are nodes that count as constants.
    """
    arguments = parts_of_call(call)[0]
    leaves = {x.leaf_or_self for x in arguments}
    # Programs of one compiled function may each have their own node of an argument.
    operands = {x.inputs[0].leaf_or_self for x in arguments if x.operation is ARGUMENT}

    def is_argument(node: Node) -> bool:
        same = node.operation is ARGUMENT and node.inputs[0].leaf_or_self in operands
        return same or node.leaf_or_self in leaves

    def inputs_of(node: Node) -> Sequence[Node]:
        is_constant = (
            node in constants or node.operation is STOP_GRADIENT or not has_cotangent(node)
        )
        if is_argument(node) or is_constant:
            return ()
        if node.operation is CUSTOM_CALL:
            arguments, _, values = parts_of_call(node)
            return (*arguments, *values)
        return node.inputs

    for node in topological_until([value], (), inputs_of):
        if node in sources and not is_argument(node):
            line = f" at {call.line[0]}:{call.line[1]}" if call.line else ""
            raise GradientError(
                f"grad: the result depends on the {_described(node)} through a function with a "
                f"gradient of its own (mm.custom_gradient{line}), which reads it and has no "
                f"gradient for it; make it an argument of the function, or a constant there by "
                f"mm.stop_gradient"
            )


def _described(node: Node) -> str:
    if node.name == "variable":
        return f"variable {node.value().name}"
    return f"array of shape {node.shape}"
