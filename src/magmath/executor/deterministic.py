"""Deterministic mode: every kernel runs once for each logical part of its result.

The parts depend only on the global shape, never on the number of workers, and no sum is divided
between workers. The same kernel therefore computes every element, on operands of the same shape and
memory order, on whichever worker stores it: the results agree bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from types import MappingProxyType

from magmath.core.index_set import IndexSet
from magmath.core.type_aliases import BoundCall
from magmath.graph import KernelCall, Node, make_node
from magmath.graph.index_notation import LOGICAL_PARTS
from magmath.graph.operation import NO_ATTRIBUTES
from magmath.layout import even_cuts
from magmath.ops import OPERATIONS
from magmath.program.instructions import Call, Slot


def logical_calls(
    call: Call, out: Slot, inputs: Sequence[Slot], local: KernelCall
) -> list[BoundCall]:
    """Return bound calls that compute the local result part by part.

    Kernels add strided numbers in another order than contiguous ones, and the strides of a part
    depend on the other parts that its worker stores: strided operands are copied first.
    """
    kernel = OPERATIONS[call.operation].kernel
    bound: list[BoundCall] = []
    for part in _logical_calls(call, out, inputs, local):
        for i, x in enumerate(part.inputs):
            if not x.is_contiguous():
                part.inputs[i] = x.new_empty(x.shape)
                bound.append(partial(part.inputs[i].copy_, x))
        bound.append(kernel(part))
    return bound


def _logical_calls(
    call: Call, out: Slot, inputs: Sequence[Slot], local: KernelCall
) -> list[KernelCall]:
    """Return the local call, divided into its parts along the result's logical dimension."""
    node = node_of_call(call, out, inputs)
    notation = node.index_notation
    letter = notation.logical_letter(node.shape)
    # An operand that grows in place is only moved: one part would overwrite the next one's operand.
    if letter is None or node.operation.grows_operand:
        return [local]
    dim = notation.output.index(letter)
    stored = local.tile[dim]
    parts = []
    for start, stop in _parts(node.shape[dim], stored):
        offset, part = start - stored.start, IndexSet.range(start, stop)
        parts.append(
            KernelCall(
                out=local.out.narrow(dim, offset, stop - start),
                inputs=[
                    x.narrow(letters.index(letter), offset, stop - start)
                    if letter in letters
                    else x
                    for x, letters in zip(local.inputs, notation.inputs, strict=True)
                ],
                attributes=_narrowed(local, dim, stop - start),
                tile=(*local.tile[:dim], part, *local.tile[dim + 1 :]),
                tiles=[
                    tuple(part if c == letter else i for c, i in zip(letters, tile, strict=True))
                    for letters, tile in zip(notation.inputs, local.tiles, strict=True)
                ],
                shape=local.shape,
                shapes=local.shapes,
                context=local.context,
            )
        )
    return parts


def _parts(extent: int, stored: IndexSet) -> list[tuple[int, int]]:
    """Return the stored range, divided where logical parts begin. A split that a reshape has
    derived may begin within a part."""
    ranges = [
        (max(a, stored.start), min(b, stored.stop))
        for a, b in pairwise(even_cuts(extent, LOGICAL_PARTS))
    ]
    return [(a, b) for a, b in ranges if a < b]


def _narrowed(local: KernelCall, dim: int, extent: int) -> dict[str, object]:
    attributes = dict(local.attributes)
    shape = attributes.get("shape")
    if isinstance(shape, tuple) and shape == tuple(local.out.shape):
        attributes["shape"] = (*shape[:dim], extent, *shape[dim + 1 :])
    return attributes


def node_of_call(call: Call, out: Slot, inputs: Sequence[Slot]) -> Node:
    """Return the node from which a call was lowered, without layouts."""
    operands = tuple(Node(OPERATIONS["input"], (), NO_ATTRIBUTES, s.shape, s.dtype) for s in inputs)
    attributes = MappingProxyType({**call.attributes})
    return make_node(OPERATIONS[call.operation], operands, attributes, out.shape, out.dtype)
