"""Functions of neural networks: the computations of layers, with parameters as arguments.

Names and semantics are PyTorch's, except that weights of `linear` are (inputs, units). Images are
(N, channels, *space); their functions for one, two and three dimensions of space are those for any
number with a check.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from magmath.api import elementwise, random, statistics
from magmath.api.activations import log_softmax as log_softmax
from magmath.api.activations import relu as relu
from magmath.api.activations import sigmoid as sigmoid
from magmath.api.activations import softmax as softmax
from magmath.api.activations import softplus as softplus
from magmath.api.data_types import astype, finfo, result_type
from magmath.api.indexing import take
from magmath.api.manipulation import expand_dims, reshape
from magmath.api.random import Distributions
from magmath.api.searching import where
from magmath.arrays.array import Array, as_array, floating
from magmath.arrays.masked_elements import takes_selected
from magmath.core import foreign_names
from magmath.core.dtypes import compute_dtype
from magmath.core.promotion import get_default_dtype
from magmath.core.shapes import normalize_axes, normalize_axis, size_of
from magmath.engine.user_line import user_line
from magmath.errors import DTypeError, OptionError, ShapeError
from magmath.graph import Shape, apply
from magmath.nn.attention import attention_weights as attention_weights
from magmath.nn.attention import scaled_dot_product_attention as scaled_dot_product_attention
from magmath.nn.convolution import conv as conv
from magmath.nn.convolution import conv_transpose as conv_transpose
from magmath.nn.losses import with_numbers_to
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

# activations --------------------------------------------------------------------------------------


def identity(x: Array) -> Array:
    """Return x."""
    return as_array("identity", x)


@takes_selected
def tanh(x: Array) -> Array:
    """Return the hyperbolic tangent."""
    return elementwise.tanh(floating("tanh", x))


@takes_selected
def leaky_relu(x: Array, negative_slope: float = 0.01) -> Array:
    """Return x where x ≥ 0, otherwise negative_slope · x."""
    x = floating("leaky_relu", x)
    return where(x > 0, x, negative_slope * x)


def prelu(x: Array, weight: Array) -> Array:
    """Return x where x > 0, otherwise weight · x: weight is (1,), or (channels,) for x (N,
    channels, …). Source: He et al. (2015)."""
    x = floating("prelu", x)
    if weight.shape not in ((1,), x.shape[1:2]):
        raise ShapeError(
            f"prelu: weight must be (1,) or (channels,), was given {weight.shape} for {x.shape}"
            "; give one weight for all channels, or one for each"
        )
    return where(x > 0, x, (_along(weight, 1, x.ndim) if x.ndim > 1 else weight) * x)


@takes_selected
def relu6(x: Array) -> Array:
    """min(max(x, 0), 6)."""
    return hardtanh(x, 0.0, 6.0)


@takes_selected
def hardtanh(x: Array, minimum: float = -1.0, maximum: float = 1.0) -> Array:
    """Return x, limited to [minimum, maximum]; its gradient at both limits is 0."""
    x = floating("hardtanh", x)
    return where(x <= minimum, minimum, where(x >= maximum, maximum, x))


def _without_positive(x: Array) -> Array:
    """Return x with 0 for positive elements; the slope at 0 is 1, where `minimum` has 1/2."""
    return where(x > 0, 0.0, x)


@takes_selected
def elu(x: Array, alpha: float = 1.0) -> Array:
    """Return x where x > 0, otherwise alpha · (exp(x) - 1)."""
    x = floating("elu", x)
    return where(x > 0, x, alpha * elementwise.expm1(_without_positive(x)))


@takes_selected
def celu(x: Array, alpha: float = 1.0) -> Array:
    """Return x where x > 0, otherwise alpha · (exp(x / alpha) - 1)."""
    x = floating("celu", x)
    return where(x > 0, x, alpha * elementwise.expm1(_without_positive(x) / alpha))


@takes_selected
def selu(x: Array) -> Array:
    """scale · elu(x, alpha) with the constants of Klambauer et al. (2017), which keep mean and
    variance."""
    return 1.0507009873554804934193349852946 * elu(x, 1.6732632423543772848170429916717)


@takes_selected
def silu(x: Array) -> Array:
    """Return x · sigmoid(x), also called swish."""
    x = floating("silu", x)
    return x * sigmoid(x)


@takes_selected
def log_sigmoid(x: Array) -> Array:
    """log(sigmoid(x)), which does not overflow."""
    return -elementwise.logaddexp(0.0, -floating("log_sigmoid", x))


@takes_selected
def mish(x: Array) -> Array:
    """Return x · tanh(softplus(x))."""
    x = floating("mish", x)
    return x * elementwise.tanh(elementwise.logaddexp(0.0, x))


@takes_selected
def gelu(x: Array, approximate: str = "none") -> Array:
    """Return x · (1 + erf(x / √2)) / 2, or x · (1 + tanh(√(2/π) · (x + 0.044715 · x³))) / 2 with
    approximate="tanh", as in PyTorch.

    Raises ValueError for another `approximate`. Source: Hendrycks and Gimpel (2016), section 2.
    """
    x = floating("gelu", x)
    if approximate not in ("none", "tanh"):
        raise ValueError(f"gelu: approximate must be 'none' or 'tanh', was given {approximate!r}")
    if approximate == "none":
        return 0.5 * x * (1.0 + elementwise.erf(0.7071067811865476 * x))
    return 0.5 * x * (1.0 + elementwise.tanh(0.7978845608028654 * (x + 0.044715 * (x * x * x))))


@takes_selected
def hard_sigmoid(x: Array) -> Array:
    """min(max(x / 6 + 1/2, 0), 1); its gradient at -3 and 3 is 0."""
    return hardtanh(floating("hard_sigmoid", x) / 6.0 + 0.5, 0.0, 1.0)


@takes_selected
def hard_swish(x: Array) -> Array:
    """Return x · hard_sigmoid(x)."""
    return x * hard_sigmoid(x)


@takes_selected
def softsign(x: Array) -> Array:
    """Return x / (1 + |x|)."""
    x = floating("softsign", x)
    return x / (1.0 + elementwise.abs(x))


def softmin(x: Array, axis: int = -1) -> Array:
    """Return softmax(-x) along `axis`."""
    return softmax(-floating("softmin", x), axis=axis)


def tanhshrink(x: Array) -> Array:
    """Return x - tanh(x)."""
    x = floating("tanhshrink", x)
    return x - elementwise.tanh(x)


@takes_selected
def softshrink(x: Array, threshold: float = 0.5) -> Array:
    """Return x moved towards 0 by the threshold, and 0 where |x| is at most the threshold."""
    x = floating("softshrink", x)
    moved = where(x > 0, x - threshold, x + threshold)
    return where(elementwise.abs(x) <= threshold, 0.0, moved)  # nan stays


@takes_selected
def hardshrink(x: Array, threshold: float = 0.5) -> Array:
    """Return x, and 0 where |x| is at most the threshold."""
    x = floating("hardshrink", x)
    return where(elementwise.abs(x) <= threshold, 0.0, x)


@takes_selected
def threshold(x: Array, threshold: float, value: float) -> Array:
    """Return x where it is greater than the threshold, otherwise a value."""
    x = as_array("threshold", x)
    return where(x <= threshold, value, x)


def glu(x: Array, axis: int = -1) -> Array:
    """Return a · sigmoid(b) for the halves a and b of x along `axis`, which has half the extent
    then.

    Raises ShapeError for an odd extent. Source: Dauphin et al. (2017), section 2.
    """
    x = floating("glu", x)
    dim = normalize_axis("glu", axis, x.ndim)
    half, odd = divmod(x.shape[dim], 2)
    if odd:
        raise ShapeError(
            f"glu: divides axis {axis} into two halves, was given shape {x.shape}; give an even "
            f"number of elements along it"
        )
    before = (slice(None),) * dim
    return x[(*before, slice(0, half))] * sigmoid(x[(*before, slice(half, None))])


ACTIVATIONS: dict[str, Callable[..., Array]] = {
    "relu": relu,
    "sigmoid": sigmoid,
    "tanh": tanh,
    "softmax": softmax,
    "log_softmax": log_softmax,
    "linear": identity,
    "leaky_relu": leaky_relu,
    "relu6": relu6,
    "elu": elu,
    "celu": celu,
    "selu": selu,
    "gelu": gelu,
    "silu": silu,
    "softplus": softplus,
    "log_sigmoid": log_sigmoid,
    "mish": mish,
    "hardtanh": hardtanh,
    "hard_sigmoid": hard_sigmoid,
    "hard_swish": hard_swish,
    "softsign": softsign,
    "softmin": softmin,
    "tanhshrink": tanhshrink,
    "softshrink": softshrink,
    "hardshrink": hardshrink,
    "glu": glu,
}


def activation_function(activation: str | Callable[[Array], Array]) -> Callable[..., Array]:
    """Return the function of this name, or the given function.

    Raises OptionError, listing the names, for an unknown name.
    """
    if callable(activation):
        return activation
    if activation not in ACTIVATIONS:
        raise OptionError(
            f"activation {activation!r} is not known; there are {', '.join(ACTIVATIONS)}"
        )
    return ACTIVATIONS[activation]


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
        raise OptionError(f"dropout: rate must be in [0, 1), was given {rate}")
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


def embedding(indices: Array, weight: Array) -> Array:
    """Return the rows of `weight` (count, features) at integer indices (…), as (…, features).

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
    return reshape(rows, (*indices.shape, *weight.shape[1:]))


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
        hint = foreign_names.hint(foreign_names.FUNCTIONS, name)
        raise AttributeError(f"module 'magmath.nn.functional' has no attribute {name!r}{hint}")
