"""Functions for neural networks, composed of other operations, which the fuse pass merges."""

from __future__ import annotations

from magmath.api.elementwise import add, divide, exp, isfinite, log, subtract
from magmath.api.searching import where
from magmath.api.statistics import max, sum
from magmath.arrays.array import Array, as_array, floating
from magmath.core.dtypes import DType, compute_dtype
from magmath.core.keyword_hints import keyword_hints
from magmath.engine.user_line import user_line
from magmath.graph import apply
from magmath.ops import elementwise as e
from magmath.ops.leaves import constant


def relu(x: Array, /) -> Array:
    """max(x, 0); its gradient at 0 is 0."""
    x = as_array("relu", x)
    return Array(apply(e.OPERATIONS["maximum"], x.node, constant(0, x.dtype), line=user_line()))


def sigmoid(x: Array, /) -> Array:
    """1 / (1 + exp(-x)), computed as (1 + tanh(x/2)) / 2, which does not overflow."""
    x = floating("sigmoid", x)
    half = constant(0.5, x.dtype)
    return Array(e.add(e.multiply(e.call("tanh", e.multiply(x.node, half)), half), half))


@keyword_hints
def log_softmax(x: Array, /, axis: int = -1) -> Array:
    """log(exp(x) / sum(exp(x))) along `axis`, computed with x minus its largest element, half types
    in float32."""
    x = floating("log_softmax", x)
    wide = _in_type(x, compute_dtype(x.dtype))
    shifted = subtract(wide, stop_gradient(max(wide, axis=axis, keepdims=True)))
    return _in_type(subtract(shifted, log(sum(exp(shifted), axis=axis, keepdims=True))), x.dtype)


@keyword_hints
def softmax(x: Array, /, axis: int = -1) -> Array:
    """exp(x) / sum(exp(x)) along `axis`, computed with x minus its largest element, half types in
    float32."""
    x = floating("softmax", x)
    wide = _in_type(x, compute_dtype(x.dtype))
    powers = exp(subtract(wide, stop_gradient(max(wide, axis=axis, keepdims=True))))
    return _in_type(divide(powers, sum(powers, axis=axis, keepdims=True)), x.dtype)


@keyword_hints
def logsumexp(
    x: Array, /, axis: int | tuple[int, ...] | None = None, keepdims: bool = False
) -> Array:
    """log(sum(exp(x))) over `axis`, or all elements, computed with x minus its largest finite
    element, half types in float32."""
    x = floating("logsumexp", x)
    wide = _in_type(x, compute_dtype(x.dtype))
    most = max(wide, axis=axis, keepdims=True)
    shift = stop_gradient(where(isfinite(most), most, 0))
    total = log(sum(exp(subtract(wide, shift)), axis=axis, keepdims=True))
    return _in_type(sum(add(total, shift), axis=axis, keepdims=keepdims), x.dtype)


def _in_type(x: Array, dtype: DType) -> Array:
    return x if x.dtype is dtype else Array(e.astype(x.node, dtype))


def stop_gradient(x: Array, /) -> Array:
    """Return x as a constant for `grad`."""
    return Array(
        apply(e.OPERATIONS["stop_gradient"], as_array("stop_gradient", x).node, line=user_line())
    )
