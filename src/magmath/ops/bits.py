"""Bits: packing of eight truth values into one byte, and unpacking.

The last dimension of the truth values has the extent 8, so that any other dimension may be split.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from magmath.core.dtypes import DType, uint8
from magmath.core.type_aliases import BoundCall
from magmath.errors import DTypeError, ShapeError
from magmath.graph import KernelCall, Node, Operation, Shape
from magmath.ops.index_letters import LETTERS
from magmath.ops.shared_fields import flops_per_element, no_gradient
from magmath.ops.type_rules import require_kind


def _pack_infer(x: Node, *, bitorder: str) -> tuple[Shape, DType]:
    require_kind("pack_bits", "bool", x.dtype)
    if x.shape[-1:] != (8,):
        raise ShapeError(
            f"pack_bits: needs a last dimension of 8, was given {x.shape}; reshape it to (…, 8)"
        )
    return x.shape[:-1], uint8


def _pack_axes(node: Node) -> str:
    letters = LETTERS[: node.ndim]
    return f"{letters}.->{letters}"


def _pack_kernel(call: KernelCall) -> BoundCall:
    (x,), out = call.inputs, call.out
    if x.device.type == "cpu":
        return _by_numpy(call, _pack_reference)
    weights = _weights(call)
    return lambda: out.copy_((x * weights).sum(-1))


def _by_numpy(call: KernelCall, function: Callable[..., Any]) -> BoundCall:
    """Return the call of a reference function on the memory of the operand and the result."""
    operand, result = call.inputs[0].numpy(), call.out.numpy()
    return lambda: np.copyto(result, function(operand, **call.attributes))


def _weights(call: KernelCall) -> Any:
    """Return the value of each bit, in their order."""
    import torch

    numbers = [1 << i for i in range(8)]
    if call.attributes["bitorder"] == "big":
        numbers.reverse()
    return torch.tensor(numbers, dtype=torch.uint8, device=call.out.device)


def _pack_reference(x: Any, bitorder: str) -> Any:
    flat = np.ascontiguousarray(x).reshape(-1)
    return np.packbits(flat, bitorder=bitorder).reshape(x.shape[:-1])  # type: ignore[call-overload]


def _unpack_infer(x: Node, *, bitorder: str) -> tuple[Shape, DType]:
    if x.dtype is not uint8:
        raise DTypeError(f"unpackbits: takes uint8, was given {x.dtype}; convert with mm.astype")
    return (*x.shape, 8), uint8


def _unpack_axes(node: Node) -> str:
    letters = LETTERS[: node.ndim - 1]
    return f"{letters}->{letters}."


def _unpack_kernel(call: KernelCall) -> BoundCall:
    (x,), out = call.inputs, call.out
    if x.device.type == "cpu":
        return _by_numpy(call, _unpack_reference)
    weights = _weights(call)
    return lambda: out.copy_((x[..., None] & weights) != 0)


def _unpack_reference(x: Any, bitorder: str) -> Any:
    flat = np.ascontiguousarray(x).reshape(-1)
    return np.unpackbits(flat, bitorder=bitorder).reshape(*x.shape, 8)  # type: ignore[call-overload]


PACK_BITS = Operation(
    name="pack_bits",
    infer=_pack_infer,
    axes=_pack_axes,
    reduction=None,
    vjp=no_gradient,
    kernel=_pack_kernel,
    native=None,
    reference=_pack_reference,
    flops=flops_per_element(8),
)
UNPACK_BITS = Operation(
    name="unpack_bits",
    infer=_unpack_infer,
    axes=_unpack_axes,
    reduction=None,
    vjp=no_gradient,
    kernel=_unpack_kernel,
    native=None,
    reference=_unpack_reference,
    flops=flops_per_element(1),
)

OPERATIONS = {record.name: record for record in (PACK_BITS, UNPACK_BITS)}
