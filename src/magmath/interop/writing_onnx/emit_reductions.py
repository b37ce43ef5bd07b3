"""Reductions, products and sorts as nodes of ONNX."""

from __future__ import annotations

import numpy as np

import magmath as mm
from magmath.interop.writing_onnx.onnx_emitter import Emitter, same_as
from magmath.interop.writing_onnx.onnx_trace import TracedNode
from magmath.interop.writing_onnx.onnx_writer import OnnxWriter


def _sum(w: OnnxWriter, node: TracedNode, x: str) -> str:
    axes = w.store(np.asarray(node.attribute("axis"), np.int64))
    kind = node.first.dtype
    x = x if node.inputs[0].first.dtype == kind else w.cast(x, kind)
    return w.add("ReduceSum", x, axes, keepdims=int(node.attribute("keepdims")))


def _reduced(operator: str) -> Emitter:
    def emit(w: OnnxWriter, node: TracedNode, x: str) -> str:
        axes = w.store(np.asarray(node.attribute("axis"), np.int64))
        keep = int(node.attribute("keepdims"))
        kind, result = node.inputs[0].first.dtype, node.first.dtype
        if kind == mm.bool and result == mm.bool:
            return w.cast(w.add(operator, w.cast(x, mm.int32), axes, keepdims=keep), mm.bool)
        x = x if kind == result else w.cast(x, result)
        return w.add(operator, x, axes, keepdims=keep)

    return emit


def _extremum(operator: str) -> Emitter:
    def emit(w: OnnxWriter, node: TracedNode, x: str) -> str:
        axis, keep = node.attribute("axis"), int(node.attribute("keepdims"))
        return w.add(operator, x, axis=axis, keepdims=keep)

    return emit


def _cumulative_sum(w: OnnxWriter, node: TracedNode, x: str) -> str:
    x = x if node.inputs[0].first.dtype == node.first.dtype else w.cast(x, node.first.dtype)
    return w.add("CumSum", x, w.store(np.asarray(node.attribute("axis"), np.int64)))


def _contract(w: OnnxWriter, node: TracedNode, *names: str) -> str:
    subscripts, kind = node.attribute("subscripts"), node.first.dtype
    given = zip(names, node.inputs, strict=True)
    cast = [name if x.first.dtype == kind else w.cast(name, kind) for name, x in given]
    if len(cast) == 2 and _is_matmul(subscripts):
        return w.add("MatMul", *cast)
    return w.add("Einsum", *cast, equation=subscripts)


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
    "prod": _reduced("ReduceProd"),
    "max": _reduced("ReduceMax"),
    "min": _reduced("ReduceMin"),
    "any": _reduced("ReduceMax"),
    "all": _reduced("ReduceMin"),
    "argmax": _extremum("ArgMax"),
    "argmin": _extremum("ArgMin"),
    "cumulative_sum": _cumulative_sum,
    "contract": _contract,
    "sort": lambda w, node, x: _sort(w, node, x, 0),
    "argsort": lambda w, node, x: _sort(w, node, x, 1),
    "det": same_as("Det"),
}
