"""Records of marks: operations that autodiff and batching read, and that the passes replace by the
value of their first operand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from magmath.graph import Node, Operation
from magmath.graph.operation import Infer, Vjp


def unreachable(*_: Any, **__: Any) -> Any:
    """Raise AssertionError: a function of a record whose operation no program computes."""
    raise AssertionError("no program computes this operation")


def first_operand(node: Node) -> Node:
    """Return the first operand of a node."""
    return node.inputs[0]


def mark(
    name: str,
    infer: Infer,
    reference: Callable[..., Any],
    vjp: Vjp = unreachable,
    *,
    lower_to: Callable[[Node], Node] = first_operand,
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
        flops=lambda node: 0.0,
        lower_to=lower_to,
        is_mark=True,
        is_gradient=gradient,
    )
