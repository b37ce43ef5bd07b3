"""The rules of asynchronous updates: which steps are taken, and when workers may copy and update.

Updates are numbered. A worker records the number of complete updates before it copies arrays, so
its copies contain at least these updates. A worker waits only if its next action would make the
copy of some worker too old.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

_TAKEN, _BEGUN, _COMPLETE, _STOPPED = range(4)
COUNTERS: Final = 4
"""The number of counters in addition to those of the workers."""


@final
class Denied(Enum):
    """Why a worker does not get a number."""

    NOT_YET = "another worker must update first"
    NONE_LEFT = "no step is left"


@final
class UpdateRules:
    """The state of one run; only one thread at a time may use it.

    counters   uint64, `COUNTERS` and one for each worker, at first 0
    staleness  the number of updates that a copy may lack when it is used
    """

    def __init__(self, counters: NDArray[np.uint64], staleness: int) -> None:
        self._counters, self._copied = counters[:COUNTERS], counters[COUNTERS:]
        self._staleness = staleness

    @property
    def steps_taken(self) -> int:
        """The number of steps that were taken."""
        return int(self._counters[_TAKEN])

    def stop(self, worker: int) -> None:
        """Let no worker take another step; this worker drops its copy."""
        self._counters[_STOPPED], self._copied[worker] = 1, 0

    def take(self, worker: int, steps: int) -> int | Denied:
        """Return the number of the next of `steps` steps, unless a copy that is made now could
        become too old."""
        counters, number = self._counters, self.steps_taken
        if counters[_STOPPED] or number >= steps:
            return Denied.NONE_LEFT
        begun, complete = int(counters[_BEGUN]), int(counters[_COMPLETE])
        if len(self.copied()) + begun - complete > self._staleness:
            return Denied.NOT_YET
        counters[_TAKEN] += 1
        self._copied[worker] = complete + 1
        return number

    def begin(self, worker: int) -> int | Denied:
        """Return the number of this worker's next update, counted from 0.

        If the update would make another worker's copy older than the bound, return Denied."""
        number, previous_copy = int(self._counters[_BEGUN]), self._copied[worker]
        self._copied[worker] = 0
        if any(number + 1 + i - copied > self._staleness for i, copied in enumerate(self.copied())):
            self._copied[worker] = previous_copy
            return Denied.NOT_YET
        self._counters[_BEGUN] += 1
        return number

    def complete(self) -> None:
        """Record that all servers have an update."""
        self._counters[_COMPLETE] += 1

    def copied(self) -> list[int]:
        """Return the numbers of complete updates before the copies that workers now use, in
        ascending order."""
        return sorted(int(x) - 1 for x in self._copied if x)
