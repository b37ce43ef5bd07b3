"""Functions that normalize: over features, batches, groups of channels, or neighbouring channels.

Moments of half types are computed in float32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from magmath.api import elementwise, statistics
from magmath.api.creation import normal_shape
from magmath.api.data_types import astype, finfo, result_type
from magmath.api.manipulation import reshape
from magmath.arrays.array import Array, floating
from magmath.core.dtypes import compute_dtype
from magmath.core.keyword_hints import keyword_hints
from magmath.engine.user_line import user_line
from magmath.errors import ShapeError
from magmath.graph import apply
from magmath.nn.layer_input import check_shape, layer_input
from magmath.ops.conv.pooling import SUM_POOL
from magmath.ops.normalization import affine, centred_squares


@keyword_hints
def layer_norm(
    x: Array,
    normalized_shape: int | Sequence[int],
    weight: Array | None = None,
    bias: Array | None = None,
    epsilon: float = 1e-5,
) -> Array:
    """Return x normalized to mean 0 and variance 1 over its last axes, times weight, plus bias.

    The last axes, weight and bias have the shape `normalized_shape`, otherwise ShapeError. Source:
    Ba, Kiros and Hinton (2016). Moments of half types are computed in float32.
    """
    x = layer_input("layer_norm", x, weight)
    axes = _last_axes("layer_norm", x, normalized_shape, {"weight": weight, "bias": bias})
    y = _normalized(astype(x, compute_dtype(x.dtype), copy=False), axes, epsilon)
    y = y if weight is None else y * weight
    return astype(y if bias is None else y + bias, x.dtype, copy=False)


def _normalized(wide: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    """Return an array normalized to mean 0 and variance 1 over axes, in float32 at least."""
    centred = wide - statistics.mean(wide, axis=axes, keepdims=True)
    variance = statistics.mean(elementwise.square(centred), axis=axes, keepdims=True)
    return centred / elementwise.sqrt(variance + epsilon)


@keyword_hints
def rms_norm(
    x: Array,
    normalized_shape: int | Sequence[int],
    weight: Array | None = None,
    epsilon: float | None = None,
) -> Array:
    """Return x divided by the root of the mean of its squares over its last axes, times weight.

    The last axes and the weight have the shape `normalized_shape`, otherwise ShapeError. `epsilon`
    is added to the mean, by default the distance from 1 to the next number of the type, as in
    PyTorch. Source: Zhang and Sennrich (2019). Means of half types are computed in float32.
    """
    x = layer_input("rms_norm", x, weight)
    axes = _last_axes("rms_norm", x, normalized_shape, {"weight": weight})
    wide = astype(x, compute_dtype(x.dtype), copy=False)
    squares = statistics.mean(elementwise.square(wide), axis=axes, keepdims=True)
    epsilon = finfo(x.dtype).eps if epsilon is None else epsilon
    y = wide / elementwise.sqrt(squares + epsilon)
    return astype(y if weight is None else y * weight, x.dtype, copy=False)


def _last_axes(
    name: str, x: Array, normalized_shape: Any, parameters: Mapping[str, Array | None]
) -> tuple[int, ...]:
    """Return the last axes of x, which have this shape. Raises ShapeError unless they and the
    parameters do."""
    if isinstance(normalized_shape, Array):
        raise TypeError(
            f"{name}: the second argument is the shape of the last axes, was given an array of "
            f"shape {normalized_shape.shape}; write {name}(x, weight.shape, weight)"
        )
    shape = normal_shape(name, normalized_shape)
    if not shape or x.shape[-len(shape) :] != shape:
        raise ShapeError(
            f"{name}: normalizes last axes of shape {shape}, was given {x.shape}"
            "; give the shape of the input's last axes"
        )
    for argument, values in parameters.items():
        check_shape(name, argument, values, shape, "that of the normalized axes")
    return tuple(range(x.ndim - len(shape), x.ndim))


def batch_moments(x: Array, axis: int = 1) -> tuple[Array, Array]:
    """Return mean and biased variance of each channel over all other axes, in float32 at least."""
    x = floating("batch_moments", x)
    wide = astype(x, compute_dtype(x.dtype), copy=False)
    other_axes = tuple([a for a in range(x.ndim) if a != axis % x.ndim])
    mean = statistics.mean(wide, axis=other_axes, keepdims=True)
    squares = Array(centred_squares(wide.node, mean.node, other_axes))
    channels, count = (x.shape[axis],), x.size // max(x.shape[axis], 1)
    return reshape(mean, channels), reshape(squares, channels) / count


@keyword_hints
def batch_norm(
    x: Array,
    mean: Array,
    variance: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    *,
    axis: int = 1,
    epsilon: float = 1e-5,
) -> Array:
    """Return (x - mean) / √(variance + epsilon) · weight + bias.

    Mean, variance, weight and bias are (channels,), along `axis`. In training the moments are those
    of `batch_moments(x)`. Source: Ioffe and Szegedy (2015).
    """
    x = layer_input("batch_norm", x, mean)
    vectors_of = {"mean": mean, "variance": variance, "weight": weight, "bias": bias}
    _check_channels("batch_norm", x, axis, vectors_of)
    wide = astype(x, compute_dtype(x.dtype), copy=False)
    factor = (1.0 if weight is None else weight) / elementwise.sqrt(variance + epsilon)
    vectors = [v for v in (mean, factor, bias) if v is not None]
    common = result_type(wide, *vectors)
    centre, scale, *offset = [
        astype(_along(v, axis, x.ndim), common, copy=False).node for v in vectors
    ]
    y = affine(astype(wide, common, copy=False).node, centre, scale, offset[0] if offset else None)
    return astype(Array(y.at_line(user_line())), x.dtype, copy=False)


def _check_channels(name: str, x: Array, axis: int, vectors: Mapping[str, Array | None]) -> None:
    """Raise ShapeError unless each of these arrays has one element for each channel of x."""
    if not -x.ndim <= axis < x.ndim:
        raise ShapeError(
            f"{name}: takes an input with channels at axis {axis}, was given {x.shape}; add a "
            f"dimension with mm.expand_dims, or give axis="
        )
    meaning = f"a number for each channel of the input {x.shape}, which are at axis {axis}"
    remedy = "transpose the input if its channels are at another axis"
    for argument, values in vectors.items():
        check_shape(name, argument, values, (x.shape[axis],), meaning, remedy)


def _along(values: Array, axis: int, ndim: int) -> Array:
    """Return an array (channels,) reshaped to broadcast along an axis."""
    shape = [1] * ndim
    shape[axis] = values.shape[0]
    return reshape(values, tuple(shape))


@keyword_hints
def group_norm(
    x: Array,
    groups: int,
    weight: Array | None = None,
    bias: Array | None = None,
    epsilon: float = 1e-5,
) -> Array:
    """Return x (N, channels, …) with each image normalized to mean 0 and variance 1 over each of
    `groups` groups of channels; times weight (channels,), plus bias.

    Source: Wu and He (2018).
    """
    return _group_norm("group_norm", x, groups, weight, bias, epsilon)


def _group_norm(
    name: str, x: Array, groups: int, weight: Array | None, bias: Array | None, epsilon: float
) -> Array:
    """Return `group_norm` for a function of this name."""
    x = layer_input(name, x, weight)
    if x.ndim < 2 or groups < 1 or x.shape[1] % groups:
        raise ShapeError(
            f"group_norm: takes (N, channels, …) with channels that {groups} groups divide, was "
            f"given {x.shape}"
            "; choose groups that divide the channels"
        )
    _check_channels(name, x, 1, {"weight": weight, "bias": bias})
    wide = astype(x, compute_dtype(x.dtype), copy=False)
    grouped = reshape(wide, (x.shape[0], groups, x.shape[1] // groups, *x.shape[2:]))
    y = reshape(_normalized(grouped, tuple(range(2, grouped.ndim)), epsilon), x.shape)
    y = y if weight is None else y * _along(weight, 1, x.ndim)
    y = y if bias is None else y + _along(bias, 1, x.ndim)
    return astype(y, x.dtype, copy=False)


@keyword_hints
def instance_norm(
    x: Array, weight: Array | None = None, bias: Array | None = None, epsilon: float = 1e-5
) -> Array:
    """Return x (N, channels, *space) with each channel of each image normalized to mean 0 and
    variance 1. Source: Ulyanov et al. (2016)."""
    x = layer_input("instance_norm", x, weight)
    if x.ndim < 3:
        raise ShapeError(
            f"instance_norm: takes (N, channels, *space), was given {x.shape}"
            "; add a dimension with mm.expand_dims"
        )
    if prod(x.shape[2:]) == 1:
        raise ShapeError(
            f"instance_norm: needs more than one value of each channel of an image, to compute a "
            f"variance; was given {x.shape}; use larger images, or layer_norm over the channels"
        )
    return _group_norm("instance_norm", x, x.shape[1], weight, bias, epsilon)


@keyword_hints
def local_response_norm(
    x: Array, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Array:
    """Return x / (k + alpha / size · Σ x²)^beta with sums over `size` neighbouring channels.

    x is (N, channels, …). Source: Krizhevsky et al. (2012), section 3.3, where alpha is not divided
    by size.
    """
    x = floating("local_response_norm", x)
    if x.ndim < 2 or size < 1:
        raise ShapeError(
            f"local_response_norm: takes (N, channels, …) and a size of at least 1, was given "
            f"{x.shape} and {size}"
            "; give images with channels at axis 1, and a size such as 5"
        )
    wide = astype(x, compute_dtype(x.dtype), copy=False)
    unit_extents = (1,) * (x.ndim - 2)
    squares = apply(
        SUM_POOL, elementwise.square(wide).node,
        kernel=(size, *unit_extents), stride=(1, *unit_extents),
        padding=((size // 2, (size - 1) // 2), *((0, 0),) * len(unit_extents)),
        dilation=(1, *unit_extents),
    )  # fmt: skip
    base = k + (alpha / size) * Array(squares)
    if beta == 0.75:  # the usual exponent: roots are much faster than powers
        root = elementwise.sqrt(base)
        return astype(wide / (root * elementwise.sqrt(root)), x.dtype, copy=False)
    return astype(wide * base**-beta, x.dtype, copy=False)
