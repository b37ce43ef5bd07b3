"""ONNX's operators on shapes, elements and positions."""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

import magmath as mm
from magmath.interop.reading_onnx.onnx_call import OnnxCall, OnnxValue, Operator, axes_of, dtype_of


def _reshape(call: OnnxCall, x: OnnxValue, shape: OnnxValue = None) -> mm.Array:
    extents = call.numbers("shape", shape) or []
    if not call.get("allowzero", 0):
        extents = [x.shape[i] if n == 0 else n for i, n in enumerate(extents)]
    return mm.reshape(x, tuple(extents))


def _flatten(call: OnnxCall, x: OnnxValue) -> mm.Array:
    axis = call.get("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis  # may be the number of dimensions
    return mm.reshape(x, (prod(x.shape[:axis]), prod(x.shape[axis:])))


def _transpose(call: OnnxCall, x: OnnxValue) -> mm.Array:
    return mm.permute_dims(x, tuple(call.get("perm") or range(x.ndim)[::-1]))


def _squeeze(call: OnnxCall, x: OnnxValue, axes: OnnxValue = None) -> mm.Array:
    chosen = call.numbers("axes", axes)
    return mm.squeeze(x, None if chosen is None else tuple(chosen))


def _unsqueeze(call: OnnxCall, x: OnnxValue, axes: OnnxValue = None) -> mm.Array:
    chosen = call.numbers("axes", axes) or []
    return mm.expand_dims(x, axes_of(chosen, x.ndim + len(chosen)))


def _concat(call: OnnxCall, *operands: OnnxValue) -> mm.Array:
    return mm.concat(list(operands), axis=call.get("axis", 1))


def _split(call: OnnxCall, x: OnnxValue, sizes: OnnxValue = None) -> tuple[mm.Array, ...]:
    axis = call.get("axis", 0) % x.ndim
    extents = call.numbers("split", sizes)
    if extents is None:  # equal parts, of which the last one may be smaller
        count = call.get("num_outputs", len(call.outputs))
        size, n = -(-x.shape[axis] // count), x.shape[axis]
        extents = [max(0, min(size, n - i * size)) for i in range(count)]
    ends = [0, *np.cumsum(extents).tolist()]
    before = (slice(None),) * axis
    return tuple([x[(*before, slice(start, end))] for start, end in pairwise(ends)])


def _slice(
    call: OnnxCall,
    x: OnnxValue,
    starts: OnnxValue = None,
    ends: OnnxValue = None,
    axes: OnnxValue = None,
    steps: OnnxValue = None,
) -> mm.Array:
    first, last = call.numbers("starts", starts) or [], call.numbers("ends", ends) or []
    chosen = axes_of(call.numbers("axes", axes) or range(len(first)), x.ndim)
    by = call.numbers("steps", steps) or [1] * len(first)
    key: list[Any] = [slice(None)] * x.ndim
    for axis, start, stop, step in zip(chosen, first, last, by, strict=True):
        extent = x.shape[axis]
        before = -1 if step < 0 else 0  # the stop of a slice that includes the first element
        stop = max(stop + extent, before) if stop < 0 else stop
        start = max(start + extent, 0) if start < 0 else start
        key[axis] = slice(start, None if stop < 0 else stop, step)
    return mm.asarray(x[tuple(key)])


def _gather(call: OnnxCall, x: OnnxValue, indices: OnnxValue) -> mm.Array:
    axis = call.get("axis", 0) % x.ndim
    return mm.take(x, _from_front(indices, x.shape[axis]), axis=axis)


def _gather_elements(call: OnnxCall, x: OnnxValue, indices: OnnxValue) -> mm.Array:
    axis = call.get("axis", 0) % x.ndim
    key: list[Any] = [_range_along(n, d, x.ndim) for d, n in enumerate(indices.shape)]
    key[axis] = _from_front(indices, x.shape[axis])
    return mm.asarray(x)[tuple(key)]


def _gather_nd(call: OnnxCall, x: OnnxValue, indices: OnnxValue) -> mm.Array:
    batch = call.get("batch_dims", 0)
    ndim = indices.ndim - 1
    before = [_range_along(n, d, ndim) for d, n in enumerate(indices.shape[:batch])]
    return mm.asarray(x)[(*before, *_columns(indices))]


def _scatter_elements(
    call: OnnxCall, x: OnnxValue, indices: OnnxValue, updates: OnnxValue
) -> mm.Array:
    axis = call.get("axis", 0) % x.ndim
    key: list[Any] = [_range_along(n, d, x.ndim) for d, n in enumerate(indices.shape)]
    key[axis] = _from_front(indices, x.shape[axis])
    return _copy_with_updates(call, x, tuple(key), updates)


def _scatter_nd(call: OnnxCall, x: OnnxValue, indices: OnnxValue, updates: OnnxValue) -> mm.Array:
    return _copy_with_updates(call, x, _columns(indices), updates)


def _copy_with_updates(
    call: OnnxCall, x: OnnxValue, key: tuple[Any, ...], updates: OnnxValue
) -> mm.Array:
    """Return a copy of x with updates at indices, combined as the attribute `reduction` says."""
    result = mm.copy(mm.asarray(x))
    reduction = call.get("reduction", "none")
    if reduction == "none":
        result[key] = updates
    else:
        _UPDATES[reduction].at(result, key, updates)
    return result


_UPDATES = {"add": mm.add, "mul": mm.multiply, "max": mm.maximum, "min": mm.minimum}


def _columns(indices: OnnxValue) -> tuple[Any, ...]:
    """Return the indices along each axis, which are the last axis of an array."""
    return tuple([indices[..., i] for i in range(indices.shape[-1])])


def _range_along(extent: int, axis: int, ndim: int) -> Any:
    return np.arange(extent).reshape([-1 if d == axis else 1 for d in range(ndim)])


def _from_front(indices: OnnxValue, extent: int) -> OnnxValue:
    """Return indices of which negative ones count from the end, counted from the front."""
    if isinstance(indices, np.ndarray):
        return np.where(indices < 0, indices + extent, indices)
    return mm.where(indices < 0, indices + extent, indices)


def _expand(call: OnnxCall, x: OnnxValue, shape: OnnxValue) -> mm.Array:
    extents = tuple(call.numbers("shape", shape) or ())
    return mm.broadcast_to(x, np.broadcast_shapes(x.shape, extents))


def _tile(call: OnnxCall, x: OnnxValue, repeats: OnnxValue) -> mm.Array:
    return mm.tile(x, tuple(call.numbers("repeats", repeats) or ()))


def _pad(
    call: OnnxCall,
    x: OnnxValue,
    pads: OnnxValue = None,
    value: OnnxValue = None,
    axes: OnnxValue = None,
) -> mm.Array:
    widths = call.numbers("pads", pads) or call.get("paddings") or []
    chosen = axes_of(call.numbers("axes", axes), x.ndim)
    pairs = [(0, 0)] * x.ndim
    for i, axis in enumerate(chosen):
        pairs[axis] = int(widths[i]), int(widths[i + len(chosen)])
    # Negative widths remove elements.
    key = [slice(-min(a, 0), n + min(b, 0)) for n, (a, b) in zip(x.shape, pairs, strict=True)]
    x = mm.asarray(x[tuple(key)])
    added = [(max(a, 0), max(b, 0)) for a, b in pairs]
    mode = call.get("mode", "constant")
    if mode == "constant":
        fill = call.number("value", value, 0)
        return mm.pad(x, added, mode="constant", constant_values=fill)
    return mm.pad(x, added, mode=mode)


def _depth_to_space(call: OnnxCall, x: OnnxValue) -> mm.Array:
    b, (n, c, h, w) = call.get("blocksize"), x.shape
    if call.get("mode", "DCR") == "DCR":
        parts = mm.permute_dims(mm.reshape(x, (n, b, b, c // b**2, h, w)), (0, 3, 4, 1, 5, 2))
    else:
        parts = mm.permute_dims(mm.reshape(x, (n, c // b**2, b, b, h, w)), (0, 1, 4, 2, 5, 3))
    return mm.reshape(parts, (n, c // b**2, h * b, w * b))


def _space_to_depth(call: OnnxCall, x: OnnxValue) -> mm.Array:
    b, (n, c, h, w) = call.get("blocksize"), x.shape
    parts = mm.reshape(x, (n, c, h // b, b, w // b, b))
    order = (0, 3, 5, 1, 2, 4) if call.get("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    return mm.reshape(mm.permute_dims(parts, order), (n, c * b * b, h // b, w // b))


def _triangle(call: OnnxCall, x: OnnxValue, k: OnnxValue = None) -> mm.Array:
    diagonal = call.number("k", k, 0)
    return mm.triu(x, k=diagonal) if call.get("upper", 1) else mm.tril(x, k=diagonal)


def _one_hot(call: OnnxCall, indices: OnnxValue, depth: OnnxValue, values: OnnxValue) -> mm.Array:
    count = int(call.number("depth", depth))
    axis = call.get("axis", -1) % (indices.ndim + 1)
    whole = mm.astype(mm.asarray(indices), mm.int64)
    positions = _range_along(count, axis, indices.ndim + 1)
    hot = mm.expand_dims(_from_front(whole, count), axis) == positions
    return mm.where(hot, values[1], values[0])


def _eye_like(call: OnnxCall, x: OnnxValue) -> mm.Array:
    kind = x.dtype if call.get("dtype") is None else dtype_of(call.get("dtype"))
    return mm.eye(x.shape[0], x.shape[1], k=call.get("k", 0), dtype=kind)


def _constant_of_shape(call: OnnxCall, shape: OnnxValue) -> mm.Array:
    value = call.get("value")
    value = np.zeros(1, np.float32) if value is None else value
    return mm.full(tuple(call.numbers("shape", shape) or ()), value[0], dtype=value.dtype)


def _shape(call: OnnxCall, x: OnnxValue) -> Any:
    return np.asarray(x.shape[call.get("start", 0) : call.get("end")], np.int64)


def _range(call: OnnxCall, start: OnnxValue, limit: OnnxValue, delta: OnnxValue) -> Any:
    first, last, step = (np.asarray(n).item() for n in (start, limit, delta))
    return np.arange(first, last, step, dtype=str(start.dtype).rpartition(".")[2])


def _nonzero(call: OnnxCall, x: OnnxValue) -> mm.Array:
    return mm.stack(list(mm.nonzero(x)))


def _compress(call: OnnxCall, x: OnnxValue, condition: OnnxValue) -> mm.Array:
    return mm.compress(condition, x, axis=call.get("axis"))


def _reverse_sequence(call: OnnxCall, x: OnnxValue, lengths: OnnxValue) -> mm.Array:
    batch, time = call.get("batch_axis", 1), call.get("time_axis", 0)
    position = _range_along(x.shape[time], time, 2)
    count = mm.reshape(mm.asarray(lengths), (1, -1) if batch else (-1, 1))
    row = mm.where(position < count, count - 1 - position, position)
    key: list[Any] = [row, row]
    key[batch] = _range_along(x.shape[batch], batch, 2)
    return mm.asarray(x)[tuple(key)]


SHAPES: dict[str, Operator] = {
    "Shape": _shape, "Size": lambda call, x: np.asarray(x.size, np.int64),
    "Reshape": _reshape, "Flatten": _flatten, "Transpose": _transpose, "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze, "Concat": _concat, "Split": _split, "Slice": _slice,
    "Gather": _gather, "GatherElements": _gather_elements, "GatherND": _gather_nd,
    "ScatterElements": _scatter_elements, "Scatter": _scatter_elements, "ScatterND": _scatter_nd,
    "Expand": _expand, "Tile": _tile, "Pad": _pad, "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth, "Trilu": _triangle, "OneHot": _one_hot,
    "EyeLike": _eye_like, "ConstantOfShape": _constant_of_shape, "NonZero": _nonzero,
    "Range": _range, "Compress": _compress, "ReverseSequence": _reverse_sequence,
}  # fmt: skip
