"""A thread that communicates while the worker's main thread computes.

It executes tasks in the order of submission. Every rank submits the same tasks in the same order,
and the progress threads use their own communicator, so their calls match one another and never the
calls of the main threads.
"""

from __future__ import annotations

import queue
import threading
from contextlib import suppress
from typing import final

from magmath.comm.communicator import Communicator
from magmath.core.thread_placement import release_caller
from magmath.core.type_aliases import BoundCall
from magmath.errors import WorkerLost


@final
class Task:
    """A unit of work for a progress thread. `wait` returns when it is done."""

    __slots__ = ("_action", "_done", "_error")

    def __init__(self, action: BoundCall) -> None:
        self._action = action
        self._done = threading.Event()
        self._error: BaseException | None = None

    @property
    def is_done(self) -> bool:
        """True after the task has ended, successfully or not."""
        return self._done.is_set()

    def wait(self) -> None:
        """Return when the task has ended. Raises its exception, of any class."""
        self._done.wait()
        if self._error is not None:
            raise self._error

    def execute(self) -> bool:
        """Run the task on the progress thread; return True if it succeeded."""
        try:
            self._action()
        except BaseException as error:  # SystemExit too: `wait` must return
            self._error = error
        self._action = _no_action  # it holds tensors
        self._done.set()
        return self._error is None


@final
class ProgressThread:
    """The progress thread of one rank. `comm`: the communicator of all progress threads, which it
    closes.

    If a task fails, the matching tasks of other ranks could wait forever, so the thread aborts its
    communicator, which raises WorkerLost on all ranks.
    """

    def __init__(self, comm: Communicator) -> None:
        self.comm = comm
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=self._serve, name=f"magmath-progress-{comm.rank}", daemon=True
        )
        release_caller()  # the thread would be bound too
        self._thread.start()

    def submit(self, action: BoundCall) -> Task:
        """Queue an action; return its task."""
        task = Task(action)
        self._tasks.put(task)
        return task

    def close(self) -> None:
        """Wait until all tasks have ended, then close the communicator. Collective."""
        self._tasks.put(None)
        self._thread.join()
        with suppress(WorkerLost):
            self.comm.close()

    def _serve(self) -> None:
        while (task := self._tasks.get()) is not None:
            if not task.execute():
                self.comm.abort()


def _no_action() -> None:
    """Replaces the action of a completed task."""
