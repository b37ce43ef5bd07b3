"""Functions of neural networks: the computations of layers, with parameters as arguments.

Values and gradients are PyTorch's; `docs/from_pytorch.md` lists other names, other orientations of
weights, and other meanings of masks. Images are (N, channels, *space); their functions for one, two
and three dimensions of space are those for any number with a check.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from magmath.api.activations import log_softmax, relu, sigmoid, softmax, softplus, stop_gradient
from magmath.api.data_types import astype
from magmath.api.indexing import take
from magmath.api.manipulation import expand_dims, reshape
from magmath.api.searching import where
from magmath.arrays.array import Array, as_array, floating
from magmath.core import foreign_names, foreign_network_names
from magmath.core.promotion import get_default_dtype
from magmath.core.shapes import normalize_axes, size_of
from magmath.errors import DTypeError
from magmath.graph import apply
from magmath.nn.activation_functions import (
    ACTIVATIONS,
    celu,
    elu,
    gelu,
    glu,
    hard_sigmoid,
    hard_swish,
    hardshrink,
    hardtanh,
    identity,
    leaky_relu,
    log_sigmoid,
    mish,
    prelu,
    relu6,
    selu,
    silu,
    softmin,
    softshrink,
    softsign,
    tanh,
    tanhshrink,
    threshold,
)
from magmath.nn.attention import (
    attention_weights,
    multi_head_attention,
    scaled_dot_product_attention,
)
from magmath.nn.convolution import conv, conv_transpose
from magmath.nn.dropout import dropout
from magmath.nn.grid_sampling import affine_grid, grid_sample
from magmath.nn.layer_input import checked_padding_row
from magmath.nn.linear import bilinear, linear
from magmath.nn.losses.class_labels import labels_for_classes
from magmath.nn.normalization import (
    batch_moments,
    batch_norm,
    group_norm,
    instance_norm,
    layer_norm,
    local_response_norm,
    rms_norm,
)
from magmath.nn.numbered_functions import numbered
from magmath.nn.patches import fold, unfold
from magmath.nn.pooling import (
    adaptive_avg_pool,
    adaptive_max_pool,
    avg_pool,
    global_avg_pool,
    global_max_pool,
    max_pool,
)
from magmath.nn.recurrence import gru, gru_cell, lstm, lstm_cell, rnn, rnn_cell
from magmath.nn.resampling import channel_shuffle, interpolate, pad, pixel_shuffle, pixel_unshuffle
from magmath.ops import creation, realignment
from magmath.ops.indexing.local_index import not_from_the_end

__all__ = [
    "ACTIVATIONS",
    "adaptive_avg_pool",
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "affine_grid",
    "attention_weights",
    "avg_pool",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "batch_moments",
    "batch_norm",
    "bilinear",
    "celu",
    "channel_shuffle",
    "conv",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "dropout",
    "elu",
    "embedding",
    "flatten",
    "fold",
    "gelu",
    "global_avg_pool",
    "global_max_pool",
    "glu",
    "grid_sample",
    "group_norm",
    "gru",
    "gru_cell",
    "hard_sigmoid",
    "hard_swish",
    "hardshrink",
    "hardtanh",
    "identity",
    "instance_norm",
    "interpolate",
    "layer_norm",
    "leaky_relu",
    "linear",
    "local_response_norm",
    "log_sigmoid",
    "log_softmax",
    "lstm",
    "lstm_cell",
    "max_pool",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "mish",
    "multi_head_attention",
    "one_hot",
    "pad",
    "pixel_shuffle",
    "pixel_unshuffle",
    "prelu",
    "relu",
    "relu6",
    "rms_norm",
    "rnn",
    "rnn_cell",
    "scaled_dot_product_attention",
    "selu",
    "shift_left",
    "shift_right",
    "sigmoid",
    "silu",
    "softmax",
    "softmin",
    "softplus",
    "softshrink",
    "softsign",
    "tanh",
    "tanhshrink",
    "threshold",
    "unfold",
]


def __dir__() -> list[str]:
    return __all__


# layers -------------------------------------------------------------------------------------------


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

    padding_idx   an index whose row counts as a constant for gradients: that of padding; it may
                  count from the end

    Indices go from 0 to count - 1, as in PyTorch: for others the computation raises IndexError.
    Raises OptionError for a padding_idx out of range.
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
    padding_row = checked_padding_row("embedding", padding_idx, weight.shape[0])
    is_padding = expand_dims(indices == padding_row, axis=-1)
    return where(is_padding, stop_gradient(features), features)


# images -------------------------------------------------------------------------------------------

conv1d, conv2d, conv3d = numbered(__name__, conv)
conv_transpose1d, conv_transpose2d, conv_transpose3d = numbered(__name__, conv_transpose)
max_pool1d, max_pool2d, max_pool3d = numbered(__name__, max_pool)
avg_pool1d, avg_pool2d, avg_pool3d = numbered(__name__, avg_pool)
adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = numbered(
    __name__, adaptive_avg_pool
)
adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = numbered(
    __name__, adaptive_max_pool
)


if not TYPE_CHECKING:  # otherwise type checkers would accept any name

    def __getattr__(name: str) -> NoReturn:
        hint = foreign_names.hint(foreign_network_names.FUNCTIONAL_NAMES, name)
        raise foreign_names.missing_in_module("magmath.nn.functional", __all__, name, hint)
