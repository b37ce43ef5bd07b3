"""Timings of candidates, measured in the calls of a running program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import final

from magmath.kernels.free_processors import Waits

ROUNDS = 3  # timed calls of each candidate
MAX_UNTIMED = 32  # first calls of bindings of a candidate that are not timed
# Ratios to the fastest timing from which a candidate is not measured further, after one timing and
# after several; other processes disturb single ones.
FIRST_TIMING_LIMIT, TIMING_LIMIT = 4.0, 1.5


@final
@dataclass
class Measurements:
    """The timings of the candidates for one key, which all its calls share.

    seconds   the timings of each candidate
    untimed   for each candidate, the number of calls that were not timed because they were the
              first ones of a binding
    waits     the waits of threads for processors since the first timing
    """

    names: tuple[str, ...]
    seconds: dict[str, list[float]] = field(default_factory=dict)
    untimed: dict[str, int] = field(default_factory=dict)
    waits: Waits = field(default_factory=Waits)
    lock: Lock = field(default_factory=Lock)

    def next_candidate(self, is_ready: Mapping[str, Callable[[], bool]]) -> str | None:
        """Return the candidate to be executed and measured next; None if all are measured.

        While the code of one is not ready, this is the fastest of the others.
        """
        with self.lock:
            unmeasured = [name for name in self.names if self._should_measure(name)]
            ready = [name for name in unmeasured if is_ready[name]()]
            if ready:
                return min(ready, key=lambda name: len(self.seconds.get(name, ())))
            timed = {name: min(timings) for name, timings in self.seconds.items() if timings}
            return min(timed, key=timed.__getitem__) if unmeasured else None

    def add(self, name: str, seconds: float, is_first: bool) -> None:
        """Record one call.

        The first call of each binding, which loads code or reorders its own filters, does not
        count, and neither do more calls than needed.
        """
        with self.lock:
            timings = self.seconds.setdefault(name, [])
            untimed = self.untimed.get(name, 0)
            if is_first and untimed < MAX_UNTIMED:  # calls that are always bound again must count
                self.untimed[name] = untimed + 1
            elif len(timings) < ROUNDS:
                timings.append(seconds)

    def _should_measure(self, name: str) -> bool:
        timings = self.seconds.get(name, [])
        if not timings:
            return True
        fastest = min(min(seconds) for seconds in self.seconds.values() if seconds)
        limit = FIRST_TIMING_LIMIT if len(timings) == 1 else TIMING_LIMIT
        return len(timings) < ROUNDS and min(timings) <= limit * fastest
