"""A thread that moves data while the worker's own thread computes.

It carries out errands one after the other, in the order in which they were given. Every rank gives
its courier the same errands in the same order, and the couriers have a communicator of their own:
they meet one another, and never the ranks' other calls.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from magmath.comm.base import Communicator
from magmath.errors import WorkerLost

_JOIN_SECONDS: Final = 5.0


class Errand:
    """Something that a courier does. `wait` returns when it is done."""

    __slots__ = ("_action", "_done", "_error")

    def __init__(self, action: Callable[[], object]) -> None:
        self._action = action
        self._done = threading.Event()
        self._error: Exception | None = None

    @property
    def done(self) -> bool:
        """Whether it has ended, well or not."""
        return self._done.is_set()

    def wait(self) -> None:
        """Return once it is done. Raises what went wrong in it."""
        self._done.wait()
        if self._error is not None:
            raise self._error

    def carry_out(self) -> bool:
        """Do it, on the courier's thread; whether that went well."""
        try:
            self._action()
        except Exception as error:
            self._error = error
        self._action = _nothing  # it holds tensors
        self._done.set()
        return self._error is None


class Courier:
    """The courier of one rank. `comm`: the communicator of all ranks' couriers, which it closes.

    Where an errand fails, the others' counterparts could wait for ever, so all ranks are woken with
    WorkerLost, as by `Communicator.abort`.
    """

    def __init__(self, comm: Communicator) -> None:
        self.comm = comm
        self.sent = 0
        """Errands so far."""
        self._errands: queue.SimpleQueue[Errand | None] = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=self._serve, name=f"magmath-courier-{comm.rank}", daemon=True
        )
        self._thread.start()

    def send(self, action: Callable[[], object]) -> Errand:
        """Give it something to do."""
        errand = Errand(action)
        self.sent += 1
        self._errands.put(errand)
        return errand

    def close(self) -> None:
        """Return when all errands are done, or fail because a rank has aborted. Collective."""
        self._errands.put(None)
        self._thread.join(_JOIN_SECONDS)
        with suppress(WorkerLost):
            self.comm.close()

    def _serve(self) -> None:
        while (errand := self._errands.get()) is not None:
            if not errand.carry_out():
                self.comm.abort()


def _nothing() -> None:
    """What is left of an errand that is done."""
