"""The seconds of the calls of a bound program."""

from __future__ import annotations

from typing import NamedTuple, final


@final
class CallTime(NamedTuple):
    """The seconds of a call that executes the instructions at some positions."""

    positions: range
    seconds: float


CallTimes = list[CallTime]
"""The times of all instructions of a step, in order."""
