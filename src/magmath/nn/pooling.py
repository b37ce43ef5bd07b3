"""Pooling of images (N, channels, *space) as functions: windows, adaptive windows, whole images.

Windows move over the last dimensions, as many as the name or the kernel says; all dimensions in
front of these are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any

import numpy as np

from magmath.api import statistics
from magmath.api.creation import constant
from magmath.api.data_types import astype
from magmath.api.manipulation import concat, reshape
from magmath.arrays.array import Array, as_array, floating
from magmath.core.dtypes import compute_dtype
from magmath.core.integers import require_integer
from magmath.core.keyword_hints import keyword_hints
from magmath.engine.user_line import user_line
from magmath.errors import OptionError, ShapeError
from magmath.graph import Shape, apply
from magmath.nn.numbered_functions import general
from magmath.nn.window_settings import (
    AdaptiveSize,
    Padding,
    Pads,
    Size,
    adaptive_sizes,
    is_sequence,
    pads,
    sizes,
)
from magmath.ops.conv.pooling import MAX_POOL, SUM_POOL, pooled_shape


@general
@keyword_hints
def max_pool(
    x: Array,
    kernel: Size,
    stride: Size | None = None,
    padding: Padding = 0,
    *,
    dilation: Size = 1,
    ceil_mode: bool = False,
    name: str = "max_pool",
    space: int | None = None,
) -> Array:
    """Return the maximum of each window over the last dimensions.

    kernel     the extents of a window: one for each dimension of space
    stride     the distance of neighbouring windows, by default the kernel
    padding    as in `conv`; padded elements are smaller than all others
    dilation   the distance of neighbouring elements of a window
    ceil_mode  if True, a last window that begins within the image or the padding before it counts
               too if it exceeds both

    NaN counts as the maximum. The gradient goes to the first maximum of each window, in row-major
    order, or to its last NaN, as in PyTorch. Raises ShapeError where a window exceeds the padded
    image.
    """
    x = as_array(name, x)
    window, _ = _window_and_padding(
        name, x.shape, space, kernel, stride, padding, dilation, ceil_mode
    )
    return Array(apply(MAX_POOL, x.node, line=user_line(), **window))


@general
@keyword_hints
def avg_pool(
    x: Array,
    kernel: Size,
    stride: Size | None = None,
    padding: Padding = 0,
    *,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    name: str = "avg_pool",
    space: int | None = None,
) -> Array:
    """Return the mean of each window over the last dimensions; arguments as in `max_pool`.

    count_include_pad  if True, padded elements count as zeros; otherwise they do not count
    divisor_override   the number by which sums are divided in place of the number of elements

    Sums of half types are computed in float32, since they may exceed the largest float16.
    """
    x = floating(name, x)
    window, padded = _window_and_padding(
        name, x.shape, space, kernel, stride, padding, 1, ceil_mode
    )
    wide = astype(x, compute_dtype(x.dtype), copy=False)
    sums = Array(apply(SUM_POOL, wide.node, line=user_line(), **window))
    if divisor_override is not None:
        require_integer(f"{name}: divisor_override", divisor_override, 1)
        return astype(sums * (1.0 / divisor_override), x.dtype, copy=False)
    image = x.shape[x.ndim - len(window["kernel"]) :]
    counted = padded if count_include_pad else ((0, 0),) * len(image)
    counts = _element_counts(image, counted, window["kernel"], window["stride"], window["padding"])
    size = counts.flat[0]
    if (counts == size).all():
        means = sums * (1.0 / float(size))
    else:
        means = sums * constant(1.0 / counts, dtype=wide.dtype)
    return astype(means, x.dtype, copy=False)


def _window_and_padding(
    name: str,
    shape: Shape,
    space: int | None,
    kernel: Size,
    stride: Size | None,
    padding: Padding,
    dilation: Size,
    ceil_mode: bool,
) -> tuple[dict[str, Any], Pads]:
    """Return the attributes of a pooling operation, and the padding as numbers, which is less than
    that of the operation if `ceil_mode` adds a window. Raises ShapeError where a window does not
    fit, and OptionError for settings that are not valid."""
    kernel = tuple(kernel) if is_sequence(kernel) else kernel
    count = space or (len(kernel) if isinstance(kernel, tuple) else len(shape) - 2)
    if not 1 <= count <= len(shape):
        raise ShapeError(
            f"{name}: takes images (N, channels, *space), was given {shape}; reshape the input"
        )
    extents = sizes(f"{name}: kernel", kernel, count)
    strides = extents if stride is None else sizes(f"{name}: stride", stride, count)
    dilations = sizes(f"{name}: dilation", dilation, count)
    image = shape[len(shape) - count :]
    padded = pads(name, padding, image, extents, strides, dilations)
    if not isinstance(padding, str):
        _check_half(name, padded, extents, dilations)
    covered = padded
    if ceil_mode:
        covered = with_last_window(image, padded, extents, strides, dilations)
    window = {"kernel": extents, "stride": strides, "padding": covered, "dilation": dilations}
    pooled_shape(name, shape, window)  # its error names the user's function
    return window, padded


def _check_half(name: str, padded: Pads, kernel: Shape, dilation: Shape) -> None:
    """Raise OptionError for padding of more than half a window."""
    for (low, high), k, d in zip(padded, kernel, dilation, strict=True):
        reach = d * (k - 1) + 1
        if max(low, high) > reach // 2:
            raise OptionError(
                f"{name}: padding must be at most half of the window, which covers {reach} "
                f"elements, was given {low} and {high}; use a smaller padding or a larger kernel"
            )


def with_last_window(
    image: Shape, padded: Pads, kernel: Shape, stride: Shape, dilation: Shape
) -> Pads:
    """Return padding for a last window that begins within the image or the padding before it."""
    pairs = []
    for n, (low, high), k, s, d in zip(image, padded, kernel, stride, dilation, strict=True):
        last_start = n + low + high - d * (k - 1) - 1
        last = -(-last_start // s)
        if last * s >= n + low:
            last -= 1
        pairs.append((low, max(high, high + last * s - last_start)))
    return tuple(pairs)


@lru_cache(maxsize=256)
def _element_counts(
    image: Shape, counted: Pads, kernel: Shape, stride: Shape, padding: Pads
) -> Any:
    """Return the number of elements of each window that are in the image or its counted padding."""
    counts: Any = np.ones(())
    for n, (before, behind), k, s, (low, high) in zip(
        image, counted, kernel, stride, padding, strict=True
    ):
        starts = np.arange((n + low + high - k) // s + 1) * s - low
        inside = np.minimum(starts + k, n + behind) - np.maximum(starts, -before)
        counts = counts[..., None] * np.maximum(inside, 1)
    return counts


# windows that divide the image --------------------------------------------------------------------


@general
def adaptive_avg_pool(
    x: Array, size: AdaptiveSize, *, name: str = "adaptive_avg_pool", space: int | None = None
) -> Array:
    """Return means of windows that divide the last dimensions into `size` parts; None stands for
    one part for each element.

    Part i of m of a dimension of n elements has the elements ⌊i·n/m⌋ to ⌈(i+1)·n/m⌉.
    """
    return _adaptive_pool(floating(name, x), size, name, space, statistics.mean, avg_pool)


@general
def adaptive_max_pool(
    x: Array, size: AdaptiveSize, *, name: str = "adaptive_max_pool", space: int | None = None
) -> Array:
    """Return maxima of windows that divide the last dimensions; see `adaptive_avg_pool`."""
    return _adaptive_pool(as_array(name, x), size, name, space, None, max_pool)


def _adaptive_pool(
    x: Array,
    size: AdaptiveSize,
    name: str,
    space: int | None,
    whole: Callable[..., Array] | None,
    pool: Callable[..., Array],
) -> Array:
    """Return the results of windows that divide an image.

    whole   a function with the result of the whole image, which it reduces along axes; or None
    pool    the function of images whose windows have one size
    """
    size = tuple(size) if is_sequence(size) else size
    count = space or (len(size) if isinstance(size, tuple) else x.ndim - 2)
    if not 1 <= count <= x.ndim or 0 in x.shape[x.ndim - count :]:
        raise ShapeError(
            f"{name}: takes images (N, channels, *space), was given {x.shape}; reshape the input"
        )
    image = x.shape[x.ndim - count :]
    given = adaptive_sizes(f"{name}: size", size, count)
    counts = [n if m is None else m for n, m in zip(image, given, strict=True)]
    if whole is not None and set(counts) == {1}:
        return whole(x, axis=tuple(range(x.ndim - count, x.ndim)), keepdims=True)
    parts = [_parts(n, m) for n, m in zip(image, counts, strict=True)]
    results = [_pooled_part(x, part, name, pool) for part in product(*parts)]
    return _joined(results, [len(x) for x in parts], x.ndim)


def _parts(extent: int, count: int) -> list[tuple[slice, int]]:
    """Return parts of a dimension that together have `count` windows, and the extent of the windows
    in each: a part for each window, or one part if they have one extent."""
    if extent % count == 0:
        return [(slice(None), extent // count)]
    ranges = [(i * extent // count, -(-(i + 1) * extent // count)) for i in range(count)]
    return [(slice(start, stop), stop - start) for start, stop in ranges]


def _pooled_part(
    x: Array, part: Sequence[tuple[slice, int]], name: str, pool: Callable[..., Array]
) -> Array:
    is_whole = all(where == slice(None) for where, _ in part)
    image = x if is_whole else x[(..., *[where for where, _ in part])]
    return pool(image, tuple([extent for _, extent in part]), name=name)


def _joined(results: list[Array], counts: Sequence[int], ndim: int) -> Array:
    """Return the results of parts, listed in row-major order, as one array."""
    for d in range(len(counts) - 1, -1, -1):
        step = counts[d]
        axis = ndim - len(counts) + d
        results = [
            concat(results[i : i + step], axis=axis) if step > 1 else results[i]
            for i in range(0, prod(counts[: d + 1]), step)
        ]
    return results[0]


def global_avg_pool(x: Array) -> Array:
    """Return the mean of each channel of each image: (N, channels, *space) → (N, channels)."""
    x = floating("global_avg_pool", x)
    return statistics.mean(x, axis=_space_axes("global_avg_pool", x))


def global_max_pool(x: Array) -> Array:
    """Return the maximum of each channel of each image: (N, channels, *space) → (N, channels).

    The gradient goes to the first maximum.
    """
    x = as_array("global_max_pool", x)
    axes = _space_axes("global_max_pool", x)
    return reshape(max_pool(x, x.shape[axes[0] :], name="global_max_pool"), x.shape[:2])


def _space_axes(name: str, x: Array) -> tuple[int, ...]:
    if x.ndim < 3:
        raise ShapeError(
            f"{name}: takes images (N, channels, *space), was given {x.shape}; reshape the input"
        )
    return tuple(range(2, x.ndim))
