"""Timings of candidates, measured in the calls of a running program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import final

ROUNDS = 3  # timed calls of each candidate
MAX_FIRST = 32  # calls of newly bound candidates that are not timed
# Ratios to the fastest timing from which a candidate is not measured further, after one timing and
# after several; other processes disturb single ones.
FIRST_TIMING_LIMIT, TIMING_LIMIT = 4.0, 1.5


@final
@dataclass
class Measurements:
    """The timings of the candidates for one key, which all its calls share."""

    names: tuple[str, ...]
    seconds: dict[str, list[float]] = field(default_factory=dict)
    first: dict[str, int] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)

    def next(self, is_ready: Mapping[str, Callable[[], bool]]) -> str | None:
        """Return the candidate to be measured next; None if all are measured.

        While the code of one is not ready, the fastest of the others is executed.
        """
        with self.lock:
            lacking = [name for name in self.names if self._is_lacking(name)]
            ready = [name for name in lacking if is_ready[name]()]
            if ready:
                return min(ready, key=lambda name: len(self.seconds.get(name, ())))
            return min(self.seconds, key=lambda name: min(self.seconds[name])) if lacking else None

    def add(self, name: str, seconds: float, is_first: bool) -> None:
        """Record one call; the first one of each bound call, which loads code or reorders its own
        filters, and more than needed, do not count."""
        with self.lock:
            taken = self.seconds.setdefault(name, [])
            calls = self.first.get(name, 0)
            if is_first and calls < MAX_FIRST:  # calls that are always bound anew must count
                self.first[name] = calls + 1
            elif len(taken) < ROUNDS:
                taken.append(seconds)

    def _is_lacking(self, name: str) -> bool:
        taken = self.seconds.get(name, [])
        if not taken:
            return True
        fastest = min(min(other) for other in self.seconds.values() if other)
        limit = FIRST_TIMING_LIMIT if len(taken) == 1 else TIMING_LIMIT
        return len(taken) < ROUNDS and min(taken) <= limit * fastest
