"""Reductions, products and sorts as nodes of ONNX."""

from __future__ import annotations

import numpy as np

import magmath as mm
from magmath.interop.writing_onnx.onnx_emitter import Emitter, same_as
from magmath.interop.writing_onnx.onnx_trace import TracedNode
from magmath.interop.writing_onnx.onnx_writer import OnnxWriter


def _sum(w: OnnxWriter, node: TracedNode, x: str) -> str:
    axes = w.store(np.asarray(node.attribute("axis"), np.int64))
    x = _in_type(w, x, node.inputs[0], node.first.dtype)
    return w.add("ReduceSum", x, axes, keepdims=int(node.attribute("keepdims")))


def _in_type(w: OnnxWriter, name: str, node: TracedNode, dtype: mm.DType) -> str:
    """Return the name of a result, or of its conversion if it has another element type."""
    return name if node.first.dtype == dtype else w.cast(name, dtype)


def _reduction(operator: str) -> Emitter:
    def emit(w: OnnxWriter, node: TracedNode, x: str) -> str:
        axes = w.store(np.asarray(node.attribute("axis"), np.int64))
        keep = int(node.attribute("keepdims"))
        if node.inputs[0].first.dtype == mm.bool and node.first.dtype == mm.bool:
            return w.cast(w.add(operator, w.cast(x, mm.int32), axes, keepdims=keep), mm.bool)
        x = _in_type(w, x, node.inputs[0], node.first.dtype)
        return w.add(operator, x, axes, keepdims=keep)

    return emit


def _arg_extremum(operator: str) -> Emitter:
    def emit(w: OnnxWriter, node: TracedNode, x: str) -> str:
        axis, keep = node.attribute("axis"), int(node.attribute("keepdims"))
        return w.add(operator, x, axis=axis, keepdims=keep)

    return emit


def _cumulative_sum(w: OnnxWriter, node: TracedNode, x: str) -> str:
    x = _in_type(w, x, node.inputs[0], node.first.dtype)
    return w.add("CumSum", x, w.store(np.asarray(node.attribute("axis"), np.int64)))


def _contract(w: OnnxWriter, node: TracedNode, *names: str) -> str:
    subscripts, kind = node.attribute("subscripts"), node.first.dtype
    operands = [_in_type(w, name, x, kind) for name, x in zip(names, node.inputs, strict=True)]
    if len(operands) == 2 and _is_matmul(subscripts):
        return w.add("MatMul", *operands)
    return w.add("Einsum", *operands, equation=subscripts)


def _is_matmul(subscripts: str) -> bool:
    """Return True for a product of (stacks of) matrices."""
    operands, result = subscripts.split("->")
    a, b = operands.split(",")
    if min(len(a), len(b), len(result)) < 2 or a[-1] != b[-2] or a[-1] in result:
        return False
    stack = a[:-2]
    return result == stack + a[-2] + b[-1] and b[:-2] in (stack, "")


def _sort(w: OnnxWriter, node: TracedNode, x: str, result: int) -> str:
    axis = node.attribute("axis")
    count = w.integer(node.inputs[0].shape[axis], node)
    largest = int(node.attribute("descending"))
    return w.add_several("TopK", 2, x, count, axis=axis, largest=largest)[result]


REDUCTIONS: dict[str, Emitter] = {
    "sum": _sum,
    "prod": _reduction("ReduceProd"),
    "max": _reduction("ReduceMax"),
    "min": _reduction("ReduceMin"),
    "any": _reduction("ReduceMax"),
    "all": _reduction("ReduceMin"),
    "argmax": _arg_extremum("ArgMax"),
    "argmin": _arg_extremum("ArgMin"),
    "cumulative_sum": _cumulative_sum,
    "contract": _contract,
    "sort": lambda w, node, x: _sort(w, node, x, 0),
    "argsort": lambda w, node, x: _sort(w, node, x, 1),
    "det": same_as("Det"),
}
