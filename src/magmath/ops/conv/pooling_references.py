"""References of pooling (`ops/conv/pooling.py`) on NumPy arrays.

Out of bounds are zeros for sums, and the least number of the type for maxima.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from magmath.kernels.conv.padded_range import extents_of, overlap
from magmath.ops.conv.pooling_methods import (
    OutOfBounds,
    PoolingByElement,
    SpaceExtents,
    first_numbers,
)
from magmath.ops.conv.window_ranges import (
    Attributes,
    first_elements,
    input_ranges,
    window_counts,
)


def _least(dtype: Any) -> float:
    """Return the least number of a NumPy type."""
    return -np.inf if dtype.kind == "f" else int(np.iinfo(dtype).min)


def _space(x: Any, attributes: Attributes) -> list[int]:
    """Return the extents of space of the result of pooling x."""
    kernel = attributes["kernel"]
    return window_counts(x.shape[x.ndim - len(kernel) :], kernel, attributes)


def _padded(x: Any, space: SpaceExtents, value: float, attributes: Attributes) -> Any:
    """Return the range of x that windows read, with a value out of bounds."""
    kernel = attributes["kernel"]
    needed = input_ranges([(0, n) for n in space], kernel, attributes)
    lead = x.ndim - len(kernel)
    result = np.full((*x.shape[:lead], *extents_of(needed)), value, x.dtype)
    there, here = overlap([(0, n) for n in x.shape[lead:]], needed)
    result[there] = x[here]
    return result


def _out_of_bounds(x: Any, space: SpaceExtents, attributes: Attributes) -> OutOfBounds:
    """Return how the maxima of padded windows of x are found in x."""
    kernel = attributes["kernel"]
    bounds = [(0, n) for n in x.shape[x.ndim - len(kernel) :]]
    firsts = first_elements([(0, n) for n in space], bounds, kernel, attributes)
    return OutOfBounds(_least(x.dtype), first_numbers(firsts, kernel))


def _cropped(full: Any, windows: SpaceExtents, space: SpaceExtents, attributes: Attributes) -> Any:
    """Return the elements within bounds, of extents `space`, of the range that windows read."""
    needed = input_ranges([(0, n) for n in windows], attributes["kernel"], attributes)
    result = np.zeros((*full.shape[: full.ndim - len(space)], *space), full.dtype)
    there, here = overlap(needed, [(0, n) for n in space])
    result[there] = full[here]
    return result


def max_reference(x: Any, **attributes: Any) -> Any:
    """Return the maxima of a NumPy array's windows."""
    space = _space(x, attributes)
    padded = _padded(x, space, _least(x.dtype), attributes)
    return PoolingByElement(np, attributes).max(padded, space)


def select_reference(a: Any, x: Any, **attributes: Any) -> Any:
    """Return the elements of a NumPy array at the maxima of x."""
    space = _space(x, attributes)
    padded = _padded(x, space, _least(x.dtype), attributes)
    pool = PoolingByElement(np, attributes, _out_of_bounds(x, space, attributes))
    return pool.select(_padded(a, space, 0, attributes), padded, space)


def scatter_reference(g: Any, x: Any, **attributes: Any) -> Any:
    """Return a NumPy array with g added at the maxima of x."""
    space = _space(x, attributes)
    padded = _padded(x, space, _least(x.dtype), attributes)
    full = PoolingByElement(np, attributes, _out_of_bounds(x, space, attributes)).scatter(g, padded)
    return _cropped(full, space, x.shape[x.ndim - len(space) :], attributes)


def sum_reference(x: Any, **attributes: Any) -> Any:
    """Return the sums of a NumPy array's windows."""
    space = _space(x, attributes)
    return PoolingByElement(np, attributes).sum(_padded(x, space, 0, attributes), space)


def sum_input_reference(g: Any, *, space: SpaceExtents, **attributes: Any) -> Any:
    """Return a NumPy array with g added to each element of its windows."""
    windows = g.shape[g.ndim - len(space) :]
    extents = extents_of(input_ranges([(0, n) for n in windows], attributes["kernel"], attributes))
    full = PoolingByElement(np, attributes).add_windows(g, extents)
    return _cropped(full, windows, space, attributes)
