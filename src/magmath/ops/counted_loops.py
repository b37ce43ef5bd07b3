"""Loops with a fixed number of steps (`mm.scan`, `mm.fori_loop`), as one node of the graph.

The inputs of a loop are the initial states, the arrays whose rows the steps read, one in each, and
the arrays that all steps read. Its results are the final states, and the values that the steps
collect, stacked. The workers run all steps as one program (`engine/evaluation/loop_runs.py`); where
a single program has to contain the loop, the passes unroll it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeVar, final

from magmath.core.dtypes import DType, bool_, int64
from magmath.graph import Node, Shape, apply, make_node, topological
from magmath.graph.graph import substituted
from magmath.graph.operation import NO_ATTRIBUTES, Line
from magmath.ops.concatenation import CONCAT
from magmath.ops.custom_gradients import CUSTOM_CALL, CUSTOM_RESULT
from magmath.ops.gradient_results import INDEPENDENT
from magmath.ops.leaves import INPUT, constant
from magmath.ops.loop_results import LOOP_RESULT, loop_operation, results_of
from magmath.ops.manipulation import reshape
from magmath.ops.recomputation import CHECKPOINT
from magmath.ops.slicing import slice_along
from magmath.ops.sums import broadcast_to

Operand = TypeVar("Operand")
MAX_UNROLLED: Final = 1000
"""The number of operations of the longest loop that is unrolled."""
_PLAIN_MARKS: Final = (CHECKPOINT, INDEPENDENT, CUSTOM_CALL, CUSTOM_RESULT)
"""Marks whose gradients do not depend on the surrounding expression."""


@final
@dataclass(frozen=True, eq=False)
class ScanBody:
    """One step of a loop, as expressions of placeholders.

    states     the placeholders of the states
    rows       the placeholders of the rows that the step reads
    captured   the placeholders of the arrays that every step reads
    number     the placeholder of the number of the row, int64, 0-d
    following  the next states
    collected  the values of which each step collects one
    drawn      the nodes that number the streams of random numbers from which the step draws
    extends    the body of the same step that collects the first of these values only, or None
    """

    states: Sequence[Node]
    rows: Sequence[Node]
    captured: Sequence[Node]
    number: Node
    following: Sequence[Node]
    collected: Sequence[Node]
    drawn: Sequence[Node] = ()
    extends: ScanBody | None = None

    @property
    def outputs(self) -> list[Node]:
        """The next states and the collected values."""
        return [*self.following, *self.collected]

    @property
    def is_plain(self) -> bool:
        """True if the step contains no branches, loops and gradients, whose own gradients depend on
        the surrounding expression."""
        marks = [
            x.operation for x in topological(self.outputs, pending=True) if x.operation.is_mark
        ]
        return all(operation in _PLAIN_MARKS for operation in marks)

    @property
    def operations(self) -> int:
        """The number of operations of a step."""
        return len([x for x in topological(self.outputs, pending=True) if x.inputs])

    def applied(
        self, states: Sequence[Node], rows: Sequence[Node], captured: Sequence[Node], number: Node
    ) -> list[Node]:
        """Return the next states and the collected values for these arrays."""
        leaves = (*self.states, *self.rows, *self.captured, self.number)
        values = dict(zip(leaves, (*states, *rows, *captured, number), strict=True))
        return substituted(self.outputs, values)

    def divided(
        self, inputs: Sequence[Operand]
    ) -> tuple[Sequence[Operand], Sequence[Operand], Sequence[Operand]]:
        """Return the parts for the initial states, for the arrays of rows and for the captured
        arrays of the inputs of a loop, or of a value for each input."""
        first, second = len(self.states), len(self.states) + len(self.rows)
        return inputs[:first], inputs[first:second], inputs[second:]


SCAN = loop_operation("scan")
"""Its attributes are the body, the number of `steps`, and whether the last row comes first."""


def body_argument(shape: Shape, dtype: DType) -> Node:
    """Return a leaf that stands for an array in a body."""
    return Node(INPUT, (), NO_ATTRIBUTES, shape, dtype)


def scan_results(
    body: ScanBody, steps: int, inputs: Sequence[Node], line: Line, *, reverse: bool
) -> list[Node]:
    """Return the final states of a loop of one or more steps, and the stacked collected values."""
    attributes = MappingProxyType({"body": body, "steps": steps, "reverse": reverse})
    loop = make_node(SCAN, tuple(inputs), attributes, (), bool_, line=line)
    states = [(x.shape, x.dtype) for x in body.states]
    return results_of(loop, states + [((steps, *x.shape), x.dtype) for x in body.collected], line)


def unrolled(loop: Node) -> list[Node]:
    """Return the results of a loop as expressions without it."""
    body: ScanBody = loop.attributes["body"]
    steps, reverse = loop.attributes["steps"], loop.attributes["reverse"]
    states, scanned, captured = body.divided(loop.inputs)
    collected: list[Sequence[Node]] = []
    for i in reversed(range(steps)) if reverse else range(steps):
        rows = [reshape(slice_along(x, 0, i, i + 1), x.shape[1:]) for x in scanned]
        outputs = body.applied(states, rows, captured, constant(i, int64))
        states = outputs[: len(states)]
        collected.append([reshape(x, (1, *x.shape)) for x in outputs[len(states) :]])
    columns = zip(*(collected[::-1] if reverse else collected), strict=True)
    return [*states, *[apply(CONCAT, *column, axis=0) for column in columns]]


def first_step(loop: Node) -> list[Node]:
    """Return expressions like the results of a loop, of its first step: with the same shapes, and
    the same dependence on its inputs."""
    body: ScanBody = loop.attributes["body"]
    steps = loop.attributes["steps"]
    states, scanned, captured = body.divided(loop.inputs)
    rows = [reshape(slice_along(x, 0, 0, 1), x.shape[1:]) for x in scanned]
    outputs = body.applied(states, rows, captured, constant(0, int64))
    collected = outputs[len(states) :]
    return [*outputs[: len(states)], *[broadcast_to(x, (steps, *x.shape)) for x in collected]]


def is_short(loop: Node) -> bool:
    """Return True for a loop that is unrolled, since a single program computes it faster."""
    operations: int = loop.attributes["body"].operations
    steps: int = loop.attributes["steps"]
    return operations * steps <= MAX_UNROLLED


def is_scan_result(node: Node) -> bool:
    """Return True for a result of a loop with a fixed number of steps."""
    return node.operation is LOOP_RESULT and node.inputs[0].operation is SCAN
