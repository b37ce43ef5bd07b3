"""Calls of functions with gradients of their own, for a batch: the gradient rule becomes one of the
whole batch."""

from __future__ import annotations

from collections.abc import Collection

from magmath.batching.loop import Batched, batch_argument
from magmath.batching.operand import BatchOperand, BatchOperands
from magmath.graph import Node
from magmath.ops.custom_gradients import GradientRule, custom_call, parts_of_call
from magmath.ops.sums import sum_


def batched_call(
    call: Node, operands: BatchOperands, batched: Batched, streams: Collection[Node], size: int
) -> BatchOperand:
    """Return a call for a batch of `size` examples.

    The cotangents of the values differ between examples. That of an argument that the examples
    share is the sum over them: a rule has the shapes of its arguments.
    """
    rule: GradientRule = call.attributes["rule"]
    new = dict(zip(call.inputs, operands, strict=True))
    arguments, read, values = [[new[x] for x in part] for part in parts_of_call(call)]
    cotangents = [batch_argument(x, True, size) for x in rule.value_cotangents]
    values_read = [batch_argument(x, y.varies, size) for x, y in zip(rule.read, read, strict=True)]
    leaves = dict(
        zip((*rule.value_cotangents, *rule.read), (*cotangents, *values_read), strict=True)
    )
    of_examples = batched(rule.computed, leaves, streams, size)
    differentiated = [x for x, y in zip(arguments, rule.outputs, strict=True) if y is not None]
    computed = [
        y.stacked if x.varies else sum_(y.stacked, 0)
        for x, y in zip(differentiated, of_examples, strict=True)
    ]
    whole = rule.with_computed(
        computed, [x.node for x in cotangents], [x.node for x in values_read]
    )
    result = custom_call(
        [x.node for x in arguments], whole, [x.node for x in read], [x.stacked for x in values]
    )
    return BatchOperand(result, True, size)
