"""The operations that mark results of `mm.grad`.

Later gradients count a marked gradient as a constant, unless the result depends on a source in no
other way. A gradient by a source on which the result does not depend, zeros, has a mark of its own:
optimizers leave such variables as they are. The passes replace a mark by its value.
"""

from __future__ import annotations

from typing import Any

from magmath.graph import Node, Operation
from magmath.graph.operation import Gradients


def _unreachable(*_: Any, **__: Any) -> Any:
    raise AssertionError("marks of gradients are read by autodiff and expanded by the passes")


def _vjp(node: Node, cotangent: Node) -> Gradients:
    return (cotangent,)


def _mark(name: str, *, gradient: bool) -> Operation:
    return Operation(
        name=name,
        infer=lambda value: (value.shape, value.dtype),
        axes=_unreachable,
        reduction=None,
        vjp=_vjp,
        kernel=_unreachable,
        native=None,
        reference=lambda value: value,
        flops=lambda node: 0.0,
        lower_to=lambda node: node.inputs[0],
        mark=True,
        gradient=gradient,
    )


GRADIENT = _mark("gradient", gradient=True)
INDEPENDENT = _mark("independent", gradient=False)

OPERATIONS = {record.name: record for record in (GRADIENT, INDEPENDENT)}
