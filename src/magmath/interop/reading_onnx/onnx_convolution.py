"""ONNX's convolutions and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, final

import numpy as np

import magmath as mm
from magmath.interop.reading_onnx.onnx_call import OnnxCall, OnnxValue, Operator, widened
from magmath.nn import functional as f
from magmath.nn.pooling import with_last_window
from magmath.nn.window_settings import same_pads

Pairs = list[tuple[int, int]]


def _pads(call: OnnxCall, image: Sequence[int], kernel: Sequence[int]) -> Pairs:
    """Return the padding before and after each dimension of a sliding window."""
    space = len(image)
    mode = call.get("auto_pad", "NOTSET")
    if mode == "NOTSET":
        widths = call.get("pads", [0] * 2 * space)
        return list(zip(widths[:space], widths[space:], strict=True))
    if mode == "VALID":
        return [(0, 0)] * space
    strides, dilations = (_per_dimension(call, name, space) for name in ("strides", "dilations"))
    parts = zip(image, kernel, strides, dilations, strict=True)
    pairs = [same_pads(n, d * (k - 1) + 1, s) for n, k, s, d in parts]  # the larger one behind
    return [(after, before) for before, after in pairs] if mode == "SAME_LOWER" else pairs


def _halves(total: int, mode: str) -> tuple[int, int]:
    """Return two parts of a padding: the smaller one is first in mode SAME_UPPER, and in all other
    modes, NOTSET with `output_shape` included, the larger one."""
    small, large = total // 2, total - total // 2
    return (small, large) if mode == "SAME_UPPER" else (large, small)


def _per_dimension(call: OnnxCall, name: str, space: int) -> tuple[int, ...]:
    """Return an attribute of one number for each dimension of space, by default 1."""
    return tuple(call.get(name) or [1] * space)


def _convolution(
    call: OnnxCall, x: OnnxValue, weight: OnnxValue, bias: OnnxValue = None
) -> mm.Array:
    space = x.ndim - 2
    return f.conv(
        mm.asarray(x),
        weight,
        bias,
        stride=_per_dimension(call, "strides", space),
        padding=_pads(call, x.shape[2:], weight.shape[2:]),
        dilation=_per_dimension(call, "dilations", space),
        groups=call.get("group", 1),
    )


def _conv_transpose(
    call: OnnxCall, x: OnnxValue, weight: OnnxValue, bias: OnnxValue = None
) -> mm.Array:
    space = x.ndim - 2
    strides, dilations = (_per_dimension(call, name, space) for name in ("strides", "dilations"))
    pads, added = _transposed_pads(call, x.shape[2:], weight.shape[2:])
    is_plain = all(a < max(s, d) for a, s, d in zip(added, strides, dilations, strict=True))
    result = f.conv_transpose(
        mm.asarray(x),
        weight,
        bias if is_plain else None,
        stride=strides,
        padding=pads if is_plain else [(0, 0)] * space,
        output_padding=tuple(added) if is_plain else 0,
        dilation=dilations,
        groups=call.get("group", 1),
    )
    if is_plain:
        return result
    # Zeros at the ends, further than a product could reach; negative widths remove elements.
    ends = [(-low, a - high) for (low, high), a in zip(pads, added, strict=True)]
    result = f.pad(result, [n for pair in reversed(ends) for n in pair])
    return result if bias is None else result + mm.reshape(mm.asarray(bias), (-1, *[1] * space))


def _transposed_pads(
    call: OnnxCall, image: Sequence[int], kernel: Sequence[int]
) -> tuple[Pairs, list[int]]:
    """Return the padding of a transposed convolution, and the elements added at each end."""
    space, mode = len(image), call.get("auto_pad", "NOTSET")
    strides, dilations = (_per_dimension(call, name, space) for name in ("strides", "dilations"))
    added = list(call.get("output_padding") or [0] * space)
    extents = call.get("output_shape")
    if extents is None and mode in ("SAME_UPPER", "SAME_LOWER"):
        extents = [n * s for n, s in zip(image, strides, strict=True)]
    if extents is None:
        return _pads(call, image, kernel), added
    pads = []
    parts = zip(image, kernel, strides, dilations, extents[-space:], strict=True)
    for i, (n, k, s, d, extent) in enumerate(parts):
        total = (n - 1) * s + d * (k - 1) + 1 + added[i] - extent
        if total < 0:  # more elements than the products reach
            added[i], total = added[i] - total, 0
        pads.append(_halves(total, mode))
    return pads, added


@final
class _Pooling(NamedTuple):
    """The windows of a pooling.

    pads     the padding before and after each dimension
    reached  the padding up to the end of the last window, which may exceed `pads` in `ceil_mode`
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    pads: Pairs
    reached: Pairs


def _pooling(call: OnnxCall, x: OnnxValue) -> _Pooling:
    kernel = tuple(call.get("kernel_shape"))
    stride, dilation = (
        _per_dimension(call, name, len(kernel)) for name in ("strides", "dilations")
    )
    pads = reached = _pads(call, x.shape[2:], kernel)
    if call.get("ceil_mode", 0) and call.get("auto_pad", "NOTSET") == "NOTSET":
        reached = [*with_last_window(x.shape[2:], tuple(pads), kernel, stride, dilation)]
    return _Pooling(kernel, stride, dilation, pads, reached)


def _max_pool(call: OnnxCall, x: OnnxValue) -> mm.Array:
    if any(call.outputs[1:]):
        raise call.unsupported("with positions of the maxima is not available")
    pooling = _pooling(call, x)
    lowest = -np.inf if mm.isdtype(x.dtype, "real floating") else mm.iinfo(x.dtype).min
    padded = mm.pad(x, [(0, 0), (0, 0), *pooling.reached], constant_values=lowest)
    return f.max_pool(padded, pooling.kernel, pooling.stride, dilation=pooling.dilation)


def _average_pool(call: OnnxCall, x: OnnxValue) -> mm.Array:
    kernel, stride, dilation, pads, reached = pooling = _pooling(call, x)
    counts_pads = bool(call.get("count_include_pad", 0))
    fits = all(max(pair) <= k // 2 for pair, k in zip(pads, kernel, strict=True))
    if reached == pads and fits and set(dilation) == {1}:
        return f.avg_pool(mm.asarray(x), kernel, stride, pads, count_include_pad=counts_pads)
    sums = _window_sums(widened(x), pooling, reached)
    ones = np.ones((1, 1, *x.shape[2:]), np.float64)
    uncounted_pads = reached
    if counts_pads:
        ones = np.pad(ones, [(0, 0), (0, 0), *pads], constant_values=1.0)
        pairs = zip(reached, pads, strict=True)
        uncounted_pads = [(before - a, behind - b) for (before, behind), (a, b) in pairs]
    counts = np.asarray(_window_sums(mm.asarray(ones), pooling, uncounted_pads))
    return mm.astype(sums * mm.asarray(1.0 / counts, dtype=sums.dtype), x.dtype, copy=False)


def _window_sums(x: mm.Array, pooling: _Pooling, pads: Pairs) -> mm.Array:
    """Return the sum of each window of images, padded by zeros."""
    return mm.sum(_windows(x, pooling, pads), axis=_behind(x))


def _windows(x: OnnxValue, pooling: _Pooling, pads: Pairs) -> mm.Array:
    """Return the elements of each window of images, padded by zeros, in further axes."""
    padded = mm.pad(mm.asarray(x), [(0, 0), (0, 0), *pads])
    reach = [d * (k - 1) + 1 for k, d in zip(pooling.kernel, pooling.dilation, strict=True)]
    windows = mm.sliding_window_view(padded, tuple(reach), axis=_space(x))
    by_stride = [slice(None, None, s) for s in pooling.stride]
    by_dilation = [slice(None, None, d) for d in pooling.dilation]
    return windows[(slice(None), slice(None), *by_stride, *by_dilation)]


def _behind(x: OnnxValue) -> tuple[int, ...]:
    """Return the axes of the elements of windows."""
    return tuple(range(x.ndim, 2 * x.ndim - 2))


def _power_pool(call: OnnxCall, x: OnnxValue) -> mm.Array:
    pooling = _pooling(call, x)
    windows = _windows(x, pooling, pooling.reached)
    return mm.linalg.vector_norm(windows, axis=_behind(x), ord=call.get("p", 2))


def _space(x: OnnxValue) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


def _global_power_pool(call: OnnxCall, x: OnnxValue) -> mm.Array:
    return mm.linalg.vector_norm(x, axis=_space(x), keepdims=True, ord=call.get("p", 2))


CONVOLUTION: dict[str, Operator] = {
    "Conv": _convolution,
    "ConvTranspose": _conv_transpose,
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "LpPool": _power_pool,
    "GlobalAveragePool": lambda call, x: mm.mean(x, axis=_space(x), keepdims=True),
    "GlobalMaxPool": lambda call, x: mm.max(x, axis=_space(x), keepdims=True),
    "GlobalLpPool": _global_power_pool,
}
