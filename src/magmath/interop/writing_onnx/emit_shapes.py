"""Operations of shapes and elements as nodes of ONNX, and numbers that depend on extents."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, final

import numpy as np

import magmath as mm
from magmath.errors import UnsupportedError
from magmath.interop.writing_onnx.onnx_emitter import END, Emitter
from magmath.interop.writing_onnx.onnx_trace import KEEP_FIXED, Extent, TracedNode
from magmath.interop.writing_onnx.onnx_writer import OnnxWriter, is_varying


def _reshape(w: OnnxWriter, node: TracedNode, x: str) -> str:
    if len(list(filter(is_varying, node.shape))) != 1 or 0 in node.first.shape:
        return w.add("Reshape", x, w.shape(node.shape, node))
    shape = [-1 if is_varying(extent) else extent[0] for extent in node.shape]
    return w.add("Reshape", x, w.store(np.asarray(shape, np.int64)))


def _permute(w: OnnxWriter, node: TracedNode, x: str) -> str:
    return w.add("Transpose", x, perm=list(node.attribute("axes")))


def _broadcast(w: OnnxWriter, node: TracedNode, x: str) -> str:
    return w.add("Expand", x, w.shape(node.shape, node))


def _concat(w: OnnxWriter, node: TracedNode, *names: str) -> str:
    return w.add("Concat", *names, axis=node.attribute("axis"))


@final
class _AxisSlice(NamedTuple):
    """A slice of one axis, with the bounds in each trace."""

    axis: int
    starts: Extent
    stops: Extent
    step: int


def _slice(w: OnnxWriter, node: TracedNode, x: str) -> str:
    slices = _slices(node)
    if not slices:
        return x
    starts = w.shape([s.starts for s in slices], node)
    stops = w.shape([s.stops for s in slices], node)
    axes = w.store(np.asarray([s.axis for s in slices], np.int64))
    steps = w.store(np.asarray([s.step for s in slices], np.int64))
    return w.add("Slice", x, starts, stops, axes, steps)


def _slices(node: TracedNode) -> list[_AxisSlice]:
    """Return the slices of those axes that are not kept whole."""
    slices = []
    bounds = zip(*node.attribute_in_each("bounds"), strict=True)  # of each axis, in each trace
    for axis, (of_traces, extent) in enumerate(zip(bounds, node.inputs[0].shape, strict=True)):
        if all(b == (0, n, 1) for b, n in zip(of_traces, extent, strict=True)):
            continue
        starts, stops, steps = zip(*of_traces, strict=True)
        if is_varying(steps):
            raise node.unsupported("whose step depends on an extent of the inputs")
        if steps[0] < 0:  # -1 is before the first element
            stops = tuple([-END if stop < 0 else stop for stop in stops])
        elif stops == extent:
            stops = (END,) * len(stops)
        else:
            stops = _from_end(stops, extent)
        slices.append(_AxisSlice(axis, _from_end(starts, extent), stops, steps[0]))
    return slices


def _from_end(bounds: Extent, extent: Extent) -> Extent:
    """Return the bounds as a negative number that counts from the end, if one gives all of them.

    Both Python and ONNX limit it for shorter axes, unlike the difference `extent - number`.
    """
    distances = {bound - n for bound, n in zip(bounds, extent, strict=True)}
    is_from_end = is_varying(extent) and len(distances) == 1 and min(distances) < 0
    return (distances.pop(),) * len(bounds) if is_from_end else bounds


def _set_slice(w: OnnxWriter, node: TracedNode, x: str, values: str) -> str:
    extents = node.inputs[0].shape
    written = {}
    for axis, bounds in enumerate(zip(*node.attribute_in_each("bounds"), strict=True)):
        if any(b != (0, n, 1) for b, n in zip(bounds, extents[axis], strict=True)):
            start, stop, step = _only(node, bounds)
            written[axis] = np.arange(start, stop, step)
    return _write_at(w, node, x, values, written, dropped=())


def _dynamic_update_slice(
    w: OnnxWriter, node: TracedNode, x: str, values: str, *starts: str
) -> str:
    axes, extents = node.attribute("axes"), node.attribute("extents")
    written = {}
    for axis, extent, step, start in zip(
        axes, extents, node.attribute("steps"), node.inputs[2:], strict=True
    ):
        if start.name != "scalar" or start.has_varying_number():
            raise node.unsupported("at a position that the inputs determine")
        first = int(start.first.value) % _only(node, node.inputs[0].shape[axis])
        written[axis] = first + step * np.arange(1 if extent is None else extent)
    dropped = [axis for axis, n in zip(axes, extents, strict=True) if n is None]
    return _write_at(w, node, x, values, written, dropped)


def _only(node: TracedNode, values: Sequence[Any]) -> Any:
    """Return the value that is equal in all traces. Raises MagmathError if it differs."""
    if any(value != values[0] for value in values):
        raise node.unsupported("which writes to a part of an axis of variable extent")
    return values[0]


def _write_at(
    w: OnnxWriter,
    node: TracedNode,
    x: str,
    values: str,
    written: Mapping[int, Any],
    dropped: Collection[int],
) -> str:
    """Write values at positions along some axes: a choice between them and the former elements.

    written   the positions along each axis that is not written whole
    dropped   the axes that the values do not have
    """
    ndim, shape = node.ndim, list(node.inputs[1].shape)
    mask = np.ones([1] * ndim, bool)
    for axis in sorted(written, reverse=True):
        after = ndim - 1 - axis
        if axis in dropped and len(shape) > after:
            new_axis = w.store(np.asarray([-after - 1], np.int64))
            values = w.add("Unsqueeze", values, new_axis)
            shape.insert(len(shape) - after, (1,))
        extent = _only(node, node.inputs[0].shape[axis])
        is_written = np.zeros(extent, bool)
        is_written[written[axis]] = True
        mask = mask & is_written.reshape([-1 if d == axis else 1 for d in range(ndim)])
        if len(shape) > after and set(shape[len(shape) - 1 - after]) != {1}:
            source = np.zeros(extent, np.int64)  # the value of each element
            source[written[axis]] = np.arange(len(written[axis]))
            values = w.add("Gather", values, w.store(source), axis=-after - 1)
    return w.add("Where", w.store(mask), values, x)


def _dynamic_slice(w: OnnxWriter, node: TracedNode, x: str, *positions: str) -> str:
    axes, extents = node.attribute("axes"), node.attribute("extents")
    steps = node.attribute("steps")
    one = w.store(np.asarray([1], np.int64))
    starts = []
    for axis, position in zip(axes, positions, strict=True):  # negative ones count from the end
        whole = w.integer(node.inputs[0].shape[axis], node)
        starts.append(w.add("Mod", w.add("Reshape", w.cast(position, mm.int64), one), whole))
    start = w.add("Concat", *starts, axis=0)
    counts = [1 if n is None else n for n in extents]
    reach = [step * n for step, n in zip(steps, counts, strict=True)]
    stop = w.add("Add", start, w.store(np.asarray(reach, np.int64)))
    if min(steps) < 0:  # -1 is before the first element
        zero, before_first = (w.store(np.asarray([n], np.int64)) for n in (0, -END))
        stop = w.add("Where", w.add("Less", stop, zero), before_first, stop)
    along, by = (w.store(np.asarray(part, np.int64)) for part in (axes, steps))
    part = w.add("Slice", x, start, stop, along, by)
    dropped = [axis for axis, n in zip(axes, extents, strict=True) if n is None]
    return w.add("Squeeze", part, w.store(np.asarray(dropped, np.int64))) if dropped else part


def _full(w: OnnxWriter, node: TracedNode, value: str) -> str:
    return w.add("Expand", w.cast(value, node.first.dtype), w.shape(node.shape, node))


def _iota(w: OnnxWriter, node: TracedNode) -> str:
    axis = node.attribute("axis")
    count = w.add("Squeeze", w.integer(node.shape[axis], node))
    zero, one = w.store(np.asarray(0, np.int64)), w.store(np.asarray(1, np.int64))
    line = w.cast(w.add("Range", zero, count, one), node.first.dtype)
    if node.ndim == 1:
        return line
    along = w.store(np.asarray([-1 if d == axis else 1 for d in range(node.ndim)], np.int64))
    return w.add("Expand", w.add("Reshape", line, along), w.shape(node.shape, node))


def _number_of_extents(w: OnnxWriter, node: TracedNode) -> str:
    """Write a number that depends on extents: a count of elements, or the inverse of one."""
    values = _numbers(node)
    integers = tuple([round(v) for v in values])
    if all(float(v) == float(n) for v, n in zip(values, integers, strict=True)):
        return w.cast(w.add("Squeeze", w.integer(integers, node)), node.first.dtype)
    counts = tuple([round(1.0 / v) if v else 0 for v in values])
    if not all(n and abs(v * n - 1.0) < 1e-6 for v, n in zip(values, counts, strict=True)):
        raise node.unsupported("which depends on the extents of the inputs in an unknown way")
    count = w.cast(w.add("Squeeze", w.integer(counts, node)), node.first.dtype)
    return w.add("Reciprocal", count)


def _numbers(node: TracedNode) -> list[Any]:
    """Return the value of a number in each trace. Raises UnsupportedError for arrays and for
    numbers that are drawn."""
    if node.ndim:
        raise node.unsupported(
            "which is made again in each call, from an extent of the inputs or by drawing numbers",
            f"compute it with functions of magmath, or keep it in a Buffer; for a layer that "
            f"resizes images, such as Upsample, leave the number of samples alone open, or "
            f"{KEEP_FIXED}",
        )
    if node.name != "scalar":
        return [np.asarray(mm.Array(n)).item() for n in node.nodes]
    if None in [n.value for n in node.nodes]:
        raise UnsupportedError(
            "to_onnx: the module draws random numbers; write it in evaluation mode, "
            "module.eval(), or give such numbers as an input"
        )
    return [n.value for n in node.nodes]


def _take(w: OnnxWriter, node: TracedNode, x: str, *indices: str) -> str:
    axes, at = node.attribute("axes"), node.attribute("at")
    if len(axes) == 1 and at == axes[0]:
        return w.add("Gather", x, indices[0], axis=axes[0])
    if axes != tuple(range(len(axes))) or at != 0:
        raise node.unsupported("with indices of axes that are not the first ones")
    shape = w.shape(node.shape[: node.ndim - node.inputs[0].ndim + len(axes)], node)
    last_axis = w.store(np.asarray([-1], np.int64))
    columns = [w.add("Unsqueeze", w.add("Expand", i, shape), last_axis) for i in indices]
    return w.add("GatherND", x, w.add("Concat", *columns, axis=-1))


def _take_along(w: OnnxWriter, node: TracedNode, x: str, indices: str) -> str:
    return w.add("GatherElements", x, indices, axis=node.attribute("axis"))


def _diagonal(w: OnnxWriter, node: TracedNode, x: str) -> str:
    if node.inputs[0].ndim != 2 or node.has_varying_number():
        raise node.unsupported("of more than one matrix")
    positions = np.arange(node.first.shape[-1], dtype=np.int64)
    return w.add("GatherND", x, w.store(np.stack([positions, positions], 1)))


SHAPES: dict[str, Emitter] = {
    "reshape": _reshape,
    "permute_dims": _permute,
    "broadcast_to": _broadcast,
    "concat": _concat,
    "slice": _slice,
    "set_slice": _set_slice,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "full": _full,
    "iota": _iota,
    "scalar": _number_of_extents,
    "input": _number_of_extents,
    "take": _take,
    "take_along": _take_along,
    "diagonal": _diagonal,
}
