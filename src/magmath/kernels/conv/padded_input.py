"""The range of images that a convolution reads, with the zeros of its padding."""

from __future__ import annotations

from magmath.kernels.conv.convolution_problem import ConvolutionProblem
from magmath.kernels.conv.padded_range import (
    CommonElements,
    PaddedRange,
    Range,
    overlap,
    symmetric_padding,
)


def _stored_ranges(problem: ConvolutionProblem) -> list[Range]:
    return [(0, n) for n in problem.x.shape[2:]]


def _needed_ranges(problem: ConvolutionProblem) -> list[Range]:
    """Return the ranges of x that y needs; they may exceed the bounds of x."""
    return [
        (start, start + stride * (n - 1) + dilation * (k - 1) + 1)
        for start, stride, dilation, n, k in zip(
            problem.offset, problem.stride, problem.dilation, problem.y.shape[2:], problem.kernel,
            strict=True,
        )
    ]  # fmt: skip


def needed_elements(problem: ConvolutionProblem) -> CommonElements:
    """Return the indices of the elements of x that y needs, those of the padding excluded: in the
    range that it needs, and in x."""
    return overlap(_stored_ranges(problem), _needed_ranges(problem))


def native_padding(problem: ConvolutionProblem) -> list[int] | None:
    """Return the number of zeros on both sides of x with which torch computes the same y; None if
    there is none."""
    return symmetric_padding(_stored_ranges(problem), _needed_ranges(problem), problem.stride)


def padded_input(problem: ConvolutionProblem) -> PaddedRange:
    """Return the range of x that y needs, with zeros out of bounds, which torch supplies if it
    can."""
    return PaddedRange(
        problem.x, _stored_ranges(problem), _needed_ranges(problem), native_padding(problem)
    )
