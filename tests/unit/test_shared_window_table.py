"""The table of windows has only windows whose owners live, whenever these end."""

from __future__ import annotations

import itertools
import sys
from types import FrameType
from typing import Any

import numpy as np

from magmath.comm.host_memory import SharedWindowTable

WINDOWS = 40


class _Owner:
    """What a window belongs to."""


def _ended_at(event: int) -> tuple[SharedWindowTable, list[_Owner], bool]:
    """Fill a table, and end the owners of its first half at an event of the interpreter while it
    grows; return whether there was such an event."""
    table = SharedWindowTable()
    early = [_Owner() for _ in range(WINDOWS // 2)]
    events = itertools.count()
    kept: list[_Owner] = []

    def trace(frame: FrameType, what: str, argument: object) -> Any:
        if next(events) == event:
            early.clear()
        return trace

    for number, owner in enumerate(early):
        table.add(owner, 1000 * (number + 1), 8)
    del owner
    sys.settrace(trace)
    try:
        for number in range(WINDOWS // 2, WINDOWS):
            kept.append(_Owner())
            table.add(kept[-1], 1000 * (number + 1), 8)
    finally:
        sys.settrace(None)
    return table, kept, not early


def test_windows_end_at_any_time_while_the_table_grows() -> None:
    for event in itertools.count():
        table, kept, ended = _ended_at(event)
        if not ended:
            break
        lengths = table.words[1]
        assert not lengths[1 : 1 + WINDOWS // 2].any(), event
        assert np.array_equal(lengths[1 + WINDOWS // 2 : 1 + WINDOWS], [8] * len(kept)), event
    assert event > WINDOWS
