"""Sorting functions of the array API."""

from __future__ import annotations

from magmath.array.array import Array, as_array
from magmath.core.shapes import normalize_axis
from magmath.engine.user_line import user_line
from magmath.graph import Operation, apply
from magmath.ops.sorting import ARGSORT, SORT


def _along(record: Operation, x: Array, axis: int, descending: bool) -> Array:
    x = as_array(record.name, x)
    place = normalize_axis(record.name, axis, x.ndim)
    return Array(apply(record, x.node, axis=place, descending=descending, line=user_line()))


def sort(x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """Return x sorted along an axis; NaN comes last in either direction.

    Accepts bool, integers and real floating point. The sort is always stable, whatever `stable` is.
    """
    return _along(SORT, x, axis, descending)


def argsort(x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """Return the positions that sort x along an axis; see `sort`."""
    return _along(ARGSORT, x, axis, descending)
