"""Sliding windows of arrays, for moving averages and local statistics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from magmath.api.creation import arange, normal_shape
from magmath.api.indexing import take
from magmath.api.manipulation import moveaxis, stack
from magmath.arrays.array import Array, as_array
from magmath.core.integers import is_integer
from magmath.core.shapes import normalize_axis
from magmath.errors import ShapeError
from magmath.ops.slicing import slice_along

MAX_SLICES = 16
"""Longest window whose elements are joined from slices, which workers exchange at their edges;
longer windows read elements by position."""


def sliding_window_view(
    x: Any,
    window_shape: int | Sequence[int],
    axis: int | Sequence[int] | None = None,
    *,
    subok: bool = False,
    writeable: bool = False,
) -> Array:
    """Return the windows of an array at all of its positions; those of x with extent n along an
    axis are n - w + 1 windows of w elements.

    window_shape: the extent of the windows along each axis in `axis`, by default all axes. The
    dimensions of the windows are the last ones of the result. Unlike NumPy's, the result is a new
    array with the elements of every window: sum long windows by `mm.cumsum` or `mm.convolve`.
    """
    array = as_array("sliding_window_view", x)
    extents = normal_shape("sliding_window_view", window_shape)
    if axis is None:
        axes = list(range(array.ndim))
    else:
        chosen = (axis,) if is_integer(axis) else tuple(axis)
        axes = [normalize_axis("sliding_window_view", d, array.ndim) for d in chosen]
    if len(axes) != len(extents):
        raise ShapeError(
            f"sliding_window_view: needs one extent for each of {len(axes)} axes, was given "
            f"window_shape {extents}; pass axis=… for windows along some axes"
        )
    for d, extent in zip(axes, extents, strict=True):
        array = _windows(array, d, extent)
    return array


def _windows(x: Array, axis: int, extent: int) -> Array:
    count = x.shape[axis] - extent + 1
    if count < 1 or not extent:
        raise ShapeError(
            f"sliding_window_view: windows need 1 to {x.shape[axis]} elements along axis {axis} of "
            f"shape {x.shape}, was given {extent}; pass a smaller window"
        )
    if extent <= MAX_SLICES:
        parts = [Array(slice_along(x.node, axis, i, i + count)) for i in range(extent)]
        return stack(parts, axis=-1)
    positions = arange(count)[:, None] + arange(extent)
    return moveaxis(
        take(x, positions.reshape(-1), axis).reshape(
            (*x.shape[:axis], count, extent, *x.shape[axis + 1 :])
        ),
        axis + 1,
        -1,
    )
