"""Reductions over any axes, and broadcasts: each is in the gradient of the other.

Partial results of workers that store different parts of a reduced axis are combined by the same
reduction, so each record names itself as the pending reduction of its missing letters.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from magmath.codegen.emit import IndexMap, emit_reduction
from magmath.core.dtypes import DType, accumulator_dtype, bool_
from magmath.core.shapes import broadcast, normalize_axes, reduced_shape
from magmath.errors import ShapeError
from magmath.graph import KernelCall, Node, Operation, Shape, apply
from magmath.graph.operation import Gradients, Infer, Kernel, Vjp, any_memory_order
from magmath.ops.elementwise import call as pointwise
from magmath.ops.elementwise import where
from magmath.ops.infer_rules import (
    LETTERS,
    is_numpy_only,
    no_gradient,
    pointwise_axes,
    reference_call,
    require_kind,
    same_bits_always,
)
from magmath.ops.leaves import constant
from magmath.ops.manipulation import reshape

if TYPE_CHECKING:
    import torch

Axis = tuple[int, ...]


def _infer(name: str, domain: str, result: Callable[[DType], DType]) -> Infer:
    def infer(x: Node, *, axis: Axis, keepdims: bool) -> tuple[Shape, DType]:
        require_kind(name, domain, x.dtype)
        if name in ("max", "min") and any(x.shape[d] == 0 for d in axis):
            raise ShapeError(
                f"{name}: axis of extent 0 in shape {x.shape} has no {name}imum"
                "; leave empty arrays out, or choose another axis"
            )
        return reduced_shape(x.shape, axis, keepdims), result(x.dtype)

    return infer


def reduction_axes(node: Node) -> str:
    """Return index notation whose result lacks the reduced letters (`.` for kept dimensions)."""
    (x,), axis = node.inputs, node.attributes["axis"]
    letters = LETTERS[: x.ndim]
    if node.attributes["keepdims"]:
        return f"{letters}->{''.join('.' if d in axis else c for d, c in enumerate(letters))}"
    return f"{letters}->{''.join(c for d, c in enumerate(letters) if d not in axis)}"


IDENTITY: dict[str, float] = {
    "sum": 0,
    "prod": 1,
    "max": -np.inf,
    "min": np.inf,
    "any": 0,
    "all": 1,
}


def identity_element(reduction: str, dtype: DType) -> float:
    """Return the identity element of a reduction of `dtype`."""
    value = IDENTITY[reduction]
    if not dtype.is_integer or not np.isinf(value):
        return value
    limits = np.iinfo(dtype.name)
    return int(limits.min if reduction == "max" else limits.max)


def _kernel(name: str, torch_name: str, reference: Callable[..., Any]) -> Kernel:
    def bind(call: KernelCall) -> Callable[[], object]:
        import torch

        (x,), out = call.inputs, call.out
        axis, keepdims = call.attributes["axis"], call.attributes["keepdims"]
        if any(x.shape[d] == 0 for d in axis):  # this worker stores no part of the reduced axis
            from magmath.memory.torch_dtypes import from_torch

            value = identity_element(name, from_torch(out.dtype))
            return lambda: out.fill_(value)
        if not axis:
            return lambda: out.copy_(x)
        if is_numpy_only(x, out):
            return reference_call(call, reference)
        if name == "prod":
            return _prod_call(x, out, axis)
        if name in ("any", "all") and x.device.type == "cpu" and len(axis) == x.ndim:
            return partial(reference, x.numpy(), axis, out=out.numpy(), keepdims=keepdims)
        function = getattr(torch, torch_name)
        extra = {"dtype": out.dtype} if name == "sum" else {}
        return lambda: function(x, axis, keepdim=keepdims, out=out, **extra)

    return bind


def _prod_call(x: torch.Tensor, out: torch.Tensor, axis: Axis) -> Callable[[], object]:
    """Bind a product over several axes.

    torch multiplies along one dimension only: the reduced axes are moved last and joined.
    """

    def run() -> None:
        kept = [d for d in range(x.ndim) if d not in axis]
        joined = x.permute(*kept, *axis).reshape(*(x.shape[d] for d in kept), -1)
        out.copy_(joined.prod(-1, dtype=out.dtype).reshape(out.shape))

    return run


def _expand(node: Node, value: Node) -> Node:
    """Broadcast `value`, which has the result's shape, back to the operand's shape."""
    (x,), axis = node.inputs, node.attributes["axis"]
    return broadcast_to(reshape(value, reduced_shape(x.shape, axis, True)), x.shape)


def _sum_vjp(node: Node, g: Node) -> Gradients:
    return (_expand(node, g),)


def _extremum_vjp(node: Node, g: Node) -> Gradients:
    """Divide the cotangent evenly between the elements that attain the extremum."""
    (x,) = node.inputs
    attained = pointwise("equal", x, _expand(node, node))
    ones = where(attained, constant(1, x.dtype), constant(0, x.dtype))
    count = sum_(ones, node.attributes["axis"], node.attributes["keepdims"])
    return (ones * _expand(node, g / count),)


def _prod_vjp(node: Node, g: Node) -> Gradients:
    """Return g times the product of the other elements.

    That is total / x, and the product of the remaining elements where x is 0.
    """
    (x,) = node.inputs
    axis, keepdims = node.attributes["axis"], node.attributes["keepdims"]
    one, zero = constant(1, x.dtype), constant(0, x.dtype)
    is_zero = pointwise("equal", x, zero)
    filled = where(is_zero, one, x)
    rest = apply(BY_NAME["prod"], filled, axis=axis, keepdims=keepdims)
    zeros = sum_(where(is_zero, one, zero), axis, keepdims)
    none = _expand(node, where(pointwise("equal", zeros, zero), rest, zero))
    single = _expand(node, where(pointwise("equal", zeros, one), rest, zero))
    return (_expand(node, g) * where(is_zero, single, none / filled),)


def _row(
    name: str,
    domain: str,
    result: Callable[[DType], DType],
    vjp: Vjp,
    reference: Callable[..., Any],
    torch_name: str,
) -> Operation:
    return Operation(
        name=name,
        infer=_infer(name, domain, result),
        axes=reduction_axes,
        reduction=name,
        vjp=vjp,
        kernel=_kernel(name, torch_name, reference),
        native=partial(emit_reduction, name=name, start=IDENTITY[name]),
        reference=reference,
        flops=lambda node: float(node.inputs[0].size),
        memory_orders=any_memory_order,
    )


def _same(dtype: DType) -> DType:
    return dtype


def _bool(_: DType) -> DType:
    return bool_


REDUCTIONS = (
    _row("sum", "any", accumulator_dtype, _sum_vjp, np.sum, "sum"),
    _row("prod", "numeric", accumulator_dtype, _prod_vjp, np.prod, "prod"),
    _row("max", "real", _same, _extremum_vjp, np.max, "amax"),
    _row("min", "real", _same, _extremum_vjp, np.min, "amin"),
    _row("any", "bool", _bool, no_gradient, np.any, "any"),
    _row("all", "bool", _bool, no_gradient, np.all, "all"),
)


BY_NAME = {operation.name: operation for operation in REDUCTIONS}


def reduction_of(name: str, dtype: DType) -> str:
    """Return the name of the reduction of `dtype`: the maximum of truth values is `any`, and their
    minimum `all`."""
    return {"max": "any", "min": "all"}.get(name, name) if dtype.kind == "bool" else name


def reduce(name: str, x: Node, axis: int | Axis | None = None, keepdims: bool = False) -> Node:
    """Apply the reduction of this name over `axis` (all axes for None)."""
    axes = normalize_axes(name, axis, x.ndim)
    return apply(BY_NAME[name], x, axis=axes, keepdims=keepdims)


def sum_(x: Node, axis: int | Axis | None = None, keepdims: bool = False) -> Node:
    """Return the sum over `axis`."""
    return reduce("sum", x, axis, keepdims)


def sum_to(x: Node, shape: Shape) -> Node:
    """Sum `x` over the dimensions in which `shape` was broadcast to x's shape."""
    if x.shape == shape:
        return x
    extra = x.ndim - len(shape)
    stretched = [d for d in range(extra, x.ndim) if shape[d - extra] == 1 and x.shape[d] != 1]
    axes = (*range(extra), *stretched)
    return reshape(reduce("sum", x, axes), shape) if axes else reshape(x, shape)


# broadcasts ---------------------------------------------------------------------------------


def _broadcast_infer(x: Node, *, shape: Shape) -> tuple[Shape, DType]:
    if broadcast("broadcast_to", x.shape, shape) != shape:
        raise ShapeError(
            f"broadcast_to: {x.shape} cannot be stretched to {shape}"
            "; extents must be equal, or 1 in the array, counted from the right"
        )
    return shape, x.dtype


def _broadcast_kernel(call: KernelCall) -> Callable[[], object]:
    view, out = call.inputs[0].expand(call.out.shape), call.out
    return lambda: out.copy_(view)


def _broadcast_vjp(node: Node, g: Node) -> Gradients:
    return (sum_to(g, node.inputs[0].shape),)


BROADCAST = Operation(
    name="broadcast_to",
    infer=_broadcast_infer,
    axes=pointwise_axes,
    reduction=None,
    vjp=_broadcast_vjp,
    kernel=_broadcast_kernel,
    native=IndexMap(
        lambda w, call: lambda indices: indices, lambda call, x: x.expand(call.out.shape)
    ),
    reference=lambda x, *, shape: np.broadcast_to(x, shape),
    numpy_copy=lambda node: lambda x, out: np.copyto(out, x),
    flops=lambda node: 0.0,
    same_bits=same_bits_always,
    memory_orders=any_memory_order,
)


def broadcast_to(x: Node, shape: Shape) -> Node:
    """Broadcast x to a larger shape."""
    return x if x.shape == shape else apply(BROADCAST, x, shape=shape)


OPERATIONS = {**BY_NAME, BROADCAST.name: BROADCAST}
