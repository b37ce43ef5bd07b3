"""Weights of the elements of an array, or of the positions along some of its axes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from magmath.api.manipulation import permute_dims, reshape
from magmath.arrays.array import Array
from magmath.core.shapes import Axis, normalize_axis
from magmath.errors import ShapeError


def aligned_weights(operation: str, weights: Array, x: Array, axis: Axis) -> Array:
    """Return weights in a shape that broadcasts to x: one for each element, or for each position
    along the axes, in whose order the weights have their dimensions."""
    if weights.shape == x.shape:
        return weights
    if axis is None:
        raise TypeError(
            f"{operation}: weights of shape {weights.shape} for an array of shape {x.shape} need "
            "an axis; pass the axes that they weight"
        )
    listed = axis if isinstance(axis, Sequence) else (axis,)
    axes = [normalize_axis(operation, d, x.ndim) for d in listed]
    if weights.shape != tuple(x.shape[d] for d in axes):
        raise ShapeError(
            f"{operation}: needs weights of shape {x.shape}, or of that of the axes to reduce, was "
            f"given {weights.shape} for axis {axis}"
            "; pass one weight for each element, or for each position along the axis"
        )
    ascending = permute_dims(weights, [int(d) for d in np.argsort(axes)])
    return reshape(ascending, tuple(n if d in axes else 1 for d, n in enumerate(x.shape)))
