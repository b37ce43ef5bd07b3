"""The operations that mark results of `mm.grad`.

Later gradients count a marked gradient as a constant, unless the result depends on a source in no
other way. A gradient by a source on which the result does not depend, zeros, has a mark of its own:
optimizers leave such variables as they are. The passes replace a mark by its value.
"""

from __future__ import annotations

from magmath.graph import Node, Operation
from magmath.graph.operation import Gradients
from magmath.ops.marks import mark


def _vjp(node: Node, cotangent: Node) -> Gradients:
    return (cotangent,)


def _mark(name: str, *, gradient: bool) -> Operation:
    return mark(
        name,
        infer=lambda value: (value.shape, value.dtype),
        reference=lambda value: value,
        vjp=_vjp,
        gradient=gradient,
    )


GRADIENT = _mark("gradient", gradient=True)
INDEPENDENT = _mark("independent", gradient=False)

OPERATIONS = {record.name: record for record in (GRADIENT, INDEPENDENT)}
