"""Images sampled at positions that another network computes: spatial transformers.

Source: Jaderberg et al. (2015), equations 1 and 5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from itertools import product
from operator import add, mul
from typing import Any

import numpy as np

from magmath.api.creation import arange, asarray
from magmath.api.data_types import astype
from magmath.api.elementwise import abs as absolute
from magmath.api.elementwise import floor, remainder, round
from magmath.api.manipulation import moveaxis, reshape
from magmath.api.searching import where
from magmath.arrays.array import Array, as_array, floating
from magmath.core.dtypes import float32, int64
from magmath.errors import OptionError, ShapeError
from magmath.nn.activation_functions import hardtanh
from magmath.nn.interpolation_weights import CUBIC, cubic_core, cubic_tail

MODES = ("bilinear", "nearest", "bicubic")
PADDING_MODES = ("zeros", "border", "reflection")

Neighbour = tuple[Array, Array]
"""The positions of elements along one dimension, and their weights."""


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
    centres = [_centres(n, align_corners) for n in space]
    coordinates = np.meshgrid(*centres, indexing="ij")[::-1]
    homogeneous = np.stack([*coordinates, np.ones(space)], -1).reshape(-1, d + 1)
    positions = asarray(homogeneous, dtype=theta.dtype) @ theta.mT
    return reshape(positions, (size[0], *space, d))


def _centres(extent: int, align_corners: bool) -> Any:
    """Return the coordinates, from -1 to 1, of the centres of the elements of a dimension."""
    if align_corners and extent > 1:
        return np.linspace(-1.0, 1.0, extent)
    return (2 * np.arange(extent) + 1) / extent - 1


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
    mode           "bilinear": between the neighbours; "nearest"; or "bicubic", for two dimensions
                   of space: between the four next elements along each
    padding_mode   for positions outside: "zeros", "border" (the nearest element) or "reflection"
    align_corners  True if -1 and 1 are the centres of the first and last elements, and False if
                   they are their outer borders

    As PyTorch's `grid_sample`. Differentiable by images and by positions.
    """
    x, grid = floating("grid_sample", x), floating("grid_sample", grid)
    if grid.dtype.itemsize < 4:  # half types do not have all positions
        grid = astype(grid, float32)
    space = x.shape[2:]
    d = len(space)
    _check(x, grid, d, mode, padding_mode)
    positions = [_position(grid[..., d - 1 - i], n, align_corners) for i, n in enumerate(space)]
    paddings = [
        partial(_padded, extent=n, mode=padding_mode, align_corners=align_corners) for n in space
    ]
    pairs = list(zip(positions, paddings, strict=True))
    if mode == "nearest":
        return _elements_at(x, [round(padded(position)) for position, padded in pairs])
    neighbours = _cubic_neighbours if mode == "bicubic" else _linear_neighbours
    along_each = [neighbours(position, padded) for position, padded in pairs]
    summands = [_weighted_elements(x, neighbour) for neighbour in product(*along_each)]
    return astype(reduce(add, summands), x.dtype, copy=False)


def _weighted_elements(x: Array, neighbour: Sequence[Neighbour]) -> Array:
    """Return the elements at one neighbour of the positions, times the products of its weights."""
    elements = _elements_at(x, [position for position, _ in neighbour])
    return elements * reduce(mul, [weight for _, weight in neighbour])[:, None]


def _linear_neighbours(position: Array, padded: Callable[[Array], Array]) -> list[Neighbour]:
    position = padded(position)
    low = floor(position)
    distance = position - low
    return [(low, 1.0 - distance), (low + 1, distance)]


def _cubic_neighbours(position: Array, padded: Callable[[Array], Array]) -> list[Neighbour]:
    """Return four neighbours; each is padded by itself, as in PyTorch and ONNX."""
    low = floor(position)
    distance = position - low
    weights = [
        cubic_tail(distance + 1.0, CUBIC),
        cubic_core(distance, CUBIC),
        cubic_core(1.0 - distance, CUBIC),
        cubic_tail(2.0 - distance, CUBIC),
    ]
    return [(padded(low + i), weight) for i, weight in zip(range(-1, 3), weights, strict=True)]


def _check(x: Array, grid: Array, d: int, mode: str, padding_mode: str) -> None:
    """Raise ShapeError for images and grids that do not fit, OptionError for unknown modes."""
    if d not in (2, 3) or grid.ndim != d + 2 or grid.shape[-1] != d or grid.shape[0] != x.shape[0]:
        raise ShapeError(
            f"grid_sample: takes images (N, channels, H, W) and a grid (N, H', W', 2), or with "
            f"three dimensions of space and 3; was given {x.shape} and {grid.shape}"
        )
    if mode == "bicubic" and d != 2:
        raise OptionError(
            f"grid_sample: the mode bicubic needs two dimensions of space, was given {d}"
            '; use mode="bilinear"'
        )
    for name, value, known in (
        ("mode", mode, MODES),
        ("padding_mode", padding_mode, PADDING_MODES),
    ):
        if value not in known:
            raise OptionError(
                f"grid_sample: {name} must be one of {', '.join(known)}, was given {value!r}"
            )


def _position(coordinate: Array, extent: int, align_corners: bool) -> Array:
    """Return a coordinate from -1 to 1 as a position among the elements of a dimension."""
    if align_corners:
        return (coordinate + 1.0) * ((extent - 1) / 2)
    return ((coordinate + 1.0) * extent - 1.0) * 0.5


def _padded(position: Array, extent: int, mode: str, align_corners: bool) -> Array:
    """Return positions whose elements are in a dimension, unless elements outside are zeros."""
    if mode == "zeros":
        return position
    if mode == "reflection":
        low, high = (0.0, extent - 1.0) if align_corners else (-0.5, extent - 0.5)
        position = _reflected(position, low, high - low)
    return hardtanh(position, 0.0, extent - 1.0)  # at both ends without a slope, as in PyTorch


def _reflected(position: Array, low: float, span: float) -> Array:
    """Return positions reflected at the borders of a dimension until they are within it."""
    if span <= 0:
        return position * 0.0
    distance = remainder(absolute(position - low), 2 * span)
    return where(distance > span, 2 * span - distance, distance) + low


def _elements_at(x: Array, positions: Sequence[Array]) -> Array:
    """Return the elements (N, channels, *outputs) at integral positions, 0 outside."""
    inside: Any = True
    indices = []
    for position, extent in zip(positions, x.shape[2:], strict=True):
        in_dimension = (position >= 0) & (position <= extent - 1)  # False for nan
        inside = inside & in_dimension
        indices.append(astype(where(in_dimension, position, 0.0), int64))
    images = reshape(arange(x.shape[0]), (-1, *[1] * (positions[0].ndim - 1)))
    values = moveaxis(as_array("grid_sample", x), 1, -1)[(images, *indices)]
    return moveaxis(where(inside[..., None], values, 0.0), -1, 1)
