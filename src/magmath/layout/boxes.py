"""Boxes (n-dimensional rectangles), and the check that boxes tile an array exactly.

A box is one (start, stop) pair for each dimension. Boxes of a layout may have any position and any
owner, but every element must be in exactly one box.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np

from magmath.errors import LayoutError

Box: TypeAlias = tuple[tuple[int, int], ...]


def box_size(box: Box) -> int:
    """Return the number of elements in a box."""
    return math.prod([stop - start for start, stop in box])


def check_tiling(shape: tuple[int, ...], boxes: tuple[Box, ...]) -> None:
    """Raise LayoutError unless the boxes cover an array of this shape without hole or overlap."""
    for box in boxes:
        inside = len(box) == len(shape) and all(
            0 <= start <= stop <= extent for (start, stop), extent in zip(box, shape, strict=True)
        )
        if not inside:
            raise LayoutError(
                f"Layout.blocks on an array of shape {shape}: box {show_box(box)} is not inside "
                f"it; give 0 <= start <= stop <= extent for each of the {len(shape)} dimensions"
            )
    boxes = tuple([box for box in boxes if box_size(box)])
    overlapping = _first_overlap(boxes, len(shape))
    if overlapping:
        first, second = (show_box(boxes[i]) for i in overlapping)
        raise LayoutError(
            f"Layout.blocks on an array of shape {shape}: boxes {first} and {second} overlap; "
            f"each element must be in exactly one box"
        )
    missing = math.prod(shape) - sum(box_size(box) for box in boxes)
    if missing:
        raise LayoutError(
            f"Layout.blocks on an array of shape {shape}: {missing} elements are in no box, among "
            f"them {show_box(_first_hole(shape, boxes))}; add boxes for them"
        )


def show_box(box: Box) -> str:
    """Format a box as an index expression: [0:4, 2:8]."""
    return f"[{', '.join(f'{start}:{stop}' for start, stop in box)}]"


def _first_overlap(boxes: tuple[Box, ...], ndim: int) -> tuple[int, int] | None:
    """Return the numbers of two boxes that have common elements, or None."""
    corners = np.array(boxes, np.int64).reshape(len(boxes), ndim, 2)
    for later in range(1, len(boxes)):
        low = np.maximum(corners[:later, :, 0], corners[later, :, 0])
        high = np.minimum(corners[:later, :, 1], corners[later, :, 1])
        earlier = np.flatnonzero((low < high).all(axis=1))
        if len(earlier):
            return int(earlier[0]), later
    return None


def _first_hole(shape: tuple[int, ...], boxes: tuple[Box, ...]) -> Box:
    """Return a box of elements that are in none of the boxes; at least one element is."""
    holes: list[Box] = [tuple([(0, extent) for extent in shape])]
    for box in boxes:
        holes = [part for hole in holes for part in _without(hole, box)]
    return holes[0]


def _without(box: Box, removed: Box) -> Iterator[Box]:
    """Yield disjoint boxes that cover `box` except the elements of `removed`."""
    common = [(max(a, c), min(b, d)) for (a, b), (c, d) in zip(box, removed, strict=True)]
    if any(start >= stop for start, stop in common):
        yield box
        return
    for axis, ((start, stop), (low, high)) in enumerate(zip(box, common, strict=True)):
        for side in ((start, low), (high, stop)):
            if side[0] < side[1]:
                yield (*common[:axis], side, *box[axis + 1 :])
