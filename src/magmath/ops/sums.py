"""Sums and broadcasts, each of which is in the gradient of the other, and what all reductions have
in common.

Partial results of workers that store different parts of a reduced axis are combined by the same
reduction, so each record names itself as the pending reduction of its missing letters.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from magmath.codegen.emit import IndexMap
from magmath.codegen.reduction_loops import MAX_NAIVE, emit_reduction
from magmath.core.dtypes import DType, accumulator_dtype, complex64, compute_dtype, float32
from magmath.core.shapes import AxisNumbers, broadcast, normalize_axes, reduced_shape
from magmath.core.type_aliases import BoundCall
from magmath.errors import ShapeError
from magmath.graph import KernelCall, Node, Operation, Shape, apply
from magmath.graph.operation import Gradients, Infer, Kernel, Vjp, any_memory_order
from magmath.ops.elementwise import astype
from magmath.ops.index_letters import LETTERS, letters_except, pointwise_axes
from magmath.ops.kernel_binding import is_numpy_only, reference_call
from magmath.ops.manipulation import reshape
from magmath.ops.shared_fields import is_always_exact, no_flops
from magmath.ops.type_rules import require_kind

if TYPE_CHECKING:
    import torch


def _infer(name: str, domain: str, result: Callable[[DType], DType]) -> Infer:
    def infer(x: Node, *, axis: AxisNumbers, keepdims: bool) -> tuple[Shape, DType]:
        require_kind(name, domain, x.dtype)
        if name in ("max", "min"):
            check_extremum(name, x.shape, axis)
        return reduced_shape(x.shape, axis, keepdims), result(x.dtype)

    return infer


def check_extremum(name: str, shape: Shape, axis: AxisNumbers) -> None:
    """Raise ShapeError for an extremum ("max", "min") of no elements."""
    if any(shape[d] == 0 for d in axis):
        raise ShapeError(
            f"{name}: axis of extent 0 in shape {shape} has no {name}imum"
            "; leave empty arrays out, or choose another axis"
        )


def reduction_axes(node: Node) -> str:
    """Return index notation whose result lacks the reduced letters (`.` for kept dimensions)."""
    (x,), axis = node.inputs, node.attributes["axis"]
    letters = letters_except(x.ndim, axis)
    return (
        f"{LETTERS[: x.ndim]}->"
        f"{letters if node.attributes['keepdims'] else letters.replace('.', '')}"
    )


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
    def bind(call: KernelCall) -> BoundCall:
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
        if x.device.type == "cpu" and len(axis) == x.ndim:  # NumPy's loops are faster for these
            if name in ("any", "all") or (name == "min" and x.dtype == torch.int64):
                return partial(reference, x.numpy(), axis, out=out.numpy(), keepdims=keepdims)
            if name == "sum" and (x.dtype, out.dtype) == (torch.bool, torch.int64):
                return lambda: out.fill_(int(np.count_nonzero(x.numpy())))
        function = getattr(torch, torch_name)
        extra = {"dtype": out.dtype} if name == "sum" else {}
        return lambda: function(x, axis, keepdim=keepdims, out=out, **extra)

    return bind


UFUNCS = {
    "sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum,
    "any": np.logical_or, "all": np.logical_and,
}  # fmt: skip


def _numpy_function(name: str, node: Node) -> Callable[..., object] | None:
    """Return NumPy's reduction, or None where it is less exact than the kernel: NumPy adds numbers
    in pairs along the last axis alone."""
    (x,), axis, keepdims = node.inputs, node.attributes["axis"], node.attributes["keepdims"]
    naive = name == "sum" and x.dtype in (float32, complex64) and x.ndim - 1 not in axis
    if not axis or "16" in node.dtype.name:
        return None
    if naive and prod([x.shape[d] for d in axis]) > MAX_NAIVE:
        return None
    reduce: Any = UFUNCS[name].reduce
    axes = axis[0] if len(axis) == 1 else axis
    return lambda x, out: reduce(x, axes, None, out, keepdims)


def _prod_call(x: torch.Tensor, out: torch.Tensor, axis: AxisNumbers) -> BoundCall:
    """Bind a product over several axes.

    torch multiplies along one dimension only: the reduced axes are moved last and joined.
    """

    def run() -> None:
        kept_dims = [d for d in range(x.ndim) if d not in axis]
        joined = x.permute(*kept_dims, *axis).reshape(*(x.shape[d] for d in kept_dims), -1)
        out.copy_(joined.prod(-1, dtype=out.dtype).reshape(out.shape))

    return run


def expand_reduced(node: Node, value: Node) -> Node:
    """Broadcast `value`, which has the result's shape, back to the operand's shape."""
    (x,), axis = node.inputs, node.attributes["axis"]
    return broadcast_to(reshape(value, reduced_shape(x.shape, axis, True)), x.shape)


def _sum_vjp(node: Node, g: Node) -> Gradients:
    return (astype(expand_reduced(node, g), node.inputs[0].dtype),)


def _sum_dtype(dtype: DType) -> DType:
    """Return the type of sums in a program: of half types float32, in which workers combine their
    parts."""
    return compute_dtype(accumulator_dtype(dtype))


def reduction_record(
    name: str,
    domain: str,
    result: Callable[[DType], DType],
    vjp: Vjp,
    reference: Callable[..., Any],
    torch_name: str,
) -> Operation:
    """Return the record of a reduction: its name, the kinds of its operand, the type of its result,
    its gradient, and NumPy's and torch's function."""
    return Operation(
        name=name,
        infer=_infer(name, domain, result),
        axes=reduction_axes,
        reduction=name,
        vjp=vjp,
        kernel=_kernel(name, torch_name, reference),
        native=partial(emit_reduction, name=name, start=IDENTITY[name]),
        reference=reference,
        numpy_function=partial(_numpy_function, name),
        flops=lambda node: float(node.inputs[0].size),
        memory_orders=any_memory_order,
    )


SUM = reduction_record("sum", "any", _sum_dtype, _sum_vjp, np.sum, "sum")


def sum_(x: Node, axis: int | AxisNumbers | None = None, keepdims: bool = False) -> Node:
    """Return the sum over `axis`, rounded to its type once."""
    total = apply(SUM, x, axis=normalize_axes("sum", axis, x.ndim), keepdims=keepdims)
    return astype(total, accumulator_dtype(x.dtype))


def sum_to(x: Node, shape: Shape) -> Node:
    """Sum `x` over the dimensions in which `shape` was broadcast to x's shape."""
    if x.shape == shape:
        return x
    assert broadcast("sum_to", shape, x.shape) == x.shape, (shape, x.shape)
    extra = x.ndim - len(shape)
    stretched = [d for d in range(extra, x.ndim) if shape[d - extra] == 1 and x.shape[d] != 1]
    axes = (*range(extra), *stretched)
    return reshape(sum_(x, axes), shape)


# broadcasts ---------------------------------------------------------------------------------


def _broadcast_infer(x: Node, *, shape: Shape) -> tuple[Shape, DType]:
    if broadcast("broadcast_to", x.shape, shape) != shape:
        raise ShapeError(
            f"broadcast_to: {x.shape} cannot be stretched to {shape}"
            "; extents must be equal, or 1 in the array, counted from the right"
        )
    return shape, x.dtype


def _broadcast_kernel(call: KernelCall) -> BoundCall:
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
    numpy_function=lambda node: lambda x, out: np.copyto(out, x),
    flops=no_flops,
    has_same_bits=is_always_exact,
    memory_orders=any_memory_order,
)


def broadcast_to(x: Node, shape: Shape) -> Node:
    """Broadcast x to a larger shape."""
    return x if x.shape == shape else apply(BROADCAST, x, shape=shape)
