"""Operands of examples for which a computation is not needed: those of an example that needs it.

All examples are computed alike. The others would compute with values that may be out of range, or
make gradients by shared arrays nan.
"""

from __future__ import annotations

from collections.abc import Sequence

from magmath.batching.operand import BatchOperand
from magmath.core.dtypes import int64
from magmath.graph import Node, apply_to
from magmath.ops import OPERATIONS
from magmath.ops.elementwise import astype, call, where
from magmath.ops.indexing.dynamic_slice import dynamic_slice


def values_of_needed_examples(
    operands: Sequence[BatchOperand], predicate: BatchOperand
) -> list[BatchOperand]:
    """Return operands with the values of the first example for which the predicate is true in place
    of those for which it is false."""
    needed = (astype(predicate.node, int64),)
    number = apply_to(OPERATIONS["argmax"], needed, None, {"axis": 0, "keepdims": False})
    return [_with_value_of(x, predicate, number) for x in operands]


def _with_value_of(x: BatchOperand, predicate: BatchOperand, number: Node) -> BatchOperand:
    """Return an operand with the value of one example in place of those without the predicate."""
    if not x.varies or x.node is predicate.node:
        return x
    needed = call("stop_gradient", dynamic_slice(x.node, 0, number, 1))
    return BatchOperand(where(predicate.aligned(x.ndim), x.node, needed), True, x.size)
