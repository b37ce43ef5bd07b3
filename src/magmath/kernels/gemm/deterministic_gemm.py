"""Products and transforms whose bits depend only on values and shapes, for deterministic mode.

A BLAS or FFT library selects its code path, and so the order of summation, by the alignment and the
row strides of the operands. So operands that are not contiguous and aligned are copied into memory
that is, and the result is copied back.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from magmath.core.call_sequence import sequence
from magmath.core.type_aliases import BoundCall
from magmath.kernels.gemm.gemm import bind_gemm

ALIGNMENT = 64  # bytes; torch aligns its allocations at least to this


def bind_deterministic(
    out: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: float = 0.0, **options: Any
) -> BoundCall:
    """Return a call like `bind_gemm`, on contiguous and aligned operands or copies."""
    own_out, own_a, own_b = (
        _contiguous_or_transposed(out),
        _contiguous_or_transposed(a),
        _contiguous_or_transposed(b),
    )
    calls: list[BoundCall] = [
        partial(copy.copy_, x) for copy, x in ((own_a, a), (own_b, b)) if copy is not x
    ]
    if beta and own_out is not out:
        calls.append(partial(own_out.copy_, out))
    calls.append(bind_gemm(own_out, own_a, own_b, beta=beta, **options))
    if own_out is not out:
        calls.append(partial(out.copy_, own_out))
    return sequence(*calls)


def bind_aligned(
    bind: Callable[[torch.Tensor, torch.Tensor], BoundCall],
    out: torch.Tensor,
    x: torch.Tensor,
) -> BoundCall:
    """Return the call that `bind` makes for a result and an operand, or for contiguous and aligned
    copies of them."""
    own_out, own_x = _aligned(out), _aligned(x)
    calls: list[BoundCall] = [] if own_x is x else [partial(own_x.copy_, x)]
    calls.append(bind(own_out, own_x))
    if own_out is not out:
        calls.append(partial(out.copy_, own_out))
    return sequence(*calls)


def _aligned(x: torch.Tensor) -> torch.Tensor:
    """Return x if it is contiguous and aligned; otherwise new memory of its shape that is."""
    aligned = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    return x if x.stride() == aligned.stride() and x.data_ptr() % ALIGNMENT == 0 else aligned


def _contiguous_or_transposed(x: torch.Tensor) -> torch.Tensor:
    """Return x if it, or its transpose, is contiguous and aligned; otherwise new memory of its
    shape that is.

    The strides of dimensions of extent 1 must also equal those of a new tensor of this shape.
    """
    if not x.is_contiguous() and x.mT.is_contiguous():
        transposed = x.mT
        aligned = _contiguous_or_transposed(transposed)
        return x if aligned is transposed else aligned.mT
    aligned = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    usable = x.stride() == aligned.stride() and x.data_ptr() % ALIGNMENT == 0
    return x if usable else aligned
