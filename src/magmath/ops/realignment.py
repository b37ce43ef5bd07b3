"""Memory realignment: a column in front of a matrix, inserted or removed within one buffer.

A buffer is an array (rows, columns + 1); in `shift_right` its first rows·columns elements in C
order are a (rows, columns) matrix. The operations may be computed in the storage of their operand;
`kernels/realignment_groups.py` has the algorithm and its proof. `insert_column` takes the matrix
itself, which may be stored at the beginning of the result's memory: the passes build it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from magmath.core.dtypes import DType
from magmath.core.type_aliases import BoundCall
from magmath.errors import ShapeError
from magmath.graph import KernelCall, Node, Operation, Shape, apply
from magmath.graph.operation import Gradients
from magmath.ops.host_fallback import through_host
from magmath.ops.shared_fields import no_flops
from magmath.ops.slicing import slice_along
from magmath.ops.type_rules import require_kind


def _infer(name: str, x: Node) -> tuple[Shape, DType]:
    if x.ndim != 2 or x.shape[1] == 0:
        raise ShapeError(
            f"{name}: needs a buffer (rows, columns + 1) of at least one column, was given "
            f"{x.shape}; reshape it"
        )
    require_kind(name, "floating", x.dtype)
    return x.shape, x.dtype


def _kernel(call: KernelCall, bind: Callable[[Any], BoundCall]) -> BoundCall:
    """Return the call that copies the operand, unless it is in place, and realigns the result."""
    (x,), out = call.inputs, call.out
    buffer = out if out.is_contiguous() else out.new_empty(out.shape)
    shift = bind(buffer.view(-1))

    def run() -> None:
        if buffer.data_ptr() != x.data_ptr():
            buffer.copy_(x)
        shift()
        if buffer is not out:
            out.copy_(buffer)

    return run


def _right_kernel(call: KernelCall) -> BoundCall:
    from magmath.kernels.realignment import bind_shift_right

    if call.out.is_cuda and call.out.is_complex():  # Triton has no such type
        return through_host(_right_kernel, call)
    rows, wide = call.shape
    value = call.attributes["value"]
    return _kernel(call, lambda flat: bind_shift_right(flat, rows, wide - 1, value))


def _left_kernel(call: KernelCall) -> BoundCall:
    from magmath.kernels.realignment import bind_shift_left

    if call.out.is_cuda and call.out.is_complex():
        return through_host(_left_kernel, call)
    rows, wide = call.shape

    def bind(flat: Any) -> BoundCall:
        shift, tail = bind_shift_left(flat, rows, wide - 1), flat[rows * (wide - 1) :]
        return lambda: (shift(), tail.zero_())

    return _kernel(call, bind)


def _right_reference(x: Any, *, value: float) -> Any:
    rows, wide = x.shape
    matrix = x.reshape(-1)[: rows * (wide - 1)].reshape(rows, wide - 1)
    return np.concatenate([np.full((rows, 1), value, x.dtype), matrix], 1)


def _left_reference(x: Any) -> Any:
    rows = len(x)
    flat = np.concatenate([x[:, 1:].reshape(-1), np.zeros(rows, x.dtype)])
    return flat.reshape(x.shape)


def _right_vjp(node: Node, g: Node) -> Gradients:
    return (apply(SHIFT_LEFT, g),)


def _left_vjp(node: Node, g: Node) -> Gradients:
    return (apply(SHIFT_RIGHT, g, value=0.0),)


def _insert_infer(x: Node, *, value: float) -> tuple[Shape, DType]:
    if x.ndim != 2:
        raise ShapeError(f"insert_column: needs a matrix, was given {x.shape}; reshape it")
    require_kind("insert_column", "floating", x.dtype)
    return (x.shape[0], x.shape[1] + 1), x.dtype


def _insert_kernel(call: KernelCall) -> BoundCall:
    """Return the call that moves the operand's rows apart in place, or copies them."""
    from magmath.kernels.realignment import bind_shift_right

    (x,), out, value = call.inputs, call.out, call.attributes["value"]
    rows, columns = x.shape
    if x.numel() and x.data_ptr() == out.data_ptr():
        return bind_shift_right(out.view(-1), rows, columns, value)

    def copy() -> None:
        out[:, 1:].copy_(x)
        out[:, 0] = value

    return copy


SHIFT_RIGHT: Operation = Operation(
    name="shift_right",
    infer=lambda x, *, value: _infer("shift_right", x),
    axes=lambda node: "..->..",
    reduction=None,
    vjp=_right_vjp,
    kernel=_right_kernel,
    native=None,
    reference=_right_reference,
    flops=no_flops,
    can_overwrite_operand=True,
)
SHIFT_LEFT: Operation = Operation(
    name="shift_left",
    infer=lambda x: _infer("shift_left", x),
    axes=lambda node: "..->..",
    reduction=None,
    vjp=_left_vjp,
    kernel=_left_kernel,
    native=None,
    reference=_left_reference,
    flops=no_flops,
    can_overwrite_operand=True,
)
INSERT_COLUMN: Operation = Operation(
    name="insert_column",
    infer=_insert_infer,
    axes=lambda node: "a.->a.",
    reduction=None,
    vjp=lambda node, g: (slice_along(g, 1, 1, g.shape[1]),),
    kernel=_insert_kernel,
    native=None,
    reference=lambda x, *, value: np.insert(x, 0, value, axis=1),
    flops=no_flops,
    grows_operand=True,
)

OPERATIONS = {operation.name: operation for operation in (SHIFT_RIGHT, SHIFT_LEFT, INSERT_COLUMN)}
