"""Counters that one rank raises and others wait for, compiled like the barrier.

Whoever has seen a count sees what its rank wrote before it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from magmath.comm import waiting
from magmath.comm.flags import lost
from magmath.comm.waiting import ABORTED, PENDING
from magmath.machine.kept import Code

_CODE = Code(
    waiting.WORDS
    + """
def raise_count(counters: uint64[1], word: int64, count: int64):
    raise_word(counters, word, uint64(count))

def await_count(flags: uint64[1], counters: uint64[1], word: int64, count: int64) -> int64:
    return reach(flags, counters, word, uint64(count), PATIENCE)
""",
    ("raise_count", "await_count"),
    constants=waiting.CONSTANTS,
)


def raise_count(counters: int, word: int, count: int) -> None:
    """Set a counter of this rank, in words at an address; the word behind it tells of sleepers."""
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
