"""The range of images that a convolution reads, with the zeros of its padding."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, final

import torch

from magmath.core.call_sequence import sequence
from magmath.core.type_aliases import BoundCall
from magmath.kernels.conv.convolution_problem import ConvolutionProblem

Range = tuple[int, int]


def needed_ranges(problem: ConvolutionProblem) -> list[Range]:
    """Return the ranges of x that y needs; they may exceed the bounds of x."""
    return [
        (start, start + stride * (n - 1) + dilation * (k - 1) + 1)
        for start, stride, dilation, n, k in zip(
            problem.offset, problem.stride, problem.dilation, problem.y.shape[2:], problem.kernel,
            strict=True,
        )
    ]  # fmt: skip


@final
class NeededElements(NamedTuple):
    """The indices of the elements of x that y needs: in the range that it needs, and in x."""

    in_range: tuple[Any, ...]
    in_x: tuple[Any, ...]


def needed_elements(problem: ConvolutionProblem) -> NeededElements:
    """Return the elements of x that y needs, those of the padding excluded."""
    ranges = zip(needed_ranges(problem), problem.x.shape[2:], strict=True)
    common = [(start, max(start, 0), min(stop, n)) for (start, stop), n in ranges]
    bounds = [(start, low, max(low, high)) for start, low, high in common]
    return NeededElements(
        (..., *[slice(low - start, high - start) for start, low, high in bounds]),
        (..., *[slice(low, high) for _, low, high in bounds]),
    )


def symmetric_padding(problem: ConvolutionProblem) -> list[int] | None:
    """Return the number of zeros on both sides of x with which torch computes the same y; None if
    there is none.

    Behind x, too many zeros make no difference as long as no other window fits.
    """
    padding = []
    extents = problem.x.shape[2:]
    for (start, stop), n, stride in zip(
        needed_ranges(problem), extents, problem.stride, strict=True
    ):
        low, high = -start, stop - n
        if low < 0 or not 0 <= low - high < stride:
            return None
        padding.append(low)
    return padding


@final
class PaddedInput:
    """The range of x that y needs, with zeros out of bounds, filled in each run.

    If torch can supply the zeros, `tensor` is x itself and `padding` is their number on both sides.
    """

    def __init__(self, problem: ConvolutionProblem) -> None:
        x, padding = problem.x, symmetric_padding(problem)
        self.fill: BoundCall = sequence()
        """Copies the current elements of x."""
        if padding is not None:
            self.tensor, self.padding = x, padding
            return
        extents = [stop - start for start, stop in needed_ranges(problem)]
        self.tensor, self.padding = zeros_in_order_of(x, extents), [0] * len(extents)
        needed = needed_elements(problem)
        self.fill = partial(self.tensor[needed.in_range].copy_, x[needed.in_x])


def zeros_in_order_of(x: torch.Tensor, extents: Sequence[int]) -> torch.Tensor:
    """Return zeros of other spatial extents, channels last if the channels of x are."""
    images, channels = x.shape[:2]
    if not x.is_contiguous() and x.movedim(1, -1).is_contiguous():
        return x.new_zeros((images, *extents, channels)).movedim(-1, 1)
    return x.new_zeros((images, channels, *extents))
