"""Direct convolution of float32 images by register blocks of our own, on the processor.

All three passes, for every filter, stride, dilation and padding, without a matrix of patches
(`kernels/conv/direct_loops.py`). The error is that of a sum in float32: `ERROR_BOUND`. Frozen
filters, those of inference, are packed once for each content id, and bias, residual and ReLU are
applied while results are in registers.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

import torch

from magmath.codegen.background_build import is_code_ready
from magmath.core.call_sequence import sequence
from magmath.core.type_aliases import BoundCall
from magmath.kernels.conv import direct_loops
from magmath.kernels.conv.convolution_problem import ConvolutionProblem
from magmath.kernels.conv.direct_loops import CODE
from magmath.kernels.conv.direct_plan import DirectPlan
from magmath.kernels.conv.frozen_filters import frozen_filters
from magmath.kernels.conv.image_views import has_adjacent_numbers
from magmath.kernels.conv.plan_runs import frozen_call, run_plan

ERROR_BOUND: Final = 1e-5
"""The maximum error of an element relative to the root mean square of the result, for normally
distributed operands and at most 4,096 summands."""

MIN_OUTPUTS: Final = 8  # of the images that are written; fewer waste most of a vector


def can_bind(problem: ConvolutionProblem) -> bool:
    """Return True for images whose pixels or channels are adjacent, and enough outputs."""
    tensors = (problem.x, problem.w, problem.y)
    if problem.x.ndim != 4 or not all(tensor.numel() for tensor in tensors):
        return False
    if not (has_adjacent_numbers(problem.x) and has_adjacent_numbers(problem.y)):
        return False
    channels = problem.w.shape[1], problem.w.shape[0] // problem.groups
    return channels[0 if problem.direction == "data" else 1] >= MIN_OUTPUTS


def is_ready() -> bool:
    """Return False, and start the compiler, if the code is not on disk yet."""
    return is_code_ready(direct_loops.code)


def workspace(problem: ConvolutionProblem) -> int:
    """Return the bytes of memory that a call needs in addition to the operands."""
    w = 0 if problem.w.is_contiguous() else problem.w.nbytes
    return DirectPlan(_groups(problem)[0]).nbytes + w


def can_apply_epilogue(problem: ConvolutionProblem) -> bool:
    """Return True if bias, residual and ReLU are applied in registers: to adjacent channels."""
    y, residual = problem.y, problem.epilogue.residual
    same = residual is None or residual.stride() == y.stride()
    return problem.groups == 1 and y.stride(1) == 1 and same


def bind(problem: ConvolutionProblem, bind_product: object = None) -> BoundCall:
    """Return a bound call that computes one pass of a problem."""
    w = problem.w
    if w.is_contiguous():
        return sequence(*[_bind_group(group) for group in _groups(problem)])
    dense = replace(problem, w=torch.empty_like(w, memory_format=torch.contiguous_format))
    if problem.direction == "filter":
        return sequence(bind(dense), lambda: w.copy_(dense.w))
    return sequence(lambda: dense.w.copy_(w), bind(replace(dense, content_id=None)))


def _groups(problem: ConvolutionProblem) -> list[ConvolutionProblem]:
    if problem.groups == 1:
        return [problem]
    return [problem.group(i) for i in range(problem.groups)]


def _bind_group(problem: ConvolutionProblem) -> BoundCall:
    plan, content_id = DirectPlan(problem), problem.content_id
    if problem.direction == "filter":
        return partial(run_plan, plan, [CODE.address(name) for name in ("weight_sums", "finish")])
    pack, correlate = (CODE.address(name) for name in ("pack_filters", "correlate"))
    if problem.direction == "data" or content_id is None:
        return partial(run_plan, plan, [pack, correlate])
    filters = frozen_filters(problem, ("direct", tuple(problem.w.shape)))
    return frozen_call(plan, filters, content_id, pack, correlate)
