"""Functions of neural networks: the computations of layers, with parameters as arguments.

Names and semantics are PyTorch's, except that weights of `linear` are (inputs, units). Images are
(N, channels, *space); their functions for one, two and three dimensions of space are those for any
number with a check.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from magmath.api import elementwise, random, statistics
from magmath.api.activations import log_softmax as log_softmax
from magmath.api.activations import relu as relu
from magmath.api.activations import sigmoid as sigmoid
from magmath.api.activations import softmax as softmax
from magmath.api.activations import softplus as softplus
from magmath.api.activations import stop_gradient
from magmath.api.data_types import astype, finfo, result_type
from magmath.api.einsum import einsum
from magmath.api.indexing import take
from magmath.api.manipulation import expand_dims, reshape
from magmath.api.random import Distributions
from magmath.api.searching import where
from magmath.arrays.array import Array, as_array, floating
from magmath.core import foreign_names
from magmath.core.dtypes import compute_dtype
from magmath.core.promotion import get_default_dtype
from magmath.core.shapes import normalize_axes, size_of
from magmath.engine.user_line import user_line
from magmath.errors import DTypeError, OptionError, ShapeError
from magmath.graph import Shape, apply
from magmath.nn.activation_functions import ACTIVATIONS as ACTIVATIONS
from magmath.nn.activation_functions import activation_function as activation_function
from magmath.nn.activation_functions import celu as celu
from magmath.nn.activation_functions import elu as elu
from magmath.nn.activation_functions import gelu as gelu
from magmath.nn.activation_functions import glu as glu
from magmath.nn.activation_functions import hard_sigmoid as hard_sigmoid
from magmath.nn.activation_functions import hard_swish as hard_swish
from magmath.nn.activation_functions import hardshrink as hardshrink
from magmath.nn.activation_functions import hardtanh as hardtanh
from magmath.nn.activation_functions import identity as identity
from magmath.nn.activation_functions import leaky_relu as leaky_relu
from magmath.nn.activation_functions import log_sigmoid as log_sigmoid
from magmath.nn.activation_functions import mish as mish
from magmath.nn.activation_functions import prelu as prelu
from magmath.nn.activation_functions import relu6 as relu6
from magmath.nn.activation_functions import selu as selu
from magmath.nn.activation_functions import silu as silu
from magmath.nn.activation_functions import softmin as softmin
from magmath.nn.activation_functions import softshrink as softshrink
from magmath.nn.activation_functions import softsign as softsign
from magmath.nn.activation_functions import tanh as tanh
from magmath.nn.activation_functions import tanhshrink as tanhshrink
from magmath.nn.activation_functions import threshold as threshold
from magmath.nn.attention import attention_weights as attention_weights
from magmath.nn.attention import scaled_dot_product_attention as scaled_dot_product_attention
from magmath.nn.convolution import conv as conv
from magmath.nn.convolution import conv_transpose as conv_transpose
from magmath.nn.grid_sampling import affine_grid as affine_grid
from magmath.nn.grid_sampling import grid_sample as grid_sample
from magmath.nn.losses import with_numbers_to
from magmath.nn.patches import fold as fold
from magmath.nn.patches import unfold as unfold
from magmath.nn.pooling import adaptive_avg_pool as adaptive_avg_pool
from magmath.nn.pooling import adaptive_max_pool as adaptive_max_pool
from magmath.nn.pooling import avg_pool as avg_pool
from magmath.nn.pooling import global_avg_pool as global_avg_pool
from magmath.nn.pooling import global_max_pool as global_max_pool
from magmath.nn.pooling import max_pool as max_pool
from magmath.nn.resampling import channel_shuffle as channel_shuffle
from magmath.nn.resampling import interpolate as interpolate
from magmath.nn.resampling import pad as pad
from magmath.nn.resampling import pixel_shuffle as pixel_shuffle
from magmath.nn.resampling import pixel_unshuffle as pixel_unshuffle
from magmath.ops import creation, realignment
from magmath.ops.conv.pooling import SUM_POOL
from magmath.ops.indexing.local_index import not_from_the_end
from magmath.ops.normalization import affine, centred_squares

# layers -------------------------------------------------------------------------------------------


def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    """Return x · weight + bias: x (…, inputs), weight (inputs, units), bias (units,).

    Integers are converted to the weight's type.
    """
    x = as_array("linear", x)
    if not x.dtype.is_floating:
        x = astype(x, weight.dtype)
    y = x @ weight
    return y if bias is None else y + bias


def bilinear(x1: Array, x2: Array, weight: Array, bias: Array | None = None) -> Array:
    """Return y[…,k] = bias[k] + Σ_i,j x1[…,i] · weight[k,i,j] · x2[…,j]."""
    x1, x2 = as_array("bilinear", x1), as_array("bilinear", x2)
    first, second = weight.shape[1:]
    if x1.shape[-1:] != (first,) or x2.shape[-1:] != (second,) or x1.shape[:-1] != x2.shape[:-1]:
        raise ShapeError(
            f"bilinear: a weight of {weight.shape} takes (…, {first}) and (…, {second}), was given "
            f"{x1.shape} and {x2.shape}"
        )
    y = einsum("...i,kij,...j->...k", x1, weight, x2)
    return y if bias is None else y + bias


def shift_right(buffer: Array, value: float = 1.0) -> Array:
    """Insert a column of `value` in front of a matrix, in memory: [a₀ a₁; a₂ a₃] in a buffer of
    six elements becomes [1 a₀ a₁; 1 a₂ a₃].

    `buffer` is (rows, columns + 1); its first rows·columns elements in C order are the (rows,
    columns) matrix, the others are ignored. The result has the same shape. A compiled program
    computes it in the buffer itself, without a copy of the matrix, if nothing else reads the
    buffer. With such a column a bias is the first row of the weights, and one product computes
    both. Raises ShapeError unless the buffer has two dimensions and a column.
    Source: SHM-Learn-Dist report, §4.2 (ShiftRight).
    """
    x = floating("shift_right", buffer)
    return Array(apply(realignment.SHIFT_RIGHT, x.node, value=float(value)))


def shift_left(buffer: Array) -> Array:
    """Remove the first column of a matrix, in memory: the inverse of `shift_right`.

    `buffer` and result are (rows, columns + 1). The first rows·columns elements of the result in C
    order are the matrix without its first column; the others are 0.
    Source: SHM-Learn-Dist report, §4.3 (ShiftLeft).
    """
    return Array(apply(realignment.SHIFT_LEFT, floating("shift_left", buffer).node))


def flatten(x: Array, start_axis: int = 1) -> Array:
    """Return x with the axes from `start_axis` on merged into one: a row for each sample."""
    x = as_array("flatten", x)
    start = normalize_axes("flatten", start_axis, x.ndim)[0] if x.ndim > 1 else 0
    return reshape(x, (*x.shape[:start], size_of(x.shape[start:])))


def dropout(
    x: Array,
    rate: float = 0.5,
    *,
    training: bool = True,
    rng: Distributions | None = None,
    per_channel: bool = False,
) -> Array:
    """Set each element to zero with probability `rate` in training, and scale the others by
    1/(1-rate).

    per_channel  if True, each channel of each image (N, channels, *space) is kept or set to zero as
                 a whole. Source: Tompson et al. (2015)

    The mask is drawn from `rng` (`mm.random.Generator`, `mm.nn.RngState`), or the pool's generator,
    by global element index: the same for every layout and number of workers.
    Source: Srivastava et al. (2014).
    """
    if not 0 <= rate < 1:
        raise OptionError(
            f"dropout: rate must be in [0, 1), was given {rate}; it is the share that is dropped"
        )
    if not training or rate == 0:
        return x
    draw = random.uniform if rng is None else rng.uniform
    shape = (*x.shape[:2], *[1] * len(x.shape[2:])) if per_channel else x.shape
    kept = draw(shape=shape, dtype=x.dtype) >= rate
    return where(kept, x * (1.0 / (1.0 - rate)), 0.0)


def one_hot(labels: Array, classes: int, *, dtype: Any = None) -> Array:
    """Return an array (…, classes) with 1 at each label, otherwise 0.

    Its type is the default floating point type unless `dtype` is given. A label out of range gives
    zeros.
    """
    labels = as_array("one_hot", labels)
    if not labels.dtype.is_integer:
        raise DTypeError(
            f"one_hot: needs integer labels, was given {labels.dtype}"
            "; convert them with mm.astype(x, mm.int64)"
        )
    labels = with_numbers_to(labels, classes)
    shape = (*labels.shape, classes)
    numbers = Array(apply(creation.IOTA, shape=shape, dtype=labels.dtype, axis=labels.ndim))
    element = get_default_dtype() if dtype is None else dtype
    return astype(numbers == expand_dims(labels, axis=-1), element)


def embedding(indices: Array, weight: Array, padding_idx: int | None = None) -> Array:
    """Return the rows of `weight` (count, features) at integer indices (…), as (…, features).

    padding_idx   an index whose row counts as a constant for gradients: that of padding

    Indices go from 0 to count - 1, as in PyTorch: for others the computation raises IndexError.
    """
    indices = as_array("embedding", indices)
    if not indices.dtype.is_integer:
        raise DTypeError(
            f"embedding: needs integer indices, was given {indices.dtype}; convert them with "
            f"mm.astype(x, mm.int64)"
        )
    positions = Array(not_from_the_end(indices.node))
    rows = take(weight, reshape(positions, (indices.size,)), axis=0)
    found = reshape(rows, (*indices.shape, *weight.shape[1:]))
    if padding_idx is None:
        return found
    padded = expand_dims(indices == padding_idx % weight.shape[0], axis=-1)
    constant_rows: Array = where(padded, stop_gradient(found), found)
    return constant_rows


# images -------------------------------------------------------------------------------------------

conv1d = partial(conv, name="conv1d", space=1)
conv2d = partial(conv, name="conv2d", space=2)
conv3d = partial(conv, name="conv3d", space=3)
conv_transpose1d = partial(conv_transpose, name="conv_transpose1d", space=1)
conv_transpose2d = partial(conv_transpose, name="conv_transpose2d", space=2)
conv_transpose3d = partial(conv_transpose, name="conv_transpose3d", space=3)
max_pool1d = partial(max_pool, name="max_pool1d", space=1)
max_pool2d = partial(max_pool, name="max_pool2d", space=2)
max_pool3d = partial(max_pool, name="max_pool3d", space=3)
avg_pool1d = partial(avg_pool, name="avg_pool1d", space=1)
avg_pool2d = partial(avg_pool, name="avg_pool2d", space=2)
avg_pool3d = partial(avg_pool, name="avg_pool3d", space=3)
adaptive_avg_pool1d = partial(adaptive_avg_pool, name="adaptive_avg_pool1d", space=1)
adaptive_avg_pool2d = partial(adaptive_avg_pool, name="adaptive_avg_pool2d", space=2)
adaptive_avg_pool3d = partial(adaptive_avg_pool, name="adaptive_avg_pool3d", space=3)
adaptive_max_pool1d = partial(adaptive_max_pool, name="adaptive_max_pool1d", space=1)
adaptive_max_pool2d = partial(adaptive_max_pool, name="adaptive_max_pool2d", space=2)
adaptive_max_pool3d = partial(adaptive_max_pool, name="adaptive_max_pool3d", space=3)


# normalization ------------------------------------------------------------------------------------


def layer_norm(
    x: Array,
    normalized_shape: int | Sequence[int],
    weight: Array | None = None,
    bias: Array | None = None,
    epsilon: float = 1e-5,
) -> Array:
    """Return x normalized to mean 0 and variance 1 over its last axes, times weight, plus bias.

    The last axes have the shape `normalized_shape`. Source: Ba, Kiros and Hinton (2016). Moments of
    half types are computed in float32.
    """
    x = floating("layer_norm", x)
    axes = _last_axes("layer_norm", x, normalized_shape)
    wide = astype(x, compute_dtype(x.dtype), copy=False)
    centred = wide - statistics.mean(wide, axis=axes, keepdims=True)
    variance = statistics.mean(elementwise.square(centred), axis=axes, keepdims=True)
    y = _scaled(centred, variance, weight, bias, epsilon)
    return astype(y, x.dtype, copy=False)


def rms_norm(
    x: Array,
    normalized_shape: int | Sequence[int],
    weight: Array | None = None,
    epsilon: float | None = None,
) -> Array:
    """Return x divided by the root of the mean of its squares over its last axes, times weight.

    The last axes have the shape `normalized_shape`. `epsilon` is added to the mean, by default the
    distance from 1 to the next number of the type, as in PyTorch. Source: Zhang and Sennrich
    (2019). Means of half types are computed in float32.
    """
    x = floating("rms_norm", x)
    axes = _last_axes("rms_norm", x, normalized_shape)
    wide = astype(x, compute_dtype(x.dtype), copy=False)
    squares = statistics.mean(elementwise.square(wide), axis=axes, keepdims=True)
    epsilon = finfo(x.dtype).eps if epsilon is None else epsilon
    return astype(_scaled(wide, squares, weight, None, epsilon), x.dtype, copy=False)


def _last_axes(name: str, x: Array, normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    """Return the last axes of x, which have this shape. Raises ShapeError if they do not."""
    shape: Shape
    given: Any = normalized_shape
    if isinstance(given, Array):
        raise TypeError(
            f"{name}: the second argument is the shape of the last axes, was given an array of "
            f"shape {given.shape}; write {name}(x, weight.shape, weight)"
        )
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if not shape or x.shape[-len(shape) :] != shape:
        raise ShapeError(
            f"{name}: normalizes last axes of shape {shape}, was given {x.shape}"
            "; give the shape of the input's last axes"
        )
    return tuple(range(x.ndim - len(shape), x.ndim))


def batch_moments(x: Array, axis: int = 1) -> tuple[Array, Array]:
    """Mean and (biased) variance of each channel over all other axes, in float32 at least."""
    wide = astype(x, compute_dtype(x.dtype), copy=False)
    others = tuple([a for a in range(x.ndim) if a != axis % x.ndim])
    mean = statistics.mean(wide, axis=others, keepdims=True)
    squares = Array(centred_squares(wide.node, mean.node, others))
    channels, count = (x.shape[axis],), x.size // max(x.shape[axis], 1)
    return reshape(mean, channels), reshape(squares, channels) / count


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
    x = floating("batch_norm", x)
    wide = astype(x, compute_dtype(x.dtype), copy=False)
    factor = (1.0 if weight is None else weight) / elementwise.sqrt(variance + epsilon)
    vectors = [v for v in (mean, factor, bias) if v is not None]
    common = result_type(wide, *vectors)
    m, a, *b = [astype(_along(v, axis, x.ndim), common, copy=False).node for v in vectors]
    y = affine(astype(wide, common, copy=False).node, m, a, b[0] if b else None)
    return astype(Array(y.at_line(user_line())), x.dtype, copy=False)


def _along(values: Array, axis: int, ndim: int) -> Array:
    """Return an array (channels,) reshaped to broadcast along an axis."""
    shape = [1] * ndim
    shape[axis] = values.shape[0]
    return reshape(values, tuple(shape))


def _scaled(
    centred: Array, variance: Array, weight: Array | None, bias: Array | None, epsilon: float
) -> Array:
    y = centred / elementwise.sqrt(variance + epsilon)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


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
    x = floating("group_norm", x)
    if x.ndim < 2 or groups < 1 or x.shape[1] % groups:
        raise ShapeError(
            f"group_norm: takes (N, channels, …) with channels that {groups} groups divide, was "
            f"given {x.shape}"
            "; choose groups that divide the channels"
        )
    wide = astype(x, compute_dtype(x.dtype), copy=False)
    parts = reshape(wide, (x.shape[0], groups, x.shape[1] // groups, *x.shape[2:]))
    axes = tuple(range(2, parts.ndim))
    centred = parts - statistics.mean(parts, axis=axes, keepdims=True)
    variance = statistics.mean(elementwise.square(centred), axis=axes, keepdims=True)
    y = reshape(_scaled(centred, variance, None, None, epsilon), x.shape)
    y = y if weight is None else y * _along(weight, 1, x.ndim)
    y = y if bias is None else y + _along(bias, 1, x.ndim)
    return astype(y, x.dtype, copy=False)


def instance_norm(
    x: Array, weight: Array | None = None, bias: Array | None = None, epsilon: float = 1e-5
) -> Array:
    """Return x (N, channels, *space) with each channel of each image normalized to mean 0 and
    variance 1. Source: Ulyanov et al. (2016)."""
    x = floating("instance_norm", x)
    if x.ndim < 3:
        raise ShapeError(
            f"instance_norm: takes (N, channels, *space), was given {x.shape}"
            "; add a dimension with mm.expand_dims"
        )
    return group_norm(x, x.shape[1], weight, bias, epsilon)


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
    rest = (1,) * (x.ndim - 2)
    squares = apply(
        SUM_POOL, elementwise.square(wide).node, kernel=(size, *rest), stride=(1, *rest),
        padding=((size // 2, (size - 1) // 2), *((0, 0),) * len(rest)), dilation=(1, *rest),
    )  # fmt: skip
    base = k + (alpha / size) * Array(squares)
    if beta == 0.75:  # the usual exponent: roots are much faster than powers
        root = elementwise.sqrt(base)
        return astype(wide / (root * elementwise.sqrt(root)), x.dtype, copy=False)
    return astype(wide * base**-beta, x.dtype, copy=False)


if not TYPE_CHECKING:  # otherwise type checkers would accept any name

    def __getattr__(name: str) -> NoReturn:
        hint = foreign_names.hint(foreign_names.FUNCTIONAL_NAMES, name)
        raise foreign_names.missing_attribute("module 'magmath.nn.functional'", name, hint)
