"""A thread that moves data while the worker's own thread computes.

It carries out tasks one after the other, in the order in which they were given. Every rank gives
its progress thread the same tasks in the same order, and the progress threads have a communicator of their own:
they meet one another, and never the ranks' other calls.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from magmath.comm.communicator import Communicator
from magmath.errors import WorkerLost

_JOIN_SECONDS: Final = 5.0


class Task:
    """Something that a progress thread does. `wait` returns when it is done."""

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

    def execute(self) -> bool:
        """Do it, on the progress thread's thread; whether that went well."""
        try:
            self._action()
        except Exception as error:
            self._error = error
        self._action = _no_action  # it holds tensors
        self._done.set()
        return self._error is None


class ProgressThread:
    """The progress thread of one rank. `comm`: the communicator of all ranks' progress threads, which it closes.

    Where an task fails, the others' counterparts could wait for ever, so all ranks are woken with
    WorkerLost, as by `Communicator.abort`.
    """

    def __init__(self, comm: Communicator) -> None:
        self.comm = comm
        self.submitted = 0
        """Errands so far."""
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=self._serve, name=f"magmath-progress-{comm.rank}", daemon=True
        )
        self._thread.start()

    def submit(self, action: Callable[[], object]) -> Task:
        """Give it something to do."""
        task = Task(action)
        self.submitted += 1
        self._tasks.put(task)
        return task

    def close(self) -> None:
        """Return when all tasks are done, or fail because a rank has aborted. Collective."""
        self._tasks.put(None)
        self._thread.join(_JOIN_SECONDS)
        with suppress(WorkerLost):
            self.comm.close()

    def _serve(self) -> None:
        while (task := self._tasks.get()) is not None:
            if not task.execute():
                self.comm.abort()


def _no_action() -> None:
    """What is left of an task that is done."""
