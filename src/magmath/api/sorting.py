"""Sorting functions of the array API."""

from __future__ import annotations

from magmath.arrays.array import Array, as_array
from magmath.core.shapes import normalize_axis
from magmath.engine.user_line import user_line
from magmath.graph import Operation, apply
from magmath.ops.manipulation import reshape
from magmath.ops.sorting import ARGSORT, SORT


def _along(record: Operation, x: Array, axis: int | None, descending: bool) -> Array:
    x = as_array(record.name, x)
    node, axis = (reshape(x.node, (x.size,)), 0) if axis is None else (x.node, axis)
    dim = normalize_axis(record.name, axis, node.ndim)
    return Array(apply(record, node, axis=dim, descending=descending, line=user_line()))


def sort(
    x: Array,
    /,
    axis: int | None = -1,
    kind: str | None = None,
    *,
    descending: bool = False,
    stable: bool | None = True,
) -> Array:
    """Return x sorted along an axis, or flattened and sorted for None; NaN comes last in either
    direction.

    Takes truth values, integers and real floating point. Equal elements always keep their order, so
    `stable` has no effect, nor has `kind`, NumPy's choice of an algorithm.
    """
    return _along(SORT, x, axis, descending)


def argsort(
    x: Array,
    /,
    axis: int | None = -1,
    kind: str | None = None,
    *,
    descending: bool = False,
    stable: bool | None = True,
) -> Array:
    """Return the positions that sort x along an axis; see `sort`."""
    return _along(ARGSORT, x, axis, descending)
