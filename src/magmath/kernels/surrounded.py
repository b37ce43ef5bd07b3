"""The range of images that a convolution reads, surrounded by the zeros of its padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from magmath.kernels.convolution_problem import ConvolutionProblem

Range = tuple[int, int]


def reach(problem: ConvolutionProblem) -> list[Range]:
    """Return the ranges of x that y needs; they may exceed the bounds of x."""
    return [
        (start, start + stride * (n - 1) + dilation * (k - 1) + 1)
        for start, stride, dilation, n, k in zip(
            problem.offset, problem.stride, problem.dilation, problem.y.shape[2:], problem.kernel,
            strict=True,
        )
    ]  # fmt: skip


def inside(problem: ConvolutionProblem) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return the indices of the elements of x that y needs: in the range that it needs, and in
    x."""
    ranges = zip(reach(problem), problem.x.shape[2:], strict=True)
    common = [(start, max(start, 0), min(stop, n)) for (start, stop), n in ranges]
    bounds = [(start, low, max(low, high)) for start, low, high in common]
    return (
        (..., *[slice(low - start, high - start) for start, low, high in bounds]),
        (..., *[slice(low, high) for _, low, high in bounds]),
    )


def _padded_extents(problem: ConvolutionProblem, padding: Sequence[int]) -> list[int]:
    """Return the extents of the result of torch's convolution of x with a padding."""
    sizes = zip(
        problem.x.shape[2:], padding, problem.kernel, problem.stride, problem.dilation, strict=True
    )
    return [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, p, k, s, d in sizes]


class Surrounded:
    """The range of x that y needs, with zeros out of bounds, filled in each run.

    If torch can supply the zeros, as many on both sides, `tensor` is x itself and `padding` is
    their number. With a stride, windows may end before the last elements.
    """

    def __init__(self, problem: ConvolutionProblem) -> None:
        x, covered = problem.x, reach(problem)
        lows = [-start for start, _ in covered]
        self.tensor, self.padding = x, lows
        self._target: torch.Tensor | None = None
        if min(lows) < 0 or _padded_extents(problem, lows) != list(problem.y.shape[2:]):
            extents = [stop - start for start, stop in covered]
            self.tensor, self.padding = x.new_zeros((*x.shape[:2], *extents)), [0] * len(covered)
            there, here = inside(problem)
            self._target, self._source = self.tensor[there], x[here]

    def fill(self) -> None:
        """Copy the current elements of x."""
        if self._target is not None:
            self._target.copy_(self._source)
