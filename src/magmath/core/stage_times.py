"""Seconds and counts of the stages between a traced step and its first run.

A stage is a named block of code: a pass, lowering, sending. Nothing is recorded unless a recording
is active, so that a stage costs one comparison otherwise. `bench plan` shows what is recorded, and
tests assert counts: how many programs were planned, how many candidates were evaluated.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import get_ident
from typing import final


@final
@dataclass
class StageTimes:
    """The results of one recording, of one thread.

    seconds  processor seconds of the thread in each stage, without those of stages inside it
    counts   the number of entries of each stage, and the sums of the numbers passed to `count`
    """

    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    counts: Counter[str] = field(default_factory=Counter)
    _open: list[float] = field(default_factory=list)  # seconds of the stages inside each open stage
    _thread: int = field(default_factory=get_ident)

    @property
    def is_recording(self) -> bool:
        """True in the thread of the recording; workers may be threads that bind programs."""
        return get_ident() == self._thread


_active: StageTimes | None = None


@contextmanager
def recording() -> Iterator[StageTimes]:
    """Record the stages of this thread within the block. Recordings do not nest."""
    global _active
    former, _active = _active, StageTimes()
    try:
        yield _active
    finally:
        _active = former


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Record the block of code as one stage."""
    times = _active
    if times is None or not times.is_recording:
        yield
        return
    start = time.thread_time()
    times._open.append(0.0)
    try:
        yield
    finally:
        seconds = time.thread_time() - start
        times.seconds[name] += seconds - times._open.pop()
        times.counts[name] += 1
        if times._open:
            times._open[-1] += seconds


def count(name: str, number: int = 1) -> None:
    """Add to a count of the active recording."""
    if _active is not None and _active.is_recording:
        _active.counts[name] += number
