"""Delivery of Ctrl-C at safe points.

A KeyboardInterrupt between two sends would leave one worker with a message that another lacks, and
one between a run and the use of its results would lose arrays whose memory the run has overwritten.
Inside an `Interrupts` context, SIGINT is counted, and `deliver` calls the previous handler
(Python's default raises KeyboardInterrupt) at a safe point.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` converts to enumerations: 10 × slower
import os
import threading
from collections.abc import Callable
from threading import get_ident
from types import FrameType
from typing import Any, final

SIGINT = int(_signal.SIGINT)


_main = threading.main_thread().ident  # Python delivers signals to the main thread


def _update_main_thread() -> None:
    global _main
    _main = threading.main_thread().ident


os.register_at_fork(after_in_child=_update_main_thread)


@final
class Interrupts:
    """A reentrant context that defers SIGINT; without effect outside the main thread."""

    def __init__(self) -> None:
        self.count = 0
        """Number of deferred interrupts."""
        self._depth = 0
        self._suspensions = 0
        self._previous: Any = None

    def __enter__(self) -> Interrupts:
        if get_ident() == _main:
            if self._depth == 0:
                handler = _signal.getsignal(SIGINT)
                if callable(handler):
                    self._previous = handler
                    _signal.signal(SIGINT, self._count_signal)
            self._depth += 1
        return self

    def __exit__(self, *_: object) -> None:
        if get_ident() == _main:
            self._depth -= 1
            if self._depth == 0 and _signal.getsignal(SIGINT) == self._count_signal:
                _signal.signal(SIGINT, self._previous)

    def suspend(self) -> None:
        """Suspend delivery until a matching `resume`, within this context."""
        self._suspensions += 1

    def resume(self) -> None:
        """Resume delivery."""
        self._suspensions -= 1

    @property
    def is_due(self) -> bool:
        """True if `deliver` would deliver an interrupt."""
        return self.count > 0 and self._suspensions == 0 and get_ident() == _main

    def deliver(self) -> None:
        """Pass one deferred interrupt to the previous handler, which usually raises."""
        if self.is_due:
            self.count -= 1
            self._previous(SIGINT, None)

    def _count_signal(self, signum: int, frame: FrameType | None) -> None:
        self.count += 1


@final
class DeferredInterrupts:
    """A reentrant context at whose end, at the earliest, interrupts are delivered by `deliver`."""

    def __init__(self, interrupts: Interrupts, deliver: Callable[[], None]) -> None:
        self._interrupts, self._deliver = interrupts, deliver

    def __enter__(self) -> None:
        self._interrupts.__enter__()
        self._interrupts.suspend()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        interrupts = self._interrupts
        interrupts.resume()
        interrupts.__exit__()
        if kind is None and interrupts.count:
            self._deliver()
