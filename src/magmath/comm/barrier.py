"""The barrier of ranks that share memory, compiled to a few loads and stores.

Each rank counts the barriers that it enters in its own cache line and waits until every other count
has caught up. `BARRIER_SOURCE` has functions in the compiler's language over the barrier memory, so
compiled programs and Python join the same barriers.
"""

from __future__ import annotations

from typing import Final, final

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
    """Count this rank's entry into the next barrier; return the number of that barrier."""
    word = LINE * (1 + rank) + ENTERED
    entered = flags[word] + 1
    store_and_wake(flags, word, entered)
    return entered

def await_all(
    flags: uint64[1], rank: int64, size: int64, entered: uint64, patience: int64
) -> int64:
    """Wait until every rank has entered; return PENDING after `patience` sleeps."""
    for other in range(size):
        if other != rank:
            word = LINE * (1 + other) + ENTERED
            status = wait_until_reached(flags, flags, word, entered, patience)
            if status != DONE:
                return status
    return ABORTED if load_acquire(flags, ABORT) != 0 else DONE

def wait(flags: uint64[1], rank: int64, size: int64) -> int64:
    """Synchronize all ranks: DONE after all have entered, ABORTED if one has aborted."""
    entered = arrive(flags, rank)
    return await_all(flags, rank, size, entered, FOREVER)

def enter(flags: uint64[1], rank: int64, size: int64) -> int64:
    """As `wait`, but PENDING after a timeout; `SpinBarrier.finish` then resumes waiting."""
    entered = arrive(flags, rank)
    return await_all(flags, rank, size, entered, MAX_SLEEPS)
'''
)

# The entry points for Python. `own`: address of the barrier memory, this rank, number of ranks.
_PYTHON_SOURCE: Final = '''
def enter_barrier(own: int64[1]) -> int64:
    flags: uint64[1] = own[0]
    return enter(flags, own[1], own[2])

def resume_barrier(own: int64[1]) -> int64:
    """Resume waiting in a barrier that has been entered."""
    flags: uint64[1] = own[0]
    entered = flags[LINE * (1 + own[1]) + ENTERED]
    return await_all(flags, own[1], own[2], entered, MAX_SLEEPS)

def allreduce_max(own: int64[1], value: int64) -> int64:
    """Publish `value` in the next barrier; return the maximum over the ranks, or -1 - status if
    `enter_barrier` does not return DONE.

    Two words of a rank's line are used alternately: before a rank overwrites one, it passes a
    barrier that all ranks entered after they had read it.
    """
    flags: uint64[1] = own[0]
    line = LINE * (1 + own[1])
    flags[line + VALUES + int64(flags[line + ENTERED] & 1)] = value
    status = enter_barrier(own)
    return largest(own) if status == DONE else -1 - status
'''
_MAXIMUM_SOURCE: Final = '''
def largest(own: int64[1]) -> int64:
    """Return the largest value that the ranks published in the last barrier."""
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


@final
class SpinBarrier:
    """The barrier for Python callers: it releases the interpreter lock and lets signals be handled.

    `flags`: barrier memory shared by all `size` ranks, initialized by `prepare_flags`.
    """

    def __init__(self, flags: Flags, rank: int, size: int) -> None:
        self.flags = flags
        self.rank = rank
        self.size = size
        self._own = np.array([flags.ctypes.data, rank, size])
        self._own_address = self._own.ctypes.data
        self._barrier, self._resume, self._largest = (
            CODE.function(name) for name in ("enter_barrier", "resume_barrier", "largest")
        )
        self._allreduce_max = CODE.function("allreduce_max")

    @property
    def is_waiting(self) -> bool:
        """True if this rank has entered a barrier that another rank has not entered yet."""
        entered = self.flags[LINE + ENTERED :: LINE][: self.size]
        return bool(entered[self.rank] > entered.min())

    def wait(self) -> None:
        """Return after every rank has called it. Raises WorkerLost if a rank has aborted."""
        status = self._barrier(self._own_address)
        if status != DONE:
            self.finish(status)

    def finish(self, status: int) -> None:
        """Resume a barrier that compiled code has left with this status. Raises as `wait`."""
        while status == PENDING:
            # Returns to Python between waits, so that Ctrl-C and other signals are handled.
            status = self._resume(self._own_address)
        if status == ABORTED:
            raise aborted_error()

    def allreduce_max(self, value: int) -> int:
        """Return the largest of the non-negative values that the ranks pass."""
        maximum: int = self._allreduce_max(self._own_address, value)
        if maximum < 0:  # -1 - status
            self.finish(-1 - maximum)
            maximum = self._largest(self._own_address)
        return maximum
