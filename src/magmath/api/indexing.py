"""Indexing functions of the array API: elements at positions along an axis."""

from __future__ import annotations

from magmath.api.manipulation import broadcast_to
from magmath.array.array import Array, as_array
from magmath.core.shapes import broadcast, normalize_axis
from magmath.engine.user_line import user_line
from magmath.errors import ShapeError
from magmath.graph import apply
from magmath.ops.along_axis import TAKE_ALONG
from magmath.ops.gather_scatter import TAKE


def take(x: Array, indices: Array, /, *, axis: int | None = None) -> Array:
    """Return the elements at integer positions along one axis; negative ones count from the end."""
    x, positions = as_array("take", x), as_array("take", indices)
    if axis is None and x.ndim != 1:
        raise ShapeError(f"take: needs `axis` for an array of {x.ndim} dimensions")
    place = normalize_axis("take", 0 if axis is None else axis, x.ndim)
    return Array(apply(TAKE, x.node, positions.node, axes=(place,), at=place, line=user_line()))


def take_along_axis(x: Array, indices: Array, /, *, axis: int = -1) -> Array:
    """Return for each element of `indices` the element of x at that position along `axis`.

    x and indices have the same number of dimensions, and broadcast except along the axis.
    """
    x, places = as_array("take_along_axis", x), as_array("take_along_axis", indices)
    if x.ndim != places.ndim:
        raise ShapeError(
            f"take_along_axis: needs as many dimensions of x and indices, was given {x.shape} and "
            f"{places.shape}"
        )
    place = normalize_axis("take_along_axis", axis, x.ndim)
    one = (*x.shape[:place], 1, *x.shape[place + 1 :])
    other = (*places.shape[:place], 1, *places.shape[place + 1 :])
    common = broadcast("take_along_axis", one, other)
    stretched = [
        broadcast_to(a, (*common[:place], a.shape[place], *common[place + 1 :])).node
        for a in (x, places)
    ]
    return Array(apply(TAKE_ALONG, *stretched, axis=place, line=user_line()))
