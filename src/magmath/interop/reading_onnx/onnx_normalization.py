"""ONNX's normalizations."""

from __future__ import annotations

from typing import Any

import magmath as mm
from magmath.interop.reading_onnx.onnx_call import (
    OnnxCall,
    OnnxValue,
    Operator,
    axes_of,
    widened,
)
from magmath.nn import functional as f


def _batch_norm(
    call: OnnxCall,
    x: OnnxValue,
    scale: OnnxValue,
    bias: OnnxValue,
    mean: OnnxValue,
    variance: OnnxValue,
) -> Any:
    epsilon, momentum = call.get("epsilon", 1e-5), call.get("momentum", 0.9)
    if not (call.get("training_mode", 0) or call.training):
        return f.batch_norm(x, mean, variance, scale, bias, epsilon=epsilon)
    current = f.batch_moments(mm.asarray(x))
    running_moments = [
        mm.astype(momentum * old + (1.0 - momentum) * new, old.dtype, copy=False)
        for old, new in zip((mean, variance), current, strict=True)
    ]
    outputs = f.batch_norm(x, *current, scale, bias, epsilon=epsilon)
    if call.training:
        for old, new in zip((mean, variance), running_moments, strict=True):
            if isinstance(old, mm.Variable):
                old.assign(new)
    return (outputs, *running_moments)


def _layer_norm(call: OnnxCall, x: OnnxValue, scale: OnnxValue, bias: OnnxValue = None) -> Any:
    axes = _last_axes(call, x)
    if not any(call.outputs[1:]) and x.dtype.itemsize >= 4:
        result = f.layer_norm(x, x.shape[axes[0] :], epsilon=call.get("epsilon", 1e-5)) * scale
        return result if bias is None else result + bias
    single = widened(x)
    mean = mm.mean(single, axis=axes, keepdims=True)
    centred = single - mean
    inverse = 1.0 / mm.sqrt(
        mm.mean(mm.square(centred), axis=axes, keepdims=True) + call.get("epsilon", 1e-5)
    )
    result = mm.astype(centred * inverse, x.dtype, copy=False) * scale
    return (result if bias is None else result + bias, mean, inverse)


def _rms_norm(call: OnnxCall, x: OnnxValue, scale: OnnxValue) -> OnnxValue:
    axes = _last_axes(call, x)
    return f.rms_norm(x, x.shape[axes[0] :], epsilon=call.get("epsilon", 1e-5)) * scale


def _last_axes(call: OnnxCall, x: OnnxValue) -> tuple[int, ...]:
    return tuple(range(call.get("axis", -1) % x.ndim, x.ndim))


def _instance_norm(call: OnnxCall, x: OnnxValue, scale: OnnxValue, bias: OnnxValue) -> mm.Array:
    # The same as `instance_norm`, which refuses images of one pixel; ONNX defines them.
    return f.group_norm(x, x.shape[1], scale, bias, call.get("epsilon", 1e-5))


def _group_norm(call: OnnxCall, x: OnnxValue, scale: OnnxValue, bias: OnnxValue) -> mm.Array:
    groups = call.get("num_groups")
    if call.opset < 21 and scale.shape[0] == groups != x.shape[1]:  # a factor for each group
        size = x.shape[1] // groups
        scale, bias = mm.repeat(scale, size), mm.repeat(bias, size)
    return f.group_norm(x, groups, scale, bias, call.get("epsilon", 1e-5))


def _local_response_norm(call: OnnxCall, x: OnnxValue) -> OnnxValue:
    size = call.get("size")
    pads = [(0, 0), ((size - 1) // 2, size // 2), *[(0, 0)] * (x.ndim - 2)]
    wide = widened(x)
    windows = mm.sliding_window_view(mm.pad(mm.square(wide), pads), size, axis=1)
    total = mm.sum(windows, axis=-1)
    scale = call.get("bias", 1.0) + call.get("alpha", 1e-4) / size * total
    return mm.astype(wide / mm.pow(scale, call.get("beta", 0.75)), x.dtype, copy=False)


def _power_norm(call: OnnxCall, x: OnnxValue) -> mm.Array:
    axis, p = call.get("axis", -1), call.get("p", 2)
    norm = mm.linalg.vector_norm(x, axis=axis, keepdims=True, ord=p)
    return mm.where(norm == 0, mm.zeros_like(x), x / mm.where(norm == 0, 1.0, norm))


def _standardized(call: OnnxCall, x: OnnxValue) -> OnnxValue:
    axes = axes_of(call.get("axes", (0, 2, 3)), x.ndim)
    wide = widened(x)
    centred = wide - mm.mean(wide, axis=axes, keepdims=True)
    deviation = mm.std(wide, axis=axes, keepdims=True)
    return mm.astype(centred / (deviation + 1e-9), x.dtype, copy=False)


NORMALIZATION: dict[str, Operator] = {
    "BatchNormalization": _batch_norm,
    "LayerNormalization": _layer_norm,
    "RMSNormalization": _rms_norm,
    "InstanceNormalization": _instance_norm,
    "GroupNormalization": _group_norm,
    "LRN": _local_response_norm,
    "LpNormalization": _power_norm,
    "MeanVarianceNormalization": _standardized,
}
