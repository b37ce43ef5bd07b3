"""oneDNN's convolution with filters that are kept in oneDNN's own memory order.

A convolution with plain filters reorders them in each call, which takes longer than the arithmetic
if the images are few and small. Frozen filters (`passes/hoisting.py`) are reordered once, and again
if their version has changed. Bias, ReLU and the addition to a residual in the memory of the result
are oneDNN's post-operations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import torch

from magmath.core.type_aliases import ReadyCall
from magmath.kernels.conv.convolution_problem import ConvolutionProblem, key
from magmath.kernels.conv.frozen_filters import frozen_filters
from magmath.kernels.conv.padded_input import PaddedInput
from magmath.kernels.epilogue import NO_EPILOGUE, blocks, finish

_ACTIVATIONS: Final = {"none": "none", "relu": "relu"}


def can_bind(problem: ConvolutionProblem) -> bool:
    """Return True for images with frozen filters."""
    frozen = problem.version is not None and problem.direction == "forward"
    known = problem.epilogue.activation in _ACTIVATIONS and torch._C._has_mkldnn
    return frozen and known and problem.x.ndim == 4 and problem.x.numel() > 0


def workspace(problem: ConvolutionProblem) -> int:
    """Return the bytes of the reordered filters and of oneDNN's result."""
    return problem.w.nbytes + problem.y.nbytes


def bind(problem: ConvolutionProblem, inner: object) -> ReadyCall:
    """Return a ready call."""
    around, version, w = PaddedInput(problem), problem.version, problem.w
    assert version is not None
    filters = frozen_filters(w, ("packed", key(problem)))
    shape = around.padding, problem.stride, problem.dilation, problem.groups
    compute = _computation(problem, around, shape)

    def reordered() -> torch.Tensor:
        size = list(around.tensor.shape)
        made: torch.Tensor = torch.ops.mkldnn._reorder_convolution_weight(
            w.contiguous(), *shape, size
        )
        return made

    def run() -> None:
        around.fill()
        compute(filters.update(version, reordered))

    return run


def _computation(
    problem: ConvolutionProblem, around: PaddedInput, shape: tuple[Any, ...]
) -> Callable[[Any], object]:
    """Return a function of the reordered filters that computes y."""
    epilogue, y = problem.epilogue, problem.y
    bias = None if epilogue.bias is None else epilogue.bias.reshape(-1)
    activation = _ACTIVATIONS[epilogue.activation]
    if epilogue.accumulates(y):
        unary = None if activation == "none" else activation

        def accumulate(w: Any) -> None:
            made = torch.ops.mkldnn._convolution_pointwise_.binary(
                y, around.tensor, w, bias, *shape, "add", 1.0, unary, [], None
            )
            if made.data_ptr() != y.data_ptr():
                y.copy_(made)

        return accumulate
    first, rest = (activation, NO_EPILOGUE)
    if epilogue.residual is not None:
        first, rest = "none", replace(epilogue, bias=None)
    parts = blocks(y) if rest else [(slice(None),)]

    def compute(w: Any) -> None:
        made = torch.ops.mkldnn._convolution_pointwise(
            around.tensor, w, bias, *shape, first, [], None
        )
        finish(made, y, rest, parts)

    return compute
