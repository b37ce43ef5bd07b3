"""Loops whose number of steps depends on values (`mm.while_loop`), in the graph of a traced
function.

`while` is the whole loop: its inputs are the first truth value, the initial states, and the arrays
that a step reads from outside; its attribute is the body. `loop_state` is a final state. No program
contains these operations: a compiled function is divided into stages at its loops
(`transform/subgraphs.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, final

from magmath.core.dtypes import DType, bool_
from magmath.errors import MagmathError
from magmath.graph import Node, Operation, Shape, make_node
from magmath.graph.operation import Line


@final
@dataclass(frozen=True, eq=False)
class LoopBody:
    """One step of a loop, as expressions of placeholders.

    states     the placeholders of the states
    captured   the placeholders of the arrays that the step reads from outside of the loop
    following  the next states
    goes_on    whether another step follows, 0-d
    streams    the number of states at the end that number streams of random numbers
    drawn      the nodes that number the streams from which the step draws
    """

    states: Sequence[Node]
    captured: Sequence[Node]
    following: Sequence[Node]
    goes_on: Node
    streams: int
    drawn: Sequence[Node]


def _unreachable(*_: Any, **__: Any) -> Any:
    raise AssertionError("a loop is no operation of a program; functions are divided at it")


def _no_gradient(node: Node, cotangent: Node) -> Any:
    raise MagmathError(
        "grad: a gradient within a compiled function cannot pass through while_loop, since the "
        "states of an unknown number of steps cannot be stored there; compute the gradient of the "
        "compiled function's result outside of it, or use mm.fori_loop or mm.scan"
    )


def _while_infer(goes_on: Node, *operands: Node, body: LoopBody) -> tuple[Shape, DType]:
    return (), bool_


def _state_infer(loop: Node, *, index: int) -> tuple[Shape, DType]:
    state = loop.attributes["body"].states[index]
    return state.shape, state.dtype


def _operation(name: str, infer: Any) -> Operation:
    return Operation(
        name=name,
        infer=infer,
        axes=_unreachable,
        reduction=None,
        vjp=_no_gradient,
        kernel=_unreachable,
        native=None,
        reference=_unreachable,
        flops=lambda node: 0.0,
    )


WHILE = _operation("while", _while_infer)
LOOP_STATE = _operation("loop_state", _state_infer)


def final_states(
    body: LoopBody, goes_on: Node, states: Sequence[Node], captured: Sequence[Node], line: Line
) -> list[Node]:
    """Return the states of a loop after its last step."""
    attributes = MappingProxyType({"body": body})
    loop = make_node(WHILE, (goes_on, *states, *captured), attributes, (), bool_, line=line)
    return [
        make_node(
            LOOP_STATE, (loop,), MappingProxyType({"index": i}), x.shape, x.dtype, line=line
        )
        for i, x in enumerate(body.states)
    ]  # fmt: skip


OPERATIONS = {record.name: record for record in (WHILE, LOOP_STATE)}
