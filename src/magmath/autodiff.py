"""Reverse-mode differentiation, graph to graph.

`gradients` walks the graph once from the result to what it depends on, adding up cotangents. The
rules are the operations' own `vjp`, written in the same operations, so a gradient is an ordinary
graph: it fuses, distributes and can be differentiated again.
"""

from __future__ import annotations

from collections.abc import Sequence

from magmath.errors import DTypeError, MagmathError, ShapeError
from magmath.graph import Node, topological
from magmath.graph.node import LET_GO
from magmath.ops.creation import full
from magmath.ops.elementwise import add
from magmath.ops.leaves import constant
from magmath.ops.reductions import sum_to


def gradients(output: Node, sources: Sequence[Node]) -> list[Node]:
    """The gradient of a 0-d real node with respect to each source, of the source's shape.

    A source on which the output does not depend has gradient zero. Raises ShapeError if the output
    is not 0-d, DTypeError if it or a source is not real floating point.
    """
    if output.shape != ():
        raise ShapeError(f"grad: needs a 0-d result, was given shape {output.shape}; sum it first")
    for node in (output, *sources):
        if not node.dtype.is_floating:
            raise DTypeError(f"grad: needs real floating point, was given {node.dtype}")
    order = topological([output])
    if any(x.name != "variable" for x in sources) and any(x.depth == LET_GO for x in order):
        raise MagmathError(
            "grad: the expression is so long that its beginning was computed and let go, so it "
            "cannot be told how it depends on arrays; make them variables (mm.variable), whose "
            "expressions are always kept, or compile the function (mm.compile)"
        )
    useful = _depending_on(order, sources)
    cotangents: dict[Node, Node] = {output: constant(1, output.dtype)}
    for node in reversed(order):
        cotangent = cotangents.get(node)
        if cotangent is None or node not in useful or node.is_leaf:
            continue
        for source, part in zip(node.inputs, node.operation.vjp(node, cotangent), strict=True):
            if part is not None and source in useful:
                part = sum_to(part, source.shape)
                known = cotangents.get(source)
                cotangents[source] = part if known is None else add(known, part)
    return [_of_shape(cotangents.get(source), source) for source in sources]


def _depending_on(order: Sequence[Node], sources: Sequence[Node]) -> set[Node]:
    useful = set(sources)
    for node in order:
        if any(source in useful for source in node.inputs):
            useful.add(node)
    return useful


def _of_shape(cotangent: Node | None, source: Node) -> Node:
    if cotangent is None:
        return full(source.shape, constant(0, source.dtype))
    return cotangent if cotangent.shape == source.shape else full(source.shape, cotangent)
