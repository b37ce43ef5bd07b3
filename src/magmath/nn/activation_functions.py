"""Activation functions, with PyTorch's names and semantics, and the table of their names."""

from __future__ import annotations

from collections.abc import Callable

from magmath.api import elementwise
from magmath.api.activations import log_softmax, relu, sigmoid, softmax, softplus
from magmath.api.data_types import astype
from magmath.api.manipulation import reshape
from magmath.api.searching import where
from magmath.arrays.array import Array, as_array, floating
from magmath.arrays.indexing.masked_elements import takes_selected
from magmath.core.dtypes import compute_dtype
from magmath.core.shapes import normalize_axis
from magmath.errors import OptionError, ShapeError
from magmath.nn.layer_input import layer_input


def identity(x: Array) -> Array:
    """Return x."""
    return as_array("identity", x)


@takes_selected
def tanh(x: Array) -> Array:
    """Return the hyperbolic tangent."""
    return elementwise.tanh(floating("tanh", x))


@takes_selected
def leaky_relu(x: Array, negative_slope: float = 0.01) -> Array:
    """Return x where x > 0, otherwise negative_slope · x."""
    x = floating("leaky_relu", x)
    return where(x > 0, x, negative_slope * x)


def prelu(x: Array, weight: Array) -> Array:
    """Return x where x > 0, otherwise weight · x: weight is (1,), or (channels,) for x (N,
    channels, …). Source: He et al. (2015)."""
    x = layer_input("prelu", x, weight)
    if weight.shape not in ((1,), x.shape[1:2]):
        raise ShapeError(
            f"prelu: weight must be (1,) or (channels,), was given {weight.shape} for {x.shape}"
            "; give one weight for all channels, or one for each"
        )
    by_channel = reshape(weight, (-1, *(1,) * (x.ndim - 2))) if x.ndim > 1 else weight
    return where(x > 0, x, by_channel * x)


@takes_selected
def relu6(x: Array) -> Array:
    """Return min(max(x, 0), 6)."""
    return hardtanh(x, 0.0, 6.0)


@takes_selected
def hardtanh(x: Array, minimum: float = -1.0, maximum: float = 1.0) -> Array:
    """Return x limited to [minimum, maximum]; its gradient at both limits is 0."""
    x = floating("hardtanh", x)
    if (
        isinstance(minimum, (int, float))
        and isinstance(maximum, (int, float))
        and minimum > maximum
    ):
        raise OptionError(
            f"hardtanh: needs minimum ≤ maximum, was given {minimum} and {maximum}; give the "
            f"lower limit first"
        )
    return where(x <= minimum, minimum, where(x >= maximum, maximum, x))


def _negative_part(x: Array) -> Array:
    """Return x with 0 for positive elements; the slope at 0 is 1, where `minimum` has 1/2."""
    return where(x > 0, 0.0, x)


@takes_selected
def elu(x: Array, alpha: float = 1.0) -> Array:
    """Return x where x > 0, otherwise alpha · (exp(x) - 1)."""
    x = floating("elu", x)
    return where(x > 0, x, alpha * elementwise.expm1(_negative_part(x)))


@takes_selected
def celu(x: Array, alpha: float = 1.0) -> Array:
    """Return x where x > 0, otherwise alpha · (exp(x / alpha) - 1)."""
    x = floating("celu", x)
    return where(x > 0, x, alpha * elementwise.expm1(_negative_part(x) / alpha))


@takes_selected
def selu(x: Array) -> Array:
    """Return scale · elu(x, alpha) with the constants of Klambauer et al. (2017), which keep mean
    and variance."""
    return 1.0507009873554804934193349852946 * elu(x, 1.6732632423543772848170429916717)


@takes_selected
def silu(x: Array) -> Array:
    """Return x · sigmoid(x), also called swish."""
    x = floating("silu", x)
    return x * sigmoid(x)


@takes_selected
def log_sigmoid(x: Array) -> Array:
    """Return log(sigmoid(x)), without overflow."""
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

    Raises OptionError for another `approximate`. Source: Hendrycks and Gimpel (2016), section 2.
    """
    x = floating("gelu", x)
    if approximate not in ("none", "tanh"):
        raise OptionError(f"gelu: approximate must be 'none' or 'tanh', was given {approximate!r}")
    wide = astype(x, compute_dtype(x.dtype), copy=False)  # 1 + erf(x) cancels where x is negative
    if approximate == "none":
        sigmoidal = elementwise.erf(0.7071067811865476 * wide)
    else:
        sigmoidal = elementwise.tanh(0.7978845608028654 * (wide + 0.044715 * (wide * wide * wide)))
    return astype(0.5 * wide * (1.0 + sigmoidal), x.dtype, copy=False)


@takes_selected
def hard_sigmoid(x: Array) -> Array:
    """Return min(max(x / 6 + 1/2, 0), 1); its gradient at -3 and 3 is 0."""
    x = floating("hard_sigmoid", x)
    wide = astype(x, compute_dtype(x.dtype), copy=False)  # the sum cancels near -3
    return astype(hardtanh(wide / 6.0 + 0.5, 0.0, 1.0), x.dtype, copy=False)


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
    leading = (slice(None),) * dim
    return x[(*leading, slice(0, half))] * sigmoid(x[(*leading, slice(half, None))])


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
    if isinstance(activation, type):
        raise OptionError(
            f"an activation is a name or a function, was given the class {activation.__name__}; "
            f"write mm.nn.{activation.__name__}(), with parentheses"
        )
    if callable(activation):
        return activation
    if activation not in ACTIVATIONS:
        raise OptionError(
            f"activation {activation!r} is not known; there are {', '.join(ACTIVATIONS)}; "
            f'"linear" is the one that returns its input'
        )
    return ACTIVATIONS[activation]
