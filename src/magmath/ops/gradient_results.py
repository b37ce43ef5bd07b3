"""The operation that marks a result of `mm.grad`.

Later gradients count it as a constant, unless the result depends on a source in no other way. The
passes replace it by its value.
"""

from __future__ import annotations

from magmath.graph import Node
from magmath.graph.operation import Gradients
from magmath.ops.marks import mark


def _vjp(node: Node, cotangent: Node) -> Gradients:
    return (cotangent,)


GRADIENT = mark(
    "gradient",
    infer=lambda value: (value.shape, value.dtype),
    reference=lambda value: value,
    vjp=_vjp,
    gradient=True,
)

OPERATIONS = {GRADIENT.name: GRADIENT}
