"""Convolution and pooling as nodes of ONNX."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from magmath.interop.writing_onnx.onnx_emitter import Emitter
from magmath.interop.writing_onnx.onnx_trace import TracedNode
from magmath.interop.writing_onnx.onnx_writer import OnnxWriter


def _sides(pairs: Any) -> list[int]:
    """Return the padding before all dimensions, then that after them, as ONNX orders it."""
    return [low for low, _ in pairs] + [high for _, high in pairs]


def _convolution(w: OnnxWriter, node: TracedNode, x: str, weight: str) -> str:
    return w.add(
        "Conv", x, weight, pads=_sides(node.attribute("padding")),
        strides=list(node.attribute("stride")), dilations=list(node.attribute("dilation")),
        group=node.attribute("groups"), kernel_shape=list(node.inputs[1].first.shape[2:]),
    )  # fmt: skip


def _transposed(w: OnnxWriter, node: TracedNode, x: str, weight: str) -> str:
    kernel = node.inputs[1].first.shape[2:]
    pads, strides, dilations = (node.attribute(name) for name in ("padding", "stride", "dilation"))
    added = [
        extent - ((n - 1) * s + d * (k - 1) + 1 - low - high)
        for extent, n, s, d, k, (low, high) in zip(
            node.attribute("space"), node.inputs[0].first.shape[2:], strides, dilations, kernel,
            pads, strict=True,
        )
    ]  # fmt: skip
    return w.add(
        "ConvTranspose", x, weight, pads=_sides(pads), strides=list(strides),
        dilations=list(dilations), output_padding=added, group=node.attribute("groups"),
        kernel_shape=list(kernel),
    )  # fmt: skip


def _max_pool(w: OnnxWriter, node: TracedNode, x: str) -> str:
    return _pooled(w, node, x, "MaxPool", dilations=list(node.attribute("dilation")))


def _sum_pool(w: OnnxWriter, node: TracedNode, x: str) -> str:
    if set(node.attribute("dilation")) != {1}:
        raise node.unsupported("with a dilation")
    mean = _pooled(w, node, x, "AveragePool", count_include_pad=1)
    return w.add("Mul", mean, w.number(float(prod(node.attribute("kernel"))), node))


def _pooled(w: OnnxWriter, node: TracedNode, x: str, operator: str, **options: Any) -> str:
    """Write a pooling of the last dimensions; ONNX pools those after the first two."""
    kernel = list(node.attribute("kernel"))
    before = node.ndim - len(kernel)
    if before not in (1, 2):
        raise node.unsupported(f"over {len(kernel)} of {node.ndim} dimensions")
    one = w.store(np.asarray([1], np.int64))
    images = x if before == 2 else w.add("Unsqueeze", x, one)
    pooled = w.add(
        operator, images, kernel_shape=kernel, strides=list(node.attribute("stride")),
        pads=_sides(node.attribute("padding")), **options,
    )  # fmt: skip
    return pooled if before == 2 else w.add("Squeeze", pooled, one)


CONVOLUTION: dict[str, Emitter] = {
    "correlation": _convolution,
    "correlation_input": _transposed,
    "max_pool": _max_pool,
    "sum_pool": _sum_pool,
}
