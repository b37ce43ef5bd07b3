"""The correlation of two long vectors: a BLAS dot product for each element of the result.

torch computes convolutions of one channel by loops that take up to a hundred times longer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from magmath.kernels.conv.convolution_problem import ConvolutionProblem
from magmath.kernels.conv.padded_input import inside

MIN_TERMS: Final = 16
"""Elements of w from which a dot product is faster than torch."""


def can_bind(problem: ConvolutionProblem) -> bool:
    """Return True for one vector, one filter and adjacent elements."""
    x, w, y = problem.x, problem.w, problem.y
    is_single = x.ndim == 3 and x.shape[:2] == w.shape[:2] == (1, 1)
    is_adjacent = problem.stride == problem.dilation == (1,)
    rows = all(tensor.stride(2) == 1 for tensor in (w, y))
    forward = problem.direction == "forward" and not x.is_complex()
    return is_single and is_adjacent and rows and forward and w.shape[2] >= MIN_TERMS


def workspace(problem: ConvolutionProblem) -> int:
    """Return the bytes of x with its surrounding zeros."""
    return _extent(problem) * problem.x.element_size()


def bind(problem: ConvolutionProblem, inner: object) -> Callable[[], None]:
    """Return a ready call."""
    there, here = inside(problem)
    given, w, out = problem.x[here], problem.w[0, 0].numpy(), problem.y[0, 0].numpy()
    if given.shape[2] == _extent(problem):
        row = given[0, 0].numpy()
        return lambda: np.copyto(out, np.correlate(row, w, "valid"))
    around = given.new_zeros(1, 1, _extent(problem))
    row = around[0, 0].numpy()

    def run() -> None:
        around[there].copy_(given)
        np.copyto(out, np.correlate(row, w, "valid"))

    return run


def _extent(problem: ConvolutionProblem) -> int:
    """Return the number of elements of x, zeros included, that the result needs."""
    return problem.y.shape[2] + problem.w.shape[2] - 1
