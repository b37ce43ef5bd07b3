"""The local matrix product of replayed programs.

`bind_gemm` determines the form of the operands, asks the tuner for the fastest candidate for that
form, and returns a call without arguments or checks. Binding takes a few milliseconds for a form
that is new on a machine, because the tuner measures it, and tens of microseconds otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import torch

from magmath.core.call_sequence import sequence
from magmath.core.type_aliases import BoundCall, Number
from magmath.kernels.dispatch.candidate import KernelCandidate
from magmath.kernels.dispatch.tuner import Tuner, tuner_for, wait_for_device, wake_thread_pool
from magmath.kernels.gemm.gemm_candidates import candidates_for
from magmath.kernels.gemm.gemm_problem import (
    GemmProblem,
    check_product,
    dummy_operands,
    kernel_problems,
    key,
)

__all__ = ["bind_gemm", "tuner_for"]


def bind_gemm(
    out: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    alpha: Number | Callable[[], Number] = 1.0,
    beta: Number = 0.0,
    bias: torch.Tensor | None = None,
    activation: str = "none",
    tuner: Tuner,
) -> BoundCall:
    """Return a bound call for out = activation(alpha · a·b + beta · out + bias).

    a is (…, m, k), b (…, k, n), out (…, m, n) with the batch dimensions of a and b broadcast, bias
    a row (n,); all have one type (but half a and b may have a float32 result), are on one device
    and have any strides (a transposed view requests a transposed product). out must not overlap a
    or b. `alpha` may be a function that is evaluated before every call; `activation` is "none" or
    "relu". With beta = 0 the previous content of out is not read.

    float16 and bfloat16 accumulate in float32; integers wrap: exact modulo 2**bits; bool is the
    product over "or" and "and". The call reads and writes the tensors' memory at the time of
    the call; it must not run on several threads concurrently.

    Raises ShapeError or DTypeError for operands that do not fit, ValueError for an unknown
    activation.
    """
    if activation not in ("none", "relu"):
        raise ValueError(f"gemm: activation must be 'none' or 'relu', was given {activation!r}")
    product = GemmProblem(out, a, b, alpha, beta, bias, activation == "relu")
    check_product(product)
    if out.numel() == 0:
        return _nothing
    return sequence(*[_bind(part, tuner) for part in kernel_problems(product)])


def _bind(product: GemmProblem, tuner: Tuner) -> BoundCall:
    """Bind the tuner's choice for a product of two or three dimensions."""
    if product.out.is_cuda and product.a.dtype in (torch.float16, torch.bfloat16):
        _accumulate_in_float32()
    bind_product = partial(_bind, tuner=tuner)
    offered = {c.name: c for c in candidates_for(product, tuner.workspace_limit)}
    chosen = next(iter(offered))
    if product.extents[2] > 0:
        operands = cache(partial(dummy_operands, product))
        wake = wake_thread_pool() if product.out.device.type == "cpu" else _nothing

        def trial(candidate: KernelCandidate) -> BoundCall:
            return sequence(wake, candidate.bind(operands(), bind_product))

        wait = wait_for_device if product.out.is_cuda else None
        trials = {name: partial(trial, candidate) for name, candidate in offered.items()}
        chosen = tuner.choose(key(product), trials, wait)
    return offered[chosen].bind(product, bind_product)


def _nothing() -> None:
    """Do nothing: the call of a product without elements."""


@cache
def _accumulate_in_float32() -> None:
    """Disable cuBLAS's reduction of partial sums in half precision."""
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
