"""Sets of indices along one dimension of an array, with intersection, selection and location.

An `IndexSet` is a sorted union of disjoint half-open segments. Contiguous ranges and regular
(cyclic) patterns are stored as four integers, all other sets as two NumPy arrays, so layouts, plans
and random fills process a dimension of any length without listing its indices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from magmath.errors import LayoutError

Segments: TypeAlias = "NDArray[np.int64]"


@final
class IndexSet:
    """An immutable, hashable set of non-negative indices.

    The representation is canonical: adjacent segments are merged and empty segments dropped, so two
    sets are equal exactly if they contain the same indices. `start` and `stop` bound the set.
    """

    __slots__ = ("_hash", "_segments", "block", "period", "size", "start", "stop")

    start: int
    stop: int
    block: int
    """Length of a segment of a regular set; of a range, its length."""
    period: int
    """Distance between the starts of the segments of a regular set; of a range, its length; 0 for
    any other set."""
    size: int
    """The number of indices."""
    _segments: tuple[Segments, Segments] | None
    _hash: int

    def __init__(
        self,
        start: int,
        stop: int,
        block: int,
        period: int,
        size: int,
        segments: tuple[Segments, Segments] | None = None,
    ) -> None:
        """Internal: use `range`, `regular` or `from_segments`, which keep the form canonical."""
        self.start = start
        self.stop = stop
        self.block = block
        self.period = period
        self.size = size
        self._segments = segments
        self._hash = hash(
            (start, stop, block, period, size)
            if segments is None
            else (segments[0].tobytes(), segments[1].tobytes())
        )

    @staticmethod
    def range(start: int, stop: int) -> IndexSet:
        """Return the contiguous indices start … stop - 1; the empty set if stop <= start."""
        if stop <= start:
            return _EMPTY
        size = stop - start
        return IndexSet(start, stop, size, size, size)

    @staticmethod
    def regular(start: int, stop: int, block: int, period: int) -> IndexSet:
        """Return segments of `block` indices, one every `period`, from `start`, ended at
        `stop`."""
        if stop <= start or block <= 0:
            return _EMPTY
        if block >= period or start + period >= stop:
            return IndexSet.range(start, stop if block >= period else min(stop, start + block))
        last = start + (stop - 1 - start) // period * period
        stop = min(stop, last + block)
        size = (last - start) // period * block + stop - last
        return IndexSet(start, stop, block, period, size)

    @staticmethod
    def from_segments(
        starts: Sequence[int] | Segments, stops: Sequence[int] | Segments
    ) -> IndexSet:
        """Return the union of the segments [starts[i], stops[i]), given in ascending order.

        Empty segments are allowed. Raises LayoutError if segments overlap or are out of order.
        """
        first = np.asarray(starts, np.int64)
        last = np.asarray(stops, np.int64)
        is_nonempty = first < last
        if not is_nonempty.all():
            first, last = first[is_nonempty], last[is_nonempty]
        if len(first) == 0:
            return _EMPTY
        if (first[1:] < last[:-1]).any():
            raise LayoutError(
                "IndexSet.from_segments needs ascending segments that do not overlap; sort them "
                "first"
            )
        joint = first[1:] != last[:-1]
        if not joint.all():
            first = first[np.concatenate(([True], joint))]
            last = last[np.concatenate((joint, [True]))]
        return _canonical(first, last)

    @property
    def is_range(self) -> bool:
        """True for a single contiguous segment, and for the empty set."""
        return self.size == self.stop - self.start

    def segments(self) -> tuple[Segments, Segments]:
        """Return the starts and the stops of the segments, as int64 arrays, which are read-only."""
        if self._segments is not None:
            return self._segments
        if self.size == 0:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        starts = np.arange(self.start, self.stop, self.period, dtype=np.int64)
        return starts, np.minimum(starts + self.block, self.stop)

    def indices(self) -> NDArray[np.int64]:
        """Return all indices, ascending, as a new int64 array of length `size`."""
        if self.is_range:
            return np.arange(self.start, self.stop, dtype=np.int64)
        starts, stops = self.segments()
        lengths = stops - starts
        before = np.cumsum(lengths) - lengths
        return np.repeat(starts - before, lengths) + np.arange(self.size, dtype=np.int64)

    def selector(self) -> slice | NDArray[np.int64]:
        """Return a NumPy selector of these indices: a slice (possibly strided) or an index
        array."""
        if self.is_range:
            return slice(self.start, self.stop)
        if self.block == 1 and self.period:
            return slice(self.start, self.stop, self.period)
        return self.indices()

    def intersect(self, other: IndexSet) -> IndexSet:
        """Return the indices in both sets."""
        start, stop = max(self.start, other.start), min(self.stop, other.stop)
        if stop <= start:
            return _EMPTY
        if self.is_range:
            return IndexSet.range(start, stop) if other.is_range else other._clipped(start, stop)
        if other.is_range:
            return self._clipped(start, stop)
        return self if self == other else _intersect_segments(self.segments(), other.segments())

    def select(self, first: int, last: int) -> IndexSet:
        """Return the members at the positions first … last - 1 of the sorted set; empty for
        none."""
        if self.is_range:
            return IndexSet.range(self.start + first, self.start + last)
        starts, stops = self.segments()
        lengths = stops - starts
        before = np.cumsum(lengths) - lengths
        return IndexSet.from_segments(
            starts + np.clip(first - before, 0, lengths),
            starts + np.clip(last - before, 0, lengths),
        )

    def locate(self, subset: IndexSet) -> IndexSet:
        """Return the positions of `subset` in this set: the local indices of its members.

        Raises LayoutError if this set lacks a member of `subset`.
        """
        if subset.size == 0:
            return _EMPTY
        if subset.size == self.size and subset == self:
            return IndexSet.range(0, self.size)
        if self.is_range:
            if subset.start < self.start or subset.stop > self.stop:
                raise _not_subset_error(subset, self)
            return subset.shifted(-self.start)
        if self.period and (subset.is_range or subset.period == self.period):
            return self._locate_regular(subset)
        starts, stops = self.segments()
        inner, outer = subset.segments()
        segment = np.searchsorted(starts, inner, side="right") - 1
        if segment[0] < 0 or (outer > stops[segment]).any():
            raise _not_subset_error(subset, self)
        lengths = stops - starts
        shift = (np.cumsum(lengths) - lengths - starts)[segment]
        return IndexSet.from_segments(inner + shift, outer + shift)

    def find(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions in this set of member indices, given in any order."""
        starts, stops = self.segments()
        lengths = stops - starts
        shift = np.cumsum(lengths) - lengths - starts
        return np.asarray(indices + shift[np.searchsorted(starts, indices, side="right") - 1])

    def _locate_regular(self, subset: IndexSet) -> IndexSet:
        """Implement `locate` for a regular set and a subset that is a range or has the same
        period."""
        step, offset = divmod(subset.start - self.start, self.period)
        outside = subset.start < self.start or subset.stop > self.stop
        if outside or offset + subset.block > self.block:
            raise _not_subset_error(subset, self)
        last_step, last_offset = divmod(subset.stop - 1 - self.start, self.period)
        first, last = step * self.block + offset, last_step * self.block + last_offset
        return IndexSet.regular(first, last + 1, subset.block, self.block)

    def _clipped(self, start: int, stop: int) -> IndexSet:
        """Intersect this set, not a range, with start … stop - 1, which is within its bounds."""
        if start == self.start and stop == self.stop:
            return self
        if not self.period:
            starts, stops = self.segments()
            first = int(np.searchsorted(stops, start, side="right"))
            last = int(np.searchsorted(starts, stop))
            starts, stops = starts[first:last], stops[first:last]
        else:
            step, offset = divmod(start - self.start, self.period)
            begin = self.start + (step + (offset >= self.block)) * self.period
            if begin >= start:
                return IndexSet.regular(begin, stop, self.block, self.period)
            starts = np.arange(begin, stop, self.period, dtype=np.int64)
            stops = starts + self.block
        return IndexSet.from_segments(np.maximum(starts, start), np.minimum(stops, stop))

    def shifted(self, offset: int) -> IndexSet:
        """Return the set with `offset` added to every index."""
        if offset == 0:
            return self
        segments = None
        if self._segments is not None:
            segments = (self._segments[0] + offset, self._segments[1] + offset)
        start, stop = self.start + offset, self.stop + offset
        return IndexSet(start, stop, self.block, self.period, self.size, segments)

    def __len__(self) -> int:
        return self.size

    def __contains__(self, index: int) -> bool:
        return self.intersect(IndexSet.range(index, index + 1)).size == 1

    def __eq__(self, other: Any) -> bool:
        if self is other:
            return True
        if not isinstance(other, IndexSet) or self._hash != other._hash:
            return False
        if self._segments is None or other._segments is None:
            return (
                self._segments is other._segments
                and self.start == other.start
                and self.stop == other.stop
                and self.block == other.block
                and self.period == other.period
            )
        return np.array_equal(self._segments[0], other._segments[0]) and np.array_equal(
            self._segments[1], other._segments[1]
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        if self.is_range:
            return f"IndexSet({self.start}:{self.stop})"
        if self.period:
            pattern = f"{self.block} of {self.period}"
            return f"IndexSet({self.start}:{self.stop}, {pattern})"
        starts, stops = self.segments()
        shown = ", ".join(f"{a}:{b}" for a, b in zip(starts[:4], stops[:4], strict=True))
        return f"IndexSet({shown}{', …' if len(starts) > 4 else ''})"


Tile: TypeAlias = tuple[IndexSet, ...]
"""The part of an array that one worker stores: one index set for each dimension."""

_EMPTY = IndexSet(0, 0, 0, 0, 0)


def shift_tile(tile: Tile, start: tuple[int, ...]) -> Tile:
    """Convert a tile of a slice that begins at `start` to indices of the whole array."""
    return tuple([indices.shifted(by) for indices, by in zip(tile, start, strict=True)])


def tile_shape(tile: Tile) -> tuple[int, ...]:
    """Return the extents of a tile."""
    return tuple([indices.size for indices in tile])


def _canonical(starts: Segments, stops: Segments) -> IndexSet:
    """Build the set of non-empty, non-adjacent, ascending segments, as four integers if regular."""
    lengths = stops - starts
    start, stop, size = int(starts[0]), int(stops[-1]), int(lengths.sum())
    if len(starts) == 1:
        return IndexSet.range(start, stop)
    block, period = int(lengths[0]), int(starts[1] - starts[0])
    if (
        int(lengths[-1]) <= block
        and (lengths[:-1] == block).all()
        and (np.diff(starts) == period).all()
    ):
        return IndexSet(start, stop, block, period, size)
    segments = starts.copy(), stops.copy()  # the caller may own the arrays
    for array in segments:
        array.flags.writeable = False
    return IndexSet(start, stop, 0, 0, size, segments)


def _intersect_segments(a: tuple[Segments, Segments], b: tuple[Segments, Segments]) -> IndexSet:
    """Intersect each segment of `a` with every overlapping segment of `b`, vectorized."""
    first = np.searchsorted(b[1], a[0], side="right")
    counts = np.searchsorted(b[0], a[1], side="left") - first
    of_a = np.repeat(np.arange(len(counts)), counts)
    before = np.cumsum(counts) - counts
    of_b = np.arange(len(of_a)) - before[of_a] + first[of_a]
    return IndexSet.from_segments(
        np.maximum(a[0][of_a], b[0][of_b]), np.minimum(a[1][of_a], b[1][of_b])
    )


def _not_subset_error(subset: IndexSet, whole: IndexSet) -> LayoutError:
    return LayoutError(f"locate needs a subset of {whole}; {subset} holds other indices too")
