"""Sliding windows over spatial dimensions: which elements of x an element of y reads, and back.

Convolution and pooling relate an element o of y to the elements stride·o - padding + dilation·j of
x, for all j of a window. `inputs_of_windows` and `windows_of_inputs` convert ranges of the one to
ranges of the other; halos and kernels on parts of arrays follow from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, final

from magmath.core.call_sequence import sequence
from magmath.core.index_set import IndexSet
from magmath.core.type_aliases import BoundCall

if TYPE_CHECKING:
    import torch

Range = tuple[int, int]
Attributes = Mapping[str, Any]


def inputs_of_windows(attributes: Attributes, d: int, kernel: int) -> Callable[[int, int], Range]:
    """Return a function from a range of y to the range of x that the kernel covers.

    The range of x may exceed its bounds.
    """
    stride, dilation = attributes["stride"][d], attributes["dilation"][d]
    low = attributes["padding"][d][0]
    return lambda first, last: (
        stride * first - low,
        stride * (last - 1) - low + dilation * (kernel - 1) + 1,
    )


def windows_of_inputs(attributes: Attributes, d: int, kernel: int) -> Callable[[int, int], Range]:
    """Return a function from a range of x to the range of y whose kernel windows overlap it.

    The range of y may exceed its bounds.
    """
    stride, dilation = attributes["stride"][d], attributes["dilation"][d]
    low = attributes["padding"][d][0]
    return lambda first, last: (
        -((dilation * (kernel - 1) - first - low) // stride),
        (last - 1 + low) // stride + 1,
    )


def window_counts(
    extents: Sequence[int], kernel: Sequence[int], attributes: Attributes
) -> list[int]:
    """Return the number of windows over each dimension of x; less than 1 if none fits."""
    parts = zip(
        extents, kernel, attributes["padding"], attributes["stride"], attributes["dilation"],
        strict=True,
    )  # fmt: skip
    return [(n + low + high - d * (k - 1) - 1) // s + 1 for n, k, (low, high), s, d in parts]


def window_elements(
    kernel: Sequence[int], extents: Sequence[int], attributes: Attributes
) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """Yield each kernel element, and the slices of x with which it multiplies all of y."""
    for element in product(*map(range, kernel)):
        where = [
            slice(d * j, d * j + s * (n - 1) + 1, s)
            for j, n, s, d in zip(
                element, extents, attributes["stride"], attributes["dilation"], strict=True
            )
        ]
        yield element, tuple(where)


def overlap(
    stored: Sequence[Range], needed: Sequence[Range]
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return the indices of the common elements in an array of `needed`, and in one of `stored`."""
    common = [(max(a, c), min(b, d)) for (a, b), (c, d) in zip(stored, needed, strict=True)]
    stretches = [(start, max(start, stop)) for start, stop in common]
    if any(start == stop for start, stop in stretches):
        nothing = (..., *[slice(0, 0) for _ in stretches])
        return nothing, nothing
    return (
        (..., *[slice(a - w, b - w) for (a, b), (w, _) in zip(stretches, needed, strict=True)]),
        (..., *[slice(a - h, b - h) for (a, b), (h, _) in zip(stretches, stored, strict=True)]),
    )


def extents_of(ranges: Sequence[Range]) -> list[int]:
    """Return the length of each range."""
    return [stop - start for start, stop in ranges]


def tile_ranges(tile: Sequence[IndexSet], lead: int = 2) -> list[Range]:
    """Return the ranges of space that a tile contains, after `lead` dimensions of batch and
    channels."""
    return [(indices.start, indices.stop) if indices.size else (0, 0) for indices in tile[lead:]]


def input_ranges(
    windows: Sequence[Range], kernel: Sequence[int], attributes: Attributes
) -> list[Range]:
    """Return the ranges of x that ranges of y need."""
    ranges = enumerate(zip(windows, kernel, strict=True))
    return [inputs_of_windows(attributes, d, k)(*span) for d, (span, k) in ranges]


@final
class PaddedRange:
    """A range of x with a value, by default 0, out of bounds, filled in each run.

    If torch (`native`) can supply the missing elements, `tensor` is x itself and `padding` is their
    number on both sides of each dimension. Otherwise `tensor` is a copy of x that includes them.
    """

    def __init__(
        self,
        x: torch.Tensor,
        stored: Sequence[Range],
        needed: Sequence[Range],
        native: bool,
        *,
        value: float = 0,
        max_padding: Sequence[int] | None = None,
        stride: Sequence[int] = (),
    ) -> None:
        lows = [h - w for (h, _), (w, _) in zip(stored, needed, strict=True)]
        highs = [w - h for (_, h), (_, w) in zip(stored, needed, strict=True)]
        self.tensor, self.padding = x, lows
        self.fill: BoundCall = sequence()
        """Copies the current elements of x."""
        if not _is_padded(lows, highs, native, max_padding or lows, stride):
            lead = x.shape[: x.ndim - len(needed)]
            self.tensor = _filled(x, (*lead, *extents_of(needed)), value)
            self.padding = [0] * len(needed)
            there, here = overlap(stored, needed)
            self.fill = partial(self.tensor[there].copy_, x[here])


def _is_padded(
    lows: Sequence[int],
    highs: Sequence[int],
    native: bool,
    max_padding: Sequence[int],
    stride: Sequence[int],
) -> bool:
    """Return True if a range of x is x itself with as many elements at both ends as it lacks before
    x, which torch supplies.

    It may lack fewer behind x: the others make no difference to windows at a distance `stride`, as
    long as no other window fits.
    """
    if min(lows) < 0 or (max(lows) > 0 and not native):
        return False
    if any(low > limit for low, limit in zip(lows, max_padding, strict=True)):
        return False
    steps = stride if native and stride else [1] * len(lows)
    return all(0 <= low - high < step for low, high, step in zip(lows, highs, steps, strict=True))


def _filled(x: torch.Tensor, shape: Sequence[int], value: float) -> torch.Tensor:
    """Return a tensor full of a value, in row-major order, or channels last if x is."""
    if not x.is_contiguous() and x.ndim > 2 and x.movedim(1, -1).is_contiguous():
        return x.new_full((shape[0], *shape[2:], shape[1]), value).movedim(-1, 1)
    return x.new_full(tuple(shape), value)
