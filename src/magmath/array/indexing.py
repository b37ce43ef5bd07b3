"""Basic indexing: integers, slices, `...` and None, and one integer array for one axis."""

from __future__ import annotations

from typing import Any

from magmath.array.array import Array, user_line
from magmath.array.functions import reshape, take
from magmath.errors import ShapeError
from magmath.graph import apply
from magmath.ops.manipulation import SLICE

Bound = tuple[int, int, int]


def getitem(x: Array, key: Any) -> Array:
    """x[key]; raises IndexError out of range, ShapeError for too many indices."""
    keys = _expanded(x, key if isinstance(key, tuple) else (key,))
    bounds: list[Bound] = []
    shape: list[int] = []
    gathers: list[tuple[int, Array]] = []
    dim = 0
    for item in keys:
        if item is None:
            shape.append(1)
            continue
        extent = x.shape[dim]
        if isinstance(item, slice):
            bounds.append(item.indices(extent))
            shape.append(len(range(*bounds[-1])))
        elif isinstance(item, Array) and item.ndim == 1 and item.dtype.is_integer:
            bounds.append((0, extent, 1))
            gathers.append((len(shape), item))
            shape.append(extent)
        else:
            position = _position(item, dim, extent)
            bounds.append((position, position + 1, 1))
        dim += 1
    if len(gathers) > 1:
        raise IndexError("indexing: at most one integer array at a time; index in two steps")
    result = x
    if tuple(bounds) != tuple((0, n, 1) for n in x.shape):
        result = Array(apply(SLICE, x.node, bounds=tuple(bounds), line=user_line()))
    result = reshape(result, tuple(shape))
    for axis, positions in gathers:
        result = take(result, positions, axis=axis)
    return result


def _expanded(x: Array, key: tuple[Any, ...]) -> list[Any]:
    """The key with `...` and missing trailing dimensions written out as full slices."""
    used = sum(1 for item in key if item is not None and item is not Ellipsis)
    if used > x.ndim:
        raise IndexError(f"indexing: {used} indices for an array of {x.ndim} dimensions")
    ellipses = sum(1 for item in key if item is Ellipsis)
    if ellipses > 1:
        raise IndexError("indexing: `...` may stand only once")
    missing = [slice(None)] * (x.ndim - used)
    if not ellipses:
        return [*key, *missing]
    place = next(i for i, item in enumerate(key) if item is Ellipsis)
    return [*key[:place], *missing, *key[place + 1 :]]


def _position(item: Any, dim: int, extent: int) -> int:
    if isinstance(item, bool) or not hasattr(item, "__index__"):
        raise ShapeError(
            f"indexing: dimension {dim} takes an integer, a slice, `...`, None or a 1-D integer "
            f"array, was given {type(item).__name__}"
        )
    position = item.__index__()
    if not -extent <= position < extent:
        raise IndexError(
            f"indexing: index {position} is out of range for extent {extent} (axis {dim})"
        )
    return int(position % extent)
