"""Loops of a batch.

A step of `while_loop` is taken while any example needs it, and keeps the states of the others: its
states are the truth value of each example, then those of the loop. All examples take the steps of
other loops.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from magmath.batching.masked_examples import values_of_needed_examples
from magmath.batching.operand import BatchOperand, BatchOperands
from magmath.core.dtypes import DType, bool_
from magmath.graph import Node, Shape
from magmath.layout import Layout
from magmath.ops.counted_loops import ScanBody, body_argument, scan_results
from magmath.ops.elementwise import call, where
from magmath.ops.leaves import input_leaf
from magmath.ops.manipulation import permute
from magmath.ops.reductions import reduce
from magmath.ops.while_loops import LoopBody, final_states

Batched = Callable[
    [Sequence[Node], Mapping[Node, BatchOperand], Collection[Node], int], list[BatchOperand]
]
"""(outputs, operands of the batch by nodes of one example, stream numbers, size) → the outputs of
the batch."""


def batched_loop(
    loop: Node, operands: BatchOperands, batched: Batched, size: int
) -> list[BatchOperand]:
    """Return the final states of a loop for a batch of `size` examples."""
    body: LoopBody = loop.attributes["body"]
    count = len(body.states)
    goes_on, states, captured = operands[0], operands[1 : count + 1], operands[count + 1 :]
    state_count = count - body.streams  # all examples draw from the same streams
    if not size:
        examples, streams = states[:state_count], states[state_count:]
        return [*[BatchOperand(x.stacked, True, size) for x in examples], *streams]
    if not (body.streams or any(x.varies for x in operands)):
        same, read = ([x.node for x in part] for part in (states, captured))
        finals = final_states(body, goes_on.node, same, read, loop.line)
        return [BatchOperand(x, False, size) for x in finals]
    initial = [
        goes_on.stacked,
        *[x.stacked for x in states[:state_count]],
        *[x.node for x in states[state_count:]],
    ]
    _, *finals = final_states(
        _batched_body(body, captured, batched, size),
        reduce("any", goes_on.stacked),
        initial,
        [x.node for x in captured],
        loop.line,
    )
    return [BatchOperand(x, i < state_count, size) for i, x in enumerate(finals)]


def _batched_body(body: LoopBody, captured: BatchOperands, batched: Batched, size: int) -> LoopBody:
    """Return one step of all examples."""
    state_count = len(body.states) - body.streams
    active = _replicated_leaf((size,), bool_, body.states[0].layout)
    needed = BatchOperand(active, True, size)
    states = [batch_argument(x, i < state_count, size) for i, x in enumerate(body.states)]
    pairs = zip(body.captured, captured, strict=True)
    read = [batch_argument(leaf, operand.varies, size) for leaf, operand in pairs]
    leaves = (*body.states, *body.captured)
    operands = dict(zip(leaves, values_of_needed_examples([*states, *read], needed), strict=True))
    outputs = [*body.following, body.goes_on, *body.drawn]
    results = batched(outputs, operands, body.drawn, size)
    following, (goes_on, *drawn) = results[: len(states)], results[len(states) :]
    next_states = [
        where(needed.aligned(x.ndim), new.stacked, x.node) if x.varies else new.node
        for x, new in zip(states, following, strict=True)
    ]
    goes_on_each = call("logical_and", active, goes_on.stacked)
    return LoopBody(
        states=[active, *[x.node for x in states]],
        captured=[x.node for x in read],
        following=[goes_on_each, *next_states],
        goes_on=reduce("any", goes_on_each),
        streams=body.streams,
        drawn=[x.node for x in drawn],
    )


def batched_scan(
    loop: Node, operands: BatchOperands, batched: Batched, size: int
) -> list[BatchOperand]:
    """Return the results of a loop with a fixed number of steps for a batch of `size` examples."""
    body: ScanBody = loop.attributes["body"]
    states, scanned, captured = body.divided(operands)
    step, varies, collected = _batched_step(body, operands, batched, size)
    inputs = [x.stacked if v else x.node for x, v in zip(states, varies, strict=True)]
    inputs += [_exchanged(x.node) if x.varies else x.node for x in scanned]
    inputs += [x.node for x in captured]
    steps, reverse = loop.attributes["steps"], loop.attributes["reverse"]
    results = scan_results(step, steps, inputs, loop.line, reverse=reverse)
    finals, stacked = results[: len(states)], results[len(states) :]
    pairs = zip(stacked, collected, strict=True)
    return [
        *[BatchOperand(x, v, size) for x, v in zip(finals, varies, strict=True)],
        *[BatchOperand(_exchanged(x) if y.varies else x, y.varies, size) for x, y in pairs],
    ]


def _batched_step(
    body: ScanBody, operands: BatchOperands, batched: Batched, size: int
) -> tuple[ScanBody, list[bool], BatchOperands]:
    """Return one step of all examples, which of its states vary, and the values that it
    collects."""
    states, scanned, captured = body.divided(operands)
    pairs = zip((*body.rows, *body.captured), (*scanned, *captured), strict=True)
    inputs = [_body_argument(leaf, operand.varies, size) for leaf, operand in pairs]
    rows, read = inputs[: len(body.rows)], inputs[len(body.rows) :]
    leaves = (*body.states, *body.rows, *body.captured)
    varies, before = [x.varies for x in states], None
    while varies != before:  # a state varies if it does so in any step
        step_states = [_body_argument(x, v, size) for x, v in zip(body.states, varies, strict=True)]
        leaf_operands = dict(zip(leaves, (*step_states, *rows, *read), strict=True))
        results = batched([*body.outputs, *body.drawn], leaf_operands, body.drawn, size)
        following, other_results = results[: len(step_states)], results[len(step_states) :]
        before = varies
        varies = [v or x.varies for v, x in zip(varies, following, strict=True)]
    collected, drawn = other_results[: len(body.collected)], other_results[len(body.collected) :]
    step = ScanBody(
        states=[x.node for x in step_states],
        rows=[x.node for x in rows],
        captured=[x.node for x in read],
        number=body.number,
        following=[x.stacked if v else x.node for x, v in zip(following, varies, strict=True)],
        collected=[x.node for x in collected],
        drawn=[x.node for x in drawn],
    )
    return step, varies, collected


def _exchanged(x: Node) -> Node:
    """Return an array with its first two axes exchanged: those of the batch and of the steps."""
    return permute(x, (1, 0, *range(2, x.ndim)))


def _body_argument(leaf: Node, varies: bool, size: int) -> BatchOperand:
    """Return a placeholder for an array of a step of one example, or of all."""
    shape = (size, *leaf.shape) if varies else leaf.shape
    return BatchOperand(body_argument(shape, leaf.dtype), varies, size)


def batch_argument(leaf: Node, varies: bool, size: int) -> BatchOperand:
    """Return the leaf for a state or captured array of one example, or of all."""
    shape = (size, *leaf.shape) if varies else leaf.shape
    return BatchOperand(_replicated_leaf(shape, leaf.dtype, leaf.layout), varies, size)


def _replicated_leaf(shape: Shape, dtype: DType, like: Layout | None) -> Node:
    assert like is not None, "arguments of bodies have layouts"
    return input_leaf(shape, dtype, Layout.replicated_on(shape, like.mesh), None)
