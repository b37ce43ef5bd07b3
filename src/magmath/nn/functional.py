"""Functions of neural networks: the computations of layers, with parameters as arguments.

Names and semantics are PyTorch's, except that weights of `linear` are (inputs, units). Images are
(N, channels, *space); their functions for one, two and three dimensions of space are those for any
number with a check.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from magmath.api import random
from magmath.api.activations import log_softmax as log_softmax
from magmath.api.activations import relu as relu
from magmath.api.activations import sigmoid as sigmoid
from magmath.api.activations import softmax as softmax
from magmath.api.activations import softplus as softplus
from magmath.api.activations import stop_gradient
from magmath.api.data_types import astype
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
from magmath.errors import DTypeError, OptionError, ShapeError
from magmath.graph import apply
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
from magmath.nn.layer_input import layer_input
from magmath.nn.losses import labels_for_classes
from magmath.nn.normalization import batch_moments as batch_moments
from magmath.nn.normalization import batch_norm as batch_norm
from magmath.nn.normalization import group_norm as group_norm
from magmath.nn.normalization import instance_norm as instance_norm
from magmath.nn.normalization import layer_norm as layer_norm
from magmath.nn.normalization import local_response_norm as local_response_norm
from magmath.nn.normalization import rms_norm as rms_norm
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
from magmath.ops.indexing.local_index import not_from_the_end

# layers -------------------------------------------------------------------------------------------


def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    """Return x · weight + bias: x (…, inputs), weight (inputs, units), bias (units,).

    Integers are converted to the weight's type.
    """
    weight = as_array("linear", weight)
    x = layer_input("linear", x, weight)
    if weight.ndim == 2 and x.ndim and x.shape[-1] != weight.shape[0]:
        is_transposed = x.shape[-1] == weight.shape[1]
        remedy = "give weight.T, for a weight (units, inputs) of PyTorch" if is_transposed else ""
        raise ShapeError(
            f"linear: needs x (…, inputs) and weight (inputs, units), was given {x.shape} and "
            f"{weight.shape}; {remedy or 'the last extent of x is the first one of the weight'}"
        )
    y = x @ weight
    return y if bias is None else y + bias


def bilinear(x1: Array, x2: Array, weight: Array, bias: Array | None = None) -> Array:
    """Return y[…,k] = bias[k] + Σ_i,j x1[…,i] · weight[k,i,j] · x2[…,j].

    Integers are converted to the weight's type.
    """
    x1, x2 = layer_input("bilinear", x1, weight), layer_input("bilinear", x2, weight)
    first, second = weight.shape[1:]
    if x1.shape[-1:] != (first,) or x2.shape[-1:] != (second,) or x1.shape[:-1] != x2.shape[:-1]:
        raise ShapeError(
            f"bilinear: a weight of {weight.shape} takes (…, {first}) and (…, {second}), was given "
            f"{x1.shape} and {x2.shape}; give inputs with these last axes and equal other axes"
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
    # Half types have too few numbers in [0, 1) for a small rate.
    is_kept = draw(shape=shape, dtype=compute_dtype(x.dtype)) >= rate
    return where(is_kept, x * (1.0 / (1.0 - rate)), 0.0)


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
    labels = labels_for_classes(labels, classes)
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
    features = reshape(rows, (*indices.shape, *weight.shape[1:]))
    if padding_idx is None:
        return features
    is_padding = expand_dims(indices == padding_idx % weight.shape[0], axis=-1)
    return where(is_padding, stop_gradient(features), features)


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


if not TYPE_CHECKING:  # otherwise type checkers would accept any name

    def __getattr__(name: str) -> NoReturn:
        hint = foreign_names.hint(foreign_names.FUNCTIONAL_NAMES, name)
        raise foreign_names.missing_in_module("magmath.nn.functional", list(globals()), name, hint)
