"""Operations that change shapes: reshape, permute, stretch, join, slice, pad, take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from magmath.core.dtypes import DType
from magmath.core.shapes import broadcast, size_of
from magmath.errors import DTypeError, ShapeError
from magmath.graph import LocalCall, Node, Operation, Shape, apply
from magmath.graph.operation import Gradients
from magmath.ops.native_emit import emit_batch, emit_copy, emit_permute, emit_reshape, emit_take
from magmath.ops.rules import (
    LETTERS,
    as_signed,
    is_numpy_only,
    letters_except,
    no_gradient,
    numpy_call,
    pointwise_axes,
    whole,
)


def _no_flops(node: Node) -> float:
    return 0.0


# reshape ------------------------------------------------------------------------------------


def _reshape_infer(x: Node, *, shape: Shape) -> tuple[Shape, DType]:
    if size_of(shape) != x.size:
        raise ShapeError(
            f"reshape: {x.shape} has {x.size} elements, {shape} would have {size_of(shape)}"
        )
    return shape, x.dtype


def _common_prefix(a: Shape, b: Shape) -> int:
    count = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        count += 1
    return count


def _reshape_axes(node: Node) -> str:
    """Leading and trailing dimensions that stay may be split; those that change are whole."""
    old, new = node.inputs[0].shape, node.shape
    front = _common_prefix(old, new)
    back = min(_common_prefix(old[::-1], new[::-1]), len(old) - front, len(new) - front)
    head, tail = LETTERS[:front], LETTERS[front : front + back]
    old_middle, new_middle = len(old) - front - back, len(new) - front - back
    return f"{head}{whole(old_middle)}{tail}->{head}{whole(new_middle)}{tail}"


def _reshape_kernel(call: LocalCall) -> Callable[[], object]:
    (x,), out = call.inputs, call.out
    if x.is_contiguous():
        x = x.view(out.shape)
        return lambda: out.copy_(x)
    return lambda: out.copy_(x.reshape(out.shape))


RESHAPE = Operation(
    name="reshape",
    infer=_reshape_infer,
    axes=_reshape_axes,
    reduction=None,
    vjp=lambda node, g: (reshape(g, node.inputs[0].shape),),
    kernel=_reshape_kernel,
    native=emit_reshape,
    reference=lambda x, *, shape: np.reshape(x, shape),
    flops=_no_flops,
)


def reshape(x: Node, shape: Shape) -> Node:
    """x with another shape, same elements in C order."""
    return x if x.shape == shape else apply(RESHAPE, x, shape=shape)


# permute_dims -------------------------------------------------------------------------------


def _permute_infer(x: Node, *, axes: tuple[int, ...]) -> tuple[Shape, DType]:
    if sorted(axes) != list(range(x.ndim)):
        raise ShapeError(f"permute_dims: {axes} is not an ordering of {x.ndim} axes")
    return tuple(x.shape[d] for d in axes), x.dtype


def _permute_axes(node: Node) -> str:
    letters = LETTERS[: node.ndim]
    return f"{letters}->{''.join(letters[d] for d in node.attributes['axes'])}"


def _permute_kernel(call: LocalCall) -> Callable[[], object]:
    view, out = call.inputs[0].permute(call.attributes["axes"]), call.out
    return lambda: out.copy_(view)


def _permute_vjp(node: Node, g: Node) -> Gradients:
    axes = node.attributes["axes"]
    return (permute(g, tuple(axes.index(d) for d in range(len(axes)))),)


PERMUTE = Operation(
    name="permute_dims",
    infer=_permute_infer,
    axes=_permute_axes,
    reduction=None,
    vjp=_permute_vjp,
    kernel=_permute_kernel,
    native=emit_permute,
    reference=lambda x, *, axes: np.transpose(x, axes),
    flops=_no_flops,
)


def permute(x: Node, axes: tuple[int, ...]) -> Node:
    """x with its axes in another order."""
    return x if axes == tuple(range(x.ndim)) else apply(PERMUTE, x, axes=axes)


def transpose(x: Node) -> Node:
    """x with its last two axes exchanged."""
    return permute(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


# broadcast_to -------------------------------------------------------------------------------


def _broadcast_infer(x: Node, *, shape: Shape) -> tuple[Shape, DType]:
    if broadcast("broadcast_to", x.shape, shape) != shape:
        raise ShapeError(f"broadcast_to: {x.shape} cannot be stretched to {shape}")
    return shape, x.dtype


def _broadcast_kernel(call: LocalCall) -> Callable[[], object]:
    view, out = call.inputs[0].expand(call.out.shape), call.out
    return lambda: out.copy_(view)


def _broadcast_vjp(node: Node, g: Node) -> Gradients:
    from magmath.ops.reductions import sum_to  # the two are each other's gradients

    return (sum_to(g, node.inputs[0].shape),)


BROADCAST = Operation(
    name="broadcast_to",
    infer=_broadcast_infer,
    axes=pointwise_axes,
    reduction=None,
    vjp=_broadcast_vjp,
    kernel=_broadcast_kernel,
    native=emit_copy,
    reference=lambda x, *, shape: np.broadcast_to(x, shape),
    flops=_no_flops,
)


def broadcast_to(x: Node, shape: Shape) -> Node:
    """x stretched to a larger shape."""
    return x if x.shape == shape else apply(BROADCAST, x, shape=shape)


# concat -------------------------------------------------------------------------------------


def _concat_infer(*arrays: Node, axis: int) -> tuple[Shape, DType]:
    first = arrays[0]
    for x in arrays[1:]:
        if x.dtype != first.dtype:
            raise DTypeError(f"concat: arrays have types {first.dtype} and {x.dtype}")
        if x.ndim != first.ndim or any(
            x.shape[d] != first.shape[d] for d in range(x.ndim) if d != axis
        ):
            raise ShapeError(
                f"concat: shapes {first.shape} and {x.shape} differ elsewhere than in axis {axis}"
            )
    extent = sum(x.shape[axis] for x in arrays)
    return (*first.shape[:axis], extent, *first.shape[axis + 1 :]), first.dtype


def _concat_axes(node: Node) -> str:
    letters = letters_except(node.ndim, (node.attributes["axis"],))
    return f"{','.join([letters] * len(node.inputs))}->{letters}"


def _concat_kernel(call: LocalCall) -> Callable[[], object]:
    import torch

    inputs, out, axis = tuple(call.inputs), call.out, call.attributes["axis"]
    parts = torch.split(out, [x.shape[axis] for x in inputs], axis)

    def run() -> None:
        for part, x in zip(parts, inputs, strict=True):
            part.copy_(x)

    return run


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
    native=None,
    reference=lambda *arrays, axis: np.concatenate(arrays, axis),
    flops=_no_flops,
)


# slicing: (start, stop, step) for every dimension, step never 0 ------------------------------

Bounds = tuple[tuple[int, int, int], ...]


def slice_extent(start: int, stop: int, step: int) -> int:
    """The number of elements of `range(start, stop, step)`."""
    return len(range(start, stop, step))


def _slice_infer(x: Node, *, bounds: Bounds) -> tuple[Shape, DType]:
    return tuple(slice_extent(*b) for b in bounds), x.dtype


def _slice_axes(node: Node) -> str:
    x = node.inputs[0]
    partial = [d for d, b in enumerate(node.attributes["bounds"]) if b != (0, x.shape[d], 1)]
    letters = letters_except(x.ndim, partial)
    return f"{letters}->{letters}"


def _local_bounds(bounds: Bounds, x: Any) -> list[tuple[int, int, int]]:
    """Dimensions that are taken in full may be split: there the local extent counts."""
    return [b if b[0] or b[2] != 1 else (0, min(b[1], x.shape[d]), 1) for d, b in enumerate(bounds)]


def _strided_view(x: Any, bounds: list[tuple[int, int, int]]) -> tuple[Any, list[int]]:
    """A forward view of the elements, and the dimensions still to be flipped (torch has no
    negative strides)."""
    flips = []
    for d, (start, stop, step) in enumerate(bounds):
        count = slice_extent(start, stop, step)
        if count == 0:
            x = x.narrow(d, 0, 0)
            continue
        last = start + (count - 1) * step
        low, high = min(start, last), max(start, last)
        x = x[(slice(None),) * d + (slice(low, high + 1, abs(step)),)]
        if step < 0:
            flips.append(d)
    return x, flips


def _slice_kernel(call: LocalCall) -> Callable[[], object]:
    x, out = as_signed(call.inputs[0]), as_signed(call.out)
    view, flips = _strided_view(x, _local_bounds(call.attributes["bounds"], x))
    if flips:
        return lambda: out.copy_(view.flip(flips))
    return lambda: out.copy_(view)


def _slice_reference(x: Any, *, bounds: Bounds) -> Any:
    return x[np.ix_(*[np.arange(*bound) for bound in bounds])]


def _slice_vjp(node: Node, g: Node) -> Gradients:
    return (apply(UNSLICE, g, bounds=node.attributes["bounds"], shape=node.inputs[0].shape),)


SLICE = Operation(
    name="slice",
    infer=_slice_infer,
    axes=_slice_axes,
    reduction=None,
    vjp=_slice_vjp,
    kernel=_slice_kernel,
    native=None,
    reference=_slice_reference,
    flops=_no_flops,
)


def slice_along(x: Node, axis: int, start: int, stop: int) -> Node:
    """Elements start…stop of one axis."""
    bounds = tuple((start, stop, 1) if d == axis else (0, n, 1) for d, n in enumerate(x.shape))
    return x if bounds[axis] == (0, x.shape[axis], 1) else apply(SLICE, x, bounds=bounds)


def _unslice_infer(x: Node, *, bounds: Bounds, shape: Shape) -> tuple[Shape, DType]:
    return shape, x.dtype


def _unslice_axes(node: Node) -> str:
    partial = [d for d, b in enumerate(node.attributes["bounds"]) if b != (0, node.shape[d], 1)]
    letters = letters_except(node.ndim, partial)
    return f"{letters}->{letters}"


def _unslice_kernel(call: LocalCall) -> Callable[[], object]:
    x, out = as_signed(call.inputs[0]), as_signed(call.out)
    view, flips = _strided_view(out, _local_bounds(call.attributes["bounds"], out))

    def run() -> None:
        out.zero_()
        view.copy_(x.flip(flips) if flips else x)

    return run


def _unslice_reference(x: Any, *, bounds: Bounds, shape: Shape) -> Any:
    out = np.zeros(shape, np.asarray(x).dtype)
    out[np.ix_(*[np.arange(*bound) for bound in bounds])] = x
    return out


UNSLICE = Operation(  # zeros with x where a slice of these bounds would have read
    name="unslice",
    infer=_unslice_infer,
    axes=_unslice_axes,
    reduction=None,
    vjp=lambda node, g: (apply(SLICE, g, bounds=node.attributes["bounds"]),),
    kernel=_unslice_kernel,
    native=None,
    reference=_unslice_reference,
    flops=_no_flops,
)


# take: rows (or any axis) by a 1-D integer array ----------------------------------------------


def _take_infer(x: Node, indices: Node, *, axis: int) -> tuple[Shape, DType]:
    if indices.ndim != 1 or not indices.dtype.is_integer:
        raise ShapeError(
            f"take: indices must be a 1-D integer array, got {indices.ndim}-D {indices.dtype}"
        )
    return (*x.shape[:axis], indices.shape[0], *x.shape[axis + 1 :]), x.dtype


def _take_axes(node: Node) -> str:
    """The taken axis of x is whole; the indices may be split."""
    x, axis = node.inputs[0], node.attributes["axis"]
    operand = letters_except(x.ndim, (axis,))
    index = LETTERS[x.ndim]
    return f"{operand},{index}->{operand[:axis]}{index}{operand[axis + 1 :]}"


def _take_kernel(call: LocalCall) -> Callable[[], object]:
    import torch

    (x, indices), out, axis = call.inputs, call.out, call.attributes["axis"]
    x, out = as_signed(x), as_signed(out)
    if indices.dtype not in (torch.int32, torch.int64):
        return lambda: torch.index_select(x, axis, indices.long(), out=out)
    return lambda: torch.index_select(x, axis, indices, out=out)


def _take_vjp(node: Node, g: Node) -> Gradients:
    x, indices = node.inputs
    axis = node.attributes["axis"]
    return apply(SCATTER_ADD, g, indices, axis=axis, extent=x.shape[axis]), None


TAKE = Operation(
    name="take",
    infer=_take_infer,
    axes=_take_axes,
    reduction=None,
    vjp=_take_vjp,
    kernel=_take_kernel,
    native=emit_take,
    reference=lambda x, indices, *, axis: np.take(x, indices, axis),
    flops=_no_flops,
)


def _scatter_infer(x: Node, indices: Node, *, axis: int, extent: int) -> tuple[Shape, DType]:
    return (*x.shape[:axis], extent, *x.shape[axis + 1 :]), x.dtype


def _scatter_axes(node: Node) -> str:
    x, axis = node.inputs[0], node.attributes["axis"]
    operand = letters_except(x.ndim, (axis,))
    index = LETTERS[x.ndim]
    source = f"{operand[:axis]}{index}{operand[axis + 1 :]}"
    return f"{source},{index}->{operand}"


def _scatter_kernel(call: LocalCall) -> Callable[[], object]:
    (x, indices), out, axis = call.inputs, call.out, call.attributes["axis"]
    if is_numpy_only(x):
        return numpy_call(call, _scatter_reference)

    def run() -> None:
        out.zero_()
        out.index_add_(axis, indices.long(), x)

    return run


def _scatter_reference(x: Any, indices: Any, *, axis: int, extent: int) -> Any:
    moved = np.moveaxis(np.asarray(x), axis, 0)
    out = np.zeros((extent, *moved.shape[1:]), moved.dtype)
    np.add.at(out, indices, moved)
    return np.moveaxis(out, 0, axis)


SCATTER_ADD = Operation(  # workers that hold different indices hold addends of one result
    name="scatter_add",
    infer=_scatter_infer,
    axes=_scatter_axes,
    reduction="sum",
    vjp=lambda node, g: (take(g, node.inputs[1], node.attributes["axis"]), None),
    kernel=_scatter_kernel,
    native=None,
    reference=_scatter_reference,
    flops=_no_flops,
)


def take(x: Node, indices: Node, axis: int) -> Node:
    """Elements of one axis, by position."""
    return apply(TAKE, x, indices, axis=axis)


# batch: `extent` entries of a 1-D array from a position known only when the program runs ------


def _batch_infer(x: Node, position: Node, *, extent: int) -> tuple[Shape, DType]:
    if x.ndim != 1 or position.shape != ():
        raise ShapeError(f"batch: needs a 1-D array and a 0-d position, got {x.shape}")
    return (extent,), x.dtype


def _batch_kernel(call: LocalCall) -> Callable[[], object]:
    import torch

    (x, position), out = call.inputs, call.out
    x, out = as_signed(x), as_signed(out)
    offset = torch.as_tensor(call.tile[0].indices(), device=x.device)
    index = torch.empty_like(offset)

    def run() -> None:
        torch.add(offset, position, out=index)
        torch.index_select(x, 0, index, out=out)

    return run


def _batch_reference(x: Any, position: Any, *, extent: int) -> Any:
    return x[int(position) : int(position) + extent]


BATCH = Operation(
    name="batch",
    infer=_batch_infer,
    axes=lambda node: ".,->a",
    reduction=None,
    vjp=no_gradient,
    kernel=_batch_kernel,
    native=emit_batch,
    reference=_batch_reference,
    flops=_no_flops,
)

OPERATIONS = {
    operation.name: operation
    for operation in (
        RESHAPE,
        PERMUTE,
        BROADCAST,
        CONCAT,
        SLICE,
        UNSLICE,
        TAKE,
        SCATTER_ADD,
        BATCH,
    )
}
