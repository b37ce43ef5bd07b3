"""ONNX's interpolation: along each axis, a product with a matrix of weights."""

from __future__ import annotations

from collections.abc import Callable
from math import floor
from typing import Any

import numpy as np

import magmath as mm
from magmath.arrays.array import floating
from magmath.interop.reading_onnx.onnx_call import (
    OnnxCall,
    OnnxValue,
    Operator,
    axes_of,
    widened,
)
from magmath.nn import functional as f
from magmath.nn import grid_sampling
from magmath.nn.interpolation_weights import CUBIC, interpolation_weights
from magmath.nn.resampling import weighted_along


def _resize(
    call: OnnxCall,
    x: OnnxValue,
    roi: OnnxValue = None,
    scales: OnnxValue = None,
    sizes: OnnxValue = None,
) -> OnnxValue:
    if call.opset < 11:  # (x, scales)
        roi, scales = None, roi
    axes = axes_of(call.get("axes"), x.ndim)
    factors, new = call.numbers("scales", scales), call.numbers("sizes", sizes)
    if new:
        factors = [m / x.shape[axis] for axis, m in zip(axes, new, strict=True)]
        policy = call.get("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            factor = min(factors) if policy == "not_larger" else max(factors)
            factors = [factor] * len(factors)
            new = [floor(x.shape[axis] * factor + 0.5) for axis in axes]  # halves go up
    else:
        factors = factors or []
        new = [floor(_RUNTIME(s) * x.shape[axis]) for axis, s in zip(axes, factors, strict=True)]
    mode = call.get("mode", "nearest")
    x = mm.asarray(x)
    y = x if mode == "nearest" else floating("from_onnx", widened(x))
    for axis, factor, extent in zip(axes, factors, new, strict=True):
        if extent != x.shape[axis] or factor != 1.0:
            y = _along(call, y, axis, float(factor), int(extent), mode)
    return _in_range(y, x.dtype)


def _in_range(x: mm.Array, dtype: mm.DType) -> mm.Array:
    """Return x in a type, for integers the nearest numbers that the type has."""
    if dtype.is_integer and x.dtype != dtype:
        limits = mm.iinfo(dtype)
        x = mm.clip(mm.round(x), limits.min, limits.max)
    return mm.astype(x, dtype, copy=False)


def _along(call: OnnxCall, x: mm.Array, axis: int, factor: float, new: int, mode: str) -> mm.Array:
    default = "half_pixel" if call.opset >= 11 and call.operator == "Resize" else "asymmetric"
    transformation = call.get("coordinate_transformation_mode", default)
    if transformation not in TRANSFORMATIONS:
        raise call.unsupported(f"with the coordinates {transformation} is not available")
    if mode == "nearest":
        positions = _positions(x.shape[axis], new, factor, transformation, _RUNTIME)
        rounding = call.get("nearest_mode", "round_prefer_floor" if call.opset >= 11 else "floor")
        chosen = np.clip(_ROUNDINGS[rounding](np.float64(positions)), 0, x.shape[axis] - 1)
        return mm.take(x, chosen.astype(np.int64), axis=axis)
    positions = _positions(x.shape[axis], new, factor, transformation)
    weights = interpolation_weights(
        tuple(positions),
        x.shape[axis],
        cubic=call.get("cubic_coeff_a", CUBIC) if mode == "cubic" else None,
        scale=1.0 / min(factor, 1.0) if call.get("antialias", 0) else 1.0,
        only_inside=bool(call.get("exclude_outside", 0)),
    )
    return weighted_along(x, axis, weights)


TRANSFORMATIONS = (
    "align_corners",
    "asymmetric",
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "tf_half_pixel_for_nn",
)
"""The coordinates that are available: all but "tf_crop_and_resize", which extracts a part first."""


_RUNTIME = np.float32
"""The type in which ONNX Runtime computes extents and positions. It decides where a position is a
whole number, since a scale such as 0.6 is a float32 that is slightly larger."""


def _positions(
    extent: int, new: int, factor: float, transformation: str, dtype: Any = np.float64
) -> Any:
    """Return the position of each new element among the former ones."""
    i = np.arange(new, dtype=dtype)
    if transformation == "align_corners":
        # By the new extent, as in the standard's text, PyTorch and ONNX Runtime. The standard's
        # reference implementation divides by the extent before it is rounded down.
        return i * (extent - 1) / max(new - 1, 1)
    if transformation == "asymmetric":
        return i / factor
    if transformation == "tf_half_pixel_for_nn":
        return (i + 0.5) / factor
    if transformation == "pytorch_half_pixel" and new == 1:
        return i
    if transformation == "half_pixel_symmetric":
        return extent / 2 * (1 - new / (extent * factor)) + (i + 0.5) / factor - 0.5
    return (i + 0.5) / factor - 0.5


_ROUNDINGS: dict[str, Callable[[Any], Any]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _grid_sampled(call: OnnxCall, x: OnnxValue, grid: OnnxValue) -> mm.Array:
    given = call.get("mode", "linear")
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(given, given)
    if mode not in grid_sampling.MODES or (mode == "bicubic" and x.ndim != 4):
        space = x.ndim - 2
        raise call.unsupported(f"with mode {given} is not available for {space}-d space")
    corners = bool(call.get("align_corners", 0))
    return f.grid_sample(x, grid, mode, call.get("padding_mode", "zeros"), corners)


RESIZE: dict[str, Operator] = {
    "Resize": _resize,
    "Upsample": _resize,
    "GridSample": _grid_sampled,
}
