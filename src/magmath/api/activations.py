"""Functions for neural networks: compositions of operations, which passes and native code fuse."""

from __future__ import annotations

from math import inf

from magmath.api.data_types import astype
from magmath.api.elementwise import (
    abs,
    add,
    atanh,
    divide,
    equal,
    exp,
    greater,
    greater_equal,
    isfinite,
    less,
    log,
    log1p,
    logaddexp,
    multiply,
    negative,
    subtract,
)
from magmath.api.reductions import max, sum
from magmath.api.searching import where
from magmath.arrays.array import Array, as_array, floating
from magmath.arrays.indexing.masked_elements import takes_selected
from magmath.arrays.protocols.cached_functions import dispatch_cached
from magmath.core.dtypes import compute_dtype
from magmath.core.keyword_hints import keyword_hints
from magmath.engine.user_line import user_line
from magmath.graph import apply
from magmath.ops import elementwise as e
from magmath.ops.leaves import constant


@dispatch_cached
@takes_selected
def relu(x: Array, /) -> Array:
    """Return max(x, 0); its gradient at 0 is 0."""
    x = as_array("relu", x)
    return Array(apply(e.OPERATIONS["maximum"], x.node, constant(0, x.dtype), line=user_line()))


@dispatch_cached
@takes_selected
def sigmoid(x: Array, /) -> Array:
    """Return 1 / (1 + exp(-x)), with full relative accuracy also where it is small."""
    x = floating("sigmoid", x)
    if x.dtype.kind != "complex":
        return Array(apply(e.OPERATIONS["sigmoid"], x.node, line=user_line()))
    is_right = greater_equal(Array(e.call("real", x.node)), 0)
    power = exp(where(is_right, negative(x), x))  # which does not overflow
    return divide(where(is_right, 1, power), add(1, power))


@takes_selected
def logit(x: Array, /) -> Array:
    """Return log(x / (1 - x)), the inverse of sigmoid: nan outside of [0, 1], as SciPy's logit.

    Near 1/2, where the logarithms of x and 1 - x cancel, it is 2 artanh(2x - 1).
    """
    x = floating("logit", x)
    wide = astype(x, compute_dtype(x.dtype), copy=False)
    is_near = less(abs(subtract(wide, 0.5)), 0.25)
    near = multiply(atanh(subtract(multiply(where(is_near, wide, 0.5), 2.0), 1.0)), 2.0)
    far = where(is_near, 0.25, wide)
    result = where(is_near, near, subtract(log(far), log1p(negative(far))))
    return astype(result, x.dtype, copy=False)


@dispatch_cached
@takes_selected
def softplus(x: Array, /, beta: float = 1.0, threshold: float = 20.0) -> Array:
    """Return log(1 + exp(beta · x)) / beta, which does not overflow; x where beta · x is greater
    than `threshold`, as in PyTorch."""
    x = floating("softplus", x)
    scaled = multiply(x, beta)
    return where(greater(scaled, threshold), x, divide(logaddexp(scaled, 0.0), beta))


@dispatch_cached
@keyword_hints
def log_softmax(x: Array, /, axis: int = -1) -> Array:
    """Return log(exp(x) / sum(exp(x))) along `axis`, computed with x minus its largest element;
    half types in float32."""
    x = floating("log_softmax", x)
    wide = astype(x, compute_dtype(x.dtype), copy=False)
    shifted = subtract(wide, stop_gradient(max(wide, axis=axis, keepdims=True)))
    result = subtract(shifted, log(sum(exp(shifted), axis=axis, keepdims=True)))
    return astype(result, x.dtype, copy=False)


@dispatch_cached
@keyword_hints
def softmax(x: Array, /, axis: int = -1) -> Array:
    """Return exp(x) / sum(exp(x)) along `axis`, computed with x minus its largest element; half
    types in float32."""
    x = floating("softmax", x)
    wide = astype(x, compute_dtype(x.dtype), copy=False)
    powers = exp(subtract(wide, stop_gradient(max(wide, axis=axis, keepdims=True))))
    return astype(divide(powers, sum(powers, axis=axis, keepdims=True)), x.dtype, copy=False)


def softmax_or_zero(x: Array, /, axis: int = -1) -> Array:
    """Return `softmax`, but 0 where all elements along `axis` are -inf, where gradients are 0
    too."""
    x = floating("softmax", x)
    wide = astype(x, compute_dtype(x.dtype), copy=False)
    largest = stop_gradient(max(wide, axis=axis, keepdims=True))
    powers = exp(subtract(wide, where(equal(largest, -inf), 0.0, largest)))
    total = sum(powers, axis=axis, keepdims=True)
    return astype(divide(powers, where(equal(total, 0.0), 1.0, total)), x.dtype, copy=False)


@dispatch_cached
@keyword_hints
def logsumexp(
    x: Array, /, axis: int | tuple[int, ...] | None = None, keepdims: bool = False
) -> Array:
    """Return log(sum(exp(x))) over `axis`, or all elements, computed with x minus its largest
    finite element; half types in float32."""
    x = floating("logsumexp", x)
    wide = astype(x, compute_dtype(x.dtype), copy=False)
    largest = max(wide, axis=axis, keepdims=True)
    shift = stop_gradient(where(isfinite(largest), largest, 0))
    total = log(sum(exp(subtract(wide, shift)), axis=axis, keepdims=True))
    return astype(sum(add(total, shift), axis=axis, keepdims=keepdims), x.dtype, copy=False)


def stop_gradient(x: Array, /) -> Array:
    """Return x as a constant for `grad`."""
    return Array(
        apply(e.OPERATIONS["stop_gradient"], as_array("stop_gradient", x).node, line=user_line())
    )
