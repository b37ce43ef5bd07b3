"""Keeps the threads of a kernel on different processors after a pause.

In a virtual machine, Linux takes a processor that sleeps for one that the host has given to another
machine, and runs a thread that is woken on the processor of its waker. So after a pause, the
threads of every kernel take turns on one processor, until the scheduler has balanced the load some
tens of milliseconds later: programs that are run now and then, as in a notebook, took twice as
long. A run after a pause therefore binds the threads of OpenMP and of every BLAS to processors
other than that of the thread that calls them, and the first run BOUND_SECONDS later releases them.

The calling thread is not bound, because the threads and processes that it starts would be bound
too; only that of a worker process is, until its next command that could start some. Nor is anything
bound if some processors remain free: the scheduler finds them, and other processes, bound in the
same way, would compete for the same ones.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Final, final

import torch

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


def library_threads() -> list[int]:
    """Return the numbers of the threads of numerical libraries: those that neither Python knows nor
    a name distinguishes, except the calling one."""
    threads = [int(name) for name in os.listdir(_TASKS)]
    of_python = {thread.native_id for thread in threading.enumerate()}  # later: of all listed ones
    own_name = (_TASKS.parent / "comm").read_bytes()
    found = []
    for thread in set(threads) - of_python - {threading.get_native_id()}:
        with suppress(OSError):  # the thread has ended
            if (_TASKS / f"{thread}/comm").read_bytes() == own_name:
                found.append(thread)
    return sorted(found)


@final
class ThreadPlacement:
    """The processors to which threads are bound."""

    def __init__(
        self,
        clock: Callable[[], float] = monotonic,
        processor: Callable[[], int] = lambda: -1,
        find_threads: Callable[[], list[int]] = library_threads,
    ) -> None:
        self._clock, self._processor, self._find_threads = clock, processor, find_threads
        self._ended = self._end_of_binding = self._next_look = float("-inf")
        self._threads: list[int] = []
        self._allowed: dict[int, set[int]] = {}  # of each bound thread, before it was bound
        self._left_free = -1  # the processor that the bound threads leave to their caller
        self._lock = threading.Lock()

    def begin_run(self, threads: int) -> None:
        """Bind the threads of libraries, of which kernels use `threads` with the calling one, if
        there was a pause; release them if it is long ago."""
        now = self._clock()
        if self._is_after_pause(now):
            processor = self._processor()
            if processor != self._left_free or now >= self._next_look:
                self._bind_others(processor, threads, now)
        elif self._allowed:
            self.release()

    def begin_worker_run(self, rank: int, workers: int) -> None:
        """Bind the calling thread, that of one of the host's workers, to a processor of its own if
        there was a pause; release it if that is long ago."""
        if self._is_after_pause(self._clock()):
            if not self._allowed:
                processors = sorted(os.sched_getaffinity(0))
                if len(processors) == workers:
                    self._bind({threading.get_native_id(): processors[rank]})
        elif self._allowed:
            self.release()

    def end_run(self) -> None:
        """Note that the threads wait from now on."""
        self._ended = self._clock()

    def _is_after_pause(self, now: float) -> bool:
        if now - self._ended > PAUSE_SECONDS:
            self._end_of_binding = now + BOUND_SECONDS
        return now < self._end_of_binding

    def _bind_others(self, caller: int, threads: int, now: float) -> None:
        """Bind the threads of libraries to processors other than that of the calling thread."""
        self._left_free = caller
        processors = os.sched_getaffinity(0)
        others = sorted(processors - {caller})
        if not len(processors) <= min(threads, MOST_PROCESSORS) or not others:
            return
        if now >= self._next_look:
            self._threads, self._next_look = self._find_threads(), now + LOOK_SECONDS
        self._bind({thread: others[i % len(others)] for i, thread in enumerate(self._threads)})

    def _bind(self, processors: Mapping[int, int]) -> None:
        """Bind threads to a processor each."""
        with self._lock:
            for thread, processor in processors.items():
                with suppress(OSError):  # the thread has ended
                    if thread not in self._allowed:
                        self._allowed[thread] = os.sched_getaffinity(thread)
                    os.sched_setaffinity(thread, {processor})

    def release(self) -> None:
        """Let all threads use the processors that they could use before."""
        with self._lock:
            for thread, allowed in self._allowed.items():
                with suppress(OSError):
                    os.sched_setaffinity(thread, allowed)
            self._allowed.clear()
        self._left_free = -1

    def release_caller(self) -> None:
        """Release the calling thread, if it is that of a worker."""
        if threading.get_native_id() in self._allowed:
            self.release()


def _placement() -> ThreadPlacement | None:
    """Return the placement of this process; None if its threads are not to be placed."""
    if sys.platform != "linux" or any(name in os.environ for name in _SETTINGS):
        return None
    try:
        processor = ctypes.CDLL(None).sched_getcpu
    except AttributeError:
        return None
    return ThreadPlacement(processor=processor) if _TASKS.is_dir() else None


_of_process = _placement()


def begin_run() -> None:
    """Place the threads of this process; called before kernels that several threads compute."""
    if _of_process is not None and (threads := torch.get_num_threads()) > 1:
        _of_process.begin_run(threads)


def begin_worker_run(rank: int, workers: int) -> None:
    """Place the calling thread: that of a worker process, with one thread, of this number among
    those of the host."""
    if _of_process is not None:
        _of_process.begin_worker_run(rank, workers)


def end_run() -> None:
    """Note the end of such kernels."""
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
