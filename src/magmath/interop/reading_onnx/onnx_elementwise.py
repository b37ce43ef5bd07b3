"""ONNX's element-wise operators and activations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import magmath as mm
from magmath.interop.reading_onnx.onnx_call import (
    OnnxCall,
    OnnxValue,
    Operator,
    axes_of,
    dtype_of,
    plain,
    variadic,
)
from magmath.interop.truncated_division import truncated_division
from magmath.nn import functional as f


def _divide(call: OnnxCall, x: OnnxValue, y: OnnxValue) -> mm.Array:
    x, y = mm.asarray(x), mm.asarray(y)
    return truncated_division(x, y) if x.dtype.is_integer else mm.divide(x, y)


def _power(call: OnnxCall, x: OnnxValue, y: OnnxValue) -> mm.Array:
    """Return powers in the type of the base; the exponents may have another one."""
    x, y = mm.asarray(x), mm.asarray(y)
    if y.dtype == x.dtype:
        return mm.power(x, y)
    if not (x.dtype.is_floating or y.dtype.is_floating):
        return mm.power(x, mm.astype(y, x.dtype))
    return mm.astype(mm.power(mm.astype(x, mm.float64), mm.astype(y, mm.float64)), x.dtype)


def _remainder(call: OnnxCall, x: OnnxValue, y: OnnxValue) -> mm.Array:
    return mm.fmod(x, y) if call.get("fmod", 0) else mm.remainder(x, y)


def _shift(call: OnnxCall, x: OnnxValue, y: OnnxValue) -> mm.Array:
    is_left = call.get("direction") == "LEFT"
    return mm.bitwise_left_shift(x, y) if is_left else mm.bitwise_right_shift(x, y)


def _is_infinite(call: OnnxCall, x: OnnxValue) -> OnnxValue:
    negative, positive = call.get("detect_negative", 1), call.get("detect_positive", 1)
    if not (negative or positive):
        return mm.zeros(x.shape, dtype=mm.bool)
    return mm.isinf(x) & ((x > 0) if not negative else (x < 0) if not positive else (x == x))


def _mean(call: OnnxCall, *operands: OnnxValue) -> mm.Array:
    total = operands[0]
    for x in operands[1:]:
        total = total + x
    return mm.divide(total, mm.asarray(len(operands), dtype=total.dtype))


def _clip(call: OnnxCall, x: OnnxValue, low: OnnxValue = None, high: OnnxValue = None) -> mm.Array:
    x = mm.asarray(x)
    low = call.get("min") if low is None else low  # attributes before version 11
    high = call.get("max") if high is None else high
    limits = [None if n is None else mm.astype(mm.asarray(n), x.dtype) for n in (low, high)]
    return mm.clip(x, *limits)


def _cast(call: OnnxCall, x: OnnxValue) -> mm.Array:
    return mm.astype(mm.asarray(x), dtype_of(call.get("to")))


def _along_axis(function: Callable[..., mm.Array]) -> Operator:
    """Return the operator that applies a function along an axis, or, before version 13, to the
    elements of all axes from that one on."""

    def operator(call: OnnxCall, x: OnnxValue) -> mm.Array:
        if call.opset >= 13:
            return function(x, axis=call.get("axis", -1))
        axis = call.get("axis", 1) % x.ndim
        flat = mm.reshape(x, (*x.shape[:axis], -1))
        return mm.reshape(function(flat, axis=-1), x.shape)

    return operator


def _hardmax(x: mm.Array, axis: int) -> mm.Array:
    axis %= x.ndim
    largest = mm.argmax(x, axis=axis, keepdims=True)
    shape = [1] * x.ndim
    shape[axis] = x.shape[axis]
    return mm.astype(mm.reshape(mm.arange(x.shape[axis]), tuple(shape)) == largest, x.dtype)


def _hard_sigmoid(call: OnnxCall, x: OnnxValue) -> mm.Array:
    return mm.clip(call.get("alpha", 0.2) * x + call.get("beta", 0.5), 0.0, 1.0)


def _elu(call: OnnxCall, x: OnnxValue) -> mm.Array:
    return f.elu(x, call.get("alpha", 1.0))


def _selu(call: OnnxCall, x: OnnxValue) -> OnnxValue:
    alpha, gamma = call.get("alpha", 1.6732632423543772), call.get("gamma", 1.0507009873554805)
    return gamma * f.elu(x, alpha)


def _threshold_relu(call: OnnxCall, x: OnnxValue) -> mm.Array:
    return mm.where(x > call.get("alpha", 1.0), x, mm.zeros_like(x))


def _shrink(call: OnnxCall, x: OnnxValue) -> mm.Array:
    limit, bias = call.get("lambd", 0.5), call.get("bias", 0.0)
    zero = mm.zeros_like(x)
    small = mm.where(x < -limit, mm.astype(x + bias, x.dtype), zero)
    return mm.where(x > limit, mm.astype(x - bias, x.dtype), small)


def _prelu(call: OnnxCall, x: OnnxValue, slope: OnnxValue) -> mm.Array:
    return mm.where(x < 0, x * slope, x)


def _quantize(call: OnnxCall, x: OnnxValue, scale: OnnxValue, zero: OnnxValue = None) -> mm.Array:
    output = call.get("output_dtype", 0)
    kind = dtype_of(output) if output else mm.uint8 if zero is None else zero.dtype
    limits = mm.iinfo(kind)
    scale = _aligned(call, x, scale)
    values = mm.round(mm.astype(x, mm.float32) / scale)
    if zero is not None:
        values = values + mm.astype(_aligned(call, x, zero), mm.float32)
    return mm.astype(mm.clip(values, float(limits.min), float(limits.max)), kind)


def _dequantize(
    call: OnnxCall, x: OnnxValue, scale: OnnxValue, zero: OnnxValue = None
) -> OnnxValue:
    values = mm.astype(mm.asarray(x), mm.int32)
    if zero is not None:
        values = values - mm.astype(_aligned(call, x, zero), mm.int32)
    scale = _aligned(call, x, scale)
    output = call.get("output_dtype", 0)
    kind = dtype_of(output) if output else scale.dtype
    return mm.astype(mm.astype(values, scale.dtype) * scale, kind)


def _aligned(call: OnnxCall, x: OnnxValue, values: OnnxValue) -> mm.Array:
    """Return one value, or one for each index along the axis of quantization, in a shape that
    broadcasts to x."""
    if call.get("block_size", 0):
        raise call.unsupported("in blocks is not available; quantize by axis or as a whole")
    values = mm.asarray(values)
    if values.size == 1:
        return mm.reshape(values, ())
    (axis,) = axes_of([call.get("axis", 1)], x.ndim)
    return mm.reshape(values, (-1, *[1] * (x.ndim - axis - 1)))


def _relu(x: OnnxValue) -> mm.Array:
    x = mm.asarray(x)
    return mm.relu(x) if x.dtype.is_floating else mm.maximum(x, mm.zeros((), dtype=x.dtype))


def _with_alpha(function: Callable[..., Any], default: float) -> Operator:
    return lambda call, x: function(x, call.get("alpha", default))


ELEMENTWISE: dict[str, Operator] = {
    "Add": plain(mm.add), "Sub": plain(mm.subtract), "Mul": plain(mm.multiply), "Div": _divide,
    "Pow": _power, "Mod": _remainder, "Neg": plain(mm.negative), "Abs": plain(mm.abs),
    "Sign": plain(mm.sign), "Floor": plain(mm.floor), "Ceil": plain(mm.ceil),
    "Round": plain(mm.round), "Sqrt": plain(mm.sqrt), "Exp": plain(mm.exp), "Log": plain(mm.log),
    "Reciprocal": plain(lambda x: 1 / x), "Erf": plain(mm.erf),
    "Sin": plain(mm.sin), "Cos": plain(mm.cos), "Tan": plain(mm.tan), "Asin": plain(mm.asin),
    "Acos": plain(mm.acos), "Atan": plain(mm.atan), "Sinh": plain(mm.sinh),
    "Cosh": plain(mm.cosh), "Tanh": plain(mm.tanh), "Asinh": plain(mm.asinh),
    "Acosh": plain(mm.acosh), "Atanh": plain(mm.atanh),
    "Sum": variadic(mm.add), "Mean": _mean, "Max": variadic(mm.maximum),
    "Min": variadic(mm.minimum),
    "Equal": plain(mm.equal), "Greater": plain(mm.greater), "Less": plain(mm.less),
    "GreaterOrEqual": plain(mm.greater_equal), "LessOrEqual": plain(mm.less_equal),
    "And": plain(mm.logical_and), "Or": plain(mm.logical_or), "Xor": plain(mm.logical_xor),
    "Not": plain(mm.logical_not), "Where": plain(mm.where), "IsNaN": plain(mm.isnan),
    "IsInf": _is_infinite, "BitShift": _shift, "BitwiseAnd": plain(mm.bitwise_and),
    "BitwiseOr": plain(mm.bitwise_or), "BitwiseXor": plain(mm.bitwise_xor),
    "BitwiseNot": plain(mm.bitwise_invert), "Clip": _clip, "Cast": _cast,
    "CastLike": plain(lambda x, like: mm.astype(mm.asarray(x), like.dtype)),
    "Identity": plain(lambda x: x),
    "QuantizeLinear": _quantize, "DequantizeLinear": _dequantize,
    # activations
    "Relu": plain(_relu),
    "Sigmoid": plain(mm.sigmoid), "Softsign": plain(f.softsign),
    "Softplus": plain(lambda x: mm.logaddexp(x, 0.0)),
    "HardSwish": plain(f.hard_swish), "Mish": plain(f.mish),
    "HardSigmoid": _hard_sigmoid, "Elu": _elu, "Selu": _selu, "Celu": _with_alpha(f.celu, 1.0),
    "LeakyRelu": _with_alpha(f.leaky_relu, 0.01), "ThresholdedRelu": _threshold_relu,
    "Shrink": _shrink, "PRelu": _prelu,
    "Swish": lambda call, x: x * mm.sigmoid(call.get("alpha", 1.0) * x),
    "Gelu": lambda call, x: f.gelu(x, call.get("approximate", "none")),
    "Softmax": _along_axis(mm.softmax), "LogSoftmax": _along_axis(mm.log_softmax),
    "Hardmax": _along_axis(_hardmax),
}  # fmt: skip
