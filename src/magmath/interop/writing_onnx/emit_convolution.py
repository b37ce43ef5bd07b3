"""Convolution and pooling as nodes of ONNX."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from magmath.graph import Shape
from magmath.interop.writing_onnx.onnx_emitter import Emitter
from magmath.interop.writing_onnx.onnx_trace import TracedNode
from magmath.interop.writing_onnx.onnx_writer import OnnxWriter
from magmath.nn.pooling import with_last_window
from magmath.nn.window_settings import Pads, same_pads


def _sides(pairs: Any) -> list[int]:
    """Return the padding before all dimensions, then that after them, as ONNX orders it."""
    return [low for low, _ in pairs] + [high for _, high in pairs]


def _convolution(w: OnnxWriter, node: TracedNode, x: str, weight: str) -> str:
    kernel = list(node.inputs[1].first.shape[2:])
    y = w.add(
        "Conv", x, weight, **_padding(node, kernel), strides=list(node.attribute("stride")),
        dilations=list(node.attribute("dilation")), group=node.attribute("groups"),
        kernel_shape=kernel,
    )  # fmt: skip
    return _in_type_of(node, w, y)


def _in_type_of(node: TracedNode, w: OnnxWriter, y: str) -> str:
    """Return the result of an operator, which has the type of the operands, in that of the node: of
    half types float32, whose conversion back follows."""
    dtype = node.first.dtype
    return y if node.inputs[0].first.dtype == dtype else w.cast(y, dtype)


def _padding(node: TracedNode, kernel: Sequence[int]) -> dict[str, Any]:
    """Return the attributes of the padding of windows.

    Padding that depends on the extents of the images follows one of ONNX's own rules: the one that
    gives ⌈extent / stride⌉ results, or the one that adds a last window which is only partly inside.
    Raises UnsupportedError if it follows none.
    """
    in_traces = node.attribute_in_each("padding")
    if all(pads == in_traces[0] for pads in in_traces):
        return {"pads": _sides(in_traces[0])}
    window = tuple(kernel), node.attribute("stride"), node.attribute("dilation")
    images = [x.shape[-len(kernel) :] for x in node.inputs[0].nodes]
    if in_traces == [_same_pads(image, *window) for image in images]:
        return {"auto_pad": "SAME_UPPER"}
    before = tuple([(low, low) for low, _ in in_traces[0]])
    whole = [with_last_window(image, before, *window) for image in images]
    if node.name == "max_pool" and in_traces == whole:
        return {"pads": _sides(before), "ceil_mode": 1}
    raise node.unsupported("whose padding depends on an extent of the inputs")


def _same_pads(image: Shape, kernel: Shape, stride: Shape, dilation: Shape) -> Pads:
    windows = zip(image, kernel, stride, dilation, strict=True)
    return tuple([same_pads(n, d * (k - 1) + 1, s) for n, k, s, d in windows])


def _conv_transpose(w: OnnxWriter, node: TracedNode, x: str, weight: str) -> str:
    kernel = node.inputs[1].first.shape[2:]
    pads, strides, dilations = (node.attribute(name) for name in ("padding", "stride", "dilation"))
    added = [
        [
            extent - ((n - 1) * s + d * (k - 1) + 1 - low - high)
            for extent, n, s, d, k, (low, high) in zip(
                space, image.shape[2:], strides, dilations, kernel, pads, strict=True
            )
        ]
        for space, image in zip(node.attribute_in_each("space"), node.inputs[0].nodes, strict=True)
    ]
    if any(in_trace != added[0] for in_trace in added):
        raise node.unsupported("whose output padding depends on an extent of the inputs")
    y = w.add(
        "ConvTranspose", x, weight, pads=_sides(pads), strides=list(strides),
        dilations=list(dilations), output_padding=added[0], group=node.attribute("groups"),
        kernel_shape=list(kernel),
    )  # fmt: skip
    return _in_type_of(node, w, y)


def _max_pool(w: OnnxWriter, node: TracedNode, x: str) -> str:
    return _pool(w, node, x, "MaxPool", dilations=list(node.attribute("dilation")))


def _sum_pool(w: OnnxWriter, node: TracedNode, x: str) -> str:
    if set(node.attribute("dilation")) != {1}:
        raise node.unsupported("with a dilation")
    mean = _pool(w, node, x, "AveragePool", count_include_pad=1)
    return w.add("Mul", mean, w.number(float(prod(node.attribute("kernel"))), node))


def _pool(w: OnnxWriter, node: TracedNode, x: str, operator: str, **options: Any) -> str:
    """Write a pooling of the last dimensions; ONNX pools those after the first two."""
    kernel = list(node.attribute("kernel"))
    before = node.ndim - len(kernel)
    if before not in (1, 2):
        raise node.unsupported(f"over {len(kernel)} of {node.ndim} dimensions")
    one = w.store(np.asarray([1], np.int64))
    images = x if before == 2 else w.add("Unsqueeze", x, one)
    pooled = w.add(
        operator, images, kernel_shape=kernel, strides=list(node.attribute("stride")),
        **_padding(node, kernel), **options,
    )  # fmt: skip
    return pooled if before == 2 else w.add("Squeeze", pooled, one)


CONVOLUTION: dict[str, Emitter] = {
    "correlation": _convolution,
    "correlation_input": _conv_transpose,
    "max_pool": _max_pool,
    "sum_pool": _sum_pool,
}
