"""The local matrix product, bound once and called many times.

out = activation(a·b + bias), or out += alpha·a·b, for matrices or stacks of them. Several libraries
compute it, each the fastest on some shapes: the candidates are a table, and the tuner picks one
when the call is bound. A bound call checks nothing and allocates nothing where the library allows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Alpha = float | Callable[[], float]


def tuner_for(deterministic: bool) -> None:
    """The process's tuner; None where results must not depend on timings."""
    return None


def bind_gemm(
    out: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    activation: str = "none",
    alpha: Alpha = 1.0,
    beta: float = 0.0,
    tuner: Any,
) -> Callable[[], object]:
    """A ready call for out = activation(a·b + bias) (beta 0) or out += alpha·a·b (beta 1)."""
    unsigned = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
    if out.dtype in unsigned:
        out, a, b = (t.view(unsigned[out.dtype]) for t in (out, a, b))
        bias = None if bias is None else bias.view(out.dtype)
    value = alpha if callable(alpha) else lambda: alpha
    if out.ndim == 2 and beta == 0.0 and alpha == 1.0:
        product = (
            (lambda: torch.mm(a, b, out=out))
            if bias is None
            else (lambda: torch.addmm(bias, a, b, out=out))
        )
    elif out.ndim == 2:
        product = lambda: torch.addmm(out, a, b, beta=beta, alpha=value(), out=out)
    else:

        def product() -> torch.Tensor:
            c = torch.matmul(a, b)
            if beta:
                return out.add_(c, alpha=value())
            return out.copy_(c if bias is None else c + bias)

    if activation == "none":
        return product

    def activated() -> object:
        product()
        return out.clamp_(min=0)

    return activated
