"""The binding of kernels to functions of torch and NumPy.

torch is imported when the first kernel is bound, not when the tables of operations are built.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from magmath.core.type_aliases import BoundCall
from magmath.graph import KernelCall, Node
from magmath.graph.operation import Kernel
from magmath.ops.host_fallback import is_on_host, through_host

if TYPE_CHECKING:
    import torch


def copy_kernel(call: KernelCall) -> BoundCall:
    """Bind the copy of the first operand to the result, in the type of the result."""
    out, source = call.out, call.inputs[0]
    return lambda: out.copy_(source)


def torch_kernel(name: str, reference: Callable[..., Any]) -> Kernel:
    """Return a kernel that calls `torch.<name>(*inputs, out=out)`.

    torch has few operations on uint16, uint32 and uint64: on the CPU, NumPy computes these in the
    same memory.
    """

    def bind(call: KernelCall) -> BoundCall:
        if is_numpy_only(call.out, *call.inputs):
            return reference_call(call, reference)
        return partial(torch_function(name), *call.inputs, out=call.out)

    return bind


@cache
def torch_function(name: str) -> Callable[..., Any]:
    """Return torch's function of this name, which may be in a module: "special.zeta"."""
    import torch

    function: Callable[..., Any] = attrgetter(name)(torch)
    return function


def is_numpy_only(*tensors: torch.Tensor) -> bool:
    """Return True if a tensor has a type that torch stores but supports in few operations."""
    return not _numpy_only().isdisjoint([tensor.dtype for tensor in tensors])


@cache
def _numpy_only() -> frozenset[torch.dtype]:
    import torch

    return frozenset({torch.uint16, torch.uint32, torch.uint64})


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in the type in which its elements are added: halves as float32."""
    is_half = tensor.is_floating_point() and tensor.itemsize == 2
    return tensor.float() if is_half else tensor


def as_signed(tensor: torch.Tensor) -> torch.Tensor:
    """Return a view of the same bits with a signed type, which torch can index."""
    import torch

    signed = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
    return tensor.view(signed[tensor.dtype]) if tensor.dtype in signed else tensor


def as_parts(tensor: torch.Tensor) -> torch.Tensor:
    """Return the parts of complex numbers along one more dimension, and other tensors as they are.

    Sums are computed of parts: torch multiplies complex summands by 1, which turns infinite parts
    into nan.
    """
    import torch

    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def add_tensors(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """Return x + y as `torch.add`, complex numbers part by part."""
    import torch

    if not x.is_complex():
        return torch.add(x, y, out=out)
    parts = torch.add(as_parts(x), as_parts(y), out=None if out is None else as_parts(out))
    return torch.view_as_complex(parts) if out is None else out


def reference_call(call: KernelCall, reference: Callable[..., Any]) -> BoundCall:
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
