"""Keeps the threads of a kernel on different processors after a pause.

In a virtual machine, Linux takes a processor that sleeps for one that the host has given to another
machine, and runs a thread that is woken on the processor of its waker. So after a pause, the
threads of every kernel take turns on one processor, until the scheduler has balanced the load some
tens of milliseconds later: programs that are run now and then, as in a notebook, took twice as
long. A run after a pause therefore binds the threads of OpenMP and of every BLAS to processors
other than that of the thread that calls them, and the first run BOUND_SECONDS later releases them.

The calling thread is not bound, because the threads and processes that it starts would be bound
too; only that of a worker process is, and code that starts some releases it first. Nor is anything
bound if some processors remain free: the scheduler finds them, and other processes, bound in the
same way, would compete for the same ones. If several threads of Python compute at once, each has
library threads of its own, so nothing is bound either.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple, final

PAUSE_SECONDS: Final = 2e-3
"""Threads that have waited longer than this sleep."""
BOUND_SECONDS: Final = 0.1
"""Seconds after a pause in which the scheduler does not yet separate threads."""
LOOK_SECONDS: Final = 1.0
"""Seconds after which new threads are looked for, which takes 0.1 ms."""
MOST_PROCESSORS: Final = 16
"""With more, binding takes too long: some microseconds for each thread."""
_TASKS: Final = Path("/proc/self/task")
_SETTINGS: Final = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
"""Variables by which users place the threads themselves."""


def library_threads() -> list[int] | None:
    """Return the numbers of the threads of numerical libraries: those that neither the module
    threading knows nor a name distinguishes, except the calling one. None if it cannot be known
    now, because a thread of Python is just starting."""
    threads = [int(name) for name in os.listdir(_TASKS)]
    of_python = {thread.native_id for thread in threading.enumerate()}  # later: of all listed ones
    if None in of_python:
        return None
    own_name = (_TASKS.parent / "comm").read_bytes()
    found = []
    for thread in set(threads) - of_python - {threading.get_native_id()}:
        with suppress(OSError):  # the thread has ended
            if (_TASKS / f"{thread}/comm").read_bytes() == own_name:
                found.append(thread)
    return sorted(found)


@final
class _BoundThread(NamedTuple):
    """The processor to which a thread is bound, and those that it could use before."""

    processor: int
    before: set[int]


@final
class ThreadPlacement:
    """The processors to which threads are bound."""

    def __init__(
        self,
        clock: Callable[[], float] = monotonic,
        processor: Callable[[], int] = lambda: -1,
        find_threads: Callable[[], list[int] | None] = library_threads,
    ) -> None:
        self._clock, self._processor, self._find_threads = clock, processor, find_threads
        self._ended = self._end_of_binding = self._next_look = float("-inf")
        self._active: set[int] = set()  # the threads of Python that compute
        self._threads: list[int] = []
        self._bound: dict[int, _BoundThread] = {}
        self._left_free = -1  # the processor that the bound threads leave to their caller
        self._lock = threading.RLock()  # reentrant: a handler of a signal may end the pool

    def begin_run(self, threads: int) -> None:
        """Bind the threads of libraries, of which kernels use `threads` with the calling one, if
        there was a pause; release them if it is long ago, or if other runs are active."""
        now = self._clock()
        self._active.add(threading.get_ident())
        is_only_one = len(self._active) == 1
        if is_only_one and now - self._ended > PAUSE_SECONDS:
            self._end_of_binding = now + BOUND_SECONDS
        if is_only_one and now < self._end_of_binding:
            processor = self._processor()
            if processor != self._left_free or now >= self._next_look:
                self._bind_others(processor, threads, now)
        elif self._bound:
            self.release()

    def begin_worker_run(self, rank: int, workers: int) -> None:
        """Bind the calling thread, that of one of the host's workers, to a processor of its own if
        there was a pause; release it if that is long ago."""
        now = self._clock()
        if now - self._ended > PAUSE_SECONDS:
            self._end_of_binding = now + BOUND_SECONDS
        if now < self._end_of_binding:
            if not self._bound:
                processors = sorted(os.sched_getaffinity(0))
                if len(processors) == workers:
                    self._bind({threading.get_native_id(): processors[rank]})
        elif self._bound:
            self.release()

    def end_run(self) -> None:
        """Note that a run has ended: its threads wait from now on."""
        self._active.discard(threading.get_ident())
        self._ended = self._clock()

    def begin_unplaced_run(self) -> None:
        """Begin a run whose threads may use all processors, and may be those of several workers."""
        self._active.add(threading.get_ident())
        if self._bound:
            self.release()

    def _bind_others(self, caller: int, threads: int, now: float) -> None:
        """Bind the threads of libraries to processors other than that of the calling thread."""
        self._left_free = caller
        processors = os.sched_getaffinity(0)
        others = sorted(processors - {caller})
        if not len(processors) <= min(threads, MOST_PROCESSORS) or not others:
            return
        if now >= self._next_look:
            self._look(now)
        self._bind({thread: others[i % len(others)] for i, thread in enumerate(self._threads)})

    def _look(self, now: float) -> None:
        with suppress(OSError):  # too many files are open
            found = self._find_threads()
            if found is not None:
                self._threads, self._next_look = found, now + LOOK_SECONDS

    def _bind(self, processors: Mapping[int, int]) -> None:
        """Bind threads to a processor each."""
        with self._lock:
            for thread, processor in processors.items():
                with suppress(OSError):  # the thread has ended
                    known = self._bound.get(thread)
                    before = os.sched_getaffinity(thread) if known is None else known.before
                    # Noted first: after an interrupt in between, `release` finds it.
                    self._bound[thread] = _BoundThread(processor, before)
                    os.sched_setaffinity(thread, {processor})

    def release(self) -> None:
        """Let all threads use the processors that they could use before, unless the user has bound
        them meanwhile."""
        with self._lock:
            for thread, (processor, before) in list(self._bound.items()):
                with suppress(OSError):
                    is_own = (_TASKS / str(thread)).exists()  # or the number is another process's
                    if is_own and os.sched_getaffinity(thread) == {processor}:
                        os.sched_setaffinity(thread, before)
                self._bound.pop(thread, None)
            self._left_free = -1

    def release_caller(self) -> None:
        """Release the calling thread, if it is that of a worker."""
        if self._bound and threading.get_native_id() in self._bound:
            self.release()


def _placement() -> ThreadPlacement | None:
    """Return the placement of this process; None if its threads are not to be placed."""
    if sys.platform != "linux" or any(name in os.environ for name in _SETTINGS):
        return None
    try:
        processor = ctypes.PyDLL(None).sched_getcpu  # which keeps the lock of the interpreter
    except AttributeError:
        return None
    return ThreadPlacement(processor=processor) if _TASKS.is_dir() else None


_of_process = _placement()


def begin_run(threads: int) -> None:
    """Place the threads of this process, of which `threads` compute; called before kernels, and
    `end_run` after them."""
    if _of_process is not None:
        _of_process.begin_run(threads)


def begin_worker_run(rank: int, workers: int) -> None:
    """Place the calling thread: that of a worker process, with one thread, of this number among
    those of the host."""
    if _of_process is not None:
        _of_process.begin_worker_run(rank, workers)


def begin_unplaced_run() -> None:
    """Release the threads of this process, for kernels that take long, or that several workers
    compute in threads of this process."""
    if _of_process is not None:
        _of_process.begin_unplaced_run()


@contextmanager
def unplaced() -> Iterator[None]:
    """Leave the threads of this process where they are during this block."""
    begin_unplaced_run()
    try:
        yield
    finally:
        end_run()


def end_run() -> None:
    """Note the end of kernels that have begun by one of these functions."""
    if _of_process is not None:
        _of_process.end_run()


def release_caller() -> None:
    """Let the calling thread use all processors again, before it starts a thread or a process,
    which would be bound too."""
    if _of_process is not None:
        _of_process.release_caller()


def release_threads() -> None:
    """Let the threads of this process use all processors again."""
    if _of_process is not None:
        _of_process.release()


def _after_fork() -> None:
    global _of_process
    _of_process = None  # a fork has none of its parent's threads


os.register_at_fork(after_in_child=_after_fork)
