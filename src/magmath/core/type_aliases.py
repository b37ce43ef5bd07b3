"""Types that the annotations of several packages use."""

from __future__ import annotations

from collections.abc import Callable

Number = bool | int | float | complex

BoundCall = Callable[[], object]
"""A function whose arguments are bound: what a step of a program calls."""

Poll = Callable[[int, list[float]], bool]
"""Receives between chunks of a run the number of completed steps, and the scalars that the steps
since the last poll have emitted; returns True to stop the run."""
