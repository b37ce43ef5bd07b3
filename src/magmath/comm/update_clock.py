"""The clock of asynchronous updates: which steps are taken, and how old the copies of workers are.

Workers that share memory update arrays of several servers. Updates are numbered, and each server
applies them in this order. A worker records the number of complete updates before it copies the
arrays, so no part of its copies lacks more updates than were begun since then. A worker waits only
if its next action would make the copy of some worker too old.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, final

import numpy as np

from magmath.codegen.aot_cache import AotModule
from magmath.comm.barrier_memory import LINE
from magmath.comm.communicator import Communicator
from magmath.comm.shared_counters import set_counter, wait_for_counter

_CODE = AotModule(
    """
def take_number(words: uint64[1], word: int64) -> int64:
    return int64(fetch_add(words, word, uint64(1)))
""",
    ("take_number",),
)

# Words of the clock: lines 0 and 1 are a lock and the count of its changes, line 2 has the counters
# below, line 3 + s the lock and the version of server s, and the last words belong to the workers.
_NUMBER, _SERVED = 0, 2  # of a lock: numbers taken, and the number that has it
_CHANGES, _COUNTERS, _SERVERS = LINE, 2 * LINE, 3 * LINE
_TAKEN, _BEGUN, _COMPLETE, _STOPPED = range(_COUNTERS, _COUNTERS + 4)
_VERSION = 4  # of a server: the number of updates that it has applied


@final
class UpdateClock:
    """The clock of one run, as this worker sees it; collective, on workers that share memory.

    servers     the number of servers, each with a lock and a version
    staleness   the number of updates that a copy may lack when it is used
    """

    def __init__(self, comm: Communicator, servers: int, staleness: int) -> None:
        self._comm, self._servers, self._staleness = comm, servers, staleness
        words = _SERVERS + LINE * servers + comm.size
        self._words = comm.window(8 * words)[0][: 8 * words].numpy().view(np.uint64)
        self._place, self._flags = self._words.ctypes.data, comm.flags.ctypes.data
        self._own = _SERVERS + LINE * servers + comm.rank

    def start(self) -> None:
        """Begin a run: nothing is taken. Collective."""
        if self._comm.rank == 0:
            self._words[:] = 0
        self._comm.barrier()

    @property
    def taken(self) -> int:
        """The number of steps that were taken."""
        return int(self._words[_TAKEN])

    def stop(self) -> None:
        """Let no worker take another step; this worker drops its copy."""
        with self._locked(0):
            self._words[_STOPPED], self._words[self._own] = 1, 0
            self._change()

    def take(self, steps: int) -> int | None:
        """Return the number of the next of `steps` steps; None if there is none.

        Waits while a copy that is made now could become too old.
        """
        words = self._words
        while True:
            with self._locked(0):
                number, changes = self.taken, self._changes
                if words[_STOPPED] or number >= steps:
                    return None
                begun, complete = int(words[_BEGUN]), int(words[_COMPLETE])
                if len(self._copied()) + begun - complete <= self._staleness:
                    words[_TAKEN] += 1
                    words[self._own] = complete + 1
                    return number
            self._wait(_CHANGES, changes + 1)

    def begin(self) -> int:
        """Return the number of this worker's update, from 0.

        Waits while the copies of other workers would become too old if these workers updated next,
        the oldest copy first.
        """
        words = self._words
        while True:
            with self._locked(0):
                number, changes = int(words[_BEGUN]), self._changes
                words[self._own], own = 0, words[self._own]
                others = self._copied()
                if all(number + 1 + i - one <= self._staleness for i, one in enumerate(others)):
                    words[_BEGUN] += 1
                    self._change()
                    return number
                words[self._own] = own
            self._wait(_CHANGES, changes + 1)

    def complete(self) -> None:
        """Record that all servers have this worker's update."""
        with self._locked(0):
            self._words[_COMPLETE] += 1
            self._change()

    @contextmanager
    def copying(self, server: int) -> Iterator[int]:
        """Keep updates of a server out of a block; yields the number of updates that it has."""
        line = _SERVERS + LINE * server
        with self._locked(line):
            yield int(self._words[line + _VERSION])

    @contextmanager
    def updating(self, server: int, number: int) -> Iterator[None]:
        """Keep others out of a block that applies an update, after all earlier ones.

        A failed update counts too, so that later ones do not wait for it.
        """
        line = _SERVERS + LINE * server
        self._wait(line + _VERSION, number)
        with self._locked(line):
            try:
                yield
            finally:  # before others may copy
                set_counter(self._place, line + _VERSION, number + 1)

    # memory ---------------------------------------------------------------------------------------

    def _copied(self) -> list[int]:
        """Return the numbers of complete updates before the copies that workers now use, in
        ascending order."""
        first = _SERVERS + LINE * self._servers
        return sorted(int(x) - 1 for x in self._words[first : first + self._comm.size] if x)

    @property
    def _changes(self) -> int:
        return int(self._words[_CHANGES])

    def _change(self) -> None:
        """Wake the workers that wait for a change."""
        set_counter(self._place, _CHANGES, self._changes + 1)

    @contextmanager
    def _locked(self, line: int) -> Iterator[None]:
        number = _take_number()(self._place, line + _NUMBER)
        self._wait(line + _SERVED, number)
        try:
            yield
        finally:
            set_counter(self._place, line + _SERVED, number + 1)

    def _wait(self, word: int, count: int) -> None:
        wait_for_counter(self._flags, self._place, word, count)


@cache
def _take_number() -> Callable[..., Any]:
    return _CODE.function("take_number")
