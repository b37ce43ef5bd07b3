"""The numbers that a run takes from counters; a run that fails returns them.

A run takes stream numbers from generators of random numbers, and the next step from the learning
rates of optimizers, before it starts. If it fails and thus assigns nothing, the counters continue
where they were, so that a repeated run takes the same numbers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class _Taken(threading.local):
    """What this thread has taken: how to give it back, and the number of active blocks."""

    def __init__(self) -> None:
        self.undo: list[Callable[[], object]] = []
        self.depth = 0


_taken = _Taken()


def take_for_run(counter: object, name: str, count: int) -> int:
    """Advance the attribute `name` of a counter by `count` for the next run; return its former
    value.

    A failure of the run gives the numbers back, unless others were taken from the counter since.
    """
    former: int = getattr(counter, name)
    setattr(counter, name, former + count)

    def undo() -> None:
        if getattr(counter, name) == former + count:
            setattr(counter, name, former)

    _taken.undo.append(undo)
    return former


def forget_taken() -> None:
    """Keep the numbers that were taken: the run was started, and assigns nothing."""
    undo = _taken.undo
    if undo and not _taken.depth:
        undo.clear()


@contextmanager
def given_back_on_failure() -> Iterator[None]:
    """Give back what was taken since the last run if this block, or one around it, fails."""
    _taken.depth += 1
    try:
        yield
    except Exception:
        if _taken.depth == 1:
            while _taken.undo:
                _taken.undo.pop()()
        raise
    finally:
        _taken.depth -= 1
        forget_taken()
