"""ONNX's random numbers and dropout."""

from __future__ import annotations

from typing import Any

import numpy as np

import magmath as mm
from magmath.interop.reading_onnx.onnx_call import OnnxCall, OnnxValue, Operator, dtype_of
from magmath.nn import functional as f


def _dropout(
    call: OnnxCall, x: OnnxValue, ratio: OnnxValue = None, training: OnnxValue = None
) -> Any:
    rate = call.number("ratio", ratio, 0.5)
    active = call.training if training is None else bool(np.asarray(training))
    if not active or rate == 0.0:
        return x, mm.ones(x.shape, dtype=mm.bool)
    scaled_mask = f.dropout(mm.ones(x.shape, dtype=x.dtype), rate)
    return x * scaled_mask, scaled_mask != 0


def _random(kind: str, like: bool) -> Operator:
    """Return an operator that draws numbers, of a given shape or of that of its operand."""

    def operator(call: OnnxCall, x: OnnxValue = None) -> mm.Array:
        shape = x.shape if like else tuple(call.get("shape"))
        dtype = _dtype(call, x.dtype if like else mm.float32)
        if kind == "normal":
            mean, deviation = call.get("mean", 0.0), call.get("scale", 1.0)
            values = mm.random.normal(mean, deviation, shape)
        else:
            values = mm.random.uniform(call.get("low", 0.0), call.get("high", 1.0), shape)
        return mm.astype(values, dtype, copy=False)

    return operator


def _bernoulli(call: OnnxCall, x: OnnxValue) -> mm.Array:
    drawn = mm.random.uniform(0.0, 1.0, x.shape) < x
    return mm.astype(drawn, _dtype(call, x.dtype))


def _dtype(call: OnnxCall, default: Any) -> Any:
    element_type = call.get("dtype")
    return dtype_of(element_type) if element_type else default


RANDOM: dict[str, Operator] = {
    "Dropout": _dropout,
    "RandomNormal": _random("normal", like=False),
    "RandomNormalLike": _random("normal", like=True),
    "RandomUniform": _random("uniform", like=False),
    "RandomUniformLike": _random("uniform", like=True),
    "Bernoulli": _bernoulli,
}
