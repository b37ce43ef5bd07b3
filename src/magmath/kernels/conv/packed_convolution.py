"""oneDNN's convolution with filters that are kept in oneDNN's own memory order.

A convolution with plain filters reorders them in each call, which takes longer than the arithmetic
if the images are few and small. Frozen filters (`passes/freeze_filters.py`) are reordered once, and
again if their content id has changed. Bias and the addition to a residual in the memory of the
result are oneDNN's post-operations. ReLU is not: that of oneDNN makes 0 of NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from magmath.core.type_aliases import BoundCall
from magmath.kernels.conv.convolution_problem import ConvolutionProblem, key
from magmath.kernels.conv.frozen_filters import frozen_filters
from magmath.kernels.conv.padded_input import padded_input
from magmath.kernels.conv.padded_range import PaddedRange
from magmath.kernels.epilogue import blocks, finish


def can_bind(problem: ConvolutionProblem) -> bool:
    """Return True for images with frozen filters."""
    frozen = problem.content_id is not None and problem.direction == "forward"
    return frozen and torch._C._has_mkldnn and problem.x.ndim == 4 and problem.x.numel() > 0


def workspace(problem: ConvolutionProblem) -> int:
    """Return the bytes of the reordered filters and of oneDNN's result."""
    return problem.w.nbytes + problem.y.nbytes


def bind(problem: ConvolutionProblem, bind_product: object) -> BoundCall:
    """Return a bound call."""
    padded, content_id, w = padded_input(problem), problem.content_id, problem.w
    assert content_id is not None
    filters = frozen_filters(problem, ("packed", key(problem)))
    settings = padded.padding, problem.stride, problem.dilation, problem.groups
    compute = _computation(problem, padded, settings)

    def reordered() -> torch.Tensor:
        result: torch.Tensor = torch.ops.mkldnn._reorder_convolution_weight(
            w.contiguous(), *settings, list(padded.tensor.shape)
        )
        return result

    def run() -> None:
        padded.fill()
        compute(filters.update(content_id, reordered))

    return run


def _computation(
    problem: ConvolutionProblem, padded: PaddedRange, settings: tuple[Any, ...]
) -> Callable[[Any], object]:
    """Return a function of the reordered filters that computes y. `settings`: padding, stride,
    dilation and groups."""
    epilogue, y = problem.epilogue, problem.y
    bias = None if epilogue.bias is None else epilogue.bias.reshape(-1)
    rest = replace(epilogue, bias=None)
    accumulates = epilogue.has_residual_in(y)
    if accumulates:
        rest = replace(rest, residual=None)
    parts = blocks(y) if rest else [(slice(None),)]

    def compute(w: Any) -> None:
        if accumulates:
            result = torch.ops.mkldnn._convolution_pointwise_.binary(
                y, padded.tensor, w, bias, *settings, "add", 1.0, None, [], None
            )
        else:
            result = torch.ops.mkldnn._convolution_pointwise(
                padded.tensor, w, bias, *settings, "none", [], None
            )
        finish(result, y, rest, parts)

    return compute
