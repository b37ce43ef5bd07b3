"""ONNX's convolutions and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

import magmath as mm
from magmath.interop.reading_onnx.onnx_call import OnnxCall, OnnxValue, Operator
from magmath.nn import functional as f
from magmath.nn.pooling import with_last_window
from magmath.nn.windows import same_pads

Pairs = list[tuple[int, int]]


def _pads(call: OnnxCall, image: Sequence[int], kernel: Sequence[int]) -> Pairs:
    """Return the padding before and after each dimension of a sliding window."""
    space = len(image)
    mode = call.get("auto_pad", "NOTSET")
    if mode == "NOTSET":
        given = call.get("pads", [0] * 2 * space)
        return list(zip(given[:space], given[space:], strict=True))
    if mode == "VALID":
        return [(0, 0)] * space
    strides, dilations = _each(call, "strides", space), _each(call, "dilations", space)
    parts = zip(image, kernel, strides, dilations, strict=True)
    found = [same_pads(n, d * (k - 1) + 1, s) for n, k, s, d in parts]
    return [(high, low) for low, high in found] if mode == "SAME_LOWER" else found


def _halves(total: int, mode: str) -> tuple[int, int]:
    small, large = total // 2, total - total // 2
    return (small, large) if mode == "SAME_UPPER" else (large, small)


def _each(call: OnnxCall, name: str, space: int) -> tuple[int, ...]:
    return tuple(call.get(name) or [1] * space)


def _convolution(
    call: OnnxCall, x: OnnxValue, weight: OnnxValue, bias: OnnxValue = None
) -> mm.Array:
    space = x.ndim - 2
    return f.conv(
        mm.asarray(x),
        weight,
        bias,
        stride=_each(call, "strides", space),
        padding=_pads(call, x.shape[2:], weight.shape[2:]),
        dilation=_each(call, "dilations", space),
        groups=call.get("group", 1),
    )


def _transposed(
    call: OnnxCall, x: OnnxValue, weight: OnnxValue, bias: OnnxValue = None
) -> mm.Array:
    space, kernel = x.ndim - 2, weight.shape[2:]
    strides, dilations = _each(call, "strides", space), _each(call, "dilations", space)
    added = list(call.get("output_padding") or [0] * space)
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
    wanted = call.get("output_shape")
    mode = call.get("auto_pad", "NOTSET")
    if wanted is None and mode in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [n * s for n, s in zip(x.shape[2:], strides, strict=True)]
    if wanted is None:
        pads = _pads(call, x.shape[2:], kernel)
    else:
        pads = []
        for i, (n, s, r) in enumerate(zip(x.shape[2:], strides, reach, strict=True)):
            total = (n - 1) * s + r + added[i] - wanted[-space:][i]
            if total < 0:  # more elements than the products reach
                added[i], total = added[i] - total, 0
            pads.append(_halves(total, mode))
    cut = [a >= max(s, d) for a, s, d in zip(added, strides, dilations, strict=True)]
    result = f.conv_transpose(
        mm.asarray(x),
        weight,
        None if any(cut) else bias,
        stride=strides,
        padding=[(0, 0)] * space if any(cut) else pads,
        output_padding=0 if any(cut) else tuple(added),
        dilation=dilations,
        groups=call.get("group", 1),
    )
    if any(cut):  # zeros at the ends, further than a product could reach
        ends = [(-low, a - high) for (low, high), a in zip(pads, added, strict=True)]
        result = f.pad(result, [n for pair in reversed(ends) for n in pair])
        if bias is not None:
            result = result + mm.reshape(mm.asarray(bias), (-1, *[1] * space))
    return result


def _window(call: OnnxCall, x: OnnxValue) -> tuple[tuple[int, ...], dict[str, Any], Pairs, Any]:
    """Return kernel, stride, padding and dilation of a pooling, with the padding of a last window
    that begins within the image or the padding before it."""
    kernel = tuple(call.get("kernel_shape"))
    stride, dilation = _each(call, "strides", len(kernel)), _each(call, "dilations", len(kernel))
    pads = _pads(call, x.shape[2:], kernel)
    if call.get("ceil_mode", 0) and call.get("auto_pad", "NOTSET") == "NOTSET":
        ends = [*with_last_window(x.shape[2:], tuple(pads), kernel, stride, dilation)]
    else:
        ends = pads
    return kernel, {"stride": stride, "dilation": dilation}, ends, pads


def _max_pool(call: OnnxCall, x: OnnxValue) -> mm.Array:
    if call.outputs > 1:
        raise call.unsupported("with positions of the maxima is not available")
    kernel, options, pads, _ = _window(call, x)
    lowest = -np.inf if mm.isdtype(x.dtype, "real floating") else mm.iinfo(x.dtype).min
    padded = mm.pad(x, [(0, 0), (0, 0), *pads], constant_values=lowest)
    return f.max_pool(padded, kernel, **options)


def _average_pool(call: OnnxCall, x: OnnxValue) -> mm.Array:
    kernel, options, pads, counted = _window(call, x)
    fits = all(max(pair) <= k // 2 for pair, k in zip(pads, kernel, strict=True))
    if pads == counted and fits and set(options["dilation"]) == {1}:
        padded = bool(call.get("count_include_pad", 0))
        return f.avg_pool(mm.asarray(x), kernel, options["stride"], pads, count_include_pad=padded)
    sums = _window_sums(x, kernel, options, pads)
    ones = np.ones((1, 1, *x.shape[2:]), np.float64)
    if call.get("count_include_pad", 0):
        ones = np.pad(ones, [(0, 0), (0, 0), *counted], constant_values=1.0)
        rest = [(low - a, high - b) for (low, high), (a, b) in zip(pads, counted, strict=True)]
    else:
        rest = pads
    counts = np.asarray(_window_sums(mm.asarray(ones), kernel, options, rest))
    return sums * mm.asarray(1.0 / counts, dtype=x.dtype)


def _window_sums(
    x: OnnxValue, kernel: tuple[int, ...], options: dict[str, Any], pads: Pairs
) -> mm.Array:
    """Return the sum of each window of images, padded by zeros."""
    padded = mm.pad(mm.asarray(x), [(0, 0), (0, 0), *pads])
    windows = mm.sliding_window_view(
        padded,
        tuple([d * (k - 1) + 1 for k, d in zip(kernel, options["dilation"], strict=True)]),
        axis=tuple(range(2, x.ndim)),
    )
    every = [slice(None, None, s) for s in options["stride"]]
    inner = [slice(None, None, d) for d in options["dilation"]]
    chosen = windows[(slice(None), slice(None), *every, *inner)]
    return mm.sum(chosen, axis=tuple(range(x.ndim, chosen.ndim)))


def _power_pool(call: OnnxCall, x: OnnxValue) -> mm.Array:
    kernel, options, pads, _ = _window(call, x)
    p = call.get("p", 2)
    return mm.pow(_window_sums(mm.pow(mm.abs(x), p), kernel, options, pads), 1.0 / p)


def _space(x: OnnxValue) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


def _global_power_pool(call: OnnxCall, x: OnnxValue) -> mm.Array:
    p = call.get("p", 2)
    return mm.pow(mm.sum(mm.pow(mm.abs(x), p), axis=_space(x), keepdims=True), 1.0 / p)


def _global_average(call: OnnxCall, x: OnnxValue) -> OnnxValue:
    return mm.sum(x, axis=_space(x), keepdims=True) * (1.0 / prod(x.shape[2:]))


CONVOLUTION: dict[str, Operator] = {
    "Conv": _convolution,
    "ConvTranspose": _transposed,
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "LpPool": _power_pool,
    "GlobalAveragePool": _global_average,
    "GlobalMaxPool": lambda call, x: mm.max(x, axis=_space(x), keepdims=True),
    "GlobalLpPool": _global_power_pool,
}
