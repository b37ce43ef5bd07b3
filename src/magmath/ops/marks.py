"""Records of marks: operations that autodiff and batching read, and that the passes replace by the
value of their first operand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from magmath.graph import Node, Operation
from magmath.graph.graph import topological_until
from magmath.graph.operation import Infer, Vjp
from magmath.ops.shared_fields import no_flops, unreachable


def first_operand(node: Node) -> Node:
    """Return the first operand of a node."""
    return node.inputs[0]


def is_value_mark(node: Node) -> bool:
    """Return True for a mark whose value is that of its first operand."""
    return node.operation.expansion is first_operand


def mark(
    name: str,
    infer: Infer,
    reference: Callable[..., Any],
    vjp: Vjp = unreachable,
    *,
    expansion: Callable[[Node], Node] = first_operand,
    gradient: bool = False,
) -> Operation:
    """Return the record of a mark."""
    return Operation(
        name=name,
        infer=infer,
        axes=unreachable,
        reduction=None,
        vjp=vjp,
        kernel=unreachable,
        native=None,
        reference=reference,
        flops=no_flops,
        expansion=expansion,
        is_mark=True,
        is_gradient=gradient,
    )


def without_marks(roots: Sequence[Node]) -> list[Node]:
    """Return expressions with values in place of the marks."""

    def inputs_of(node: Node) -> Sequence[Node]:
        return node.inputs[:1] if is_value_mark(node) else node.inputs

    new: dict[Node, Node] = {}
    for node in topological_until(roots, (), inputs_of):
        inputs = tuple([new[x] for x in inputs_of(node)])
        new[node] = inputs[0] if is_value_mark(node) else node.with_inputs(inputs)
    return [new[node] for node in roots]
