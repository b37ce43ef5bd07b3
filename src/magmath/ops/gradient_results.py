"""The operation that marks a result of `mm.grad`, with the array by which the gradient was taken.

Gradients in which it is an intermediate result count it as a constant, with the exceptions that
`autodiff.gradients` names. The passes replace it by its value.
"""

from __future__ import annotations

from typing import Any

from magmath.graph import Node, Operation
from magmath.graph.operation import Gradients


def _unreachable(*_: Any, **__: Any) -> Any:
    raise AssertionError("marks of gradients are read by autodiff and expanded by the passes")


def _vjp(node: Node, cotangent: Node) -> Gradients:
    return cotangent, None


GRADIENT = Operation(
    name="gradient",
    infer=lambda value, by: (value.shape, value.dtype),
    axes=_unreachable,
    reduction=None,
    vjp=_vjp,
    kernel=_unreachable,
    native=None,
    reference=lambda value, by: value,
    flops=lambda node: 0.0,
    lower_to=lambda node: node.inputs[0],
    mark=True,
    gradient=True,
)

OPERATIONS = {GRADIENT.name: GRADIENT}
