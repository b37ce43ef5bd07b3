"""Exact products of integers, from float64 products of their 16-bit limbs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch

from magmath.core.call_sequence import sequence
from magmath.core.type_aliases import BoundCall
from magmath.kernels.gemm.gemm_problem import GemmProblem, to_integer

LIMB_BITS = 16
EXACT_SUMMANDS = 2 ** (53 - 2 * LIMB_BITS)
"""The number of products of two limbs that a float64 sums exactly."""


def can_bind(product: GemmProblem) -> bool:
    """Return True: every product of integers can be computed from limbs."""
    return True


def workspace(product: GemmProblem) -> int:
    """Return the bytes of the limbs, of the operands' copies, and of three results."""
    operands = product.a.numel() + product.b.numel()
    nbytes = 8 * _limb_count(product) + product.out.itemsize
    return nbytes * operands + 24 * product.out.numel()


def _limb_count(product: GemmProblem) -> int:
    return max(1, 8 * product.out.itemsize // LIMB_BITS)


def bind(product: GemmProblem, bind_product: Callable[[GemmProblem], BoundCall]) -> BoundCall:
    """Return a bound call of the sum of aᵢ·bⱼ·2¹⁶⁽ⁱ⁺ʲ⁾, where a = Σ aᵢ·2¹⁶ⁱ and b = Σ bⱼ·2¹⁶ʲ.

    Every aᵢ·bⱼ is exact in float64 over at most 2²¹ summands. Products beyond the type's width are
    omitted, because integers are exact modulo 2 to that width.
    """
    count, out = _limb_count(product), product.out
    a_limbs, b_limbs = _limbs_like(product.a, count), _limbs_like(product.b, count)
    part = torch.empty_like(out, dtype=torch.float64)
    integers, total = (torch.empty_like(out, dtype=torch.int64) for _ in range(2))
    calls: list[BoundCall] = [
        partial(_split, product.a, a_limbs, torch.empty_like(product.a)),
        partial(_split, product.b, b_limbs, torch.empty_like(product.b)),
        total.zero_,
    ]
    floating = replace(product, out=part, alpha=1.0, beta=0.0, bias=None, relu=False)
    pairs = [(i, j) for i in range(count) for j in range(count - i)]
    for low, high in pairs:
        for start in range(0, max(product.extents[2], 1), EXACT_SUMMANDS):
            columns = a_limbs[low][..., start : start + EXACT_SUMMANDS]
            rows = b_limbs[high][..., start : start + EXACT_SUMMANDS, :]
            calls.append(bind_product(replace(floating, a=columns, b=rows)))
            calls.append(partial(_add_limb, total, integers, part, LIMB_BITS * (low + high)))
    calls.append(partial(_store, product, total))
    return sequence(*calls, *product.epilogue_calls())


def _limbs_like(x: torch.Tensor, count: int) -> list[torch.Tensor]:
    return [torch.empty_like(x, dtype=torch.float64) for _ in range(count)]


def _split(x: torch.Tensor, limbs: list[torch.Tensor], scratch: torch.Tensor) -> None:
    """Store the limbs of x, the lowest first; the highest one contains the sign."""
    for i, limb in enumerate(limbs):
        torch.bitwise_right_shift(x, LIMB_BITS * i, out=scratch)
        if i < len(limbs) - 1:
            scratch.bitwise_and_(2**LIMB_BITS - 1)
        limb.copy_(scratch)


def _add_limb(total: torch.Tensor, integers: torch.Tensor, part: torch.Tensor, shift: int) -> None:
    """Add an exact float64 product, shifted, to the total; `integers` is workspace."""
    total.add_(integers.copy_(part).bitwise_left_shift_(shift))


def _store(product: GemmProblem, total: torch.Tensor) -> None:
    alpha, beta = to_integer(product.current_alpha()), to_integer(product.beta)
    if alpha != 1:
        total.mul_(alpha)
    if beta:
        product.out.mul_(beta).add_(total.to(product.dtype))
    else:
        product.out.copy_(total)
