"""Indices of grids, of elements with a property, and of flattened arrays; and writing by indices.

Functions that write make the first argument a handle on the new value, as `x[i] = v` does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from magmath.api.creation import DTypeLike, arange, asarray, normal_shape, zeros
from magmath.api.data_types import astype, can_cast
from magmath.api.elementwise import not_equal, remainder
from magmath.api.indexing import require_positions_along, take, take_along_axis, treated_positions
from magmath.api.manipulation import (
    broadcast_arrays,
    broadcast_shapes,
    broadcast_to,
    check_order,
    ravel,
    reshape,
    stack,
)
from magmath.api.reductions import any
from magmath.api.searching import nonzero
from magmath.api.searching import where as choice
from magmath.arrays.array import Array, as_array, as_arrays
from magmath.arrays.indexing.index_checks import check_indices
from magmath.arrays.indexing.masks import count_mask
from magmath.arrays.inputs.number_list import LISTS, is_number
from magmath.arrays.inputs.operands import promoted_nodes, written_operand
from magmath.arrays.protocols.cached_functions import dispatch_cached
from magmath.arrays.ufuncs.output import stored, target
from magmath.core.dtypes import bool_, int64
from magmath.core.integers import is_integer
from magmath.core.shapes import Shape, normalize_axis
from magmath.errors import DTypeError, OptionError, PositionError, RangeError, ShapeError

MAX_SIZE = (1 << 63) - 1
"""The largest number of elements that positions can count."""
_CASTING = ("no", "equiv", "safe", "same_kind", "unsafe")
"""NumPy's rules for conversions; the first two take equal types only."""


def argwhere(a: Any) -> Array:
    """Return the indices of the elements that are not zero, a row for each."""
    x = as_array("argwhere", a)
    if not x.ndim:
        return zeros((int(bool(x)), 0), dtype=int64)
    return stack(nonzero(x), 1)


def flatnonzero(a: Any) -> Array:
    """Return the positions in the flattened array of the elements that are not zero."""
    return nonzero(ravel(a))[0]


def indices(dimensions: Sequence[int], dtype: DTypeLike = int64, sparse: bool = False) -> Any:
    """Return for each dimension the index of every element, as one array; with `sparse` a tuple of
    arrays that broadcast to it."""
    shape = normal_shape("indices", dimensions)
    lines = [
        reshape(arange(n, dtype=dtype), (1,) * d + (n,) + (1,) * (len(shape) - d - 1))
        for d, n in enumerate(shape)
    ]
    if sparse:
        return tuple(lines)
    if not lines:
        return zeros((0,), dtype=dtype)
    return stack(broadcast_arrays(*lines))


def ix_(*args: Any) -> tuple[Array, ...]:
    """Return vectors shaped such that they index a grid: x[mm.ix_(rows, columns)]."""
    vectors = [as_array("ix_", x) for x in args]
    if wrong := [x.shape for x in vectors if x.ndim != 1]:
        raise ShapeError(
            f"ix_: needs 1-D arrays, was given shape {wrong[0]}"
            "; flatten it with mm.reshape(x, (-1,))"
        )
    vectors = [nonzero(x)[0] if x.dtype is bool_ else x for x in vectors]
    vectors = [x if x.size else astype(x, int64) for x in vectors]
    ndim = len(vectors)
    return tuple(
        reshape(x, (1,) * d + (x.size,) + (1,) * (ndim - d - 1)) for d, x in enumerate(vectors)
    )


@dispatch_cached
def ravel_multi_index(
    multi_index: Any, dims: Sequence[int], mode: str | Sequence[str] = "raise", order: str = "C"
) -> Array:
    """Return the positions in the flattened array of elements with these indices, one array for
    each dimension. With mode="raise", indices out of range raise IndexError; their values are
    computed for that."""
    shape = normal_shape("ravel_multi_index", dims)
    _require_countable("ravel_multi_index", shape)
    indices = [as_array("ravel_multi_index", x) for x in multi_index]
    for x in indices:
        _require_integers("ravel_multi_index", x)
    if len(indices) != len(shape):
        raise ShapeError(
            f"ravel_multi_index: needs an array for each of {len(shape)} dimensions, was given "
            f"{len(indices)}"
            "; pass the rows of an index matrix as a tuple"
        )
    reads_rows = check_order("ravel_multi_index", order) == "C"
    positions: Any = 0
    modes = [mode] * len(shape) if isinstance(mode, str) else mode
    parts = list(zip(indices, shape, modes, strict=True))
    for x, extent, treatment in parts if reads_rows else reversed(parts):
        is_refused = x.size > 0 if not extent else treatment == "raise"
        if is_refused and any((x < 0) | (x >= extent)):
            raise PositionError(
                f"ravel_multi_index: an index is out of range for extent {extent}"
                '; use mode="wrap" or "clip"'
            )
        inside = treated_positions("ravel_multi_index", x, extent, treatment)
        positions = positions * extent + astype(inside, int64)
    return asarray(positions)


def _require_countable(name: str, shape: Shape) -> None:
    if math.prod(shape) > MAX_SIZE:
        raise RangeError(
            f"{name}: shape {shape} has more elements than int64 can count; pass a smaller shape"
        )


def _require_integers(name: str, positions: Array) -> None:
    """Raise TypeError unless positions are integers; the numbers of an empty list are floats."""
    if not positions.dtype.is_integer:
        raise DTypeError(
            f"{name}: positions are integers, was given {positions.dtype}"
            "; convert them with mm.astype(x, mm.int64)"
        )


@dispatch_cached
def unravel_index(indices: Any, shape: int | Sequence[int], order: str = "C") -> tuple[Any, ...]:
    """Return the indices in each dimension of elements at positions in the flattened array.
    Integers give integers; positions out of range raise IndexError, for which the values are
    computed."""
    extents = normal_shape("unravel_index", shape)
    quotient = indices if isinstance(indices, int) else as_array("unravel_index", indices)
    if not isinstance(quotient, int):
        _require_integers("unravel_index", quotient)
        if not extents and quotient.ndim:
            raise ShapeError(
                f"unravel_index: an array of no dimensions has one position, was given shape "
                f"{quotient.shape}; pass an integer"
            )
    _require_countable("unravel_index", extents)
    size = math.prod(extents)
    outside = (
        not 0 <= quotient < size
        if isinstance(quotient, int)
        else any((quotient < 0) | (quotient >= size))
    )
    if outside:
        raise PositionError(
            f"unravel_index: a position is out of range for shape {extents}"
            "; pass positions below the product of the extents"
        )
    if not isinstance(quotient, int):
        quotient = astype(quotient, int64, copy=False)
    reads_rows = check_order("unravel_index", order) == "C"
    results = []
    for extent in reversed(extents) if reads_rows else extents:
        results.append(quotient % extent)
        quotient = quotient // extent
    return tuple(reversed(results) if reads_rows else results)


# choosing ---------------------------------------------------------------------------------------


def compress(condition: Any, a: Any, axis: int | None = None, out: Any = None) -> Array:
    """Return the slices along an axis (elements of the flattened array for None) where a 1-D
    condition is true; the condition may be shorter than the axis."""
    x, mask = as_array("compress", a), as_array("compress", condition)
    if mask.ndim != 1:
        raise ShapeError(
            f"compress: the condition must be 1-D, was given shape {mask.shape}"
            "; for a mask with more dimensions write x[mask]"
        )
    if axis is None:
        x, axis = ravel(x), 0
    return stored("compress", take(x, nonzero(mask)[0], axis), out)


def extract(condition: Any, arr: Any) -> Array:
    """Return the elements of the flattened array where the flattened condition holds."""
    return compress(ravel(condition), ravel(arr))


@dispatch_cached
def choose(a: Any, choices: Any, out: Any = None, mode: str = "raise") -> Array:
    """Return, for each element of an array of integers, the element of the choice with that
    number."""
    number = as_array("choose", a)
    number = astype(number, int64) if number.dtype is bool_ else number
    _require_integers("choose", number)
    options = broadcast_arrays(*_of_one_type("choose", choices))
    if mode == "raise":
        if number.dtype.kind == "int":  # negative numbers do not count from the last choice
            number = choice(number < 0, len(options), astype(number, int64))
        try:
            check_indices(number.node, 0, len(options))
        except IndexError:
            raise PositionError(
                f"choose: a number is out of range for {len(options)} choices"
                '; pass numbers below it, or mode="wrap" or "clip"'
            ) from None
    shape = broadcast_shapes(number.shape, *(x.shape for x in options))
    position = broadcast_to(treated_positions("choose", number, len(options), mode), shape)
    stacked = stack([broadcast_to(x, shape) for x in options])
    chosen = take_along_axis(stacked, reshape(position, (1, *shape)), 0)
    return stored("choose", reshape(chosen, shape), out)


def _of_one_type(name: str, values: Any) -> list[Array]:
    """Return arrays of one type; numbers take the type of the others."""
    listed = list(values) if isinstance(values, (list, tuple)) else list(as_array(name, values))
    if all(map(is_number, listed)):
        listed = list(asarray(listed))
    return [Array(node) for node in promoted_nodes(name, *listed)]


def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Array:
    """Return for each element that of the first choice whose condition holds, otherwise the
    default. The type is the common one of all choices and the default."""
    if not all(isinstance(values, (list, tuple)) for values in (condlist, choicelist)):
        raise TypeError(
            "select: needs a list of conditions and one of choices"
            "; pass two lists, as in mm.select([x > 0, x < 0], [1, -1])"
        )
    if len(condlist) != len(choicelist) or not condlist:
        raise ShapeError(
            f"select: needs as many conditions as choices, 1 or more, was given {len(condlist)} "
            f"and {len(choicelist)}"
            "; give one choice for each condition"
        )
    *choices, result = _of_one_type("select", [*choicelist, default])
    for condition, chosen in zip(reversed(condlist), reversed(choices), strict=True):
        mask = as_array("select", condition)
        if mask.dtype is not bool_:
            raise DTypeError(
                f"select: conditions are of type bool, was given {mask.dtype}"
                "; compare, as in x > 0, or convert with mm.astype(x, mm.bool)"
            )
        result = choice(mask, chosen, result)
    return result


def piecewise(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **options: Any) -> Array:
    """Return for each element the value of the last function whose condition holds, in the type of
    x; a further function is for elements where none does. Every function is called with all of
    x."""
    values = as_array("piecewise", x)
    conditions = (
        condlist if isinstance(condlist, (list, tuple)) else as_array("piecewise", condlist)
    )
    is_single = not getattr(conditions, "ndim", 1) or (
        len(conditions) > 0 and values.ndim > 0 and not as_array("piecewise", conditions[0]).ndim
    )
    masks = [
        astype(as_array("piecewise", condition), bool_)
        for condition in ([conditions] if is_single else conditions)
    ]
    if len(funclist) not in (len(masks), len(masks) + 1):
        raise ShapeError(
            f"piecewise: needs a function for each of {len(masks)} conditions, and at most one "
            f"more, was given {len(funclist)}"
            "; the function beyond the conditions is for all other elements"
        )
    results = [f(values, *args, **options) if callable(f) else f for f in funclist]
    _, *choices = as_arrays("piecewise", values, *results, 0)
    chosen = choices[len(masks)]
    for mask, result in zip(masks, choices, strict=False):
        chosen = choice(mask, result, chosen)
    return astype(broadcast_to(chosen, values.shape), values.dtype)


# writing ----------------------------------------------------------------------------------------


def copyto(dst: Array, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    """Write the values of another array, which broadcast to this one, where a mask is true.

    casting: NumPy's rule for the types of arrays; numbers and lists of them have the type of `dst`.
    """
    dst = target("copyto", dst)
    if casting not in _CASTING:
        raise OptionError(f"copyto: casting is one of {', '.join(_CASTING)}, was given {casting!r}")
    if casting == "unsafe":
        values = as_array("copyto", src, dst.dtype)
    elif is_number(src) or isinstance(src, LISTS):
        values = Array(written_operand(dst.dtype, src, "copyto"))
    else:
        values = as_arrays("copyto", dst, src)[1]
        is_safe = can_cast(values, dst.dtype) if casting == "safe" else values.dtype is dst.dtype
        if not is_safe and casting != "same_kind":
            raise DTypeError(
                f'copyto: casting="{casting}" does not convert {values.dtype} to {dst.dtype}; '
                f"convert the values with mm.astype(x, mm.{dst.dtype})"
            )
    leading = max(values.ndim - dst.ndim, 0)
    if values.shape[:leading] == (1,) * leading:
        values = reshape(values, values.shape[leading:])
    wide = broadcast_to(values, dst.shape)
    if where is not True:
        where = astype(broadcast_to(as_array("copyto", where), dst.shape), bool_)
    stored("copyto", wide, dst, where)


def put(a: Array, ind: Any, v: Any, mode: str = "raise") -> None:
    """Write values to positions of the flattened array; fewer values than positions are
    repeated."""
    a = target("put", a)
    positions = ravel(treated_positions("put", as_array("put", ind), a.size, mode))
    _write_flat("put", a, positions, cycled("put", a, v, positions.size))


def _write_flat(operation: str, a: Array, index: Array, values: Any) -> None:
    """Write values by positions, or a mask, of the flattened array, which shares the elements
    unless `a` is 0-d."""
    flat = a.flat
    flat[index] = values
    if not a.ndim:
        stored(operation, reshape(flat, ()), a)


def putmask(a: Array, mask: Any, values: Any) -> None:
    """Write values where a mask is true: to each such position the value at the same position of
    the flattened values, which are repeated to the length of the array."""
    a = target("putmask", a)
    chosen = _mask_of_size("putmask", a, mask)
    repeated = cycled("putmask", a, values, a.size)
    wide = reshape(repeated, a.shape) if repeated.ndim else broadcast_to(repeated, a.shape)
    stored("putmask", choice(chosen, wide, a), a)


def place(arr: Array, mask: Any, vals: Any) -> None:
    """Write values where a mask is true: the n-th value to the n-th such position; fewer values are
    repeated."""
    arr = target("place", arr)
    chosen = astype(_mask_of_size("place", arr, mask), bool_)
    chosen = chosen if arr.ndim else ravel(chosen)
    values = cycled("place", arr, vals, count_mask(chosen.node).total)
    if arr.ndim:
        arr[chosen] = values
    else:
        _write_flat("place", arr, chosen, values)


def _mask_of_size(operation: str, array: Array, mask: Any) -> Array:
    """Return a mask with as many elements as an array, in its shape."""
    chosen = as_array(operation, mask)
    if chosen.size != array.size:
        raise ShapeError(
            f"{operation}: needs a mask of the array's {array.size} elements, was given "
            f"{chosen.size}; broadcast it with mm.broadcast_to(mask, x.shape)"
        )
    return reshape(chosen, array.shape)


def cycled(operation: str, array: Array, values: Any, size: int) -> Array:
    """Return `size` values for an array, repeated cyclically; a single value as a 0-d array."""
    if array.dtype is bool_ and not isinstance(values, Array):  # as in NumPy: 1 is true
        values = np.asarray(values, bool)
    x = ravel(Array(written_operand(array.dtype, values)))
    if x.size == 1:
        return x[0]
    if not x.size and size:
        raise ShapeError(
            f"{operation}: needs at least one value; pass one number, or as many as are written"
        )
    return x if x.size == size else take(x, remainder(arange(size), x.size), 0)


def put_along_axis(arr: Array, indices: Any, values: Any, axis: int | None) -> None:
    """Write values along an axis, each to the position that an array of indices gives for it."""
    arr, positions = target("put_along_axis", arr), as_array("put_along_axis", indices)
    if axis is None:
        if positions.ndim != 1:
            raise ShapeError(
                "put_along_axis: without an axis, indices have 1 dimension, was given shape "
                f"{positions.shape}; flatten them with mm.ravel(indices)"
            )
        _write_flat("put_along_axis", arr, positions, values)
        return
    require_positions_along("put_along_axis", arr, positions)
    d = normalize_axis("put_along_axis", axis, arr.ndim)
    key: list[Any] = []
    for dim in range(arr.ndim):
        line = arange(arr.shape[dim])
        shape = [1] * arr.ndim
        shape[dim] = arr.shape[dim]
        key.append(positions if dim == d else reshape(line, shape))
    arr[tuple(key)] = values


# trimming ---------------------------------------------------------------------------------------


def trim_zeros(filt: Any, trim: str = "fb", axis: Any = None) -> Array:
    """Return the array without the zeros at its front ("f") and back ("b"), along all axes or the
    given ones."""
    if not trim or not set(trim.lower()) <= {"f", "b"}:
        raise OptionError(f'trim_zeros: trim is "f", "b" or "fb", was given {trim!r}')
    x = as_array("trim_zeros", filt)
    axes = range(x.ndim) if axis is None else (axis,) if is_integer(axis) else axis
    key = [slice(None)] * x.ndim
    for trimmed_axis in axes:
        d = normalize_axis("trim_zeros", trimmed_axis, x.ndim)
        other_axes = tuple(other for other in range(x.ndim) if other != d)
        (positions,) = nonzero(any(not_equal(x, 0), axis=other_axes))
        if not positions.size:
            key[d] = slice(0, 0)
            continue
        front = int(positions[0]) if "f" in trim.lower() else 0
        back = int(positions[-1]) + 1 if "b" in trim.lower() else x.shape[d]
        key[d] = slice(front, back)
    return x[tuple(key)]
