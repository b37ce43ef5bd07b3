"""Sliding windows over spatial dimensions: which elements of x an element of y reads, and back.

Convolution and pooling relate an element o of y to the elements stride·o - padding + dilation·j of
x, for all j of a window. `inputs_of_windows` and `windows_of_inputs` convert ranges of the one to
ranges of the other; halos and kernels on parts of arrays follow from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from magmath.core.index_set import IndexSet
from magmath.kernels.conv.padded_range import Range

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


def first_elements(
    windows: Sequence[Range], bounds: Sequence[Range], kernel: Sequence[int], attributes: Attributes
) -> list[list[int]]:
    """Return for each dimension and each window of a range the number of its first element that is
    within `bounds`, a range of x; of windows without such elements, that of any."""
    return [
        [min(max(0, -((first - here) // dilation)), k - 1) for first in firsts]
        for (here, _), k, dilation, firsts in zip(
            bounds, kernel, attributes["dilation"], _first_inputs(windows, attributes), strict=True
        )
    ]


def _first_inputs(windows: Sequence[Range], attributes: Attributes) -> list[range]:
    """Return for each dimension the first element of each window of a range, as a range of x."""
    parts = zip(windows, attributes["padding"], attributes["stride"], strict=True)
    return [range(a * step - low, b * step - low, step) for (a, b), (low, _), step in parts]
