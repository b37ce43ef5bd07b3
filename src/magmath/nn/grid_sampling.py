"""Images sampled at positions that another network computes: spatial transformers.

Source: Jaderberg et al. (2015), equations 1 and 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from magmath.api.creation import arange, asarray
from magmath.api.data_types import astype
from magmath.api.elementwise import abs as absolute
from magmath.api.elementwise import clip, floor, remainder, round
from magmath.api.manipulation import moveaxis, reshape
from magmath.api.searching import where
from magmath.arrays.array import Array, as_array, floating
from magmath.core.dtypes import float32, int64
from magmath.errors import OptionError, ShapeError

MODES = ("bilinear", "nearest")
PADDING_MODES = ("zeros", "border", "reflection")


def affine_grid(theta: Array, size: Sequence[int], align_corners: bool = False) -> Array:
    """Return the positions (N, *space, d) of the elements of images, transformed by matrices.

    theta   (N, d, d + 1): for each image the matrix of a transformation of d coordinates
    size    the shape (N, channels, *space) of the images that will be sampled at these positions

    The coordinates are those of `grid_sample`, the last dimension of space first.
    """
    theta = floating("affine_grid", theta)
    space = tuple(size[2:])
    d = len(space)
    if theta.shape != (size[0], d, d + 1):
        raise ShapeError(
            f"affine_grid: size {tuple(size)} needs matrices of shape {(size[0], d, d + 1)}, was "
            f"given {theta.shape}"
            "; give one matrix (d, d + 1) for each image of d dimensions"
        )
    lines = [
        np.linspace(-1.0, 1.0, n) if align_corners and n > 1 else (2 * np.arange(n) + 1) / n - 1
        for n in space
    ]
    lines = [np.zeros(1) if n == 1 else line for n, line in zip(space, lines, strict=True)]
    columns = np.meshgrid(*lines, indexing="ij")[::-1]
    places = np.stack([*columns, np.ones(space)], -1).reshape(-1, d + 1)
    positions = asarray(places, dtype=theta.dtype) @ theta.mT
    return reshape(positions, (size[0], *space, d))


def grid_sample(
    x: Array,
    grid: Array,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> Array:
    """Return the values (N, channels, *outputs) of images at the positions of a grid.

    x              images (N, channels, *space), of two or three dimensions of space
    grid           (N, *outputs, d): the coordinates of the position of each output, the last
                   dimension of space first. -1 and 1 are the first and the last element
    mode           "bilinear": between the neighbours; or "nearest"
    padding_mode   for positions outside: "zeros", "border" (the nearest element) or "reflection"
    align_corners  True if -1 and 1 are the centres of the first and last elements, and False if
                   they are their outer borders

    As PyTorch's `grid_sample`. Differentiable by images and by positions.
    """
    x, grid = floating("grid_sample", x), floating("grid_sample", grid)
    if grid.dtype.itemsize < 4:  # half types do not have all positions
        grid = astype(grid, float32)
    d = x.ndim - 2
    _check(x, grid, d, mode, padding_mode)
    space = x.shape[2:]
    positions = [
        _position(grid[..., d - 1 - i], n, padding_mode, align_corners) for i, n in enumerate(space)
    ]
    if mode == "nearest":
        return _chosen(x, [round(p) for p in positions])
    lows = [floor(p) for p in positions]
    shares = [p - low for p, low in zip(positions, lows, strict=True)]
    total: Any = None
    for corner in product((0, 1), repeat=d):
        weight: Any = 1.0
        for up, share in zip(corner, shares, strict=True):
            weight = weight * (share if up else 1.0 - share)
        value = _chosen(x, [low + up for low, up in zip(lows, corner, strict=True)])
        part = value * weight[:, None]
        total = part if total is None else total + part
    return astype(total, x.dtype, copy=False)


def _check(x: Array, grid: Array, d: int, mode: str, padding_mode: str) -> None:
    if d not in (2, 3) or grid.ndim != d + 2 or grid.shape[-1] != d or grid.shape[0] != x.shape[0]:
        raise ShapeError(
            f"grid_sample: takes images (N, channels, H, W) and a grid (N, H', W', 2), or with "
            f"three dimensions of space and 3; was given {x.shape} and {grid.shape}"
        )
    for name, value, known in (
        ("mode", mode, MODES),
        ("padding_mode", padding_mode, PADDING_MODES),
    ):
        if value not in known:
            raise OptionError(
                f"grid_sample: {name} must be one of {', '.join(known)}, was given {value!r}"
            )


def _position(coordinate: Array, extent: int, padding_mode: str, align_corners: bool) -> Array:
    """Return a coordinate from -1 to 1 as a position among the elements of a dimension."""
    if align_corners:
        place = (coordinate + 1.0) * ((extent - 1) / 2)
    else:
        place = ((coordinate + 1.0) * extent - 1.0) * 0.5
    if padding_mode == "reflection":
        low, high = (0.0, extent - 1.0) if align_corners else (-0.5, extent - 0.5)
        place = _reflected(place, low, high - low)
    return place if padding_mode == "zeros" else clip(place, 0.0, extent - 1.0)


def _reflected(place: Array, low: float, span: float) -> Array:
    """Return positions reflected at the borders of a dimension until they lie within it."""
    if span <= 0:
        return place * 0.0
    distance = remainder(absolute(place - low), 2 * span)
    return where(distance > span, 2 * span - distance, distance) + low


def _chosen(x: Array, positions: Sequence[Array]) -> Array:
    """Return the elements (N, channels, *outputs) at whole positions, 0 outside."""
    extents = x.shape[2:]
    inside: Any = True
    indices = []
    for position, extent in zip(positions, extents, strict=True):
        within = (position >= 0) & (position <= extent - 1)  # False for nan
        inside = inside & within
        indices.append(astype(where(within, position, 0.0), int64))
    images = reshape(arange(x.shape[0]), (-1, *[1] * (positions[0].ndim - 1)))
    values = moveaxis(as_array("grid_sample", x), 1, -1)[(images, *indices)]
    return moveaxis(where(inside[..., None], values, 0.0), -1, 1)
