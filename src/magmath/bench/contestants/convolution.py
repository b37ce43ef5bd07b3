"""magmath's contestant of single convolutions: the kernel that a worker binds, with its tuner.

The decision of the tuner, made by the first calls, is part of the preparation.
"""

from __future__ import annotations

from typing import Any

import torch

from magmath.bench.contestants.common import VERSIONS
from magmath.bench.peers.convolution import check, operands
from magmath.bench.peers.repeated import RepeatedContestant, Work
from magmath.bench.peers.service import Contestant
from magmath.core.byte_sizes import WORKSPACE_LIMIT
from magmath.core.resources import processor_count
from magmath.kernels.conv import winograd_loops
from magmath.kernels.conv.convolution import bind_convolution, candidates_for
from magmath.kernels.conv.convolution_problem import ConvolutionProblem
from magmath.kernels.conv.winograd_transforms import ALGORITHMS
from magmath.kernels.dispatch.measurements import ROUNDS
from magmath.kernels.dispatch.tuner import tuner_for


def kernel() -> Contestant:
    """Return a convolution on tensors of the case's memory order, with all threads."""
    torch.set_num_threads(processor_count())
    for name in ALGORITHMS:  # a program would compile them in the background
        winograd_loops.code(name).compile()
    return RepeatedContestant(VERSIONS, _prepare, check)


def _prepare(case: dict[str, Any]) -> Work:
    x, w, y = operands(case)
    stride, kernel = case["shape"][-2:]
    offset, step = (-(kernel // 2),) * 2, (stride,) * 2
    problem = ConvolutionProblem(case["direction"], x, w, y, offset, step, (1, 1), 1)
    tuner = tuner_for(deterministic=False)
    call = bind_convolution(problem, tuner=tuner)
    for _ in range((ROUNDS + 1) * len(candidates_for(problem, WORKSPACE_LIMIT))):
        call()

    def work(times: int) -> Any:
        for _ in range(times):
            call()
        return problem.out

    return work
