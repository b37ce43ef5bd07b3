"""Counters in shared memory that one rank increases and others wait for, compiled like the barrier.

Reading a count acquires all earlier writes of the rank that stored it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from threading import get_ident
from typing import Any

from magmath.codegen.aot_cache import AotModule
from magmath.comm import futex_wait
from magmath.comm.barrier_memory import aborted_error
from magmath.comm.futex_wait import ABORTED, PENDING

_CODE = AotModule(
    futex_wait.WAIT_SOURCE
    + """
def set_counter(counters: uint64[1], word: int64, count: int64):
    store_and_wake(counters, word, uint64(count))

def wait_for_counter(flags: uint64[1], counters: uint64[1], word: int64, count: int64) -> int64:
    return wait_until_reached(flags, counters, word, uint64(count), MAX_SLEEPS)
""",
    ("set_counter", "wait_for_counter"),
    constants=futex_wait.CONSTANTS,
)


_waiting: set[int] = set()
"""The threads of this process that wait for a counter of another rank."""


def set_counter(counters: int, word: int, count: int) -> None:
    """Set a counter of this rank; the word after the counter is set if ranks sleep on it."""
    _function("set_counter")(counters, word, count)


def wait_for_counter(flags: int, counters: int, word: int, count: int) -> None:
    """Return when a rank's counter has reached `count`. Raises WorkerLost if a rank has aborted.

    `flags`: the address of the barrier memory of the ranks (`magmath.comm.barrier_memory`).
    """
    function = _function("wait_for_counter")
    status = function(flags, counters, word, count)
    if status == PENDING:
        _waiting.add(get_ident())
        try:
            while status == PENDING:  # returns to Python between waits, to handle signals
                status = function(flags, counters, word, count)
        finally:
            _waiting.discard(get_ident())
    if status == ABORTED:
        raise aborted_error()


def is_waiting_for_counter() -> bool:
    """Return True if a thread of this process has waited for a counter for some time."""
    return bool(_waiting)


@cache
def _function(name: str) -> Callable[..., Any]:
    return _CODE.function(name)
