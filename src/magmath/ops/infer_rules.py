"""Functions that the operation tables share: type rules, index notation, and kernel binding.

torch is imported when the first kernel is bound, not when the tables are built.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from magmath.core.dtypes import DType, float32, float64
from magmath.core.shapes import broadcast
from magmath.core.type_aliases import ReadyCall
from magmath.errors import DTypeError
from magmath.graph import KernelCall, Node, Shape
from magmath.graph.operation import Gradients, Infer, Kernel
from magmath.ops.host_fallback import is_on_host, through_host

if TYPE_CHECKING:
    import torch

LETTERS = "abcdefghijklmnopqrstuvwxyzαβγδεζηθικλμνξοπρτυφχψω"  # upper case: a derived split

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


ResultType = DType | Callable[[DType], DType] | None  # the result's type, given the operands' type


def require_kind(operation: str, domain: str, dtype: DType) -> None:
    """Raise DTypeError unless `dtype` belongs to the operation's domain."""
    if dtype.kind not in KINDS[domain]:
        remedy = "convert with mm.astype(x, …)"
        if dtype.kind == "complex":
            remedy = "take its real part, x.real, or its absolute value, mm.abs(x)"
        raise DTypeError(f"{operation}: takes {domain} types, was given {dtype}; {remedy}")


def pointwise_infer(name: str, domain: str, result: ResultType = None) -> Infer:
    """Return a rule that broadcasts operands of one type.

    The result has this type too, unless `result` gives another one.
    """

    def infer(*inputs: Node) -> tuple[Shape, DType]:
        dtype = inputs[0].dtype
        require_kind(name, domain, dtype)
        for node in inputs:
            if node.dtype is not dtype:
                require_kind(name, domain, node.dtype)
                raise DTypeError(
                    f"{name}: operands have types {dtype} and {node.dtype}"
                    "; convert one with mm.astype"
                )
        shape = broadcast(name, *[node.shape for node in inputs])
        if result is None or isinstance(result, DType):
            return shape, result or dtype
        return shape, result(dtype)

    return infer


def pointwise_axes(node: Node) -> str:
    """Return index notation aligned from the right, with `.` for broadcast dimensions."""
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
    """Return the cost function of an operation with `weight` flops per element of its result."""
    return lambda node: weight * node.size


def torch_kernel(name: str, reference: Callable[..., Any]) -> Kernel:
    """Return a kernel that calls `torch.<name>(*inputs, out=out)`.

    torch has few operations on uint16, uint32 and uint64: on the CPU, NumPy computes these in the
    same memory.
    """

    def bind(call: KernelCall) -> ReadyCall:
        if is_numpy_only(call.out, *call.inputs):
            return reference_call(call, reference)
        return partial(torch_function(name), *call.inputs, out=call.out)

    return bind


def is_numpy_only(*tensors: torch.Tensor) -> bool:
    """Return True if a tensor has a type that torch stores but supports in few operations."""
    return not _numpy_only().isdisjoint([tensor.dtype for tensor in tensors])


@cache
def torch_function(name: str) -> Callable[..., Any]:
    """Return torch's function of this name, which may be in a module: "special.zeta"."""
    import torch

    function: Callable[..., Any] = attrgetter(name)(torch)
    return function


@cache
def _numpy_only() -> frozenset[torch.dtype]:
    import torch

    return frozenset({torch.uint16, torch.uint32, torch.uint64})


def as_signed(tensor: torch.Tensor) -> torch.Tensor:
    """Return a view of the same bits with a signed type, which torch can index."""
    import torch

    signed = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
    return tensor.view(signed[tensor.dtype]) if tensor.dtype in signed else tensor


def numpy_name(dtype: DType) -> str:
    """Return the NumPy type that represents `dtype`: float32 for bfloat16, which NumPy lacks."""
    return "float32" if dtype.name == "bfloat16" else dtype.name


def reference_call(call: KernelCall, reference: Callable[..., Any]) -> ReadyCall:
    """Bind a NumPy function to the tensors' memory, or to copies of it in host memory."""
    if not is_on_host(call):
        return through_host(lambda copied: reference_call(copied, reference), call)
    out, inputs = call.out.numpy(), [tensor.numpy() for tensor in call.inputs]
    if isinstance(reference, np.ufunc) and not call.attributes:

        def run_ufunc() -> None:
            with np.errstate(all="ignore"):
                reference(*inputs, out=out, casting="unsafe")

        return run_ufunc

    def run() -> None:
        with np.errstate(all="ignore"):  # as torch: inf and nan show the error
            out[...] = reference(*inputs, **call.attributes)

    return run


def by_reference(node: Node) -> Callable[..., object]:
    """Return the reference of a node's operation as a function that writes into its last argument,
    for operations whose kernels are slower on short arrays (`Operation.numpy_function`)."""
    reference, attributes = node.operation.reference, node.attributes

    def run(*arrays: Any) -> None:
        arrays[-1][...] = reference(*arrays[:-1], **attributes)

    return run


def same_bits_always(result: DType, operands: Sequence[DType]) -> bool:
    """Return True, for operations that IEEE 754 rounds exactly, or that do not round."""
    return True


def same_bits_of_full_floats(result: DType, operands: Sequence[DType]) -> bool:
    """Return True for float32 and float64, for operations that are rounded exactly for these."""
    return all(dtype in (float32, float64) for dtype in (result, *operands))


def same_bits_of_integers(result: DType, operands: Sequence[DType]) -> bool:
    """Return True for integers and booleans.

    For operations whose floating-point results may differ, for example in the sign of a zero.
    """
    return not any(dtype.kind in ("float", "complex") for dtype in (result, *operands))


def no_gradient(node: Node, cotangent: Node) -> Gradients:
    """Return no cotangents.

    For operations that are constant almost everywhere, or whose results are not real numbers.
    """
    return (None,) * len(node.inputs)


def whole_letters(ndim: int) -> str:
    """Return the letters of an operand of `ndim` dimensions that every worker needs whole."""
    return "." * ndim


def letters_except(ndim: int, axes: Sequence[int]) -> str:
    """Return a letter for each dimension, and `.` for the dimensions in `axes`."""
    return "".join("." if d in axes else LETTERS[d] for d in range(ndim))
