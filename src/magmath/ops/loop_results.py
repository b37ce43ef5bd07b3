"""The results of loops: a loop is one node of the graph, and each of its results another one.

No kernel computes them. A compiled function is divided into programs at its loops, and so is an
expression that is evaluated (`passes/subgraphs.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

from magmath.core.dtypes import DType, bool_
from magmath.graph import Node, Operation, Shape, make_node
from magmath.graph.operation import Gradients, Line, Vjp
from magmath.ops.marks import mark
from magmath.ops.shared_fields import unreachable


def loop_operation(name: str, vjp: Vjp = unreachable) -> Operation:
    """Return the operation of a loop, whose attribute `body` is one step."""
    return mark(
        name, lambda *inputs, **attributes: ((), bool_), unreachable, vjp, expansion=unreachable
    )


def _vjp_of_loop(node: Node, cotangent: Node) -> Gradients:
    return node.inputs[0].operation.vjp(node, cotangent)


LOOP_RESULT = loop_operation("loop_result", _vjp_of_loop)


def results_of(loop: Node, kinds: Iterable[tuple[Shape, DType]], line: Line) -> list[Node]:
    """Return the results of a loop, which have these shapes and types."""
    return [
        make_node(LOOP_RESULT, (loop,), MappingProxyType({"index": i}), shape, dtype, line=line)
        for i, (shape, dtype) in enumerate(kinds)
    ]
