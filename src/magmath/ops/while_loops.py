"""Loops whose number of steps depends on values (`mm.while_loop`), in the graph of a traced
function.

The inputs of a loop are the first truth value, the initial states, and the arrays that a step reads
from outside; its attribute is the body. The controller repeats the program of a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, final

from magmath.core.dtypes import bool_
from magmath.errors import GradientError
from magmath.graph import Node, make_node
from magmath.graph.graph import substituted
from magmath.graph.operation import Line
from magmath.ops.loop_results import loop_operation, results_of


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


def _no_gradient(node: Node, cotangent: Node) -> Any:
    raise GradientError(
        "grad: a gradient within a compiled function cannot pass through while_loop, since the "
        "states of an unknown number of steps cannot be stored there; compute the gradient of the "
        "compiled function's result outside of it, or use mm.fori_loop or mm.scan"
    )


WHILE = loop_operation("while", _no_gradient)


def final_states(
    body: LoopBody, goes_on: Node, states: Sequence[Node], captured: Sequence[Node], line: Line
) -> list[Node]:
    """Return the states of a loop after its last step."""
    attributes = MappingProxyType({"body": body})
    loop = make_node(WHILE, (goes_on, *states, *captured), attributes, (), bool_, line=line)
    return results_of(loop, [(x.shape, x.dtype) for x in body.states], line)


def first_states(loop: Node) -> list[Node]:
    """Return the states of a loop after its first step, as expressions of its inputs."""
    body: LoopBody = loop.attributes["body"]
    return substituted(
        body.following, dict(zip((*body.states, *body.captured), loop.inputs[1:], strict=True))
    )
