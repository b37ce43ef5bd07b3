"""The number of threads that prepare batches, found while they are used.

Batches that wait for a disk or a network need more threads than there are processors; batches that
are computed need no more. Neither is known in advance. So the number grows while the loop waits for
batches and more threads raise their rate.
"""

from __future__ import annotations

from typing import final

BATCHES_AHEAD = 2
"""Batches that are prepared ahead, for each thread."""
MEASURED_BATCHES = 8
"""Batches between two decisions."""
MAX_WAITING_SHARE = 0.05
"""The share of the time that the loop may wait for batches."""
MIN_SPEEDUP = 1.1
"""The rate of batches, relative to the former one, that justifies more threads."""
MAX_THREADS = 32
TRIAL_DISTANCE = 16
"""Measurements without a new trial after more threads did not help."""


@final
class ThreadTuning:
    """Finds a number of threads; `threads` is the present one.

    A measurement of batches in which the loop waited is followed by one with half as many threads
    more. If that does not raise the rate of batches, the former number returns, for at least
    `TRIAL_DISTANCE` measurements.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._former: tuple[int, float] | None = None
        """The number of threads, and the rate, before the last increase."""
        self._paused = 0
        self._skipped = 0  # batches that are not measured: the former threads have begun them
        self._batches = 0
        self._waited = self._seconds = 0.0

    def begin_epoch(self) -> None:
        """Begin a new measurement. The first batches of an epoch, for which the loop always waits,
        are not measured."""
        self._skipped = BATCHES_AHEAD * self.threads
        self._batches, self._waited, self._seconds = 0, 0.0, 0.0

    def record(self, waited: float, seconds: float) -> None:
        """Record a batch: the seconds that the loop waited for it, and those since the last one."""
        if self._skipped:
            self._skipped -= 1
            return
        self._batches += 1
        self._waited += waited
        self._seconds += seconds
        if self._batches < MEASURED_BATCHES:
            return
        rate, share = (
            MEASURED_BATCHES / max(self._seconds, 1e-9),
            self._waited / max(self._seconds, 1e-9),
        )
        self._batches, self._waited, self._seconds = 0, 0.0, 0.0
        self._decide(rate, share)

    def _decide(self, rate: float, share: float) -> None:
        if self._former is not None:
            threads, before = self._former
            self._former = None
            if rate < MIN_SPEEDUP * before:
                self.threads, self._paused = threads, TRIAL_DISTANCE
                return
        if self._paused:
            self._paused -= 1
        elif share > MAX_WAITING_SHARE and self.threads < MAX_THREADS:
            self._former = self.threads, rate
            self._skipped = BATCHES_AHEAD * self.threads
            self.threads = min(self.threads + max(1, self.threads // 2), MAX_THREADS)
