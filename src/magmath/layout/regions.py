"""Regions of a layout for drawing: the intervals of each dimension, and the workers that store each
combination of intervals. If there are too many, the middle ones are omitted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import final

import numpy as np

from magmath.layout.boxes import Box
from magmath.layout.checks import LayoutParts
from magmath.layout.split import CutPieces, Cyclic, HaloRanges, Split

MAX_RECTANGLES = 576
"""Maximum number of rectangles in a picture, except for boxes layouts."""
MAX_SECTIONS = 12
"""Maximum number of sections along the leading dimensions."""


@final
@dataclass(frozen=True)
class Interval:
    """An interval of one dimension and its owner along the mesh axis (None if unsplit); `hidden`:
    an omitted interval."""

    start: int
    stop: int
    owner: int | None = None
    hidden: bool = False


@final
@dataclass(frozen=True)
class Region:
    """A rectangle, and the workers that store it; no workers for omitted parts."""

    box: Box
    holders: tuple[int, ...]


@final
@dataclass(frozen=True)
class ArraySection:
    """A section of an array: its position along the leading dimensions, the intervals of the last
    two dimensions (one of length 1 for a missing dimension), and its regions."""

    lead: Box
    hidden: bool
    rows: tuple[Interval, ...]
    columns: tuple[Interval, ...]
    regions: tuple[Region, ...]


def array_sections(layout: LayoutParts) -> list[ArraySection]:
    """Return the sections of an array of any number of dimensions, in row-major order."""
    leading = max(0, layout.ndim - 2)
    split_leading = sum(split is not None for split in layout.splits[:leading]) or 1
    max_intervals = max(3, int(MAX_SECTIONS ** (1 / split_leading)))
    leads = [_intervals(layout, axis, max_intervals) for axis in range(leading)]
    count = math.prod([len(pieces) for pieces in leads])
    max_intervals = max(4, math.isqrt(MAX_RECTANGLES // count))
    last_two: list[tuple[Interval, ...]] = [(Interval(0, 1),)] * max(0, 2 - layout.ndim)
    last_two += [_intervals(layout, axis, max_intervals) for axis in range(leading, layout.ndim)]
    rows, columns = last_two
    return [_section(layout, lead, rows, columns) for lead in product(*leads)]


def _intervals(layout: LayoutParts, axis: int, max_intervals: int) -> tuple[Interval, ...]:
    extent = layout.shape[axis]
    if layout.boxes is not None:
        cuts = sorted({end for box, _ in layout.boxes for end in box[axis]} | {0, extent})
        return tuple([Interval(*ends) for ends in pairwise(cuts)]) or (Interval(0, extent),)
    split = layout.splits[axis]
    if split is None or layout.mesh.shape[split.mesh_axis] == 1:
        return (Interval(0, extent),)
    return _abbreviated(split, max_intervals) or (Interval(0, extent),)


def _abbreviated(split: Split, max_intervals: int) -> tuple[Interval, ...]:
    """Return the intervals of a split; only the first and last ones if there are more than
    `max_intervals`."""
    pieces = split.pieces
    assert not isinstance(pieces, HaloRanges), "halo ranges are layouts of temporaries only"
    numbers = _nonempty(pieces)
    if len(numbers) <= max_intervals:
        return tuple([_interval(pieces, i) for i in numbers])
    before = max_intervals // 2
    after = max_intervals - before - 1
    first = [_interval(pieces, i) for i in numbers[:before]]
    last = [_interval(pieces, i) for i in numbers[-after:]]
    return (*first, Interval(first[-1].stop, last[0].start, hidden=True), *last)


def _nonempty(pieces: CutPieces | Cyclic) -> Sequence[int]:
    """Return the numbers of the pieces that have elements."""
    if isinstance(pieces, Cyclic):
        return range(-(-pieces.extent // pieces.block))
    return [i for i, (start, stop) in enumerate(pairwise(pieces.cuts)) if start < stop]


def _interval(pieces: CutPieces | Cyclic, i: int) -> Interval:
    if isinstance(pieces, CutPieces):
        return Interval(pieces.cuts[i], pieces.cuts[i + 1], pieces.owners[i])
    start = i * pieces.block
    return Interval(start, min(start + pieces.block, pieces.extent), i % pieces.count)


def _section(
    layout: LayoutParts,
    lead: tuple[Interval, ...],
    rows: tuple[Interval, ...],
    columns: tuple[Interval, ...],
) -> ArraySection:
    box = tuple([(piece.start, piece.stop) for piece in lead])
    hidden = any(piece.hidden for piece in lead)
    if hidden:
        regions: tuple[Region, ...] = ()
    elif layout.boxes is not None:
        regions = _boxes(layout, box)
    else:
        last = (rows, columns)[2 - min(layout.ndim, 2) :]
        regions = tuple(
            [
                Region(tuple([(p.start, p.stop) for p in chosen]), _holding_workers(layout, chosen))
                for rest in product(*last)
                for chosen in [(*lead, *rest)]
            ]
        )
    return ArraySection(box, hidden, rows, columns, regions)


def _boxes(layout: LayoutParts, lead: Box) -> tuple[Region, ...]:
    """Return the boxes, clipped to a section."""
    assert layout.boxes is not None
    regions = []
    for box, worker in layout.boxes:
        ends = [
            (max(a, c), min(b, d)) for (a, b), (c, d) in zip(box[: len(lead)], lead, strict=True)
        ]
        clipped = (*ends, *box[len(lead) :])
        if all(start < stop for start, stop in clipped):
            regions.append(Region(clipped, (worker,)))
    return tuple(regions)


def _holding_workers(layout: LayoutParts, chosen: tuple[Interval, ...]) -> tuple[int, ...]:
    """Return the workers at the owners' coordinates: one if every mesh axis splits a dimension."""
    if any(piece.hidden for piece in chosen):
        return ()
    grid = np.array(layout.mesh.workers).reshape(layout.mesh.shape)
    coordinate: list[int | slice] = [slice(None)] * layout.mesh.ndim
    for split, piece in zip(layout.splits, chosen, strict=True):
        if split is not None and piece.owner is not None:
            coordinate[split.mesh_axis] = piece.owner
    return tuple([int(worker) for worker in np.ravel(grid[tuple(coordinate)])])
