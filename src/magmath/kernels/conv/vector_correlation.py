"""The correlation of a vector and a filter, by NumPy: a compiled loop for filters of up to 11
elements, otherwise a BLAS dot product for each element of the result.

torch computes convolutions of one channel by loops that take up to a hundred times longer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import torch

from magmath.kernels.conv.convolution_problem import ConvolutionProblem
from magmath.kernels.conv.padded_input import needed_elements

_TYPES: Final = (torch.float32, torch.float64)


def can_bind(problem: ConvolutionProblem) -> bool:
    """Return True for one vector of real numbers, one filter and adjacent elements."""
    x, w, y = problem.x, problem.w, problem.y
    if problem.direction != "forward" or x.ndim != 3 or not x.is_cpu or x.dtype not in _TYPES:
        return False
    is_single = x.shape[:2] == w.shape[:2] == (1, 1)
    is_adjacent = problem.stride == problem.dilation == (1,)
    has_contiguous_rows = w.stride(2) == y.stride(2) == 1
    return is_single and is_adjacent and has_contiguous_rows


def workspace(problem: ConvolutionProblem) -> int:
    """Return the bytes of x with its surrounding zeros."""
    return _extent(problem) * problem.x.element_size()


def bind(problem: ConvolutionProblem, bind_product: object) -> Callable[[], None]:
    """Return a bound call."""
    needed = needed_elements(problem)
    x, w, out = problem.x[needed.in_stored], problem.w[0, 0].numpy(), problem.y[0, 0].numpy()
    if x.shape[2] == _extent(problem):
        row = x[0, 0].numpy()
        return lambda: np.copyto(out, np.correlate(row, w, "valid"))
    padded = x.new_zeros(1, 1, _extent(problem))
    target, row = padded[needed.in_needed], padded[0, 0].numpy()

    def run() -> None:
        target.copy_(x)
        np.copyto(out, np.correlate(row, w, "valid"))

    return run


def _extent(problem: ConvolutionProblem) -> int:
    """Return the number of elements of x, zeros included, that the result needs."""
    return problem.y.shape[2] + problem.w.shape[2] - 1
