"""Shape arithmetic: broadcasting, axes and products, with errors that name the operation."""

from __future__ import annotations

import math
from collections.abc import Iterable
from operator import index
from typing import Any

from magmath import errors
from magmath.core.integers import is_integer
from magmath.core.shown_value import shown
from magmath.errors import ShapeError

Shape = tuple[int, ...]
AxisNumbers = tuple[int, ...]
"""The axes of an operation, none negative."""
Axis = int | tuple[int, ...] | None
"""The axes that a user gives: one, several, or all of them (None)."""


MAX_DIMENSIONS = 32
"""Most dimensions of an array: index notation has letters for them and for those of indices."""


def check_dimensions(operation: str, shape: Shape) -> None:
    """Raise ShapeError for an array of more than `MAX_DIMENSIONS` dimensions."""
    if len(shape) > MAX_DIMENSIONS:
        raise ShapeError(
            f"{operation}: arrays have at most {MAX_DIMENSIONS} dimensions, this one would have "
            f"{len(shape)}; reshape its operands to fewer"
        )


def size_of(shape: Iterable[int]) -> int:
    """Return the number of elements of an array of this shape."""
    return math.prod(shape)


def broadcast(operation: str, *shapes: Shape) -> Shape:
    """Return the common shape of operands. Raises ShapeError that names the conflicting
    dimension."""
    common = {shape for shape in shapes if shape}
    if len(common) < 2:
        return common.pop() if common else ()
    result: list[int] = []
    for from_right in range(1, max(map(len, shapes), default=0) + 1):
        extents = {s[-from_right] for s in shapes if len(s) >= from_right}
        wide = extents - {1}
        if len(wide) > 1:
            raise ShapeError(
                f"{operation}: shapes {', '.join(map(str, shapes))} do not broadcast: dimension "
                f"-{from_right} is {' and '.join(map(str, sorted(wide)))}; dimensions must be "
                f"equal or 1, counted from the right"
            )
        result.append(wide.pop() if wide else 1)
    return tuple(reversed(result))


def can_broadcast_to(shape: Shape, target: Shape) -> bool:
    """Return True if an array of `shape` broadcasts to `target`."""
    if len(shape) > len(target):
        return False
    aligned = target[len(target) - len(shape) :]
    return all(n in (1, extent) for n, extent in zip(shape, aligned, strict=True))


def normalize_axis(operation: str, axis: int, ndim: int) -> int:
    """Return `axis` counted from the front. Raises AxisError if the array has no such axis, and
    TypeError if it is not an integer."""
    try:
        position = index(axis) if is_integer(axis) else None
    except TypeError:  # a 0-d array of floats
        position = None
    if position is None:
        raise TypeError(
            f"{operation}: axes are integers, was given {shown(axis)}"
            "; pass an integer, or a tuple of integers"
        )
    if not -ndim <= position < ndim:
        remedy = f"; pass an axis from {-ndim} to {ndim - 1}" if ndim else ""
        raise errors.AxisError(
            f"{operation}: axis {position} is out of range for an array of {ndim} dimensions"
            f"{remedy}"
        )
    return position % ndim


def normalize_axes(operation: str, axes: int | Iterable[int] | None, ndim: int) -> tuple[int, ...]:
    """Return sorted axes counted from the front, all axes for None. Raises ShapeError for
    repeats."""
    if axes is None:
        return tuple(range(ndim))
    listed: tuple[Any, ...] = (axes,)
    if isinstance(axes, Iterable) and not is_integer(axes):
        listed = tuple(axes)
    positions = [normalize_axis(operation, axis, ndim) for axis in listed]
    if len(set(positions)) != len(positions):
        raise ShapeError(f"{operation}: axes {listed} name an axis twice; name each axis once")
    return tuple(sorted(positions))


def reduced_axes(operation: str, axes: int | Iterable[int] | None, ndim: int) -> tuple[int, ...]:
    """Return the axes of a reduction; see `normalize_axes`. As in NumPy, a 0-d array counts as one
    element along its axis 0."""
    if ndim == 0 and is_integer(axes) and axes in (0, -1):
        return ()
    return normalize_axes(operation, axes, ndim)


def reduced_shape(shape: Shape, axes: tuple[int, ...], keepdims: bool) -> Shape:
    """Return the shape after a reduction over `axes`."""
    if keepdims:
        return tuple(1 if d in axes else extent for d, extent in enumerate(shape))
    return tuple(extent for d, extent in enumerate(shape) if d not in axes)


def with_extent(shape: Shape, axis: int, extent: int) -> Shape:
    """Return the shape with another extent of one axis, which is not negative."""
    return (*shape[:axis], extent, *shape[axis + 1 :])
