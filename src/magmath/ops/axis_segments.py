"""Segments of an axis, for each of which a worker contributes a number.

Cuts are ascending boundaries from 0 to the extent; they are attributes of an operation. A dimension
with one number per segment follows the dimension that is cut: a worker that stores a segment stores
its number, provided that the dimension is split between segments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, final

from magmath.core.index_set import IndexSet
from magmath.graph import Node
from magmath.layout import Layout, Split, even_cuts
from magmath.ops.index_letters import LETTERS, with_changed_letter

if TYPE_CHECKING:
    import torch

Cuts = tuple[int, ...]


def cuts_along(layout: Layout, axis: int) -> Cuts | None:
    """Return cuts that match an array's split along an axis and the even split over its workers.

    Returns None if every worker stores the whole axis, or if there would be more than half as many
    segments as elements, so that segments save nothing.
    """
    extent, count = layout.shape[axis], layout.mesh.size
    split = layout.splits[axis] if layout.boxes is None else None
    if count == 1 or (split is None and layout.boxes is None):
        return None
    cuts = {*even_cuts(extent, count)}
    if split is not None:
        cuts |= {*even_cuts(extent, layout.mesh.shape[split.mesh_axis]), *_listed(split)}
    return tuple(sorted(cuts)) if extent > 2 * (len(cuts) - 1) else None


def cuts_of(layout: Layout | None, axis: int) -> set[int]:
    """Return the cuts of a layout along an axis; empty if there are none or too many to list."""
    split = None if layout is None else layout.splits[axis]
    return set() if split is None else _listed(split)


def _listed(split: Split) -> set[int]:
    segments = split.as_cut_pieces()
    return set() if segments is None else set(segments.cuts)


def split_between_segments(split: Split, cuts: Cuts, positions: Sequence[int]) -> Split | None:
    """Return the split of a dimension in which `positions` are the boundaries of the segments.

    `positions` correspond to `cuts` of the dimension with layout `split`. Returns None if that
    dimension is split elsewhere than between segments.
    """
    position_of = dict(zip(cuts, positions, strict=True))
    segments = split.as_cut_pieces()
    if segments is None or not set(segments.cuts) <= set(position_of):
        return None
    return split.map_positions(position_of.__getitem__)


def axes_of_segments(node: Node) -> str:
    """Return index notation of a result with one number per segment of the operand's axis."""
    letters = LETTERS[: node.ndim]
    return f"{letters}->{with_changed_letter(letters, node.attributes['axis'], str.upper)}"


def split_of_segments(node: Node, letter: str, split: Split, operand: int | None) -> Split | None:
    """Return the split of a dimension of one number per segment, which follows the segments."""
    cuts = node.attributes["cuts"]
    return split_between_segments(split, cuts, range(len(cuts)))


@final
class StoredSegment(NamedTuple):
    """A segment that a worker stores.

    number       its number among all segments
    first        its first index in the whole array
    start, stop  its local positions
    """

    number: int
    first: int
    start: int
    stop: int


@final
class SegmentView(NamedTuple):
    """The view of a segment in a local tensor, with its number and its first global index."""

    number: int
    first: int
    tensor: torch.Tensor


def stored_segments(stored_indices: IndexSet, cuts: Cuts) -> Iterator[StoredSegment]:
    """Yield the segments that a worker stores, given its indices of the axis."""
    for number, (start, stop) in enumerate(pairwise(cuts)):
        segment = stored_indices.intersect(IndexSet.range(start, stop))
        if segment.size:
            local = stored_indices.locate(segment)
            yield StoredSegment(number, start, local.start, local.stop)


def segment_views(
    tensor: torch.Tensor, stored_indices: IndexSet, axis: int, cuts: Cuts
) -> list[SegmentView]:
    """Return the views of the segments that a local tensor stores."""
    return [
        SegmentView(x.number, x.first, tensor.narrow(axis, x.start, x.stop - x.start))
        for x in stored_segments(stored_indices, cuts)
    ]


def local_number(stored_numbers: IndexSet, number: int) -> int:
    """Return the local position of segment `number` among the numbers that a worker stores."""
    return stored_numbers.locate(IndexSet.range(number, number + 1)).start
