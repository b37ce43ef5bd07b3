"""ONNX's reductions, orders and products."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import magmath as mm
from magmath.interop.reading_onnx.onnx_call import OnnxCall, OnnxValue, Operator, axes_of, plain


def _reduction(
    function: Callable[..., mm.Array],
    of_element: Callable[[mm.Array], mm.Array] | None = None,
    empty: float | None = None,
) -> Operator:
    """Return a reduction by a function of (x, axis=, keepdims=).

    of_element  a function that is applied to the elements first
    empty       the result for no elements, if the function has none; infinite for the least and
                the largest number of a type
    """

    def operator(call: OnnxCall, x: OnnxValue, axes: OnnxValue = None) -> mm.Array:
        chosen = call.numbers("axes", axes)
        if not chosen and call.get("noop_with_empty_axes", 0):
            axis: tuple[int, ...] = ()
        else:
            axis = axes_of(chosen or None, x.ndim)
        x, keep = mm.asarray(x), bool(call.get("keepdims", 1))
        if empty is not None and any(x.shape[d] == 0 for d in axis):
            shape = [1 if d in axis else n for d, n in enumerate(x.shape) if keep or d not in axis]
            return mm.full(tuple(shape), _limited(empty, x.dtype), dtype=x.dtype)
        elements = x if of_element is None else of_element(x)
        return mm.astype(function(elements, axis=axis, keepdims=keep), x.dtype, copy=False)

    return operator


def _limited(value: float, dtype: Any) -> Any:
    """Return an infinite number, or the largest or least one of a type that has none."""
    if mm.isdtype(dtype, "real floating"):
        return value
    if dtype == mm.bool:
        return value > 0
    return mm.iinfo(dtype).max if value > 0 else mm.iinfo(dtype).min


def _log_sum(x: Any, axis: Any, keepdims: bool) -> mm.Array:
    return mm.log(mm.sum(x, axis=axis, keepdims=keepdims))


def _arg_extremum(function: Callable[..., mm.Array]) -> Operator:
    def operator(call: OnnxCall, x: OnnxValue) -> OnnxValue:
        axis, keep = call.get("axis", 0), bool(call.get("keepdims", 1))
        if not call.get("select_last_index", 0):
            return mm.astype(function(x, axis=axis, keepdims=keep), mm.int64, copy=False)
        last = x.shape[axis] - 1
        return last - mm.astype(function(mm.flip(x, axis), axis=axis, keepdims=keep), mm.int64)

    return operator


def _top(call: OnnxCall, x: OnnxValue, k: OnnxValue = None) -> tuple[mm.Array, mm.Array]:
    axis, count = call.get("axis", -1), int(call.number("k", k))
    order = mm.argsort(x, axis=axis, descending=bool(call.get("largest", 1)), stable=True)
    chosen = mm.take(order, mm.arange(count), axis=axis)
    return mm.take_along_axis(x, chosen, axis=axis), mm.astype(chosen, mm.int64, copy=False)


def _running(function: Callable[..., mm.Array]) -> Operator:
    """Return the operator of running sums or products, which may begin at the end, and may leave
    out the element itself."""

    def operator(call: OnnxCall, x: OnnxValue, axis: OnnxValue) -> mm.Array:
        along = int(call.number("axis", axis)) % x.ndim
        reverse = call.get("reverse", 0)
        x = mm.flip(x, along) if reverse else mm.asarray(x)
        if call.get("exclusive", 0):
            shape = (*x.shape[:along], 1, *x.shape[along + 1 :])
            first = mm.full(shape, 0 if function is mm.cumulative_sum else 1, dtype=x.dtype)
            shifted = mm.concat([first, x], axis=along)
            x = shifted[(*[slice(None)] * along, slice(-1))]
        result = mm.astype(function(x, axis=along), x.dtype, copy=False)
        return mm.flip(result, along) if reverse else result

    return operator


def _general_product(call: OnnxCall, a: OnnxValue, b: OnnxValue, c: OnnxValue = None) -> mm.Array:
    a, b = mm.asarray(a), mm.asarray(b)
    a = mm.matrix_transpose(a) if call.get("transA", 0) else a
    b = mm.matrix_transpose(b) if call.get("transB", 0) else b
    alpha, beta = call.get("alpha", 1.0), call.get("beta", 1.0)
    product = a @ b if alpha == 1.0 else mm.astype(alpha * (a @ b), a.dtype, copy=False)
    if c is None or beta == 0.0:
        return product
    return product + (c if beta == 1.0 else mm.astype(beta * mm.asarray(c), a.dtype, copy=False))


def _einsum(call: OnnxCall, *operands: OnnxValue) -> mm.Array:
    return mm.einsum(call.get("equation"), *operands)


REDUCTIONS: dict[str, Operator] = {
    "ReduceSum": _reduction(mm.sum),
    "ReduceMean": _reduction(mm.mean),
    "ReduceProd": _reduction(mm.prod),
    "ReduceMax": _reduction(mm.max, empty=-inf),
    "ReduceMin": _reduction(mm.min, empty=inf),
    "ReduceL1": _reduction(mm.sum, mm.abs),
    "ReduceL2": _reduction(mm.linalg.vector_norm),
    "ReduceSumSquare": _reduction(mm.sum, mm.square),
    "ReduceLogSum": _reduction(_log_sum),
    "ReduceLogSumExp": _reduction(mm.logsumexp, empty=-inf),
    "ArgMax": _arg_extremum(mm.argmax),
    "ArgMin": _arg_extremum(mm.argmin),
    "TopK": _top,
    "CumSum": _running(mm.cumulative_sum),
    "CumProd": _running(mm.cumulative_prod),
    "MatMul": plain(mm.matmul),
    "Gemm": _general_product,
    "Einsum": _einsum,
    "Det": plain(mm.linalg.det),
}
