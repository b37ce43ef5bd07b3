"""Joining and splitting arrays, and changing the number of their dimensions, by NumPy's names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import index
from typing import Any

from magmath.api.creation import normal_shape, ones, zeros
from magmath.api.data_types import astype
from magmath.api.manipulation import (
    broadcast_to,
    concat,
    flip,
    joined_nodes,
    permute_dims,
    ravel,
    reshape,
    stretched,
    swapaxes,
)
from magmath.api.searching import nonzero
from magmath.arrays.array import Array, as_array, as_arrays
from magmath.arrays.protocols.cached_functions import dispatch_cached
from magmath.core.dtypes import bool_, int64
from magmath.core.integers import is_integer
from magmath.core.keyword_hints import keyword_hints
from magmath.core.shapes import normalize_axis, size_of, with_extent
from magmath.errors import IndexingError, ShapeError


def atleast_1d(*arrays: Any) -> Any:
    """Return arrays with at least one dimension; one array, or a tuple of several."""
    return _apply_to_each("atleast_1d", arrays, lambda x: x if x.ndim else reshape(x, (1,)))


def atleast_2d(*arrays: Any) -> Any:
    """Return arrays with at least two dimensions; those of one become a row."""
    return _apply_to_each(
        "atleast_2d", arrays, lambda x: x if x.ndim > 1 else reshape(x, (1, x.size))
    )


def atleast_3d(*arrays: Any) -> Any:
    """Return arrays with at least three dimensions: (n,) becomes (1, n, 1), (m, n) becomes (m, n,
    1)."""
    return _apply_to_each("atleast_3d", arrays, _with_three_dimensions)


def _with_three_dimensions(x: Array) -> Array:
    if x.ndim > 2:
        return x
    return reshape(x, (*x.shape, 1) if x.ndim == 2 else (1, x.size, 1))


def _apply_to_each(name: str, arrays: Sequence[Any], function: Any) -> Any:
    """Return the results of a function of each array: one, or a tuple of several."""
    results = tuple(function(as_array(name, x)) for x in arrays)
    return results[0] if len(results) == 1 else results


def _to_join(name: str, arrays: Any, dtype: Any = None) -> list[Array]:
    """Return arrays to join, in one type; see `joined_nodes`."""
    return [Array(node) for node in joined_nodes(name, arrays, dtype)]


@dispatch_cached
@keyword_hints
def vstack(tup: Any, *, dtype: Any = None) -> Array:
    """Return arrays joined along the first axis; those of one dimension are rows."""
    return concat([atleast_2d(x) for x in _to_join("vstack", tup, dtype)], 0)


@dispatch_cached
@keyword_hints
def hstack(tup: Any, *, dtype: Any = None) -> Array:
    """Return arrays joined along the second axis, or along the first axis if they have one
    dimension."""
    arrays = [atleast_1d(x) for x in _to_join("hstack", tup, dtype)]
    return concat(arrays, 0 if arrays[0].ndim == 1 else 1)


@dispatch_cached
@keyword_hints
def dstack(tup: Any) -> Array:
    """Return arrays joined along the third axis."""
    return concat([atleast_3d(x) for x in _to_join("dstack", tup)], 2)


@dispatch_cached
@keyword_hints
def column_stack(tup: Any) -> Array:
    """Return arrays joined as columns of a matrix."""
    arrays = _to_join("column_stack", tup)
    return concat([x if x.ndim > 1 else reshape(x, (x.size, 1)) for x in arrays], 1)


@dispatch_cached
def append(arr: Any, values: Any, axis: int | None = None) -> Array:
    """Return an array with values appended along an axis; both are flattened for None."""
    return concat(as_arrays("append", arr, values), axis)


@dispatch_cached
@keyword_hints
def block(arrays: Any) -> Array:
    """Return an array assembled from nested lists of blocks: the innermost lists are joined along
    the last axis, the next ones along the one before."""
    depth = _depth(arrays)
    leaves = _to_join("block", _leaves(arrays))
    ndim = max(depth, *[x.ndim for x in leaves])
    parts = iter([reshape(x, (1,) * (ndim - x.ndim) + x.shape) for x in leaves])
    whole = _blocks(arrays, depth, parts)
    return whole if depth else Array(whole.node)


def _depth(arrays: Any) -> int:
    if not isinstance(arrays, list):
        return 0
    depths = {_depth(x) for x in arrays}
    if len(depths) != 1:
        raise ShapeError(
            "block: needs lists that are nested to equal depths, none of them empty"
            "; write each level as a list, as in [[a, b], [c, d]]"
        )
    return 1 + depths.pop()


def _leaves(arrays: Any) -> list[Any]:
    """Return the blocks in nested lists, in their order."""
    return [x for part in arrays for x in _leaves(part)] if isinstance(arrays, list) else [arrays]


def _blocks(arrays: Any, depth: int, leaves: Iterator[Array]) -> Array:
    """Return the next blocks joined as the lists are nested."""
    if depth == 0:
        return next(leaves)
    return concat([_blocks(x, depth - 1, leaves) for x in arrays], -depth)


def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Array]:
    """Return the parts of an array along an axis: `indices_or_sections` parts of nearly equal
    extent, or those between positions."""
    x = as_array("array_split", ary)
    dim = normalize_axis("array_split", axis, x.ndim)
    return _parts(x, dim, _boundaries("array_split", indices_or_sections, x.shape[dim]))


def _parts(x: Array, dim: int, boundaries: list[int]) -> list[Array]:
    before = (slice(None),) * dim
    return [x[(*before, slice(a, b))] for a, b in pairwise(boundaries)]


def _boundaries(name: str, sections: Any, extent: int) -> list[int]:
    """Return the first position of each part, and the end of the last; `sections` is a number of
    parts, or the positions between them."""
    try:
        if not is_integer(sections):
            return [0, *map(index, sections), extent]
        sections = index(sections)
    except TypeError:
        raise TypeError(
            f"{name}: needs a number of parts, or positions between them, was given {sections!r}"
            "; pass an integer, or a list of positions"
        ) from None
    if sections < 1:
        raise ShapeError(f"{name}: needs 1 or more parts, was given {sections}")
    if name == "split" and extent % sections:
        raise ShapeError(
            f"split: {sections} does not divide the extent {extent}; see mm.array_split"
        )
    small, more = divmod(extent, sections)
    return [i * small + min(i, more) for i in range(sections + 1)]


def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Array]:
    """Return the parts as `array_split` does; a number of parts must divide the extent."""
    x = as_array("split", ary)
    dim = normalize_axis("split", axis, x.ndim)
    return _parts(x, dim, _boundaries("split", indices_or_sections, x.shape[dim]))


def vsplit(ary: Any, indices_or_sections: Any) -> list[Array]:
    """Return `split` along the first axis of an array of two dimensions or more."""
    x = as_array("vsplit", ary)
    if x.ndim < 2:
        raise ShapeError(
            f"vsplit: needs 2 or more dimensions, was given shape {x.shape}; see mm.split"
        )
    return split(x, indices_or_sections, 0)


def hsplit(ary: Any, indices_or_sections: Any) -> list[Array]:
    """Return `split` along the second axis, or the first if there is only one."""
    x = as_array("hsplit", ary)
    return split(x, indices_or_sections, 1 if x.ndim > 1 else 0)


def dsplit(ary: Any, indices_or_sections: Any) -> list[Array]:
    """Return `split` along the third axis."""
    return split(ary, indices_or_sections, 2)


@dispatch_cached
def fliplr(m: Any) -> Array:
    """Return `m` with its second axis reversed."""
    return flip(m, 1)


@dispatch_cached
def flipud(m: Any) -> Array:
    """Return `m` with its first axis reversed."""
    return flip(m, 0)


@dispatch_cached
def rot90(m: Any, k: int = 1, axes: Sequence[int] = (0, 1)) -> Array:
    """Return `m` rotated k times by 90° in the plane of two axes, from the first axis to the
    second."""
    x = as_array("rot90", m)
    first, second = (normalize_axis("rot90", axis, x.ndim) for axis in axes)
    if first == second:
        raise ShapeError(
            f"rot90: needs two different axes, was given {tuple(axes)}; pass such as axes=(0, 1)"
        )
    turns = k % 4
    if turns == 0:
        return x
    if turns == 2:
        return flip(x, (first, second))
    if turns == 1:
        return swapaxes(flip(x, second), first, second)
    return flip(swapaxes(x, first, second), second)


def resize(a: Any, new_shape: int | Sequence[int]) -> Array:
    """Return the elements in another shape: repeated cyclically, or truncated."""
    x = ravel(a)
    shape = normal_shape("resize", new_shape)
    size = size_of(shape)
    if not x.size:
        return zeros(shape, dtype=x.dtype)
    count = -(-size // x.size)
    wide = ravel(stretched(reshape(x, (1, x.size)), (count, x.size)))
    return reshape(wide[:size], shape)


def delete(arr: Any, obj: Any, axis: int | None = None) -> Array:
    """Return the array without the positions `obj` of an axis (of the flattened array for None): an
    integer, a slice, integers or truth values."""
    x, dim = _array_and_axis("delete", arr, axis)
    extent = x.shape[dim]
    before = (slice(None),) * dim
    if is_integer(obj) and not isinstance(obj, bool):
        position = index(obj)
        if not -extent <= position < extent:
            raise IndexingError(
                f"delete: position {position} is out of range for an extent of {extent}; pass a "
                f"position from {-extent} to {extent - 1}"
            )
        at = position % extent
        return concat([x[(*before, slice(0, at))], x[(*before, slice(at + 1, None))]], dim)
    is_kept = ones((extent,), dtype=bool)
    if isinstance(obj, slice):
        is_kept[obj] = False
    else:
        positions = as_array("delete", obj)
        if positions.dtype is bool_ and positions.shape != (extent,):
            raise ShapeError(
                f"delete: needs a truth value for each of {extent} positions, was given shape "
                f"{positions.shape}; pass a mask of the axis, or integers"
            )
        is_kept[_as_positions("delete", obj, positions)] = False
    return x[(*before, is_kept)]


def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Array:
    """Return the array with values inserted before positions of an axis (of the flattened array for
    None)."""
    x, dim = _array_and_axis("insert", arr, axis)
    _, inserted = as_arrays("insert", x, values)
    positions = _positions(obj, x.shape[dim])
    count = len(positions)
    if count == 1:
        inserted = _at_one_position(inserted, x.ndim, dim, is_integer(obj))
        count = inserted.shape[dim]
    wide = broadcast_to(astype(inserted, x.dtype), with_extent(x.shape, dim, count))
    before = (slice(None),) * dim
    if len(positions) == 1:
        front, back = slice(0, positions[0]), slice(positions[0], None)
        return concat([x[(*before, front)], wide, x[(*before, back)]], dim)
    parts, last = [], 0
    for i in sorted(range(count), key=lambda i: positions[i]):
        parts += [x[(*before, slice(last, positions[i]))], wide[(*before, slice(i, i + 1))]]
        last = positions[i]
    return concat([*parts, x[(*before, slice(last, None))]], dim)


def _at_one_position(values: Array, ndim: int, dim: int, by_integer: bool) -> Array:
    """Return values that are all inserted before one position, with `ndim` dimensions.

    If an integer names the position, the first axis of the values is that of the insertion, as in
    NumPy.
    """
    if values.ndim < ndim:
        values = reshape(values, (1,) * (ndim - values.ndim) + values.shape)
    if by_integer and values.ndim > 1:
        order = list(range(1, values.ndim))
        order.insert(dim, 0)
        values = permute_dims(values, order)
    return values


def _positions(obj: Any, extent: int) -> list[int]:
    """Return positions between elements, counted from the front."""
    if isinstance(obj, slice):
        positions = list(range(*obj.indices(extent)))
    elif is_integer(obj):
        positions = [index(obj)]
    else:
        chosen = as_array("insert", obj)
        if chosen.dtype.kind == "bool":
            (chosen,) = nonzero(chosen)
        positions = [int(i) for i in _as_positions("insert", obj, chosen).tolist()]
    if wrong := [i for i in positions if not -extent <= i <= extent]:
        raise IndexingError(
            f"insert: position {wrong[0]} is out of range for an extent of {extent}"
            f"; pass positions from {-extent} to {extent}"
        )
    return [i + extent if i < 0 else i for i in positions]


def _as_positions(name: str, original: Any, positions: Array) -> Array:
    """Return positions that are integers, or truth values. Raises IndexError for other numbers; an
    empty list has no numbers."""
    if not positions.size and not hasattr(original, "dtype"):
        return astype(positions, int64)
    if not (positions.dtype.is_integer or positions.dtype is bool_):
        raise IndexingError(
            f"{name}: positions are integers, was given {positions.dtype}"
            "; convert them with mm.astype(x, mm.int64)"
        )
    return positions


def _array_and_axis(name: str, arr: Any, axis: int | None) -> tuple[Array, int]:
    x = as_array(name, arr)
    return (ravel(x), 0) if axis is None else (x, normalize_axis(name, axis, x.ndim))
