"""The numbers that a run takes from counters; a run that fails returns them.

A run takes stream numbers from generators of random numbers, and the next step from the learning
rates of optimizers, before it starts. If it fails and thus assigns nothing, the counters continue
where they were, so that a repeated run takes the same numbers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import final

from magmath.core.module_locks import module_lock


@final
class _Reservations(threading.local):
    """The numbers that this thread has reserved: the functions that give them back, and the number
    of active blocks."""

    def __init__(self) -> None:
        self.undo: list[Callable[[], object]] = []
        self.depth = 0


_reservations = _Reservations()
_lock = module_lock(__name__, "_lock")


def advance(counter: object, name: str, count: int) -> int:
    """Advance the attribute `name` of a counter by `count`; return its former value. No two threads
    get the same one."""
    with _lock:
        former: int = getattr(counter, name)
        setattr(counter, name, former + count)
        return former


def reserve_for_run(counter: object, name: str, count: int) -> int:
    """Advance the attribute `name` of a counter by `count` for the next run; return its former
    value.

    A failure of the run gives the numbers back, unless others were taken from the counter since.
    """
    former = advance(counter, name, count)

    def undo() -> None:
        with _lock:
            if getattr(counter, name) == former + count:
                setattr(counter, name, former)

    _reservations.undo.append(undo)
    return former


def commit_reservations() -> None:
    """Keep the numbers that were taken: the run was started, and assigns nothing."""
    undo = _reservations.undo
    if undo and not _reservations.depth:
        undo.clear()


def return_reservations() -> None:
    """Give back what was taken since the last run, which does not start; a block of
    `rollback_on_failure` around this line does it itself."""
    if not _reservations.depth:
        _give_back()


def _give_back() -> None:
    while _reservations.undo:
        _reservations.undo.pop()()


@contextmanager
def collecting_reservations() -> Iterator[None]:
    """Keep what is taken for the next run, also if this block runs other programs."""
    _reservations.depth += 1
    try:
        yield
    finally:
        _reservations.depth -= 1


@contextmanager
def rollback_on_failure() -> Iterator[None]:
    """Give back what was taken since the last run if this block, or one around it, fails."""
    _reservations.depth += 1
    try:
        yield
    except Exception:
        if _reservations.depth == 1:
            _give_back()
        raise
    finally:
        _reservations.depth -= 1
        commit_reservations()
