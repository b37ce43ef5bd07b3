"""Observers of calls: functions that are told the outputs of each module that is called."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Observer = Callable[[object, Any], None]
"""A function of the module that was called and its outputs."""

observers: list[Observer] = []
"""Those that are told now."""


@contextmanager
def observing(observer: Observer) -> Iterator[None]:
    """Call `observer(module, outputs)` after each call of a module."""
    observers.append(observer)
    try:
        yield
    finally:
        observers.remove(observer)
