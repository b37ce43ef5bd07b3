"""The barrier of ranks that share memory, compiled to a few loads and stores.

Each rank counts the barriers it enters in a cache line of its own and waits until no other rank's
count is behind. `BARRIER_SOURCE` are functions of the compiler's language over the barrier memory, so that
whatever is compiled joins the same barriers as Python.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from magmath.codegen.aot_cache import AotModule
from magmath.comm import futex_wait
from magmath.comm.barrier_memory import ENTERED, LINE, VALUES, Flags, aborted_error
from magmath.comm.futex_wait import ABORTED, DONE, PENDING

CONSTANTS: Final = {**futex_wait.CONSTANTS, "LINE": LINE, "ENTERED": ENTERED, "VALUES": VALUES}

# `flags`: the barrier memory of `size` ranks (`magmath.comm.barrier_memory`).
BARRIER_SOURCE: Final = (
    futex_wait.WAIT_SOURCE
    + '''
def arrive(flags: uint64[1], rank: int64) -> uint64:
    """Count this rank's entry into the next barrier; the number of that barrier."""
    place = LINE * (1 + rank) + ENTERED
    entered = flags[place] + 1
    store_and_wake(flags, place, entered)
    return entered

def await_all(
    flags: uint64[1], rank: int64, size: int64, entered: uint64, patience: int64
) -> int64:
    """Wait until every rank has entered; PENDING when patience is over."""
    for other in range(size):
        if other != rank:
            status = wait_until_reached(flags, flags, LINE * (1 + other) + ENTERED, entered, patience)
            if status != DONE:
                return status
    return ABORTED if load_acquire(flags, ABORT) != 0 else DONE

def wait(flags: uint64[1], rank: int64, size: int64) -> int64:
    """Meet the other ranks: DONE once all have entered, ABORTED if one has aborted."""
    entered = arrive(flags, rank)
    return await_all(flags, rank, size, entered, FOREVER)

def enter(flags: uint64[1], rank: int64, size: int64) -> int64:
    """As `wait`, but PENDING after a while, upon which `SpinBarrier.finish` waits on."""
    entered = arrive(flags, rank)
    return await_all(flags, rank, size, entered, MAX_SLEEPS)
'''
)

# As Python calls it: `own` has the address of the barrier memory, this rank, and their number.
_PYTHON_SOURCE: Final = '''
def enter_barrier(own: int64[1]) -> int64:
    flags: uint64[1] = own[0]
    return enter(flags, own[1], own[2])

def resume_barrier(own: int64[1]) -> int64:
    """Wait on in a barrier that has been entered."""
    flags: uint64[1] = own[0]
    entered = flags[LINE * (1 + own[1]) + ENTERED]
    return await_all(flags, own[1], own[2], entered, MAX_SLEEPS)

def allreduce_max(own: int64[1], value: int64) -> int64:
    """Show `value` to the others in the next barrier: the largest that any has shown, or a negative
    number, -1 - status, where `meet` would not return DONE.

    Two words of a rank's line take turns: who is at the barrier after next has read this one.
    """
    flags: uint64[1] = own[0]
    line = LINE * (1 + own[1])
    flags[line + VALUES + int64(flags[line + ENTERED] & 1)] = value
    status = enter_barrier(own)
    return largest(own) if status == DONE else -1 - status
'''
_MAXIMUM_SOURCE: Final = '''
def largest(own: int64[1]) -> int64:
    """The largest value that the ranks have shown in the last barrier."""
    flags: uint64[1] = own[0]
    word = VALUES + int64((flags[LINE * (1 + own[1]) + ENTERED] + 1) & 1)
    result = 0
    for other in range(own[2]):
        result = max(result, int64(flags[LINE * (1 + other) + word]))
    return result
'''

CODE: Final = AotModule(
    BARRIER_SOURCE + _MAXIMUM_SOURCE + _PYTHON_SOURCE,
    ("wait", "enter_barrier", "resume_barrier", "allreduce_max", "largest"),
    constants=CONSTANTS,
)


class SpinBarrier:
    """The barrier as Python calls it: it lets other threads run, and signals be handled.

    `flags`: barrier memory that all `size` ranks see, prepared by `prepare_flags`.
    """

    def __init__(self, flags: Flags, rank: int, size: int) -> None:
        self.flags = flags
        self.rank = rank
        self.size = size
        self._own = np.array([flags.ctypes.data, rank, size])
        self._place = self._own.ctypes.data
        self._barrier, self._resume, self._largest = (
            CODE.function(name) for name in ("enter_barrier", "resume_barrier", "largest")
        )
        self._allreduce_max = CODE.function("allreduce_max")

    def wait(self) -> None:
        """Return once every rank has called it. Raises WorkerLost once a rank has aborted."""
        status = self._barrier(self._place)
        if status != DONE:
            self.finish(status)

    def finish(self, status: int) -> None:
        """Wait on in a barrier that compiled code has left with this status. Raises as `wait`."""
        while status == PENDING:
            # Back in Python for a moment, so that Ctrl-C and other signals are handled.
            status = self._resume(self._place)
        if status == ABORTED:
            raise aborted_error()

    def allreduce_max(self, value: int) -> int:
        """The largest of the values (at least 0) that the ranks call it with."""
        found: int = self._allreduce_max(self._place, value)
        if found < 0:
            self.finish(-1 - found)
            found = self._largest(self._place)
        return found
