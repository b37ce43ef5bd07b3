"""Sums over the steps of a loop that are computed after it.

The gradient by a matrix that every step multiplies is a sum of products, one of each step. Each
product is small, and adding it reads and writes the whole sum. If the loop stacks the operands
instead, the sum is a single product of the stacked arrays.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from magmath.core.dtypes import compute_dtype
from magmath.graph import Node, apply
from magmath.ops.elementwise import ASTYPE, add, astype
from magmath.ops.manipulation import PERMUTE, RESHAPE, permute, reshape
from magmath.ops.product.contraction import CONTRACT, Subscripts, subscripts_of
from magmath.ops.reductions import reduce
from magmath.ops.sums import SUM


def is_summed_later(part: Node, varying: Collection[Node]) -> bool:
    """Return True for a product or a sum of arrays that differ between steps, and for sums,
    conversions and other arrangements of these.

    `varying` are the nodes that differ between steps.
    """
    operation, inputs = part.operation, part.inputs
    if operation is CONTRACT:
        return all(x in varying for x in inputs)
    if operation is SUM:
        return inputs[0] in varying and part.size < inputs[0].size
    if part.name == "add":
        return all(x.shape == part.shape and is_summed_later(x, varying) for x in inputs)
    if operation is ASTYPE and not (part.dtype.is_floating and inputs[0].dtype.is_floating):
        return False
    return operation in (ASTYPE, RESHAPE, PERMUTE) and is_summed_later(inputs[0], varying)


def operands_of_sum(part: Node) -> list[Node]:
    """Return the arrays of a step from which `summed_over_steps` computes the sum."""
    if part.operation in (CONTRACT, SUM):
        return list(part.inputs)
    return [x for source in part.inputs for x in operands_of_sum(source)]


def summed_over_steps(part: Node, stacked: Mapping[Node, Node]) -> Node:
    """Return the sum of the values of a node over all steps, given the stacked operands.

    It is rounded to the node's type once: the half types that the values of one step have on the
    way may be too small for the sum.
    """
    return astype(_unrounded_sum(part, stacked), part.dtype)


def _unrounded_sum(part: Node, stacked: Mapping[Node, Node]) -> Node:
    """Return the sum over all steps in the type in which those of `part` are computed."""
    operation, inputs = part.operation, part.inputs
    dtype = compute_dtype(part.dtype)
    if operation is CONTRACT:
        subscripts = subscripts_of(part)
        step = next(c for c in "zyxwvutsrqponmlkjihgfedcba" if c not in str(subscripts))
        in_steps = Subscripts(step + subscripts.a, step + subscripts.b, subscripts.out)
        a, b = (stacked[x] for x in inputs)
        return apply(CONTRACT, a, b, line=part.line, subscripts=str(in_steps), dtype=dtype)
    if operation is SUM:
        axes = (0, *[axis + 1 for axis in part.attributes["axis"]])
        return reshape(reduce("sum", astype(stacked[inputs[0]], dtype), axes), part.shape)
    sums = [_unrounded_sum(x, stacked) for x in inputs]
    if part.name == "add":
        return add(*sums)
    if operation is ASTYPE:
        return astype(sums[0], dtype)
    if operation is RESHAPE:
        return reshape(sums[0], part.shape)
    return permute(sums[0], part.attributes["axes"])
