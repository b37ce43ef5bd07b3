"""Element-wise operations as nodes of ONNX."""

from __future__ import annotations

from math import inf, log

import numpy as np

import magmath as mm
from magmath.interop.writing_onnx.onnx_emitter import Emitter, same_as
from magmath.interop.writing_onnx.onnx_trace import TracedNode
from magmath.interop.writing_onnx.onnx_writer import OnnxWriter


def _not_equal(w: OnnxWriter, node: TracedNode, *names: str) -> str:
    return w.add("Not", w.add("Equal", *names))


def _divide(w: OnnxWriter, node: TracedNode, x: str, y: str) -> str:
    kind = node.first.dtype
    if node.inputs[0].first.dtype != kind:
        x, y = w.cast(x, kind), w.cast(y, kind)
    return w.add("Div", x, y)


def _logarithm(base: float) -> Emitter:
    def emit(w: OnnxWriter, node: TracedNode, x: str) -> str:
        return w.add("Mul", w.add("Log", x), w.number(1.0 / log(base), node))

    return emit


def _expm1(w: OnnxWriter, node: TracedNode, x: str) -> str:
    """Write eˣ - 1 = 2 · e^(x/2) · sinh(x/2), which does not cancel.

    Below the least x the result is -1, and sinh may overflow.
    """
    least = -100.0 if node.first.dtype.itemsize > 2 else -16.0
    half = w.add("Mul", w.add("Max", x, w.number(least, node)), w.number(0.5, node))
    return w.add("Mul", w.add("Mul", w.add("Exp", half), w.number(2.0, node)), w.add("Sinh", half))


def _log1p(w: OnnxWriter, node: TracedNode, x: str) -> str:
    """Write log(1 + x) = x · log(u) / (u - 1) with u = 1 + x, which is exact for small x."""
    one = w.number(1.0, node)
    u = w.add("Add", x, one)
    log_u, rounded = w.add("Log", u), w.add("Sub", u, one)
    ratio = w.add("Div", w.add("Mul", x, log_u), rounded)
    is_far = w.add("Or", _is_infinite(w, node, x), w.add("Less", x, w.number(-0.5, node)))
    near = w.add("Where", w.add("Equal", u, one), x, ratio)
    return w.add("Where", is_far, log_u, near)


_ERFC = (
    -1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806,
    0.27886807, -1.13520398, 1.48851587, -0.82215223, 0.17087277,
)  # fmt: skip
"""Coefficients of log(erfc(x) / t) + x² as a polynomial in t = 1 / (1 + x / 2), from the Chebyshev
fit in Numerical Recipes §6.2: its relative error is below 1.2e-7 for every x ≥ 0."""


def _erfc(w: OnnxWriter, node: TracedNode, x: str) -> str:
    """Write 1 - erf(x), and for large x, where that keeps no digits, the fit."""
    one = w.number(1.0, node)
    double = node.first.dtype == mm.float64
    is_large = w.add("Greater", x, w.number(4.0 if double else 1.0, node))
    large = w.add("Max", x, one)
    t = w.add("Reciprocal", w.add("Add", w.add("Mul", large, w.number(0.5, node)), one))
    exponent = w.number(_ERFC[-1], node)
    for coefficient in _ERFC[-2::-1]:
        exponent = w.add("Add", w.add("Mul", exponent, t), w.number(coefficient, node))
    exponent = w.add("Sub", exponent, w.add("Mul", large, large))
    tail = w.add("Mul", t, w.add("Exp", exponent))
    return w.add("Where", is_large, tail, w.add("Sub", one, w.add("Erf", x)))


def _trunc(w: OnnxWriter, node: TracedNode, x: str) -> str:
    return w.add("Mul", w.add("Sign", x), w.add("Floor", w.add("Abs", x)))


def _log_of_sum(w: OnnxWriter, node: TracedNode, x: str, y: str) -> str:
    largest = w.add("Max", x, y)
    difference = w.add("Where", w.add("Equal", x, y), w.number(0.0, node), w.add("Sub", x, y))
    below = w.add("Neg", w.add("Abs", difference))
    return w.add("Add", largest, _log1p(w, node, w.add("Exp", below)))


def _hypotenuse(w: OnnxWriter, node: TracedNode, x: str, y: str) -> str:
    """Write √(x² + y²) = m · √(1 + (n / m)²), m the larger number and n the smaller one, whose
    squares do not overflow."""
    zero, one, infinity = (w.number(value, node) for value in (0.0, 1.0, inf))
    is_infinite = w.add("Or", *[_is_infinite(w, node, name) for name in (x, y)])
    both = [w.add("Abs", x), w.add("Abs", y)]
    larger, smaller = w.add("Max", *both), w.add("Min", *both)
    is_zero = w.add("Equal", larger, zero)
    ratio = w.add("Div", smaller, w.add("Where", is_zero, one, larger))
    root = w.add("Sqrt", w.add("Add", w.add("Mul", ratio, ratio), one))
    return w.add("Where", is_infinite, infinity, w.add("Mul", larger, root))


def _affine(w: OnnxWriter, node: TracedNode, x: str, mean: str, factor: str, shift: str) -> str:
    """Write (x - mean) · factor + shift; with constants for each channel as a normalization."""
    channels = (1, node.first.shape[1], *[1] * (node.ndim - 2)) if node.ndim > 1 else None
    moments = [w.values.get(name) for name in (mean, factor, shift)]
    if channels is not None and all(v is not None and v.shape == channels for v in moments):
        m, a, b = [w.store(v.reshape(-1)) for v in moments if v is not None]
        one = w.store(np.ones(channels[1], moments[0].dtype))  # type: ignore[union-attr]
        return w.add("BatchNormalization", x, a, b, m, one, epsilon=0.0)
    return w.add("Add", w.add("Mul", w.add("Sub", x, mean), factor), shift)


def _maximum(w: OnnxWriter, node: TracedNode, x: str, y: str) -> str:
    operand = node.inputs[1]
    is_zero = operand.name == "constant" and operand.first.attributes["value"] == 0
    has_relu = node.first.dtype.kind != "uint"
    return w.add("Relu", x) if is_zero and has_relu else w.add("Max", x, y)


def _where(w: OnnxWriter, node: TracedNode, condition: str, x: str, y: str) -> str:
    """Write a choice; one between x and a limit is an extremum, as in relu6."""
    if node.first.dtype == mm.bool:
        return w.add("Or", w.add("And", condition, x), w.add("And", w.add("Not", condition), y))
    comparison, limit, other = node.inputs
    operator = {"greater_equal": "Min", "less_equal": "Max"}.get(comparison.name)
    if operator is not None and _is_equal_number(comparison.inputs[1], limit):
        compared = comparison.inputs[0]
        if other is compared or (operator == "Max" and _is_below(compared, limit, other)):
            return w.add(operator, y, x)
    return w.add("Where", condition, x, y)


def _is_equal_number(x: TracedNode, y: TracedNode) -> bool:
    numbers = x.name == y.name == "scalar"
    return x is y or (
        numbers
        and not x.has_varying_number()
        and not y.has_varying_number()
        and x.first.value == y.first.value
    )


def _is_below(compared: TracedNode, limit: TracedNode, candidate: TracedNode) -> bool:
    """Return True if `candidate` is the smaller one of `compared` and a number above the limit."""
    if candidate.name != "where" or candidate.inputs[0].name != "greater_equal":
        return False
    high, numbers = candidate.inputs[1], limit.name == candidate.inputs[1].name == "scalar"
    return (
        candidate.inputs[2] is compared
        and candidate.inputs[0].inputs[0] is compared
        and _is_equal_number(candidate.inputs[0].inputs[1], high)
        and numbers
        and limit.first.value <= high.first.value
    )


def _bitwise(of_truths: str, of_integers: str) -> Emitter:
    def emit(w: OnnxWriter, node: TracedNode, *names: str) -> str:
        return w.add(of_truths if node.first.dtype == mm.bool else of_integers, *names)

    return emit


def _infinite(w: OnnxWriter, node: TracedNode, x: str) -> str:
    return _is_infinite(w, node.inputs[0], x)


def _finite(w: OnnxWriter, node: TracedNode, x: str) -> str:
    return w.add("Not", w.add("Or", _infinite(w, node, x), w.add("IsNaN", x)))


def _is_infinite(w: OnnxWriter, like: TracedNode, x: str) -> str:
    """Write whether x, of the type of a node, is infinite; IsInf does not take half types."""
    dtype = like.first.dtype
    if not dtype.is_floating or dtype.itemsize > 2:
        return w.add("IsInf", x)
    return w.add("Equal", w.add("Abs", x), w.number(inf, like))


def _astype(w: OnnxWriter, node: TracedNode, x: str) -> str:
    return w.cast(x, node.first.dtype)


def _remainder(w: OnnxWriter, node: TracedNode, x: str, y: str) -> str:
    """Write the remainder that has the sign of the divisor, from the exact one with that of x."""
    if not node.first.dtype.is_floating:
        return w.add("Mod", x, y)
    remainder = w.add("Mod", x, y, fmod=1)
    return w.add(
        "Where", _has_other_sign(w, node, remainder, y), w.add("Add", remainder, y), remainder
    )


def _floor_divide(w: OnnxWriter, node: TracedNode, x: str, y: str) -> str:
    """Write ⌊x / y⌋ from the exact remainder, as NumPy: rounding of x / y may exceed an integer."""
    if not node.first.dtype.is_floating:
        return w.add("Div", w.add("Sub", x, w.add("Mod", x, y)), y)
    remainder = w.add("Mod", x, y, fmod=1)
    quotient = w.add("Round", w.add("Div", w.add("Sub", x, remainder), y))
    below = w.add("Sub", quotient, w.number(1.0, node))
    quotient = w.add("Where", _has_other_sign(w, node, remainder, y), below, quotient)
    return w.add("Where", w.add("Equal", y, w.number(0.0, node)), w.add("Div", x, y), quotient)


def _has_other_sign(w: OnnxWriter, node: TracedNode, remainder: str, y: str) -> str:
    """Write whether a remainder is not 0 and has another sign than the divisor."""
    zero = w.number(0.0, node)
    differs = w.add("Xor", w.add("Less", remainder, zero), w.add("Less", y, zero))
    return w.add("And", w.add("Not", w.add("Equal", remainder, zero)), differs)


ELEMENTWISE: dict[str, Emitter] = {
    "abs": same_as("Abs"),
    "acos": same_as("Acos"),
    "acosh": same_as("Acosh"),
    "add": same_as("Add"),
    "asin": same_as("Asin"),
    "asinh": same_as("Asinh"),
    "atan": same_as("Atan"),
    "atanh": same_as("Atanh"),
    "ceil": same_as("Ceil"),
    "cos": same_as("Cos"),
    "cosh": same_as("Cosh"),
    "equal": same_as("Equal"),
    "erf": same_as("Erf"),
    "exp": same_as("Exp"),
    "floor": same_as("Floor"),
    "greater": same_as("Greater"),
    "greater_equal": same_as("GreaterOrEqual"),
    "isnan": same_as("IsNaN"),
    "isinf": _infinite,
    "isfinite": _finite,
    "less": same_as("Less"),
    "less_equal": same_as("LessOrEqual"),
    "log": same_as("Log"),
    "logical_and": same_as("And"),
    "logical_not": same_as("Not"),
    "logical_or": same_as("Or"),
    "logical_xor": same_as("Xor"),
    "maximum": _maximum,
    "minimum": same_as("Min"),
    "multiply": same_as("Mul"),
    "negative": same_as("Neg"),
    "power": same_as("Pow"),
    "reciprocal": same_as("Reciprocal"),
    "relu": same_as("Relu"),
    "round": same_as("Round"),
    "sigmoid": same_as("Sigmoid"),
    "sign": same_as("Sign"),
    "sin": same_as("Sin"),
    "sinh": same_as("Sinh"),
    "sqrt": same_as("Sqrt"),
    "root": same_as("Sqrt"),
    "subtract": same_as("Sub"),
    "tan": same_as("Tan"),
    "tanh": same_as("Tanh"),
    "where": _where,
    "stop_gradient": same_as("Identity"),
    "argument": same_as("Identity"),
    "clamp_max": same_as("Min"),
    "clamp_min": same_as("Max"),
    "remainder": _remainder,
    "fmod": same_as("Mod", fmod=1),
    "bitwise_and": _bitwise("And", "BitwiseAnd"),
    "bitwise_or": _bitwise("Or", "BitwiseOr"),
    "bitwise_xor": _bitwise("Xor", "BitwiseXor"),
    "bitwise_invert": _bitwise("Not", "BitwiseNot"),
    "bitwise_left_shift": same_as("BitShift", direction="LEFT"),
    "bitwise_right_shift": same_as("BitShift", direction="RIGHT"),
    "square": lambda w, node, x: w.add("Mul", x, x),
    "not_equal": _not_equal,
    "divide": _divide,
    "floor_divide": _floor_divide,
    "log2": _logarithm(2.0),
    "log10": _logarithm(10.0),
    "expm1": _expm1,
    "log1p": _log1p,
    "erfc": _erfc,
    "trunc": _trunc,
    "logaddexp": _log_of_sum,
    "hypot": _hypotenuse,
    "affine": _affine,
    "astype": _astype,
}
