"""Concatenation of arrays along an axis."""

from __future__ import annotations

import numpy as np

from magmath.codegen.emit import NativeCall, Writer
from magmath.core.dtypes import DType
from magmath.core.shapes import with_extent
from magmath.core.type_aliases import BoundCall
from magmath.errors import DTypeError, ShapeError
from magmath.graph import KernelCall, Node, Operation, Shape
from magmath.graph.operation import Gradients, any_memory_order
from magmath.layout import Split
from magmath.ops.index_letters import LETTERS, with_changed_letter
from magmath.ops.shared_fields import is_always_exact, no_flops
from magmath.ops.slicing import slice_along


def _concat_infer(*arrays: Node, axis: int) -> tuple[Shape, DType]:
    first = arrays[0]
    for x in arrays[1:]:
        if x.dtype is not first.dtype:
            raise DTypeError(
                f"concat: arrays have types {first.dtype} and {x.dtype}; convert one with mm.astype"
            )
        if x.ndim != first.ndim or any(
            x.shape[d] != first.shape[d] for d in range(x.ndim) if d != axis
        ):
            raise ShapeError(
                f"concat: needs equal extents except along axis {axis}, was given shapes "
                f"{first.shape} and {x.shape}, which differ elsewhere; slice or reshape one, "
                "or name another axis"
            )
    extent = sum(x.shape[axis] for x in arrays)
    return with_extent(first.shape, axis, extent), first.dtype


def _concat_axes(node: Node) -> str:
    """Return index notation in which the operands' splits derive from the result's split.

    A worker needs those elements of the arrays that its part of the result contains.
    """
    letters = LETTERS[: node.ndim]
    operand = with_changed_letter(letters, node.attributes["axis"], str.upper)
    return f"{','.join([operand] * len(node.inputs))}->{letters}"


def _concat_split(node: Node, letter: str, split: Split, operand: int | None) -> Split | None:
    assert operand is not None
    axis = node.attributes["axis"]
    start = sum(x.shape[axis] for x in node.inputs[:operand])
    extent = node.inputs[operand].shape[axis]
    return split.map_positions(lambda cut: min(max(cut - start, 0), extent))


def _concat_kernel(call: KernelCall) -> BoundCall:
    import torch

    inputs, out, axis = tuple(call.inputs), call.out, call.attributes["axis"]
    parts = torch.split(out, [x.shape[axis] for x in inputs], axis)

    copied = [
        (part, x)
        for part, x in zip(parts, inputs, strict=True)
        if part.data_ptr() != x.data_ptr()  # otherwise it is stored there
    ]

    def run() -> None:
        for part, x in copied:
            part.copy_(x)

    return run


def _emit_concat(w: Writer, call: NativeCall) -> None:
    axis, start, out = call.attributes["axis"], 0, call.out
    for x in call.inputs:
        if x.address != out.address + start * out.strides[axis] * out.dtype.itemsize:
            with w.loops(x.shape, x.strides) as indices:
                positions = [f"{i} + {start}" if d == axis else i for d, i in enumerate(indices)]
                w.line(f"{out.at(positions)} = {x.at(indices)}")
        start += x.shape[axis]


def _concat_vjp(node: Node, g: Node) -> Gradients:
    axis, start, parts = node.attributes["axis"], 0, []
    for x in node.inputs:
        stop = start + x.shape[axis]
        parts.append(slice_along(g, axis, start, stop))
        start = stop
    return tuple(parts)


CONCAT = Operation(
    name="concat",
    infer=_concat_infer,
    axes=_concat_axes,
    reduction=None,
    vjp=_concat_vjp,
    kernel=_concat_kernel,
    native=_emit_concat,
    reference=lambda *arrays, axis: np.concatenate(arrays, axis),
    numpy_function=lambda node: (
        lambda *arrays: np.concatenate(arrays[:-1], node.attributes["axis"], out=arrays[-1])
    ),
    flops=no_flops,
    has_same_bits=is_always_exact,
    derived_split=_concat_split,
    memory_orders=any_memory_order,
)

OPERATIONS = {CONCAT.name: CONCAT}
