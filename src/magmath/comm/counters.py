"""Counters that one rank raises and others wait for, compiled like the barrier.

Whoever has seen a count sees what its rank wrote before it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from magmath.comm.barrier import ABORTED, CONSTANTS, PENDING
from magmath.comm.flags import lost
from magmath.machine.kept import Code

_CODE = Code(
    """
def raise_count(counters: uint64[1], word: int64, count: int64):
    store_release(counters, word, uint64(count))

def await_count(flags: uint64[1], counters: uint64[1], word: int64, count: int64) -> int64:
    spins = flags[SPIN]
    looks = uint64(0)
    yields = 0
    naps = 0
    while load_acquire(counters, word) < uint64(count):
        if load_acquire(flags, ABORT) != 0:
            return ABORTED
        if looks < spins:
            looks = looks + 1
            pause()
        elif yields < YIELDS:
            yields = yields + 1
            sched_yield()
        elif naps < PATIENCE:
            naps = naps + 1
            usleep(NAP)
        else:
            return PENDING
    return DONE
""",
    ("raise_count", "await_count"),
    constants=CONSTANTS,
)


def raise_count(counters: int, word: int, count: int) -> None:
    """Set a counter of this rank, in words at an address."""
    _function("raise_count")(counters, word, count)


def await_count(flags: int, counters: int, word: int, count: int) -> None:
    """Return once a rank's counter has reached `count`. Raises WorkerLost once a rank has aborted.

    `flags`: the address of the barrier memory of the ranks (`magmath.comm.flags`).
    """
    function = _function("await_count")
    status = PENDING
    while status == PENDING:  # back in Python now and then, so that signals are handled
        status = function(flags, counters, word, count)
    if status == ABORTED:
        raise lost()


@cache
def _function(name: str) -> Callable[..., Any]:
    return _CODE.function(name)
