"""PyTorch's activation functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import magmath as mm
from magmath.api.activations import softmax_or_zero
from magmath.interop.reading_torch.aten_types import (
    Operator,
    in_type,
    is_exact,
    of_floats,
)
from magmath.nn import functional as f


def _gelu(x: mm.Array, *, approximate: str = "none") -> mm.Array:
    return f.gelu(x, approximate)


def _softplus(x: mm.Array, beta: float = 1.0, threshold: float = 20.0) -> mm.Array:
    return mm.softplus(x, beta, threshold)


def _elu(x: mm.Array, alpha: float = 1.0, scale: float = 1.0, inner: float = 1.0) -> mm.Array:
    if inner == 1.0:
        result = f.elu(x, alpha)
    else:
        result = mm.where(x > 0, x, alpha * mm.expm1(mm.minimum(x, 0.0) * inner))
    return result if scale == 1.0 else scale * result


def _hardtanh(x: mm.Array, low: float = -1, high: float = 1) -> mm.Array:
    """Return x limited by numbers, integers as such."""
    return mm.clip(x, int(low), int(high)) if is_exact(x) else f.hardtanh(x, low, high)


def _prelu(x: mm.Array, weight: mm.Array) -> mm.Array:
    return mm.where(x > 0, x, weight * x) if weight.ndim > 1 else f.prelu(x, weight)


def _softmax(function: Callable[..., Any]) -> Callable[..., Any]:
    def operator(x: mm.Array, axis: int, to: Any = None, *, dtype: Any = None) -> Any:
        kind = to if isinstance(to, torch.dtype) else dtype
        return function(in_type(x, kind), axis=axis)

    return operator


ACTIVATIONS: dict[str, Operator] = {
    "relu": mm.relu,
    "sigmoid": of_floats(mm.sigmoid),
    "softplus": _softplus,
    "relu6": lambda x: _hardtanh(x, 0, 6) if is_exact(x) else f.relu6(x),
    "leaky_relu": f.leaky_relu,
    "elu": _elu,
    "selu": f.selu,
    "celu": f.celu,
    "gelu": _gelu,
    "silu": f.silu,
    "mish": f.mish,
    "hardtanh": _hardtanh,
    "hardsigmoid": f.hard_sigmoid,
    "hardswish": f.hard_swish,
    "hardshrink": f.hardshrink,
    "softshrink": f.softshrink,
    "threshold": f.threshold,
    "log_sigmoid": f.log_sigmoid,
    "glu": f.glu,
    "prelu": _prelu,
    "_prelu_kernel": _prelu,
    "softmax": _softmax(mm.softmax),
    "_softmax": _softmax(mm.softmax),
    "_safe_softmax": _softmax(softmax_or_zero),
    "log_softmax": _softmax(mm.log_softmax),
    "_log_softmax": _softmax(mm.log_softmax),
}
