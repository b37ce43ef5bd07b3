"""`reduceat` of NumPy's universal functions: a function combines the elements of each segment of an
axis. Sums, products and extrema of segments that ascend are reductions of their own
(`ops/segment_reductions.py`).

An associative function combines sliding windows of 1, 2, 4, … elements, log₂ n times, and each
segment is put together from the windows of the bits of its length, so that segments may overlap.
Another function takes one step for each element of the longest segment.
"""

from __future__ import annotations

from collections.abc import Callable

from magmath.arrays.array import Array
from magmath.arrays.protocols.namespace import array_namespace
from magmath.core.dtypes import int64
from magmath.engine.user_line import user_line
from magmath.graph import Node, apply
from magmath.ops import elementwise as e
from magmath.ops.concatenation import CONCAT
from magmath.ops.creation import full
from magmath.ops.indexing.gather_scatter import TAKE
from magmath.ops.leaves import constant
from magmath.ops.manipulation import reshape
from magmath.ops.slicing import slice_along

Combine = Callable[[Node, Node], Node]


def combined_segments(combine: Combine, x: Node, starts: Node, axis: int) -> Node:
    """Return the combined elements from each start up to the next one, or the element at a start
    that no larger one follows. `combine` is associative."""
    extent = x.shape[axis]
    lengths = _lengths(starts, extent)
    here, result, windows = starts, _taken(x, starts, axis), x
    is_begun = e.call("less", lengths, _integer(0))  # for none yet
    size = 1
    while size <= extent:
        bit = e.call("not_equal", e.call("bitwise_and", lengths, _integer(size)), _integer(0))
        part = _taken(windows, here, axis)
        joined = e.where(_along(is_begun, x, axis), combine(result, part), part)
        result = e.where(_along(bit, x, axis), joined, result)
        is_begun = e.call("logical_or", is_begun, bit)
        here = here + e.where(bit, _integer(size), _integer(0))
        size *= 2
        if size <= extent:
            last = windows.shape[axis]
            former = slice_along(windows, axis, 0, last - size // 2)
            windows = combine(former, slice_along(windows, axis, size // 2, last))
    return result


def stepwise_segments(combine: Combine, x: Node, starts: Node, axis: int) -> Node:
    """Return the result of `combined_segments` for any function; computes the longest length."""
    lengths = _lengths(starts, x.shape[axis])
    result = _taken(x, starts, axis)
    for step in range(1, int(array_namespace().max(Array(lengths)))):
        part = _taken(x, starts + step, axis)
        goes_on = e.call("less", _integer(step), lengths)
        result = e.where(_along(goes_on, x, axis), combine(result, part), result)
    return result


def _lengths(starts: Node, extent: int) -> Node:
    """Return the number of elements of each segment."""
    count = starts.shape[0]
    end = full((1,), constant(extent, int64))
    ends = apply(CONCAT, slice_along(starts, 0, 1, count), end, axis=0)
    return e.call("maximum", e.subtract(ends, starts), _integer(1))


def _taken(x: Node, positions: Node, axis: int) -> Node:
    """Return the elements at positions along an axis; those beyond its end are the last one."""
    within = e.call("minimum", positions, _integer(x.shape[axis] - 1))
    return apply(TAKE, x, within, axes=(axis,), at=axis, line=user_line())


def _along(flags: Node, x: Node, axis: int) -> Node:
    """Return truth values of segments in the shape of the dimensions from the axis on."""
    return reshape(flags, (flags.size, *[1] * (x.ndim - 1 - axis)))


def _integer(value: int) -> Node:
    return constant(value, int64)
