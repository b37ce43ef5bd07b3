"""Counters that one rank raises and others wait for, compiled like the barrier.

Whoever has seen a count sees what its rank wrote before it.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from magmath.comm.barrier import (
    ABORTED,
    DONE,
    NAP,
    PATIENCE,
    PENDING,
    YIELDS,
    load_acquire,
    pause,
    sched_yield,
    store_release,
    usleep,
)
from magmath.comm.flags import ABORT, SPIN, Flags, lost

Words = NDArray[np.uint64]


def raise_count(counters: Words, word: int, count: int) -> None:
    """Set a counter of this rank."""
    _raise_count(counters, word, count)


def await_count(flags: Flags, counters: Words, word: int, count: int) -> None:
    """Return once a rank's counter has reached `count`. Raises WorkerLost once a rank has aborted.

    `flags`: the barrier memory of the ranks (`magmath.comm.flags`).
    """
    status = PENDING
    while status == PENDING:  # back in Python now and then, so that signals are handled
        status = _await_count(flags, counters, word, count)
    if status == ABORTED:
        raise lost()


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _raise_count(counters: Words, word: int, count: int) -> None:
    store_release(counters, word, np.uint64(count))


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _await_count(flags: Flags, counters: Words, word: int, count: int) -> int:
    spins = flags[SPIN]
    looks = np.uint64(0)
    yields = 0
    naps = 0
    while load_acquire(counters, word) < np.uint64(count):
        if load_acquire(flags, ABORT) != 0:
            return ABORTED
        if looks < spins:
            looks += np.uint64(1)
            pause()
        elif yields < YIELDS:
            yields += 1
            sched_yield()
        elif naps < PATIENCE:
            naps += 1
            usleep(np.uint32(NAP))
        else:
            return PENDING
    return DONE
