"""Products whose bits depend on values and shapes alone, for deterministic mode.

A BLAS takes another path, and adds in another order, where an operand is aligned differently or its
rows lie farther apart. So operands that do not lie contiguous and aligned are copied to where they
do, and the result is copied back.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from magmath.kernels.dispatch.tuner import Call
from magmath.kernels.gemm import bind_gemm
from magmath.kernels.gemm_candidates import sequence

ALIGNMENT = 64  # of torch's own allocations, at least


def bind_deterministic(
    out: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: float = 0.0, **rest: Any
) -> Call:
    """`bind_gemm` on settled operands."""
    own_out, own_a, own_b = _settled(out), _settled(a), _settled(b)
    calls: list[Call] = [
        partial(own.copy_, x) for own, x in ((own_a, a), (own_b, b)) if own is not x
    ]
    if beta and own_out is not out:
        calls.append(partial(own_out.copy_, out))
    calls.append(bind_gemm(own_out, own_a, own_b, beta=beta, **rest))
    if own_out is not out:
        calls.append(partial(out.copy_, own_out))
    return sequence(*calls)


def _settled(x: torch.Tensor) -> torch.Tensor:
    """x itself if it, or its transpose, is contiguous and aligned, else such memory for it.

    Also where a dimension has extent 1 the strides are those of a tensor of this shape alone.
    """
    if not x.is_contiguous() and x.mT.is_contiguous():
        turned = x.mT
        settled = _settled(turned)
        return x if settled is turned else settled.mT
    settled = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    usable = x.stride() == settled.stride() and x.data_ptr() % ALIGNMENT == 0
    return x if usable else settled
