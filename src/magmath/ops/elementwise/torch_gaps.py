"""Kernels of element-wise functions where torch lacks a case or differs from the standard.

Each function `…_kernel` has the form of `torch_kernel`: it returns a kernel for a torch function's
name and the NumPy reference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from magmath.core.type_aliases import BoundCall
from magmath.errors import RangeError
from magmath.graph import KernelCall
from magmath.graph.operation import Kernel
from magmath.ops.kernel_binding import (
    as_parts,
    is_numpy_only,
    reference_call,
    torch_function,
    torch_kernel,
)

if TYPE_CHECKING:
    import torch


def arithmetic_kernel(name: str, reference: Callable[..., Any]) -> Kernel:
    """Return a kernel that computes complex numbers by NumPy in deterministic mode.

    torch rounds the products and quotients of a whole vector differently from those at the end of
    an array, so that bits would depend on the division over workers.
    """

    def bind(call: KernelCall) -> BoundCall:
        out = call.out
        if call.context.deterministic and out.is_complex() and out.device.type == "cpu":
            return reference_call(call, reference)
        return torch_kernel(name, reference)(call)

    return bind


def flag_kernel(name: str, reference: Callable[..., Any]) -> Kernel:
    """Return a kernel for predicates, for which torch has no `out` argument."""

    def bind(call: KernelCall) -> BoundCall:
        import torch

        if is_numpy_only(*call.inputs):
            return reference_call(call, reference)
        function, (x,), out = getattr(torch, name), call.inputs, call.out
        if name == "isnan":
            return partial(torch.ne, x, x, out=out)
        return lambda: out.copy_(function(x))

    return bind


def absolute_kernel(name: str, reference: Callable[..., Any]) -> Kernel:
    """Return a kernel for absolute values that computes those of complex numbers by NumPy on the
    CPU; torch takes ten times as long."""

    def bind(call: KernelCall) -> BoundCall:
        (x,) = call.inputs
        if x.is_complex() and not x.is_cuda:
            return reference_call(call, reference)
        return torch_kernel(name, reference)(call)

    return bind


def square_kernel(name: str, reference: Callable[..., Any]) -> Kernel:
    """Return a kernel for squares by torch's product; its square is a power, which takes five times
    as long for integers."""

    def bind(call: KernelCall) -> BoundCall:
        import torch

        (x,), out = call.inputs, call.out
        if is_numpy_only(x, out):
            return reference_call(call, reference)
        if out.is_complex():
            return arithmetic_kernel(name, reference)(call)
        return partial(torch.mul, x, x, out=out)

    return bind


def sign_kernel(name: str, reference: Callable[..., Any]) -> Kernel:
    """Return a kernel for sign with sign(nan) = nan, where torch returns 0, and with signs of
    infinite complex numbers, where it returns nan."""

    def bind(call: KernelCall) -> BoundCall:
        import torch

        (x,), out = call.inputs, call.out
        if not out.dtype.is_floating_point:
            return exact_complex_kernel("sgn", reference)(call)
        return lambda: torch.where(x == x, torch.sgn(x), x, out=out)

    return bind


def part_kernel(name: str, reference: Callable[..., Any]) -> Kernel:
    """Return a kernel for real and imaginary parts, which torch returns as views."""

    def bind(call: KernelCall) -> BoundCall:
        (x,), out = call.inputs, call.out
        if is_numpy_only(x):
            return reference_call(call, reference)
        if x.is_complex():
            part = getattr(x, name)
            return lambda: out.copy_(part)
        return (lambda: out.copy_(x)) if name == "real" else out.zero_

    return bind


def round_kernel(name: str, reference: Callable[..., Any]) -> Kernel:
    """Return a kernel that rounds both parts of complex numbers, which torch does not round."""

    def bind(call: KernelCall) -> BoundCall:
        import torch

        (x,), out = call.inputs, call.out
        if not x.is_complex():
            return torch_kernel(name, reference)(call)
        return partial(torch.round, torch.view_as_real(x), out=torch.view_as_real(out))

    return bind


def parts_kernel(name: str, reference: Callable[..., Any]) -> Kernel:
    """Return a kernel that computes real and imaginary parts separately (`as_parts`)."""

    def bind(call: KernelCall) -> BoundCall:
        import torch

        if not call.out.is_complex():
            return torch_kernel(name, reference)(call)
        parts = [as_parts(tensor) for tensor in (*call.inputs, call.out)]
        return partial(getattr(torch, name), *parts[:-1], out=parts[-1])

    return bind


def root_kernel(name: str, reference: Callable[..., Any]) -> Kernel:
    """Return a kernel for square roots, which torch does not round exactly."""

    def bind(call: KernelCall) -> BoundCall:
        from magmath.kernels import square_root

        (x,), out = call.inputs, call.out
        if square_root.can_compute(x, out):
            return square_root.bind(x, out)
        return torch_kernel(name, reference)(call)

    return bind


def relu_kernel(name: str, reference: Callable[..., Any]) -> Kernel:
    """Return a kernel for max(x, 0) with one bit pattern for each x: 0 for both zeros."""

    def bind(call: KernelCall) -> BoundCall:
        import torch

        return partial(torch.ops.aten.threshold.out, call.inputs[0], 0, 0, out=call.out)

    return bind


def where_positive_kernel(name: str, reference: Callable[..., Any]) -> Kernel:
    """Return a kernel for the gradient of relu: the first operand where the second one is not ≤ 0,
    otherwise 0.

    torch's `where` takes twenty times as long, as its loop branches at each element.
    """

    def bind(call: KernelCall) -> BoundCall:
        import torch

        (g, y), out = call.inputs, call.out
        if g.shape == y.shape == out.shape and out.device.type == "cpu":
            gradient = torch.ops.aten.threshold_backward.grad_input
            return partial(gradient, g, y, 0, grad_input=out)
        zero = torch.zeros((), dtype=out.dtype, device=out.device)
        return lambda: torch.where(y <= 0, zero, g, out=out)

    return bind


def exact_complex_kernel(name: str, reference: Callable[..., Any]) -> Kernel:
    """Return a kernel that computes complex numbers by NumPy on the CPU.

    torch loses digits and special cases of these functions.
    """

    def bind(call: KernelCall) -> BoundCall:
        by_numpy = call.out.is_complex() and call.out.device.type == "cpu"
        return reference_call(call, reference) if by_numpy else torch_kernel(name, reference)(call)

    return bind


def wide_kernel(name: str, reference: Callable[..., Any]) -> Kernel:
    """Return a kernel that computes half types in float32, which torch's special functions take."""

    def bind(call: KernelCall) -> BoundCall:
        import torch

        out, inputs, function = call.out, call.inputs, torch_function(name)
        if out.dtype in (torch.float32, torch.float64):
            return partial(function, *inputs, out=out)
        return lambda: out.copy_(function(*[x.float() for x in inputs]))

    return bind


def expm1(x: Any) -> Any:
    """Return exp(x) - 1, computed directly where a complex x is infinite or nan."""
    return (
        np.where(np.isfinite(x), np.expm1(x), np.exp(x) - 1) if np.iscomplexobj(x) else np.expm1(x)
    )


def quotient_kernel(name: str, reference: Callable[..., Any]) -> Kernel:
    """Return a kernel that divides integers by 0 with result 0, as NumPy and native code do.

    torch raises an error.
    """

    def bind(call: KernelCall) -> BoundCall:
        divide_ = torch_kernel(name, reference)(call)
        out = call.out
        if out.is_floating_point() or is_numpy_only(out):
            return divide_
        if out.is_cuda:
            return _divided_on_device(divide_, call.inputs[1], out)
        divisor, by_numpy = call.inputs[1].numpy(), reference_call(call, reference)
        if name == "floor_divide" and not any(divisor.strides):
            return by_numpy  # which multiplies by the inverse of a number
        count_nonzero = np.count_nonzero  # allocates no torch memory
        return lambda: divide_() if count_nonzero(divisor) == divisor.size else by_numpy()

    return bind


def _divided_on_device(divide_: BoundCall, divisor: torch.Tensor, out: torch.Tensor) -> BoundCall:
    """Return the call of a division whose results are 0 where the divisor is; on a GPU they are
    undefined."""

    def run() -> None:
        is_zero = divisor == 0  # before the result, which may replace the divisor
        divide_()
        out.masked_fill_(is_zero.to(out.device), 0)

    return run


def remainder_kernel(name: str, reference: Callable[..., Any]) -> Kernel:
    """Return a kernel of `remainder` or `fmod` in which a result of 0 has the sign of the divisor
    or the dividend, and which is exact where the quotient overflows, unlike torch's."""
    quotient = quotient_kernel(name, reference)
    signed = 0 if name == "fmod" else 1

    def bind(call: KernelCall) -> BoundCall:
        import torch

        divide_ = quotient(call)
        inputs, out = call.inputs, call.out
        if not out.is_floating_point():
            return divide_

        def run() -> None:
            operands = [x.clone() if x.data_ptr() == out.data_ptr() else x for x in inputs]
            divide_()
            if not out.is_cuda and not math.isfinite(out.sum()):
                _replace_nan(out, operands, reference)
            torch.copysign(out, operands[signed], out=out)

        return run

    return bind


def _replace_nan(
    out: torch.Tensor, operands: Sequence[torch.Tensor], reference: Callable[..., Any]
) -> None:
    """Compute the elements of a result that are nan again, by NumPy; half types in float32."""
    import torch

    wrong = torch.isnan(out)
    selected = [torch.broadcast_to(x, out.shape)[wrong] for x in operands]
    arrays = [(x.float() if x.itemsize < 4 else x).numpy() for x in selected]
    with np.errstate(all="ignore"):
        out[wrong] = torch.from_numpy(reference(*arrays)).to(out.dtype)


def power_kernel(name: str, reference: Callable[..., Any]) -> Kernel:
    """Return a kernel that raises RangeError for negative powers of integers, as NumPy does.

    torch truncates the results to integers.
    """

    def bind(call: KernelCall) -> BoundCall:
        compute = torch_kernel(name, reference)(call)
        (_, exponent), out = call.inputs, call.out
        if out.is_complex():  # torch's 0 to the power 0 is nan

            def complex_power() -> None:
                is_zero = exponent == 0  # before the result, which may replace the exponent
                compute()
                out.masked_fill_(is_zero, 1)

            return complex_power
        if out.is_floating_point() or is_numpy_only(out):
            return compute

        powers = exponent if exponent.is_cuda else exponent.numpy()

        def run() -> None:
            check_exponent(powers)
            compute()

        return run

    return bind


def check_exponent(exponents: Any) -> None:
    """Raise RangeError for a negative power of an integer, among the numbers of an array or for a
    single one."""
    if isinstance(exponents, int):
        least = exponents
    else:
        least = int(exponents.min()) if math.prod(exponents.shape) else 0
    if least < 0:
        raise RangeError(
            f"power: integers to the power {least} are no integers; convert them with "
            f"mm.astype(x, mm.float64)"
        )


def nextafter_kernel(name: str, reference: Callable[..., Any]) -> Kernel:
    """Return a kernel that computes float16 by NumPy; torch has no nextafter for it."""

    def bind(call: KernelCall) -> BoundCall:
        import torch

        half = call.out.dtype == torch.float16
        return reference_call(call, reference) if half else torch_kernel(name, reference)(call)

    return bind


def host_kernel(name: str, reference: Callable[..., Any]) -> Kernel:
    """Return a kernel that computes by NumPy, for functions that torch lacks or computes with
    other results: its gcd and lcm of the least integers have other signs."""

    def bind(call: KernelCall) -> BoundCall:
        import torch

        out = call.out
        if out.dtype == torch.bfloat16:  # which NumPy lacks

            def run() -> None:
                floats = [x.float().numpy(force=True) for x in call.inputs]
                out.copy_(torch.from_numpy(np.asarray(reference(*floats))))

            return run
        return reference_call(call, reference)

    return bind
