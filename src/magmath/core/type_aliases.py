"""Types that the annotations of several packages use."""

from __future__ import annotations

from collections.abc import Callable

Number = bool | int | float | complex

ReadyCall = Callable[[], object]
"""A function whose arguments are bound: what a step of a program calls."""
