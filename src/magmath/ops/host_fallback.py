"""Kernels that compute on copies in host memory, for types that a device does not compute."""

from __future__ import annotations

from dataclasses import replace

from magmath.core.type_aliases import BoundCall
from magmath.graph import KernelCall
from magmath.graph.operation import Kernel


def is_on_host(call: KernelCall) -> bool:
    """Return True if the result is in host memory."""
    return call.out.device.type == "cpu"


def through_host(bind: Kernel, call: KernelCall) -> BoundCall:
    """Bind a kernel to copies of the tensors in host memory: each call copies the operands there,
    and the result back."""
    import torch

    out = call.out
    result = torch.empty_like(out, device="cpu")
    copies = [torch.empty_like(x, device="cpu") for x in call.inputs]
    compute = bind(replace(call, out=result, inputs=copies))

    def run() -> None:
        for copy, x in zip(copies, call.inputs, strict=True):
            copy.copy_(x)
        compute()
        out.copy_(result)

    return run


def floats_on_device(bind: Kernel) -> Kernel:
    """Return a kernel that computes integers and booleans in host memory."""

    def bound(call: KernelCall) -> BoundCall:
        dtype = call.out.dtype
        if is_on_host(call) or dtype.is_floating_point or dtype.is_complex:
            return bind(call)
        return through_host(bind, call)

    return bound
