"""The operation that marks a result of `mm.grad`.

Later gradients count it as a constant, unless the result depends on a source in no other way. The
passes replace it by its value.
"""

from __future__ import annotations

from typing import Any

from magmath.graph import Node, Operation
from magmath.graph.operation import Gradients


def _unreachable(*_: Any, **__: Any) -> Any:
    raise AssertionError("marks of gradients are read by autodiff and expanded by the passes")


def _vjp(node: Node, cotangent: Node) -> Gradients:
    return (cotangent,)


GRADIENT = Operation(
    name="gradient",
    infer=lambda value: (value.shape, value.dtype),
    axes=_unreachable,
    reduction=None,
    vjp=_vjp,
    kernel=_unreachable,
    native=None,
    reference=lambda value: value,
    flops=lambda node: 0.0,
    lower_to=lambda node: node.inputs[0],
    is_mark=True,
    is_gradient=True,
)

OPERATIONS = {GRADIENT.name: GRADIENT}
