"""Operations that change the shape of an array and keep its elements: reshape, permute_dims."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from magmath.codegen.emit import IndexMap, IndexVariables, NativeCall, Writer, emit_reshape
from magmath.core.dtypes import DType
from magmath.core.shapes import size_of
from magmath.core.type_aliases import BoundCall
from magmath.errors import ShapeError
from magmath.graph import KernelCall, Node, Operation, Shape, apply
from magmath.graph.operation import Gradients
from magmath.layout import Layout, Split
from magmath.ops.index_letters import LETTERS
from magmath.ops.shared_fields import is_always_exact, no_flops

# reshape ------------------------------------------------------------------------------------


def _reshape_infer(x: Node, *, shape: Shape) -> tuple[Shape, DType]:
    if size_of(shape) != x.size:
        raise ShapeError(
            f"reshape: {x.shape} has {x.size} elements, {shape} would have {size_of(shape)}"
            f"; give extents whose product is {x.size}"
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


def _reshape_split(node: Node, letter: str, split: Split, operand: int | None) -> Split | None:
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
            grown, remaining = (before, olds) if a < b else (after, news)
            grown.append(remaining.pop(0))
        yield before, after


def _reshape_decompositions(node: Node, layouts: Sequence[Layout]) -> list[Node]:
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


def _reshape_kernel(call: KernelCall) -> BoundCall:
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
    numpy_function=lambda node: lambda x, out: np.copyto(out, x.reshape(out.shape)),
    flops=no_flops,
    has_same_bits=is_always_exact,
    decompositions=_reshape_decompositions,
    derived_split=_reshape_split,
)


def reshape(x: Node, shape: Shape) -> Node:
    """Return x with another shape and the same elements in C order."""
    return x if x.shape == shape else apply(RESHAPE, x, shape=shape)


# permute_dims -------------------------------------------------------------------------------


def _permute_infer(x: Node, *, axes: tuple[int, ...]) -> tuple[Shape, DType]:
    if sorted(axes) != list(range(x.ndim)):
        raise ShapeError(
            f"permute_dims: {axes} is not an ordering of {x.ndim} axes; name each axis once"
        )
    return tuple(x.shape[d] for d in axes), x.dtype


def _permute_axes(node: Node) -> str:
    letters = LETTERS[: node.ndim]
    return f"{letters}->{''.join(letters[d] for d in node.attributes['axes'])}"


def _permute_kernel(call: KernelCall) -> BoundCall:
    view, out = call.inputs[0].permute(call.attributes["axes"]), call.out
    return lambda: out.copy_(view)


def _permuted_indices(w: Writer, call: NativeCall) -> IndexVariables:
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
    native=IndexMap(_permuted_indices, lambda call, x: x.permute(call.attributes["axes"])),
    reference=lambda x, *, axes: np.transpose(x, axes),
    numpy_function=lambda node: lambda x, out: np.copyto(out, x.transpose(node.attributes["axes"])),
    flops=no_flops,
    has_same_bits=is_always_exact,
)


def permute(x: Node, axes: tuple[int, ...]) -> Node:
    """Return x with its axes in another order."""
    return x if axes == tuple(range(x.ndim)) else apply(PERMUTE, x, axes=axes)


def transpose(x: Node) -> Node:
    """Return x with its last two axes exchanged."""
    return permute(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


OPERATIONS = {operation.name: operation for operation in (RESHAPE, PERMUTE)}
