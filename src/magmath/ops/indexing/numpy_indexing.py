"""Gathers and sums of short arrays at index arrays, by NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from magmath.core.dtypes import float16, uint64
from magmath.core.shapes import AxisNumbers
from magmath.graph import Node
from magmath.ops.indexing.local_index import index_out_of_range

MAX_ADDED = 1 << 13
"""Elements up to which NumPy's `add.at` takes less time than to bind a kernel; torch needs less
time for each of them."""


def numpy_take(node: Node) -> Callable[..., object] | None:
    """Return NumPy's indexing."""
    axes, at = node.attributes["axes"], node.attributes["at"]
    x, *indices = node.inputs
    dims = node.ndim - x.ndim + len(axes)

    def take_into(x: Any, *arrays: Any) -> None:
        *places, out = arrays
        _front(out, range(at, at + dims))[...] = _front(x, axes)[tuple(places)]

    return with_checked_indices(take_into, [x.shape[axis] for axis in axes], axes, indices)


def _front(x: Any, axes: AxisNumbers | range) -> Any:
    """Return a view of a NumPy array with these dimensions first."""
    first = tuple(range(len(axes)))
    return x if tuple(axes) == first else np.moveaxis(x, tuple(axes), first)


def with_checked_indices(
    function: Callable[..., object],
    extents: Sequence[int],
    axes: AxisNumbers,
    indices: Sequence[Node],
) -> Callable[..., object] | None:
    """Return a function of operands, of which the last ones before the result are indices into
    these extents, with magmath's error in place of NumPy's; None for a type of indices that NumPy
    converts to another one."""
    if any(index.dtype is uint64 for index in indices):
        return None
    count = len(indices)

    def checked(*arrays: Any) -> None:
        try:
            function(*arrays)
        except IndexError:
            for index, axis, extent in zip(arrays[-1 - count : -1], axes, extents, strict=True):
                outside = index[(index < -extent) | (index >= extent)]
                if outside.size:
                    raise index_out_of_range(int(outside.flat[0]), axis, extent) from None
            raise

    return checked


def numpy_scatter(node: Node) -> Callable[..., object] | None:
    """Return NumPy's sums of short arrays, in order."""
    axes, at = node.attributes["axes"], node.attributes["at"]
    x, *indices = node.inputs
    if x.dtype.kind not in ("int", "float") or x.dtype is float16 or x.size > MAX_ADDED:
        return None
    dims = x.ndim - node.ndim + len(axes)

    def add_into(x: Any, *arrays: Any) -> None:
        *places, out = arrays
        out[...] = 0
        index = places[0] if len(places) == 1 else tuple(places)
        np.add.at(_front(out, axes), index, _front(x, range(at, at + dims)))

    return with_checked_indices(add_into, [node.shape[axis] for axis in axes], axes, indices)
