"""Operations that change shapes: reshape, permute_dims, broadcast_to, concat."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from magmath.codegen.emit import IndexMap, NativeCall, Places, Writer, emit_reshape
from magmath.core.dtypes import DType
from magmath.core.shapes import broadcast, size_of
from magmath.errors import DTypeError, ShapeError
from magmath.graph import KernelCall, Node, Operation, Shape, apply
from magmath.graph.operation import Gradients
from magmath.layout import Layout, Split
from magmath.ops.infer_rules import LETTERS, pointwise_axes, same_bits_always
from magmath.ops.segments import letters_of
from magmath.ops.slicing import slice_along


def _no_flops(node: Node) -> float:
    return 0.0


# reshape ------------------------------------------------------------------------------------


def _reshape_infer(x: Node, *, shape: Shape) -> tuple[Shape, DType]:
    if size_of(shape) != x.size:
        raise ShapeError(
            f"reshape: {x.shape} has {x.size} elements, {shape} would have {size_of(shape)}"
        )
    return shape, x.dtype


def _reshape_axes(node: Node) -> str:
    """Return index notation in which the first dimension of each group may be split.

    Rows stay whole. The side with the longer rows has the letter, and the other side's split is
    derived from it.
    """
    x = node.inputs[0]
    old, new = ["."] * x.ndim, ["."] * node.ndim
    for letter, (before, after) in zip(LETTERS, _regrouped(x.shape, node.shape), strict=False):
        rows = _row(x.shape, before), _row(node.shape, after)
        if max(rows) % min(rows) == 0:
            old[before[0]] = letter if rows[0] >= rows[1] else letter.upper()
            new[after[0]] = letter if rows[1] >= rows[0] else letter.upper()
    return f"{''.join(old)}->{''.join(new)}"


def _reshape_follow(node: Node, letter: str, split: Split, operand: int | None) -> Split | None:
    x = node.inputs[0]
    before, after = list(_regrouped(x.shape, node.shape))[LETTERS.index(letter)]
    rows = _row(x.shape, before), _row(node.shape, after)
    return split.map_positions(lambda cut: cut * (max(rows) // min(rows)))


def _row(shape: Shape, group: Sequence[int]) -> int:
    """Return the number of elements per index of a group's first dimension."""
    return size_of(shape[d] for d in group[1:])


def _regrouped(old: Shape, new: Shape) -> Iterator[tuple[list[int], list[int]]]:
    """Yield the smallest groups of dimensions of both shapes that contain the same elements.

    Dimensions of extent 1 belong to no group; empty arrays have no groups.
    """
    olds, news = ([d for d, n in enumerate(shape) if n > 1] for shape in (old, new))
    while olds and news and size_of(old):
        before, after = [olds.pop(0)], [news.pop(0)]
        while (a := size_of(old[d] for d in before)) != (b := size_of(new[d] for d in after)):
            grown, rest = (before, olds) if a < b else (after, news)
            grown.append(rest.pop(0))
        yield before, after


def _reshape_ways(node: Node, layouts: Sequence[Layout]) -> list[Node]:
    """Return a reshape by way of the flat array, if rows of one shape do not divide the other's.

    The flat array is redistributed between the two reshapes.
    """
    (x,) = node.inputs
    apart = any(
        max(rows) % min(rows)
        for before, after in _regrouped(x.shape, node.shape)
        for rows in [(_row(x.shape, before), _row(node.shape, after))]
    )
    return [reshape(reshape(x, (x.size,)), node.shape)] if apart else []


def _reshape_kernel(call: KernelCall) -> Callable[[], object]:
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
    same_bits=same_bits_always,
    decompositions=_reshape_ways,
    derived_split=_reshape_follow,
)


def reshape(x: Node, shape: Shape) -> Node:
    """Return x with another shape and the same elements in C order."""
    return x if x.shape == shape else apply(RESHAPE, x, shape=shape)


# permute_dims -------------------------------------------------------------------------------


def _permute_infer(x: Node, *, axes: tuple[int, ...]) -> tuple[Shape, DType]:
    if sorted(axes) != list(range(x.ndim)):
        raise ShapeError(f"permute_dims: {axes} is not an ordering of {x.ndim} axes")
    return tuple(x.shape[d] for d in axes), x.dtype


def _permute_axes(node: Node) -> str:
    letters = LETTERS[: node.ndim]
    return f"{letters}->{''.join(letters[d] for d in node.attributes['axes'])}"


def _permute_kernel(call: KernelCall) -> Callable[[], object]:
    view, out = call.inputs[0].permute(call.attributes["axes"]), call.out
    return lambda: out.copy_(view)


def _permuted_places(w: Writer, call: NativeCall) -> Places:
    axes = call.attributes["axes"]
    return lambda indices: [indices[axes.index(d)] for d in range(len(axes))]


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
    native=IndexMap(_permuted_places, lambda call, x: x.permute(call.attributes["axes"])),
    reference=lambda x, *, axes: np.transpose(x, axes),
    flops=_no_flops,
    same_bits=same_bits_always,
)


def permute(x: Node, axes: tuple[int, ...]) -> Node:
    """Return x with its axes in another order."""
    return x if axes == tuple(range(x.ndim)) else apply(PERMUTE, x, axes=axes)


def transpose(x: Node) -> Node:
    """Return x with its last two axes exchanged."""
    return permute(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


# broadcast_to -------------------------------------------------------------------------------


def _broadcast_infer(x: Node, *, shape: Shape) -> tuple[Shape, DType]:
    if broadcast("broadcast_to", x.shape, shape) != shape:
        raise ShapeError(f"broadcast_to: {x.shape} cannot be stretched to {shape}")
    return shape, x.dtype


def _broadcast_kernel(call: KernelCall) -> Callable[[], object]:
    view, out = call.inputs[0].expand(call.out.shape), call.out
    return lambda: out.copy_(view)


def _broadcast_vjp(node: Node, g: Node) -> Gradients:
    from magmath.ops.reductions import sum_to  # imported late: each is the other's gradient

    return (sum_to(g, node.inputs[0].shape),)


BROADCAST = Operation(
    name="broadcast_to",
    infer=_broadcast_infer,
    axes=pointwise_axes,
    reduction=None,
    vjp=_broadcast_vjp,
    kernel=_broadcast_kernel,
    native=IndexMap(
        lambda w, call: lambda indices: indices, lambda call, x: x.expand(call.out.shape)
    ),
    reference=lambda x, *, shape: np.broadcast_to(x, shape),
    flops=_no_flops,
    same_bits=same_bits_always,
)


def broadcast_to(x: Node, shape: Shape) -> Node:
    """Broadcast x to a larger shape."""
    return x if x.shape == shape else apply(BROADCAST, x, shape=shape)


# concat -------------------------------------------------------------------------------------


def _concat_infer(*arrays: Node, axis: int) -> tuple[Shape, DType]:
    first = arrays[0]
    for x in arrays[1:]:
        if x.dtype is not first.dtype:
            raise DTypeError(f"concat: arrays have types {first.dtype} and {x.dtype}")
        if x.ndim != first.ndim or any(
            x.shape[d] != first.shape[d] for d in range(x.ndim) if d != axis
        ):
            raise ShapeError(
                f"concat: needs equal extents but for axis {axis}, was given shapes {first.shape} "
                f"and {x.shape}, which differ elsewhere; cut or reshape one, or name another axis"
            )
    extent = sum(x.shape[axis] for x in arrays)
    return (*first.shape[:axis], extent, *first.shape[axis + 1 :]), first.dtype


def _concat_axes(node: Node) -> str:
    """Return index notation in which the operands' splits derive from the result's split.

    A worker needs those elements of the arrays that its part of the result contains.
    """
    letters = LETTERS[: node.ndim]
    operand = letters_of(letters, node.attributes["axis"], str.upper)
    return f"{','.join([operand] * len(node.inputs))}->{letters}"


def _concat_follow(node: Node, letter: str, split: Split, operand: int | None) -> Split | None:
    assert operand is not None
    axis = node.attributes["axis"]
    start = sum(x.shape[axis] for x in node.inputs[:operand])
    extent = node.inputs[operand].shape[axis]
    return split.map_positions(lambda cut: min(max(cut - start, 0), extent))


def _concat_kernel(call: KernelCall) -> Callable[[], object]:
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
            with w.loops(x.shape) as indices:
                places = [f"{i} + {start}" if d == axis else i for d, i in enumerate(indices)]
                w.line(f"{out.at(places)} = {x.at(indices)}")
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
    flops=_no_flops,
    same_bits=same_bits_always,
    derived_split=_concat_follow,
)


OPERATIONS = {
    operation.name: operation
    for operation in (
        RESHAPE,
        PERMUTE,
        BROADCAST,
        CONCAT,
    )
}
