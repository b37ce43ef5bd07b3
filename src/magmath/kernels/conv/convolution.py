"""The local convolution of replayed programs.

`bind_convolution` returns a call without arguments. Its first runs execute one candidate each and
are timed (`kernels/dispatch/online.py`); from then on it executes the fastest one. Binding measures
nothing, so that the first step of a large network starts at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial

import torch

from magmath.core.byte_sizes import WORKSPACE_LIMIT
from magmath.core.call_sequence import sequence
from magmath.core.type_aliases import BoundCall
from magmath.kernels.conv.convolution_candidates import ROWS
from magmath.kernels.conv.convolution_problem import ConvolutionProblem, key
from magmath.kernels.dispatch.candidate import KernelCandidate, matching
from magmath.kernels.dispatch.online import OnlineCall, OnlineCandidate
from magmath.kernels.dispatch.tuner import Tuner, no_wait, wait_for_device
from magmath.kernels.epilogue import NO_EPILOGUE, blocks, finish
from magmath.kernels.gemm.gemm import bind_gemm

__all__ = ["bind_convolution", "candidates_for"]

TRANSFORMING = ("winograd", "fourier")
"""What the names of candidates begin with that transform images and filters."""
MIN_FLOPS = 1 << 20
"""Below, the cost of the call dominates, and only the default is offered."""


def candidates_for(
    problem: ConvolutionProblem, workspace_limit: int, *, winograd: bool = True
) -> list[KernelCandidate]:
    """Return the candidates that accept a problem, the default first, at least one.

    Candidates that need more than `workspace_limit` bytes are omitted; if all do, the default
    remains. `winograd=False` omits the algorithms that round more than sums do: Winograd's, and
    Fourier transforms.
    """
    offered = _offered(problem.x.device.type, problem.operands[0].dtype)
    usable = [candidate for candidate in offered if candidate.can_bind(problem)]
    if not winograd:
        usable = [candidate for candidate in usable if not candidate.name.startswith(TRANSFORMING)]
    if problem.flops < MIN_FLOPS:
        return usable[:1]
    small = [candidate for candidate in usable if candidate.workspace(problem) <= workspace_limit]
    return small or usable[:1]


@cache
def _offered(device: str, dtype: torch.dtype) -> tuple[KernelCandidate, ...]:
    return matching(ROWS, device, dtype)


def bind_convolution(
    problem: ConvolutionProblem,
    *,
    tuner: Tuner,
    winograd: bool = True,
    workspace_limit: int = WORKSPACE_LIMIT,
) -> BoundCall:
    """Return a bound call that computes one pass of a convolution.

    The operands have one floating-point or complex type, one to three spatial dimensions and any
    strides; the result has their type, or is float32 for half types. It must not overlap x and w,
    but may be the residual. The call reads and writes the tensors' memory at the time of the call;
    it must not run on several threads concurrently. Different candidates round differently; a tuner
    that is not enabled always executes torch's direct convolution.
    """
    if not problem.out.numel():
        return sequence()
    offered = candidates_for(problem, workspace_limit, winograd=winograd)
    bind_product = partial(bind_gemm, tuner=tuner)
    if len(offered) == 1 or not tuner.enabled:
        return _bound(offered[0], problem, bind_product)
    online = {
        candidate.name: OnlineCandidate(
            partial(_bound, candidate, problem, bind_product), candidate.is_ready
        )
        for candidate in offered
    }
    wait = wait_for_device if problem.x.is_cuda else no_wait
    return OnlineCall(tuner, key(problem), online, wait)


def _bound(
    candidate: KernelCandidate, problem: ConvolutionProblem, bind_product: Callable[..., BoundCall]
) -> BoundCall:
    """Bind a candidate, with the epilogue after it if the candidate does not apply it itself."""
    epilogue, y, bias = problem.epilogue, problem.y, problem.epilogue.bias
    if bias is not None and not bias.is_contiguous():  # candidates read adjacent elements
        row = torch.empty_like(bias, memory_format=torch.contiguous_format)
        adjacent = replace(problem, epilogue=replace(epilogue, bias=row))
        return sequence(partial(row.copy_, bias), _bound(candidate, adjacent, bind_product))
    if not epilogue or candidate.can_apply_epilogue(problem):
        return candidate.bind(problem, bind_product)
    source = torch.empty_like(y) if epilogue.has_residual_in(y) else y
    call = candidate.bind(replace(problem, y=source, epilogue=NO_EPILOGUE), bind_product)
    return sequence(call, partial(finish, source, y, epilogue, blocks(y)))
