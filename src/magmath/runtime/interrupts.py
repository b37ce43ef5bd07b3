"""Ctrl-C at safe points only.

A KeyboardInterrupt between two sends would leave one worker with a message that another lacks.
While an `Interrupts` is entered, SIGINT is counted instead, and `deliver` hands it to the handler
that was installed before (Python's own raises KeyboardInterrupt) where nothing is half done.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class Interrupts:
    """A re-entrant context that holds SIGINT back; without effect outside the main thread."""

    def __init__(self) -> None:
        self.count = 0
        """How many interrupts are held back now."""
        self._depth = 0
        self._previous: Any = None

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            if self._depth == 0:
                handler = signal.getsignal(signal.SIGINT)
                if callable(handler):
                    self._previous = handler
                    signal.signal(signal.SIGINT, self._hold)
            self._depth += 1
        return self

    def __exit__(self, *_: object) -> None:
        if threading.current_thread() is threading.main_thread():
            self._depth -= 1
            if self._depth == 0 and signal.getsignal(signal.SIGINT) == self._hold:
                signal.signal(signal.SIGINT, self._previous)

    def deliver(self) -> None:
        """Hand one held interrupt to the handler that was there before; usually it raises."""
        if self.count and threading.current_thread() is threading.main_thread():
            self.count -= 1
            self._previous(signal.SIGINT, None)

    def _hold(self, signum: int, frame: FrameType | None) -> None:
        self.count += 1
