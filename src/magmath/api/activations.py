"""Functions for neural networks, composed of other operations, which the fuse pass merges."""

from __future__ import annotations

from magmath.api.elementwise import divide, exp, log, subtract
from magmath.api.statistics import max, sum
from magmath.arrays.array import Array, as_array, floating
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


def log_softmax(x: Array, /, *, axis: int = -1) -> Array:
    """log(exp(x) / sum(exp(x))) along `axis`, computed with x minus its largest element."""
    x = floating("log_softmax", x)
    shifted = subtract(x, stop_gradient(max(x, axis=axis, keepdims=True)))
    return subtract(shifted, log(sum(exp(shifted), axis=axis, keepdims=True)))


def softmax(x: Array, /, *, axis: int = -1) -> Array:
    """exp(x) / sum(exp(x)) along `axis`, computed with x minus its largest element."""
    x = floating("softmax", x)
    powers = exp(subtract(x, stop_gradient(max(x, axis=axis, keepdims=True))))
    return divide(powers, sum(powers, axis=axis, keepdims=True))


def stop_gradient(x: Array, /) -> Array:
    """Return x as a constant for `grad`."""
    return Array(
        apply(e.OPERATIONS["stop_gradient"], as_array("stop_gradient", x).node, line=user_line())
    )
