"""Ranges of the space of an array that exceed its bounds, and what both have in common."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, final

from magmath.core.call_sequence import sequence
from magmath.core.type_aliases import BoundCall

if TYPE_CHECKING:
    import torch

Range = tuple[int, int]


def extents_of(ranges: Sequence[Range]) -> list[int]:
    """Return the length of each range."""
    return [stop - start for start, stop in ranges]


@final
class CommonElements(NamedTuple):
    """The indices of the common elements of two ranges in arrays of the one and of the other."""

    in_needed: tuple[Any, ...]
    in_stored: tuple[Any, ...]


def overlap(stored: Sequence[Range], needed: Sequence[Range]) -> CommonElements:
    """Return the indices of the common elements in an array of `needed`, and in one of `stored`."""
    common = [(max(a, c), min(b, d)) for (a, b), (c, d) in zip(stored, needed, strict=True)]
    if any(start >= stop for start, stop in common):
        nothing = (..., *[slice(0, 0) for _ in common])
        return CommonElements(nothing, nothing)
    return CommonElements(_within(common, needed), _within(common, stored))


def _within(parts: Sequence[Range], ranges: Sequence[Range]) -> tuple[Any, ...]:
    """Return the indices of parts of ranges in an array of the ranges."""
    pairs = zip(parts, ranges, strict=True)
    return (..., *[slice(start - first, stop - first) for (start, stop), (first, _) in pairs])


def symmetric_padding(
    stored: Sequence[Range],
    needed: Sequence[Range],
    stride: Sequence[int],
    limits: Sequence[int] | None = None,
) -> list[int] | None:
    """Return the number of elements at both ends of the range `stored`, at most `limits`, with
    which torch computes the windows over the range `needed`; None if there is none.

    Behind it, too many make no difference as long as no other window fits: fewer than `stride`.
    """
    padding = []
    for (first, last), (start, stop), step in zip(stored, needed, stride, strict=True):
        low, high = first - start, stop - last
        if low < 0 or not 0 <= low - high < step:
            return None
        padding.append(low)
    if limits is not None and any(n > limit for n, limit in zip(padding, limits, strict=True)):
        return None
    return padding


@final
class PaddedRange:
    """The range `needed` of an array, of which x has the range `stored`, filled in each run.

    `padding`: the elements that the reader adds at both ends of each dimension of x, which is
    `tensor` then; or zeros, if `tensor` is a copy of x with `value` out of bounds, or x because it
    has the same range.
    """

    def __init__(
        self,
        x: torch.Tensor,
        stored: Sequence[Range],
        needed: Sequence[Range],
        padding: list[int] | None = None,
        value: float = 0,
    ) -> None:
        self.tensor, self.padding = x, [0] * len(needed) if padding is None else padding
        self.fill: BoundCall = sequence()
        """Copies the current elements of x."""
        if padding is None and list(stored) != list(needed):
            lead = x.shape[: x.ndim - len(needed)]
            self.tensor = _filled(x, (*lead, *extents_of(needed)), value)
            common = overlap(stored, needed)
            self.fill = partial(self.tensor[common.in_needed].copy_, x[common.in_stored])


def _filled(x: torch.Tensor, shape: Sequence[int], value: float) -> torch.Tensor:
    """Return a tensor full of a value, in row-major order, or channels last if x is."""
    if not x.is_contiguous() and x.ndim > 2 and x.movedim(1, -1).is_contiguous():
        return x.new_full((shape[0], *shape[2:], shape[1]), value).movedim(-1, 1)
    return x.new_full(tuple(shape), value)
