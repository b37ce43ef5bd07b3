"""Indexing functions of the array API: elements at positions along an axis."""

from __future__ import annotations

from typing import Any

from magmath.api.data_types import astype
from magmath.api.elementwise import clip, remainder
from magmath.api.manipulation import broadcast_to
from magmath.arrays.array import Array, as_array
from magmath.arrays.indexing.index_checks import check_indices
from magmath.arrays.protocols.cached_functions import dispatch_cached
from magmath.arrays.ufuncs.output import stored
from magmath.core.dtypes import int64, side_of_range
from magmath.core.shapes import broadcast, normalize_axis, with_extent
from magmath.engine.user_line import user_line
from magmath.errors import IndexingError, OptionError, ShapeError
from magmath.graph import apply
from magmath.ops.indexing.along_axis import TAKE_ALONG
from magmath.ops.indexing.gather_scatter import TAKE
from magmath.ops.manipulation import reshape


@dispatch_cached
def take(
    a: Array, indices: Any, axis: int | None = None, out: Any = None, mode: str = "raise"
) -> Array:
    """Return elements along one axis, at integer positions, which count from the end where
    negative. For None the positions are those of the flattened array.

    mode: the treatment of a position out of range: "raise" an error, "wrap" to the position modulo
    the extent, or "clip" to the first or last element; negative positions are then clipped too.
    """
    a, positions = as_array("take", a), as_array("take", indices)
    if axis is None or (not a.ndim and axis in (0, -1)):  # a number is one element along axis 0
        a, axis = Array(reshape(a.node, (a.size,))), 0
    dim = normalize_axis("take", axis, a.ndim)
    where = treated_positions("take", positions, a.shape[dim], mode).node
    check_indices(where, dim, a.shape[dim])
    picked = Array(apply(TAKE, a.node, where, axes=(dim,), at=dim, line=user_line()))
    return stored("take", picked, out)


def treated_positions(operation: str, positions: Array, extent: int, mode: str) -> Array:
    """Return positions after NumPy's treatment `mode` of those out of range. No positions, such as
    an empty list, are integers of any type."""
    if not positions.size:
        positions = astype(positions, int64)
    if mode == "raise":
        return positions
    if mode == "wrap":
        if side_of_range(extent, positions.dtype):
            positions = astype(positions, int64)
        return remainder(positions, extent)
    if mode == "clip":
        return clip(positions, 0, extent - 1)
    raise OptionError(f'{operation}: mode is "raise", "wrap" or "clip", was given {mode!r}')


@dispatch_cached
def take_along_axis(arr: Array, indices: Any, axis: int | None = -1) -> Array:
    """Return elements along `axis`, each at the position that an array of indices gives for it.

    `arr` and indices have the same number of dimensions, and broadcast except along the axis.
    """
    arr, positions = as_array("take_along_axis", arr), as_array("take_along_axis", indices)
    if axis is None:
        arr, axis = Array(reshape(arr.node, (arr.size,))), 0
    require_positions_along("take_along_axis", arr, positions)
    dim = normalize_axis("take_along_axis", axis, arr.ndim)
    check_indices(positions.node, dim, arr.shape[dim])
    operands = arr, positions
    common = broadcast("take_along_axis", *[with_extent(a.shape, dim, 1) for a in operands])
    stretched = [broadcast_to(a, with_extent(common, dim, a.shape[dim])).node for a in operands]
    return Array(apply(TAKE_ALONG, *stretched, axis=dim, line=user_line()))


def require_positions_along(name: str, arr: Array, positions: Array) -> None:
    """Raise ShapeError unless an array and positions along one of its axes have as many dimensions,
    and IndexError unless the positions are integers."""
    if arr.ndim != positions.ndim:
        raise ShapeError(
            f"{name}: needs as many dimensions of arr and indices, was given {arr.shape} and "
            f"{positions.shape}; add dimensions with mm.expand_dims"
        )
    if not positions.dtype.is_integer:
        raise IndexingError(
            f"{name}: indices are integers, was given {positions.dtype}"
            "; convert them with mm.astype(x, mm.int64)"
        )
