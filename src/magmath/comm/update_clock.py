"""The clock of asynchronous updates of workers that share memory.

The state of the rules (`core/update_rules.py`) is in memory that all workers share, with a lock.
Each server applies updates in the order of their numbers, and has a lock too.
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
from magmath.core.update_rules import COUNTERS, Denied, UpdateRules

_CODE = AotModule(
    """
def take_number(words: uint64[1], word: int64) -> int64:
    return int64(fetch_add(words, word, uint64(1)))
""",
    ("take_number",),
)

# Words of the clock: lines 0 and 1 are a lock and the count of its changes, line 2 + s is the lock
# and the version of server s, and the last words are those of the rules.
_NUMBER, _SERVED = 0, 2  # of a lock: numbers taken, and the number that has it
_CHANGES, _SERVERS = LINE, 2 * LINE
_VERSION = 4  # of a server: the number of updates that it has applied


@final
class UpdateClock:
    """The clock of one run, as this worker sees it; collective, on workers that share memory.

    servers     the number of servers, each with a lock and a version
    staleness   the number of updates that a copy may lack when it is used
    """

    def __init__(self, comm: Communicator, servers: int, staleness: int) -> None:
        self._comm = comm
        state = _SERVERS + LINE * servers
        words = state + COUNTERS + comm.size
        self._words = comm.shared_window(8 * words)[0][: 8 * words].numpy().view(np.uint64)
        self._words_address, self._flags_address = self._words.ctypes.data, comm.flags.ctypes.data
        self._rules = UpdateRules(self._words[state:], staleness)

    def start(self) -> None:
        """Begin a run: nothing is taken. Collective."""
        if self._comm.rank == 0:
            self._words[:] = 0
        self._comm.barrier()

    @property
    def steps_taken(self) -> int:
        """The number of steps that were taken."""
        return self._rules.steps_taken

    def stop(self) -> None:
        """Let no worker take another step; this worker drops its copy."""
        with self._locked(0):
            self._rules.stop(self._comm.rank)
            self._change()

    def take(self, steps: int) -> int | None:
        """Return the number of the next of `steps` steps, when the rules permit it; None if there
        is none."""
        while True:
            with self._locked(0):
                number, changes = self._rules.take(self._comm.rank, steps), self._changes
            if number is not Denied.NOT_YET:
                return None if number is Denied.NONE_LEFT else number
            self._wait(_CHANGES, changes + 1)

    def begin(self) -> int:
        """Return the number of this worker's update, from 0, when the rules permit it."""
        while True:
            with self._locked(0):
                number, changes = self._rules.begin(self._comm.rank), self._changes
                if not isinstance(number, Denied):
                    self._change()
                    return number
            self._wait(_CHANGES, changes + 1)

    def complete(self) -> None:
        """Record that all servers have this worker's update."""
        with self._locked(0):
            self._rules.complete()
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
                set_counter(self._words_address, line + _VERSION, number + 1)

    # memory ---------------------------------------------------------------------------------------

    @property
    def _changes(self) -> int:
        return int(self._words[_CHANGES])

    def _change(self) -> None:
        """Wake the workers that wait for a change."""
        set_counter(self._words_address, _CHANGES, self._changes + 1)

    @contextmanager
    def _locked(self, line: int) -> Iterator[None]:
        number = _take_number()(self._words_address, line + _NUMBER)
        self._wait(line + _SERVED, number)
        try:
            yield
        finally:
            set_counter(self._words_address, line + _SERVED, number + 1)

    def _wait(self, word: int, count: int) -> None:
        wait_for_counter(self._flags_address, self._words_address, word, count)


@cache
def _take_number() -> Callable[..., Any]:
    return _CODE.function("take_number")
