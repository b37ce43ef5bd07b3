"""Panels: how a dimension is dealt to workers some rows at a time, and where panels lie in memory.

Factorisations go through a matrix panel by panel. Dealt in turn, every worker has as much to do to
the end, when only the last rows are left (the block-cyclic distribution of ScaLAPACK, along one
dimension).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

CACHE_LINE = 64
"""Bytes of a cache line."""
RING_DEPTH = 3
"""Panels of one worker that others may be reading: it goes on while they are behind."""
PANELS_PER_WORKER = 6
"""Panels of a worker: more would share the work more evenly, and do it in smaller products."""
MAX_PANEL_ROWS = 128
"""Rows of a panel: wide enough for products at full speed."""
PERMUTED_COLUMNS = 64
"""Columns of a solution that are brought into their order at a time."""


TALL_RATIO = 8
"""Rows of a tall matrix for each of its columns."""


def is_tall(m: int, n: int) -> bool:
    """True for matrices that are worth being treated as tall."""
    return m >= TALL_RATIO * n and n >= 2 and m >= 1024


def panel_rows(extent: int, workers: int) -> int:
    """How many rows a panel should have: each worker gets `PANELS_PER_WORKER` or more, of at most `MAX_PANEL_ROWS`."""
    rows = -(-extent // (PANELS_PER_WORKER * workers))
    return min(MAX_PANEL_ROWS, max(1, -(-rows // 8) * 8 if rows > 8 else rows))


@dataclass(frozen=True, slots=True)
class BlockCyclicRows:
    """`extent` rows dealt to `size` workers, `rows` at a time, seen from worker `rank`."""

    extent: int
    rows: int
    rank: int
    size: int

    @property
    def count(self) -> int:
        """The number of panels."""
        return -(-self.extent // self.rows)

    def owner(self, panel: int) -> int:
        """Who holds a panel."""
        return panel % self.size

    def is_own(self, panel: int) -> bool:
        """True for the panels of this worker."""
        return panel < self.count and panel % self.size == self.rank

    def mine(self) -> Iterable[int]:
        """The panels of this worker."""
        return range(self.rank, self.count, self.size)

    def bounds(self, panel: int) -> tuple[int, int]:
        """The first row of a panel, and the one after its last."""
        return panel * self.rows, min((panel + 1) * self.rows, self.extent)

    def local_rows(self, panel: int) -> slice:
        """Where a panel of this worker lies among the rows that it holds."""
        start, stop = self.bounds(panel)
        first = panel // self.size * self.rows
        return slice(first, first + stop - start)

    def after(self, panel: int) -> slice:
        """Where, among the rows that this worker holds, those of the panels after this one lie."""
        ahead = (panel + self.size - self.rank) // self.size  # of its panels, up to this one
        return slice(ahead * self.rows, None)


def round_to_cache_lines(nbytes: int) -> int:
    """Whole cache lines."""
    return -(-nbytes // CACHE_LINE) * CACHE_LINE


def panel_ring_bytes(panel: int) -> int:
    """The bytes in which one worker makes panels of up to `panel` bytes for the others: two
    counters, and `RING_DEPTH` panels, each with its status."""
    return 2 * CACHE_LINE + RING_DEPTH * (CACHE_LINE + round_to_cache_lines(panel))
