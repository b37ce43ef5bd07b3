"""Operations of shapes and elements as nodes of ONNX, and numbers that depend on extents."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

import magmath as mm
from magmath.errors import MagmathError
from magmath.interop.writing_onnx.onnx_emitter import END, Emitter
from magmath.interop.writing_onnx.onnx_trace import KEEP_FIXED, Extent, TracedNode
from magmath.interop.writing_onnx.onnx_writer import OnnxWriter, varies


def _reshape(w: OnnxWriter, node: TracedNode, x: str) -> str:
    if len(list(filter(varies, node.shape))) != 1 or 0 in node.first.shape:
        return w.add("Reshape", x, w.shape(node.shape, node))
    shape = [-1 if varies(extent) else extent[0] for extent in node.shape]
    return w.add("Reshape", x, w.store(np.asarray(shape, np.int64)))


def _permute(w: OnnxWriter, node: TracedNode, x: str) -> str:
    return w.add("Transpose", x, perm=list(node.attribute("axes")))


def _broadcast(w: OnnxWriter, node: TracedNode, x: str) -> str:
    return w.add("Expand", x, w.shape(node.shape, node))


def _concat(w: OnnxWriter, node: TracedNode, *names: str) -> str:
    return w.add("Concat", *names, axis=node.attribute("axis"))


def _slice(w: OnnxWriter, node: TracedNode, x: str) -> str:
    bounds = list(zip(*node.attribute_in_each("bounds"), strict=True))  # by axis, in each trace
    chosen: list[tuple[int, Extent, Extent, int]] = []
    for axis, (of_traces, extent) in enumerate(zip(bounds, node.inputs[0].shape, strict=True)):
        if all(b == (0, n, 1) for b, n in zip(of_traces, extent, strict=True)):
            continue
        starts, stops, steps = zip(*of_traces, strict=True)
        if varies(steps):
            raise node.unsupported("whose step depends on an extent of the inputs")
        if steps[0] < 0:  # -1 is before the first element
            stops = tuple([-END if stop < 0 else stop for stop in stops])
        elif stops == extent:
            stops = (END,) * len(stops)
        chosen.append((axis, starts, stops, steps[0]))
    if not chosen:
        return x
    axes = w.store(np.asarray([axis for axis, *_ in chosen], np.int64))
    first = w.shape([starts for _, starts, _, _ in chosen], node)
    last = w.shape([stops for _, _, stops, _ in chosen], node)
    by = w.store(np.asarray([step for *_, step in chosen], np.int64))
    return w.add("Slice", x, first, last, axes, by)


def _set_slice(w: OnnxWriter, node: TracedNode, x: str, values: str) -> str:
    extents = node.inputs[0].shape
    written = {}
    for axis, bounds in enumerate(zip(*node.attribute_in_each("bounds"), strict=True)):
        if any(b != (0, n, 1) for b, n in zip(bounds, extents[axis], strict=True)):
            start, stop, step = _only(node, bounds)
            written[axis] = np.arange(start, stop, step)
    return _overwritten(w, node, x, values, written, dropped=())


def _set_window(w: OnnxWriter, node: TracedNode, x: str, values: str, *starts: str) -> str:
    axes, extents = node.attribute("axes"), node.attribute("extents")
    written = {}
    for axis, extent, step, start in zip(
        axes, extents, node.attribute("steps"), node.inputs[2:], strict=True
    ):
        if start.name != "scalar" or start.varies():
            raise node.unsupported("at a position that the inputs determine")
        first = int(start.first.value) % _only(node, node.inputs[0].shape[axis])
        written[axis] = first + step * np.arange(1 if extent is None else extent)
    dropped = [axis for axis, n in zip(axes, extents, strict=True) if n is None]
    return _overwritten(w, node, x, values, written, dropped)


def _only(node: TracedNode, values: Sequence[Any]) -> Any:
    """Return what is equal in all traces."""
    if any(value != values[0] for value in values):
        raise node.unsupported("which writes to a part of an axis of variable extent")
    return values[0]


def _overwritten(
    w: OnnxWriter,
    node: TracedNode,
    x: str,
    values: str,
    written: Mapping[int, Any],
    dropped: Collection[int],
) -> str:
    """Write values at positions along some axes: a choice between them and the former elements.

    `dropped`: the axes that the values do not have.
    """
    ndim, shape = node.ndim, list(node.inputs[1].shape)
    mask = np.ones([1] * ndim, bool)
    for axis in sorted(written, reverse=True):
        after = ndim - 1 - axis
        if axis in dropped and len(shape) > after:
            place = w.store(np.asarray([-after - 1], np.int64))
            values = w.add("Unsqueeze", values, place)
            shape.insert(len(shape) - after, (1,))
        extent = _only(node, node.inputs[0].shape[axis])
        along = np.zeros(extent, bool)
        along[written[axis]] = True
        mask = mask & along.reshape([-1 if d == axis else 1 for d in range(ndim)])
        if len(shape) > after and set(shape[len(shape) - 1 - after]) != {1}:
            source = np.zeros(extent, np.int64)
            source[written[axis]] = np.arange(len(written[axis]))
            values = w.add("Gather", values, w.store(source), axis=-after - 1)
    return w.add("Where", w.store(mask), values, x)


def _window(w: OnnxWriter, node: TracedNode, x: str, *starts: str) -> str:
    axes, extents = node.attribute("axes"), node.attribute("extents")
    steps = node.attribute("steps")
    one = w.store(np.asarray([1], np.int64))
    firsts = []
    for axis, start in zip(axes, starts, strict=True):  # negative ones count from the end
        whole = w.integer(node.inputs[0].shape[axis], node)
        firsts.append(w.add("Mod", w.add("Reshape", w.cast(start, mm.int64), one), whole))
    first = w.add("Concat", *firsts, axis=0)
    counts = [1 if n is None else n for n in extents]
    reach = [step * (n - 1) + 1 for step, n in zip(steps, counts, strict=True)]
    last = w.add("Add", first, w.store(np.asarray(reach, np.int64)))
    along, by = (w.store(np.asarray(part, np.int64)) for part in (axes, steps))
    part = w.add("Slice", x, first, last, along, by)
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


def _number(w: OnnxWriter, node: TracedNode) -> str:
    """Write a number that depends on extents: a count of elements, or the inverse of one."""
    if node.ndim:
        raise node.unsupported(
            "which is made anew in each call, from an extent of the inputs or by drawing numbers",
            f"compute it with functions of magmath, keep it in a Buffer, or {KEEP_FIXED}",
        )
    if node.name == "scalar" and None in [one.value for one in node.nodes]:
        raise MagmathError(
            "to_onnx: the module draws random numbers; write it in evaluation mode, "
            "module.eval(), or give such numbers as an input"
        )
    values = [
        one.value if node.name == "scalar" else np.asarray(mm.Array(one)).item()
        for one in node.nodes
    ]
    whole = tuple([round(v) for v in values])
    if all(float(v) == float(n) for v, n in zip(values, whole, strict=True)):
        return w.cast(w.add("Squeeze", w.integer(whole, node)), node.first.dtype)
    inverse = tuple([round(1.0 / v) if v else 0 for v in values])
    close = all(n and abs(v * n - 1.0) < 1e-6 for v, n in zip(values, inverse, strict=True))
    if not close:
        raise node.unsupported("which depends on the extents of the inputs in an unknown way")
    count = w.cast(w.add("Squeeze", w.integer(inverse, node)), node.first.dtype)
    return w.add("Reciprocal", count)


def _take(w: OnnxWriter, node: TracedNode, x: str, *indices: str) -> str:
    axes, at = node.attribute("axes"), node.attribute("at")
    if len(axes) == 1 and at == axes[0]:
        return w.add("Gather", x, indices[0], axis=axes[0])
    if axes != tuple(range(len(axes))) or at != 0:
        raise node.unsupported("with indices of axes that are not the first ones")
    shape = w.shape(node.shape[: node.ndim - node.inputs[0].ndim + len(axes)], node)
    last = w.store(np.asarray([-1], np.int64))
    columns = [w.add("Unsqueeze", w.add("Expand", i, shape), last) for i in indices]
    return w.add("GatherND", x, w.add("Concat", *columns, axis=-1))


def _take_along(w: OnnxWriter, node: TracedNode, x: str, indices: str) -> str:
    return w.add("GatherElements", x, indices, axis=node.attribute("axis"))


def _diagonal(w: OnnxWriter, node: TracedNode, x: str) -> str:
    n = np.arange(node.first.shape[-1])
    if node.inputs[0].ndim != 2 or node.varies():
        raise node.unsupported("of more than one matrix")
    return w.add("GatherND", x, w.store(np.stack([n, n], 1).astype(np.int64)))


SHAPES: dict[str, Emitter] = {
    "reshape": _reshape,
    "permute_dims": _permute,
    "broadcast_to": _broadcast,
    "concat": _concat,
    "slice": _slice,
    "set_slice": _set_slice,
    "window": _window,
    "set_window": _set_window,
    "full": _full,
    "iota": _iota,
    "scalar": _number,
    "input": _number,
    "take": _take,
    "take_along": _take_along,
    "diagonal": _diagonal,
}
