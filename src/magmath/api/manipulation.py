"""Functions of the array API that change shapes, and join, reorder and repeat elements."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from operator import index
from typing import Any

import numpy as np

from magmath.api.creation import normal_shape
from magmath.arrays.array import Array, as_array, rearranged
from magmath.arrays.inputs.number_list import is_number
from magmath.arrays.inputs.operands import promoted_nodes, same_kind_operand
from magmath.arrays.lazy_array import evaluate
from magmath.arrays.protocols.cached_functions import dispatch_cached
from magmath.arrays.ufuncs.output import stored
from magmath.arrays.views import (
    Permuted,
    Reshaped,
    Stretched,
    is_contiguous,
    is_reshaped_in_place,
)
from magmath.core.dtypes import as_dtype, bool_, int64
from magmath.core.integers import is_integer
from magmath.core.keyword_hints import keyword_hints
from magmath.core.shapes import broadcast, normalize_axes, normalize_axis, reduced_axes
from magmath.core.shown_value import shown
from magmath.engine.user_line import user_line
from magmath.errors import DTypeError, OptionError, ShapeError
from magmath.graph import Node, Shape, apply
from magmath.ops import elementwise as e
from magmath.ops import manipulation, sums
from magmath.ops.concatenation import CONCAT
from magmath.ops.cumulative import CUMULATIVE_SUM
from magmath.ops.indexing.gather_scatter import SCATTER_ADD, take
from magmath.ops.leaves import constant
from magmath.ops.reductions import reduce
from magmath.ops.slicing import slice_along
from magmath.ops.sums import sum_


def _resolved(shape: Sequence[int], size: int) -> Shape:
    """Return a shape of this size with the extent in place of -1."""
    extents = _integers("reshape: a shape", shape)
    if extents.count(-1) > 1 or [n for n in extents if n < -1]:
        raise ShapeError(
            f"reshape: at most one extent may be -1, which is computed; was given {extents}"
        )
    if -1 not in extents:
        return extents
    known = math.prod(n for n in extents if n != -1)
    if known == 0 or size % known:
        raise ShapeError(
            f"reshape: {size} elements cannot be reshaped to {extents}: {known} does not divide "
            f"them; give extents whose product is {size}"
        )
    return tuple(size // known if n == -1 else n for n in extents)


def reshape(
    x: Array, /, shape: int | Sequence[int], order: str = "C", *, copy: bool | None = None
) -> Array:
    """Return the same elements in another shape; one extent may be -1.

    order: "C" reads and writes the elements with the last index changing fastest, "F" with the
    first; "A" means "C".
    copy: if False, the result is a view, and a ValueError is raised where NumPy would copy; if
    True, it is no view. By default it is one where it is one in NumPy.
    """
    x = as_array("reshape", x)
    if hasattr(order, "__index__") and shape != (-1,):
        raise TypeError(
            f"reshape: the shape is one argument, a tuple, was given {shape} and {order}; write "
            f"mm.reshape(x, (…, …)), or x.reshape(…, …)"
        )
    extents = _resolved((shape,) if is_integer(shape) else shape, x.size)
    if check_order("reshape", order) == "C":
        return _reshaped(x, extents, copy)
    return _reshaped(x.T, extents[::-1], copy).T


def _reshaped(x: Array, extents: Shape, copy: bool | None) -> Array:
    if copy is not True and is_reshaped_in_place(x, extents):
        return rearranged(x, Reshaped(extents))
    if copy is False:
        raise ValueError(
            f"reshape: an array of shape {x.shape} that is such a view cannot have the shape "
            f"{extents} without a copy; leave `copy` out"
        )
    return Array(manipulation.reshape(x.node, extents))


def check_order(operation: str, order: str | None) -> str:
    """Return the order in which elements are read: "C" or "F". Arrays have no order in memory, so
    "A", "K" and None mean "C"; OptionError for anything else. Small letters are accepted."""
    if order is None:
        return "C"
    letter = str(order).upper()
    if letter not in ("C", "F", "A", "K"):
        is_axis = hasattr(order, "__index__")
        remedy = "; to merge axes write mm.reshape(x, (n, -1))" if is_axis else ""
        raise OptionError(f'{operation}: order is "C" or "F", was given {order!r}{remedy}')
    return "F" if letter == "F" else "C"


def ravel(a: Array, order: str = "C") -> Array:
    """Return the elements as an array of one dimension; see `reshape` for the order.

    It is a view where it is one in NumPy: if the elements follow one another in memory there.
    """
    a = as_array("ravel", a)
    if check_order("ravel", order) == "F":
        a = a.T
    return _reshaped(a, (a.size,), None if is_contiguous(a) else True)


@keyword_hints
def transpose(a: Array, axes: Sequence[int] | None = None) -> Array:
    """Return `a` with its axes in another order, reversed for None."""
    return permute_dims(a, axes)


def swapaxes(a: Array, axis1: int, axis2: int) -> Array:
    """Return `a` with two axes exchanged."""
    a = as_array("swapaxes", a)
    first, second = _positions("swapaxes", (axis1, axis2), a.ndim)
    order = list(range(a.ndim))
    order[first], order[second] = second, first
    return permute_dims(a, order)


def rollaxis(a: Array, axis: int, start: int = 0) -> Array:
    """Return `a` with an axis moved to just before position `start`."""
    a = as_array("rollaxis", a)
    dim = normalize_axis("rollaxis", axis, a.ndim)
    before = start + a.ndim if start < 0 else start
    if not 0 <= before <= a.ndim:
        raise ShapeError(
            f"rollaxis: start must be {-a.ndim} to {a.ndim}, was given {start}"
            "; pass a start in this range"
        )
    return moveaxis(a, dim, before - (before > dim))


def _positions(name: str, axes: int | Sequence[int], ndim: int) -> tuple[int, ...]:
    """Return axes in the given order, counted from the front."""
    is_sequence = isinstance(axes, Iterable) and not is_integer(axes)
    listed: Any = axes if is_sequence else (axes,)
    return tuple([normalize_axis(name, axis, ndim) for axis in listed])


def permute_dims(a: Array, axes: Sequence[int] | None = None) -> Array:
    """Return `a` with its axes in another order, reversed for None."""
    a = as_array("permute_dims", a)
    order = _positions("permute_dims", range(a.ndim)[::-1] if axes is None else axes, a.ndim)
    if sorted(order) != list(range(a.ndim)):
        raise ShapeError(
            f"permute_dims: {axes} is not an ordering of {a.ndim} axes; name each axis once"
        )
    return rearranged(a, Permuted(order))


def moveaxis(a: Array, source: int | Sequence[int], destination: int | Sequence[int]) -> Array:
    """Return `a` with the axes `source` moved to positions `destination`; the others stay in
    order."""
    a = as_array("moveaxis", a)
    dims = [_positions("moveaxis", axes, a.ndim) for axes in (source, destination)]
    if len(dims[0]) != len(dims[1]) or any(len(set(ds)) != len(ds) for ds in dims):
        raise ShapeError(
            f"moveaxis: needs as many different sources as destinations, was given {source} and "
            f"{destination}"
            "; give one destination for each source"
        )
    order = [d for d in range(a.ndim) if d not in dims[0]]
    for to, axis in sorted(zip(dims[1], dims[0], strict=True)):
        order.insert(to, axis)
    return permute_dims(a, order)


def expand_dims(a: Array, axis: int | tuple[int, ...] = 0) -> Array:
    """Return `a` with new axes of extent 1 at these positions of the result."""
    a = as_array("expand_dims", a)
    ndim = a.ndim + (1 if is_integer(axis) else len(axis))
    new, old = normalize_axes("expand_dims", axis, ndim), iter(a.shape)
    return reshape(a, [1 if d in new else next(old) for d in range(ndim)])


@keyword_hints
def squeeze(a: Array, axis: int | tuple[int, ...] | None = None) -> Array:
    """Return `a` without the given axes, whose extent must be 1; for None without all such axes."""
    a = as_array("squeeze", a)
    if axis is None:
        axis = tuple(d for d, extent in enumerate(a.shape) if extent == 1)
    axes = reduced_axes("squeeze", axis, a.ndim)
    if [d for d in axes if a.shape[d] != 1]:
        raise ShapeError(
            f"squeeze: axes {axes} of shape {a.shape} are not all of extent 1; name such, or "
            f"take one position of an axis with x[0]"
        )
    return reshape(a, tuple(n for d, n in enumerate(a.shape) if d not in axes))


def broadcast_to(array: Array, shape: int | Sequence[int]) -> Array:
    """Return an array stretched to a larger shape: a view that is only read."""
    return rearranged(
        as_array("broadcast_to", array), Stretched(normal_shape("broadcast_to", shape))
    )


def stretched(x: Array, shape: Sequence[int]) -> Array:
    """Return x stretched to a larger shape, as an array that is no view of x."""
    return Array(sums.broadcast_to(x.node, tuple(shape)))


def broadcast_arrays(*arrays: Array) -> tuple[Array, ...]:
    """Return the arrays stretched to their common shape: views that are only read, or the arrays
    themselves if all of them have this shape."""
    operands = [as_array("broadcast_arrays", a) for a in arrays]
    shape = broadcast("broadcast_arrays", *[a.shape for a in operands])
    if all(a.shape == shape for a in operands):
        return tuple(operands)
    return tuple(broadcast_to(a, shape) for a in operands)


def broadcast_shapes(*shapes: int | Shape) -> Shape:
    """Return the common shape of arrays of these shapes; ShapeError if they have none."""
    return broadcast("broadcast_shapes", *[normal_shape("broadcast_shapes", x) for x in shapes])


def joined_nodes(name: str, arrays: Any, dtype: Any = None) -> list[Node]:
    """Return the nodes of arrays to join, in their common type, or in `dtype` if it is given.

    Raises TypeError unless they are a sequence, ShapeError for none, and DTypeError if the type of
    an array is of a more general kind than `dtype`.
    """
    if not isinstance(arrays, Iterable):
        raise TypeError(
            f"{name}: needs a list of arrays, was given {type(arrays).__name__}; pass [a, b, …]"
        )
    listed: list[Any] = list(arrays)
    if not listed:
        raise ShapeError(f"{name}: needs at least one array; pass it in a list")
    if dtype is None:
        listed = list(as_array(name, listed)) if all(map(is_number, listed)) else listed
        return list(promoted_nodes(name, *listed))
    return [same_kind_operand(name, a, as_dtype(dtype)) for a in listed]


@dispatch_cached
@keyword_hints
def concat(
    arrays: Sequence[Array], /, axis: int | None = 0, out: Any = None, *, dtype: Any = None
) -> Array:
    """Return arrays joined along an existing axis (flattened first for None)."""
    nodes = joined_nodes("concat", arrays, dtype)
    if axis is None:
        nodes, axis = [manipulation.reshape(node, (node.size,)) for node in nodes], 0
    position = _joined_axis("concat", axis, nodes[0].ndim)
    joined = Array(apply(CONCAT, *nodes, axis=position, line=user_line()))
    return stored("concat", joined, out)


@dispatch_cached
@keyword_hints
def stack(arrays: Sequence[Array], axis: int = 0, out: Any = None, *, dtype: Any = None) -> Array:
    """Return arrays of one shape joined along a new axis."""
    parts = [Array(node) for node in joined_nodes("stack", arrays, dtype)]
    shapes = {a.shape for a in parts}
    if len(shapes) != 1:
        raise ShapeError(
            f"stack: needs arrays of one shape, was given {sorted(shapes)}; arrays whose "
            f"extents differ along one axis are joined by mm.concat"
        )
    position = _joined_axis("stack", axis, parts[0].ndim + 1)
    joined = concat([expand_dims(a, axis=position) for a in parts], axis=position)
    return stored("stack", joined, out)


def _joined_axis(name: str, axis: Any, ndim: int) -> int:
    """Return the axis along which arrays are joined, counted from the front. Raises TypeError for a
    second array in its place: PyTorch and NumPy too take the arrays in one list."""
    if not is_integer(axis):
        raise TypeError(
            f"{name}: takes the arrays in one list, then the axis, an integer, was given "
            f"{shown(axis)} as the axis; write mm.{name}([x, y], axis=0)"
        )
    return normalize_axis(name, axis, ndim)


def unstack(x: Array, /, axis: int = 0) -> tuple[Array, ...]:
    """Return the sub-arrays along an axis as a tuple; they lack that axis."""
    x = as_array("unstack", x)
    position = normalize_axis("unstack", axis, x.ndim)
    before = (slice(None),) * position
    return tuple(x[(*before, i)] for i in range(x.shape[position]))


@dispatch_cached
def flip(m: Array, axis: int | tuple[int, ...] | None = None) -> Array:
    """Return `m` with its elements in reverse order along one axis, several, or (for None) all."""
    m = as_array("flip", m)
    axes, backwards = normalize_axes("flip", axis, m.ndim), slice(None, None, -1)
    return m[tuple([backwards if d in axes else slice(None) for d in range(m.ndim)])]


@dispatch_cached
def roll(
    a: Array, shift: int | tuple[int, ...], axis: int | tuple[int, ...] | None = None
) -> Array:
    """Return `a` with its elements moved by `shift` positions along an axis, cyclically.

    `shift` may be one number for all axes or one for each, `axis` one axis for all shifts. With
    None the flat array is shifted.
    """
    a = Array(as_array("roll", a).node)
    if axis is None:
        return reshape(roll(reshape(a, (-1,)), shift, axis=0), a.shape)
    axes = _integers("roll: axes", (axis,) if is_integer(axis) else axis)
    shifts = _integers("roll: shifts", (shift,) if is_integer(shift) else shift)
    shifts, axes = _repeated(shifts, len(axes)), _repeated(axes, len(shifts))
    if len(shifts) != len(axes):
        raise ShapeError(
            f"roll: {len(shifts)} shifts {shift} for {len(axes)} axes {axis}"
            "; give one shift for all axes, or one for each"
        )
    for rolled_axis, count in zip(axes, shifts, strict=True):
        d = normalize_axis("roll", rolled_axis, a.ndim)
        start = -count % max(a.shape[d], 1)
        if start:
            front, back = (
                slice_along(a.node, d, 0, start),
                slice_along(a.node, d, start, a.shape[d]),
            )
            a = Array(apply(CONCAT, back, front, axis=d, line=user_line()))
    return a


@dispatch_cached
def tile(A: Array, reps: int | Sequence[int]) -> Array:
    """Return `A` repeated as a whole, `reps` times along each axis; missing ones are 1."""
    A = as_array("tile", A)
    repetitions = _integers("tile: repetitions", (reps,) if is_integer(reps) else reps)
    ndim = max(A.ndim, len(repetitions))
    shape = (1,) * (ndim - A.ndim) + A.shape
    counts = _counts("tile", (1,) * (ndim - len(repetitions)) + repetitions)
    pairs = list(zip(counts, shape, strict=True))
    column = reshape(A, [n for extent in shape for n in (1, extent)])
    whole = stretched(column, [n for pair in pairs for n in pair])
    return reshape(whole, [count * extent for count, extent in pairs])


def _repeated(values: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Return a single value `count` times; several values as they are."""
    return values * count if len(values) == 1 else values


def _integers(description: str, values: Sequence[Any]) -> tuple[int, ...]:
    """Return integers as a tuple. Raises TypeError for other objects."""
    try:
        return tuple([index(value) for value in values])
    except TypeError:
        raise TypeError(
            f"{description} must be a sequence of integers, was given {values!r}"
            "; pass a list of Python integers"
        ) from None


def _counts(operation: str, counts: Sequence[int]) -> Sequence[int]:
    """Return counts. Raises ShapeError for negative ones."""
    if min(counts, default=0) < 0:
        raise ShapeError(
            f"{operation}: counts must be at least 0, was given {list(counts)}"
            "; replace negative ones by 0"
        )
    return counts


@dispatch_cached
def repeat(a: Array, repeats: Any, axis: int | None = None) -> Array:
    """Return `a` with each element repeated `repeats` times along an axis (of the flat array for
    None).

    `repeats` is a number, or an array of one for each position of the axis, which is evaluated:
    their sum is the extent.
    """
    a = as_array("repeat", a)
    if isinstance(repeats, np.integer) or getattr(repeats, "is_weak", False):
        repeats = int(repeats)
    if not isinstance(repeats, int):
        repeats = _repetitions(repeats)
    if axis is None or not a.ndim:
        normalize_axis("repeat", axis or 0, 1)
        a, axis = reshape(a, (-1,)), 0
    d = normalize_axis("repeat", axis, a.ndim)
    front, extent, back = a.shape[:d], a.shape[d], a.shape[d + 1 :]
    if isinstance(repeats, int) or repeats.size == 1:
        times = repeats if isinstance(repeats, int) else reshape(repeats, ())
        (count,) = _counts("repeat", [int(times)])
        wide = stretched(reshape(a, (*front, extent, 1, *back)), (*front, extent, count, *back))
        return reshape(wide, (*front, extent * count, *back))
    if repeats.shape != (extent,):
        raise ShapeError(
            f"repeat: needs {extent} integers, one for each position of axis {d}, was given shape "
            f"{repeats.shape}"
            f"; pass one integer for all, or a list of {extent}"
        )
    return Array(take(a.node, _repeated_positions(repeats), d))


def _repetitions(repeats: Any) -> Array:
    """Return the counts of `repeat` as integers, to which truth values and the numbers of lists are
    converted, as in NumPy: an empty list is one of floats. Raises DTypeError for arrays of other
    types."""
    counts = as_array("repeat", repeats)
    if counts.dtype.is_integer:
        return counts
    if hasattr(repeats, "dtype") and counts.dtype is not bool_:
        raise DTypeError(
            f"repeat: counts are integers, was given {counts.dtype}"
            "; convert them with mm.astype(x, mm.int64)"
        )
    return Array(e.astype(counts.node, int64))


def _repeated_positions(repeats: Array) -> Node:
    """Return each position i `repeats[i]` times.

    Each entry is the number of elements that begin at or before it, minus 1.
    """
    counts = e.astype(repeats.node, int64)
    ends = apply(CUMULATIVE_SUM, counts, axis=0)
    is_negative = e.call("less", counts, constant(0, int64))
    total, negative = Array(sum_(counts)), Array(reduce("any", is_negative))
    evaluate(total, negative)
    if negative:
        raise ShapeError(
            "repeat: counts must be at least 0, some of those given are negative"
            "; replace them by 0 with mm.maximum(counts, 0)"
        )
    one = e.astype(e.call("logical_not", is_negative), int64)  # has the layout of the counts
    begun = apply(
        SCATTER_ADD, one, e.subtract(ends, counts), axes=(0,), at=0, extents=(int(total) + 1,)
    )
    number = slice_along(apply(CUMULATIVE_SUM, begun, axis=0), 0, 0, int(total))
    return e.subtract(number, constant(1, int64))
