"""Block-cyclic distribution of rows over workers, and the memory of panels.

Factorizations process a matrix panel by panel. The panels are assigned to the workers in turn, so
the work stays balanced until the last rows (ScaLAPACK's block-cyclic distribution, along one
dimension).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

from magmath.core.byte_sizes import round_up
from magmath.core.cpu import CACHE_LINE

RING_DEPTH = 3
"""Slots of a worker's ring: it writes up to this many panels ahead of the slowest reader."""
PANELS_PER_WORKER = 6
"""Minimum number of panels per worker. A larger number balances the work better but makes the
products smaller."""
MAX_PANEL_ROWS = 128
"""Maximum rows of a panel: enough for matrix products at full speed."""
PERMUTED_COLUMNS = 64
"""Number of a solution's columns that are permuted in one pass."""


def panel_rows(extent: int, workers: int) -> int:
    """Return the rows of a panel: each worker gets `PANELS_PER_WORKER` or more panels of at most
    `MAX_PANEL_ROWS` rows."""
    rows = -(-extent // (PANELS_PER_WORKER * workers))
    return min(MAX_PANEL_ROWS, max(1, -(-rows // 8) * 8 if rows > 8 else rows))


@final
@dataclass(frozen=True, slots=True)
class BlockCyclicRows:
    """`extent` rows assigned cyclically to `size` workers in panels of `rows`; `rank` is this
    worker."""

    extent: int
    rows: int
    rank: int
    size: int

    @property
    def count(self) -> int:
        """The number of panels."""
        return -(-self.extent // self.rows)

    def owner(self, panel: int) -> int:
        """Return the rank that stores a panel."""
        return panel % self.size

    def is_own(self, panel: int) -> bool:
        """Return True for the panels of this worker."""
        return panel < self.count and panel % self.size == self.rank

    def own_panels(self) -> Iterable[int]:
        """Return the panels of this worker."""
        return range(self.rank, self.count, self.size)

    def bounds(self, panel: int) -> tuple[int, int]:
        """Return the first row of a panel, and the one after its last."""
        return panel * self.rows, min((panel + 1) * self.rows, self.extent)

    def local_rows(self, panel: int) -> slice:
        """Return the local rows of a panel of this worker."""
        start, stop = self.bounds(panel)
        first = panel // self.size * self.rows
        return slice(first, first + stop - start)

    def after(self, panel: int) -> slice:
        """Return the local rows of this worker's panels after `panel`."""
        ahead = (panel + self.size - self.rank) // self.size  # number of own panels up to this one
        return slice(ahead * self.rows, None)


def round_to_cache_lines(nbytes: int) -> int:
    """Round up to whole cache lines."""
    return round_up(nbytes, CACHE_LINE)


def panel_ring_bytes(panel: int) -> int:
    """Return the bytes of one worker's ring buffer for panels of up to `panel` bytes: two counters,
    and `RING_DEPTH` slots with a status word each."""
    return 2 * CACHE_LINE + RING_DEPTH * (CACHE_LINE + round_to_cache_lines(panel))
