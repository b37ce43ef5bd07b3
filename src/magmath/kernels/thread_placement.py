"""Keeps the threads of a kernel on different processors after a pause.

In a virtual machine, Linux takes a processor that sleeps for one that the host has given to another
machine, and runs a thread that is woken on the processor of its waker. So after a pause, the
threads of every kernel take turns on one processor, until the scheduler has balanced the load some
tens of milliseconds later: programs that are run now and then, as in a notebook, took twice as
long. For the first BOUND_SECONDS after a pause, the threads of OpenMP and of every BLAS are
therefore bound to processors other than that of the thread that calls them.

The calling thread is not bound, because the threads and processes that it starts would be bound
too; only that of a worker process is, until its next command that could start some.
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
ALONE: Final = -1
"""The position of a worker that is the only one."""
_TASKS: Final = Path("/proc/self/task")
_SETTINGS: Final = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
"""Variables by which users place the threads themselves."""


def library_threads() -> list[int]:
    """Return the numbers of the threads that numerical libraries have started: those that Python
    does not know, and that have no names of their own."""
    of_python = {thread.native_id for thread in threading.enumerate()}
    own_name = (_TASKS.parent / "comm").read_bytes()
    found = []
    for thread in map(int, os.listdir(_TASKS)):
        with suppress(OSError):  # the thread has ended
            if thread not in of_python and (_TASKS / f"{thread}/comm").read_bytes() == own_name:
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
        self._caller = -1  # the processor that the bound threads leave to their caller
        self._lock = threading.Lock()

    def begin_run(self) -> None:
        """Bind the threads if there was a pause; release them if it is long ago."""
        now = self._clock()
        if self._is_after_pause(now):
            processor = self._processor()
            if processor != self._caller or now >= self._next_look:
                self._bind_others(processor, now)
        elif self._allowed:
            self.release()

    def begin_run_at(self, position: int) -> None:
        """Bind the calling thread, that of a worker, to the processor at this position among those
        that it may use; release it if the last pause is long ago."""
        if self._is_after_pause(self._clock()):
            if not self._allowed:
                processors = sorted(os.sched_getaffinity(0))
                if position < len(processors) > 1:
                    self._bind({threading.get_native_id(): processors[position]})
        elif self._allowed:
            self.release()

    def end_run(self) -> None:
        """Note that the threads wait from now on."""
        self._ended = self._clock()

    def _is_after_pause(self, now: float) -> bool:
        if now - self._ended > PAUSE_SECONDS:
            self._end_of_binding = now + BOUND_SECONDS
        return now < self._end_of_binding

    def _bind_others(self, caller: int, now: float) -> None:
        """Bind the threads of libraries to processors other than that of the calling thread."""
        self._caller = caller
        processors = sorted(os.sched_getaffinity(0))
        others = [p for p in processors if p > caller] + [p for p in processors if p < caller]
        if not 0 < len(others) < MOST_PROCESSORS:
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
        self._caller = -1


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


def begin_run(position: int = ALONE) -> None:
    """Place the threads of this process; called before kernels that several threads compute.

    `position`: of this worker process among those of the host, which compute with one thread each.
    """
    if _of_process is None:
        return
    if position != ALONE:
        _of_process.begin_run_at(position)
    elif torch.get_num_threads() > 1:
        _of_process.begin_run()


def end_run() -> None:
    """Note the end of such kernels."""
    if _of_process is not None:
        _of_process.end_run()


def release_threads() -> None:
    """Let the threads of this process use all processors again."""
    if _of_process is not None:
        _of_process.release()


def _after_fork() -> None:
    global _of_process
    _of_process = None  # a fork has none of its parent's threads


os.register_at_fork(after_in_child=_after_fork)
