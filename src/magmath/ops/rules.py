"""What the operation tables share: type rules, index structures and ways to bind torch functions.

torch is imported when the first kernel is bound, not when the tables are built.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from magmath.core.dtypes import DType
from magmath.core.shapes import broadcast
from magmath.errors import DTypeError
from magmath.graph import LocalCall, Node, Shape
from magmath.graph.operation import Gradients, Infer, Kernel

if TYPE_CHECKING:
    import torch

LETTERS = "abcdefghijklmnopqrstuvwxyzαβγδεζηθικλμνξοπρτυφχψω"  # upper-case ones follow these

KINDS: dict[str, frozenset[str]] = {
    "any": frozenset({"bool", "int", "uint", "float", "complex"}),
    "numeric": frozenset({"int", "uint", "float", "complex"}),
    "real": frozenset({"int", "uint", "float"}),
    "ordered": frozenset({"bool", "int", "uint", "float"}),
    "floating": frozenset({"float", "complex"}),
    "real floating": frozenset({"float"}),
    "integer": frozenset({"int", "uint"}),
    "integer or bool": frozenset({"int", "uint", "bool"}),
    "bool": frozenset({"bool"}),
}


Result = DType | Callable[[DType], DType] | None  # the type of a result, given that of the operands


def check_kind(operation: str, domain: str, dtype: DType) -> None:
    """DTypeError unless `dtype` belongs to the operation's domain."""
    if dtype.kind not in KINDS[domain]:
        raise DTypeError(
            f"{operation}: takes {domain} types, was given {dtype}; convert with mm.astype(x, …)"
        )


def pointwise_infer(name: str, domain: str, result: Result = None) -> Infer:
    """Broadcast the operands, which share one type; the result has it too unless given."""

    def infer(*inputs: Node) -> tuple[Shape, DType]:
        dtype = inputs[0].dtype
        check_kind(name, domain, dtype)
        for node in inputs:
            if node.dtype is not dtype:
                check_kind(name, domain, node.dtype)
                raise DTypeError(f"{name}: operands have types {dtype} and {node.dtype}")
        shape = broadcast(name, *[node.shape for node in inputs])
        if result is None or isinstance(result, DType):
            return shape, result or dtype
        return shape, result(dtype)

    return infer


def pointwise_axes(node: Node) -> str:
    """Letters aligned from the right; an operand's dimension that is stretched is whole."""
    ndim = node.ndim
    letters = LETTERS[:ndim]
    operands = []
    for source in node.inputs:
        offset = ndim - source.ndim
        operands.append(
            "".join(
                letters[offset + d] if extent == node.shape[offset + d] else "."
                for d, extent in enumerate(source.shape)
            )
        )
    return f"{','.join(operands)}->{letters}"


def flops_per_element(weight: float) -> Callable[[Node], float]:
    """The cost of an operation that does `weight` flops for every element of its result."""
    return lambda node: weight * node.size


def torch_kernel(name: str, reference: Callable[..., Any]) -> Kernel:
    """Bind `torch.<name>(*inputs, out=out)`.

    torch has few operations on uint16, uint32 and uint64: on the CPU those go to NumPy, on the
    same memory.
    """

    def bind(call: LocalCall) -> Callable[[], object]:
        if is_numpy_only(call.out, *call.inputs):
            return numpy_call(call, reference)
        return partial(_torch(name), *call.inputs, out=call.out)

    return bind


def is_numpy_only(*tensors: torch.Tensor) -> bool:
    """True if one is of a type that torch stores but hardly computes with."""
    return not _numpy_only().isdisjoint([tensor.dtype for tensor in tensors])


@cache
def _torch(name: str) -> Callable[..., object]:
    import torch

    function: Callable[..., object] = getattr(torch, name)
    return function


@cache
def _numpy_only() -> frozenset[torch.dtype]:
    import torch

    return frozenset({torch.uint16, torch.uint32, torch.uint64})


def as_signed(tensor: torch.Tensor) -> torch.Tensor:
    """The same bits as a type that torch can index."""
    import torch

    signed = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
    return tensor.view(signed[tensor.dtype]) if tensor.dtype in signed else tensor


def numpy_name(dtype: DType) -> str:
    """The NumPy type that stands for `dtype`: NumPy has no bfloat16."""
    return "float32" if dtype.name == "bfloat16" else dtype.name


def numpy_call(call: LocalCall, reference: Callable[..., Any]) -> Callable[[], object]:
    """A ready call that runs a NumPy function on the tensors' own memory."""
    if call.out.device.type != "cpu":
        raise DTypeError(
            f"{call.out.dtype} is not computed on {call.out.device}; convert with mm.astype(x, …)"
        )
    out, inputs = call.out.numpy(), [tensor.numpy() for tensor in call.inputs]

    def run() -> None:
        with np.errstate(all="ignore"):  # as torch does: inf and nan say it
            out[...] = reference(*inputs, **call.attributes)

    return run


def no_gradient(node: Node, cotangent: Node) -> Gradients:
    """The gradient of operations that are constant almost everywhere or give no real numbers."""
    return (None,) * len(node.inputs)


def whole(ndim: int) -> str:
    """An operand of `ndim` dimensions that every worker needs whole."""
    return "." * ndim


def letters_except(ndim: int, axes: Sequence[int]) -> str:
    """A letter for every dimension but those in `axes`, which are whole."""
    return "".join("." if d in axes else LETTERS[d] for d in range(ndim))
