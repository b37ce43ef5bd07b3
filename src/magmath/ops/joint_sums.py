"""Pairs of sums that one pass over memory computes, for batch normalization.

The passes join Σ x with Σ (x - mean)², and Σ g with Σ g·(x - m) (`passes/join_sums.py`). An
operation has one result: the two sums are in the place of the first axis that is summed over.
Sums are float64, pending over workers. Σ (x - mean)² is Σ x² - (Σ x)² / n; in float64 the
difference of squares of float32 numbers loses nothing that float32 could represent, unless the mean
exceeds the deviation by a factor of more than about a million.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from magmath.core.dtypes import DType, float64
from magmath.core.shapes import AxisNumbers, reduced_shape, with_extent
from magmath.core.type_aliases import BoundCall
from magmath.errors import ShapeError
from magmath.graph import KernelCall, Node, Operation, Shape
from magmath.graph.operation import any_memory_order
from magmath.ops.index_letters import LETTERS, letters_except
from magmath.ops.normalization import blocks_of
from magmath.ops.shared_fields import vjp_after_gradients
from magmath.ops.type_rules import require_kind

if TYPE_CHECKING:
    import torch


def _infer(name: str, x: Node, axis: AxisNumbers) -> tuple[Shape, DType]:
    require_kind(name, "real floating", x.dtype)
    if not axis:
        raise ShapeError(f"{name}: needs at least one axis")
    return with_extent(reduced_shape(x.shape, axis, True), axis[0], 2), float64


def _squares_infer(x: Node, *, axis: AxisNumbers) -> tuple[Shape, DType]:
    return _infer("sum_and_squares", x, axis)


def _dot_infer(g: Node, x: Node, m: Node, *, axis: AxisNumbers) -> tuple[Shape, DType]:
    needed = reduced_shape(x.shape, axis, True)
    if g.shape != x.shape or m.shape != needed:
        raise ShapeError(
            f"sum_and_dot: needs a first operand of shape {x.shape} and means of shape {needed}, "
            f"was given {g.shape} and {m.shape}"
        )
    return _infer("sum_and_dot", g, axis)


def _axes(node: Node) -> str:
    letters, kept_letters = LETTERS[: node.ndim], letters_except(node.ndim, node.attributes["axis"])
    operands = [letters if x.shape == node.inputs[0].shape else kept_letters for x in node.inputs]
    return f"{','.join(operands)}->{kept_letters}"


def _halves(out: Any, axis: AxisNumbers) -> tuple[Any, Any]:
    """Return the views of both sums."""
    lead = (slice(None),) * axis[0]
    return out[(*lead, slice(0, 1))], out[(*lead, slice(1, 2))]


def _is_over_channels(x: torch.Tensor, axis: AxisNumbers) -> bool:
    return axis == tuple([d for d in range(x.ndim) if d != 1])


def _bind_squares(call: KernelCall) -> BoundCall:
    import torch

    from magmath.kernels import channel_sums

    (x,), out, axis = call.inputs, call.out, call.attributes["axis"]
    count = prod([x.shape[d] for d in axis])
    if not x.numel():
        return out.zero_
    if _is_over_channels(x, axis) and channel_sums.can_compute(x, None, None):
        return channel_sums.bind(x, None, None, out)
    total, squares = _halves(out, axis)
    if x.is_cuda:

        def by_moments() -> None:
            variance, mean = torch.var_mean(
                x.to(torch.promote_types(x.dtype, torch.float32)), axis, correction=0, keepdim=True
            )
            mean = mean.double()
            torch.mul(mean, count, out=total)
            torch.mul(variance.double() + mean * mean, count, out=squares)

        return by_moments
    parts: list[Any] = blocks_of(x) if 0 in axis else [...]

    def run() -> None:
        out.zero_()
        for part in parts:
            wide = x[part].double()
            total.add_(wide.sum(axis, keepdim=True))
            squares.add_(wide.square().sum(axis, keepdim=True))

    return run


def _bind_dot(call: KernelCall) -> BoundCall:
    import torch

    from magmath.kernels import channel_sums

    (g, x, m), out, axis = call.inputs, call.out, call.attributes["axis"]
    if not x.numel():
        return out.zero_
    if _is_over_channels(x, axis) and channel_sums.can_compute(x, g, m):
        return channel_sums.bind(x, g, m, out)
    total, dot = _halves(out, axis)
    wide = torch.promote_types(x.dtype, torch.float32)

    def run() -> None:
        total.copy_(g.sum(axis, keepdim=True, dtype=wide))
        dot.copy_(((x.to(wide) - m) * g).sum(axis, keepdim=True))

    return run


def _squares_reference(x: Any, *, axis: AxisNumbers) -> Any:
    return _joined_reference(axis, x.astype(np.float64), np.square(x.astype(np.float64)))


def _dot_reference(g: Any, x: Any, m: Any, *, axis: AxisNumbers) -> Any:
    wide = g.astype(np.float64)
    return _joined_reference(axis, wide, wide * (x.astype(np.float64) - m))


def _joined_reference(axis: AxisNumbers, *terms: Any) -> Any:
    return np.concatenate([np.sum(x, axis=axis, keepdims=True) for x in terms], axis=axis[0])


def _operation(name: str, infer: Any, kernel: Any, reference: Any) -> Operation:
    return Operation(
        name=name,
        infer=infer,
        axes=_axes,
        reduction="sum",
        vjp=vjp_after_gradients,
        kernel=kernel,
        native=None,
        reference=reference,
        flops=lambda node: 3.0 * node.inputs[0].size,
        memory_orders=any_memory_order,
    )


SUM_AND_SQUARES = _operation("sum_and_squares", _squares_infer, _bind_squares, _squares_reference)
SUM_AND_DOT = _operation("sum_and_dot", _dot_infer, _bind_dot, _dot_reference)

OPERATIONS = {record.name: record for record in (SUM_AND_SQUARES, SUM_AND_DOT)}
