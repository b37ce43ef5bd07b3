"""The free ranges of a heap's chunks: sorted by size for the best fit, and by their ends, so that
adjacent ranges are merged."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import final

FreeRange = tuple[int, int, int]
"""Bytes, chunk and offset: sorted, the best fit comes first."""


@final
class FreeRanges:
    """A set of disjoint ranges of chunks."""

    def __init__(self) -> None:
        self._sorted: list[FreeRange] = []
        self._begins: dict[tuple[int, int], int] = {}  # (chunk, begin) of a range: its bytes
        self._ends: dict[tuple[int, int], int] = {}  # (chunk, end) of a range: its bytes

    def __iter__(self) -> Iterator[FreeRange]:
        """Iterate over the ranges, the smallest first."""
        return iter(self._sorted)

    def has_fit(self, size: int) -> bool:
        """Return True if a range has at least `size` bytes."""
        return bool(self._sorted) and self._sorted[-1][0] >= size

    def take(self, size: int) -> tuple[int, int]:
        """Remove `size` bytes at the beginning of the smallest sufficient range, which must exist;
        return the chunk and the offset."""
        length, chunk, offset = self._sorted[bisect_left(self._sorted, (size, -1, -1))]
        self.remove(chunk, offset, length)
        if length > size:
            self.add(chunk, offset + size, length - size)
        return chunk, offset

    def merge(self, chunk: int, begin: int, length: int) -> None:
        """Add a range, merged with adjacent ones."""
        before = self._ends.get((chunk, begin))
        if before is not None:
            begin -= before
            self.remove(chunk, begin, before)
            length += before
        after = self._begins.get((chunk, begin + length))
        if after is not None:
            self.remove(chunk, begin + length, after)
            length += after
        self.add(chunk, begin, length)

    def add(self, chunk: int, begin: int, length: int) -> None:
        """Add a range that touches no other one."""
        insort(self._sorted, (length, chunk, begin))
        self._begins[chunk, begin] = length
        self._ends[chunk, begin + length] = length

    def remove(self, chunk: int, begin: int, length: int) -> None:
        """Remove a range."""
        del self._sorted[bisect_left(self._sorted, (length, chunk, begin))]
        del self._begins[chunk, begin]
        del self._ends[chunk, begin + length]

    def remove_chunk(self, number: int) -> int:
        """Remove all ranges of a chunk; return their bytes."""
        ranges = [free_range for free_range in self._sorted if free_range[1] == number]
        for length, chunk, begin in ranges:
            self.remove(chunk, begin, length)
        return sum([length for length, _, _ in ranges])

    def clear(self) -> None:
        """Remove all ranges."""
        for table in (self._sorted, self._begins, self._ends):
            table.clear()
