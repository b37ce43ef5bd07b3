"""Functions that change the size of images: interpolation, padding, and the exchange of pixels and
channels (pixel shuffle)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import floor
from typing import Any

import numpy as np

from magmath.api.creation import asarray, constant
from magmath.api.indexing import take
from magmath.api.manipulation import moveaxis, permute_dims, reshape, swapaxes
from magmath.api.padding import pad as pad_array
from magmath.api.products import tensordot
from magmath.arrays.array import Array, as_array, floating
from magmath.core.integers import require_integer
from magmath.core.keyword_hints import keyword_hints
from magmath.errors import OptionError, ShapeError
from magmath.graph import Shape
from magmath.nn.interpolation_weights import CATMULL_ROM, CUBIC, interpolation_weights
from magmath.nn.pooling import adaptive_avg_pool
from magmath.nn.window_settings import Size, check_images, is_sequence, sizes


@keyword_hints
def interpolate(
    x: Array,
    size: Size | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Array:
    """Return images (N, channels, *space) of another size.

    size           the new extents of space; or
    scale_factor   their ratio to the present ones, rounded down
    mode           "nearest"; "nearest-exact", which rounds at the centres of elements; "linear"
                   ("bilinear", "trilinear"), between the neighbours along each dimension;
                   "bicubic", between four of them; "area", the means of the elements that a new one
                   covers
    align_corners  for "linear" and "bicubic": True if the first and last elements keep their
                   values; otherwise elements are squares, and the corners of images coincide
    recompute_scale_factor   with `scale_factor`: True if the elements are placed by the ratio of
                   the rounded extents; by default, by the given factor
    antialias      for "bilinear" and "bicubic": True if new elements that are larger than the
                   present ones are means over their surroundings

    As PyTorch's `interpolate`.
    """
    x = as_array("interpolate", x)
    check_images("interpolate", x.shape, None)
    kind = _KINDS.get(mode)
    if kind is None:
        raise OptionError(
            f"interpolate: mode must be one of {', '.join(map(repr, _KINDS))}, was given {mode!r}"
        )
    if antialias and kind not in ("linear", "cubic"):
        raise OptionError(f"interpolate: antialias has no meaning for mode {mode!r}; leave it out")
    if align_corners and kind not in ("linear", "cubic"):
        raise OptionError(
            f"interpolate: align_corners has no meaning for mode {mode!r}; leave it out"
        )
    if recompute_scale_factor and size is not None:
        raise OptionError(
            "interpolate: recompute_scale_factor has a meaning with scale_factor alone"
            "; leave it out"
        )
    if is_sequence(scale_factor):
        scale_factor = tuple(scale_factor)
    new = _new_space(x.shape[2:], size, scale_factor)
    if kind == "area":
        return adaptive_avg_pool(x, new, name="interpolate")
    factors: Any = None if recompute_scale_factor else scale_factor
    # PyTorch ignores the factor of a dimension that keeps its extent, except in these cases.
    copying = ("linear", "nearest") if len(new) == 2 else ("linear",)
    for d, extent in enumerate(new, 2):
        step = x.shape[d] / extent  # between neighbours of the result, in elements
        if factors is not None:
            step = 1.0 / (factors[d - 2] if isinstance(factors, tuple) else factors)
        if extent == x.shape[d] and (antialias or kind in copying):
            continue
        if kind in ("linear", "cubic"):
            x = floating("interpolate", x)
            x = _interpolated_along(
                x, d, extent, step, kind == "cubic", bool(align_corners), antialias
            )
        elif extent != x.shape[d] or step != 1.0:
            x = take(x, asarray(_nearest(x.shape[d], extent, step, kind)), axis=d)
    return x


def _nearest(extent: int, new: int, step: float, kind: str) -> Any:
    """Return the positions of the elements that `new` elements copy, computed in float32 as in
    PyTorch, which decides where a position is a whole number up to rounding."""
    ratio, numbers = np.float32(step), np.arange(new)
    if kind == "nearest-exact":
        centres = ((numbers + 0.5) * np.float64(ratio) - 0.5).astype(np.float32)
        positions = centres + np.float32(0.5)
    else:
        positions = numbers.astype(np.float32) * ratio
    return np.minimum(np.floor(positions), extent - 1).astype(np.int64)


_KINDS: dict[str, str] = {
    "nearest": "nearest",
    "nearest-exact": "nearest-exact",
    "linear": "linear",
    "bilinear": "linear",
    "trilinear": "linear",
    "bicubic": "cubic",
    "area": "area",
}
"""The modes of PyTorch, and what they do along each dimension."""


def _new_space(
    space: Shape, size: Size | None, scale_factor: float | Sequence[float] | None
) -> Shape:
    """Return the extents of space after interpolation. Raises OptionError unless one of size and
    scale factor is given, and leaves elements."""
    if (size is None) == (scale_factor is None):
        raise OptionError(
            "interpolate: needs either size or scale_factor"
            ", and was given both or neither; pass one of them"
        )
    if size is not None:
        return sizes("interpolate: size", size, len(space))
    factors = scale_factor if isinstance(scale_factor, tuple) else (scale_factor,) * len(space)
    new = tuple([floor(n * float(f or 0)) for n, f in zip(space, factors, strict=False)])
    if len(factors) != len(space) or min(new) < 1:
        raise OptionError(
            f"interpolate: scale_factor must be a positive number, or one for each of {len(space)} "
            f"dimensions, that leaves at least one element; was given {scale_factor!r} for {space}"
        )
    return new


def _interpolated_along(
    x: Array, axis: int, new: int, step: float, cubic: bool, align_corners: bool, antialias: bool
) -> Array:
    """Return x with interpolated elements along one axis."""
    extent = x.shape[axis]
    if align_corners:
        step = (extent - 1) / (new - 1) if new > 1 else 0.0
    positions = np.arange(new) * step
    if antialias or not align_corners:
        positions += 0.5 * step - 0.5
    cubic_constant = CATMULL_ROM if antialias else CUBIC
    weights = interpolation_weights(
        tuple(positions),
        extent,
        cubic=cubic_constant if cubic else None,
        scale=max(step, 1.0) if antialias else 1.0,
        only_inside=antialias,
    )
    return weighted_along(x, axis, weights)


def weighted_along(x: Array, axis: int, weights: Any) -> Array:
    """Return the sums of elements along one axis with the rows of a matrix of weights."""
    products = tensordot(x, constant(weights, dtype=x.dtype), axes=((axis,), (1,)))
    return moveaxis(products, -1, axis)


PAD_MODES: dict[str, str] = {
    "constant": "constant",
    "reflect": "reflect",
    "replicate": "edge",
    "circular": "wrap",
}
"""PyTorch's names of the modes of padding, and NumPy's."""


@keyword_hints
def pad(x: Array, padding: Sequence[int], mode: str = "constant", value: float = 0.0) -> Array:
    """Return x with more elements at the ends of its last dimensions.

    padding  the numbers before and after the last dimension, then those of the one in front of it,
             and so on: (left, right, top, bottom), as in PyTorch; negative numbers remove elements
    mode     "constant" (`value`), "reflect", "replicate" or "circular"
    """
    x = as_array("pad", x)
    widths = [require_integer("pad: padding", n, -max(x.shape, default=0)) for n in padding]
    if len(widths) % 2 or len(widths) > 2 * x.ndim:
        raise ShapeError(
            f"pad: needs a number before and one after each dimension, from the last one on; was "
            f"given {tuple(padding)} for {x.shape}"
        )
    if mode not in PAD_MODES:
        raise OptionError(f"pad: mode must be one of {', '.join(PAD_MODES)}, was given {mode!r}")
    pairs = [(0, 0)] * x.ndim
    for i in range(0, len(widths), 2):
        pairs[x.ndim - 1 - i // 2] = (widths[i], widths[i + 1])
    if min(widths, default=0) < 0:
        x, pairs = _cropped(x, pairs)
    options: dict[str, Any] = {"constant_values": value} if mode == "constant" else {}
    _check_reflection(x.shape, pairs, mode)
    return pad_array(x, pairs, PAD_MODES[mode], **options)


def _cropped(x: Array, pairs: list[tuple[int, int]]) -> tuple[Array, list[tuple[int, int]]]:
    """Return x without the elements that negative numbers remove, and the numbers to be added."""
    ranges = [
        (max(-low, 0), n - max(-high, 0)) for n, (low, high) in zip(x.shape, pairs, strict=True)
    ]
    if any(start > stop for start, stop in ranges):
        raise ShapeError(f"pad: {pairs} removes more elements than there are in {x.shape}")
    cut = x[tuple([slice(start, stop) for start, stop in ranges])]
    return cut, [(max(low, 0), max(high, 0)) for low, high in pairs]


def _check_reflection(shape: Shape, pairs: Sequence[tuple[int, int]], mode: str) -> None:
    """Raise ShapeError for more elements than the mode can take from a dimension."""
    max_added: Callable[[int], int] | None
    max_added = {"reflect": lambda n: n - 1, "circular": lambda n: n}.get(mode)
    for n, pair in zip(shape, pairs, strict=True):
        if max_added is not None and max(pair) > max(max_added(n), 0):
            raise ShapeError(
                f"pad: mode {mode!r} adds at most {max(max_added(n), 0)} elements to each end of "
                f"a dimension of {n}, was given {pair} for {shape}"
                '; pad less, or use mode="constant"'
            )


def channel_shuffle(x: Array, groups: int) -> Array:
    """Return x (N, channels, *space) with channel i of group j as channel j of group i.

    Source: Zhang et al. (2018), ShuffleNet.
    """
    x = as_array("channel_shuffle", x)
    check_images("channel_shuffle", x.shape, None)
    n, _, *space = x.shape
    channels = _check_channels("channel_shuffle", x, groups)
    parts = reshape(x, (n, groups, channels, *space))
    return reshape(swapaxes(parts, 1, 2), x.shape)


def pixel_shuffle(x: Array, factor: int) -> Array:
    """Return x (N, channels · factor², H, W) as (N, channels, factor · H, factor · W).

    Source: Shi et al. (2016), equation 4.
    """
    x = as_array("pixel_shuffle", x)
    check_images("pixel_shuffle", x.shape, 2)
    n, _, h, w = x.shape
    channels = _check_channels("pixel_shuffle", x, factor**2 if factor > 0 else factor)
    parts = reshape(x, (n, channels, factor, factor, h, w))
    moved = permute_dims(parts, (0, 1, 4, 2, 5, 3))
    return reshape(moved, (n, channels, h * factor, w * factor))


def pixel_unshuffle(x: Array, factor: int) -> Array:
    """Return x (N, channels, H, W) as (N, channels · factor², H / factor, W / factor): the inverse
    of `pixel_shuffle`."""
    x = as_array("pixel_unshuffle", x)
    check_images("pixel_unshuffle", x.shape, 2)
    n, channels, h, w = x.shape
    if factor < 1 or h % factor or w % factor:
        raise ShapeError(
            f"pixel_unshuffle: the factor must divide height and width, was given {factor} for "
            f"{x.shape}"
            "; pad or crop the images first"
        )
    parts = reshape(x, (n, channels, h // factor, factor, w // factor, factor))
    moved = permute_dims(parts, (0, 1, 3, 5, 2, 4))
    return reshape(moved, (n, channels * factor**2, h // factor, w // factor))


def _check_channels(name: str, x: Array, parts: int) -> int:
    """Return the number of channels for each of so many parts. Raises ShapeError where it is not
    whole."""
    if parts < 1 or x.shape[1] % parts:
        raise ShapeError(
            f"{name}: takes channels that {parts} divides, was given {x.shape}"
            "; choose another number of channels in the layer before"
        )
    return x.shape[1] // parts
