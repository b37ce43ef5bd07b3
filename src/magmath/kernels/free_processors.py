"""The number of threads of kernels: fewer while other processes use the processors.

The threads of OpenMP and of a BLAS divide each kernel evenly and wait for the last one. If another
process uses one of the processors, every kernel lasts until the thread that has none gets its next
time slice, some milliseconds. So a program on a shared machine slows down in proportion to the
number of its kernels. Linux counts the time for which each thread was ready and had no processor
(`/proc/self/task/*/schedstat`). If on average more than a small share of this process's threads
wait, the number of threads is reduced by the waiting ones; all of them are tried again later, at
intervals that double as long as threads still wait.

torch has its former number of threads again after each run: the user's own operations and settings
are not affected. That of OpenBLAS, which takes 0.1 ms to change, stays until the next change, or
until the pool of this process ends.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from math import ceil, inf
from pathlib import Path
from time import monotonic
from typing import Any, Final, TypeVar, final

import torch

from magmath.core import thread_placement
from magmath.kernels.thread_count import limit_running

Result = TypeVar("Result")

CHECK_SECONDS = 0.05
"""Seconds between two readings of the waits; infinite if nothing shall depend on them."""
CONTENDED: Final = 0.1
"""Average number of waiting threads up to which all threads are kept, however many there are."""
WORTH: Final = 0.6
"""Of n threads, fewer are used only if more than WORTH / n wait on average: one thread less costs
1/n of the speed. If one library's threads still spin while another one computes, up to a quarter of
the threads wait although no other process computes."""
RETRY_SECONDS: Final = (0.5, 8.0)
"""The shortest and the longest time until all threads are tried again."""
_TASKS: Final = Path("/proc/self/task")


def waited_seconds() -> float:
    """Return the seconds for which the threads of this process have waited for a processor in
    total; 0 if the system does not count them."""
    total = 0
    with suppress(OSError):
        for task in os.listdir(_TASKS):
            with suppress(OSError, IndexError):  # the thread has ended
                total += int((_TASKS / task / "schedstat").read_text().split()[1])
    return total * 1e-9


@final
class Waits:
    """The waits of the threads of this process for a processor, from now on."""

    def __init__(self) -> None:
        self._waited, self._start = waited_seconds(), monotonic()

    def has_contention(self, threads: int) -> bool:
        """Return True if other processes have used the processors of this number of computing
        threads."""
        if inf == CHECK_SECONDS:
            return False
        seconds = monotonic() - self._start
        return waited_seconds() - self._waited > seconds * _contended(max(threads, 2))


def _contended(threads: int) -> float:
    """Return the average number of waiting threads from which fewer threads are faster."""
    return max(CONTENDED, WORTH / threads)


@final
class FreeProcessors:
    """Adapts the number of threads of all kernels to the processors that are free."""

    def __init__(
        self,
        waited: Callable[[], float] = waited_seconds,
        clock: Callable[[], float] = monotonic,
        count: Callable[[], int] = torch.get_num_threads,
        limit: Callable[[int], None] = limit_running,
        set_count: Callable[[int], None] = torch.set_num_threads,
    ) -> None:
        self._read, self._clock, self._count, self._limit = waited, clock, count, limit
        self._set_count = set_count
        self._all = self._used = count()
        self._waited, self._checked = waited(), clock()
        self._due = self._checked + CHECK_SECONDS
        self._retry, self._pause = 0.0, RETRY_SECONDS[0]

    def begin_run(self) -> None:
        """Give torch the reduced number of threads, if fewer than all are used now; called before
        each run."""
        count = self._count()
        if self._used < self._all and count != self._all:  # user code has set another number
            self._all = count
            self._set_thread_count(count)
        elif self._used < self._all:
            self._set_count(self._used)

    def end_run(self) -> None:
        """Restore the number of threads of torch; called after each run."""
        if self._used < self._all:
            self._set_count(self._all)

    def adapt(self) -> None:
        """Change the number of threads if a change is due; called before work that takes long."""
        now = self._clock()
        if now < self._due:
            return
        used = self._count()
        if used != self._used:  # user code has set another number
            self._all = self._used = used
        if self._all > 1:
            waited = self._read()
            self._decide(now, max(0.0, waited - self._waited) / (now - self._checked))
            self._waited = waited
        self._checked, self._due = now, now + CHECK_SECONDS

    def _decide(self, now: float, waiting: float) -> None:
        """Set the number of threads, of which `waiting` had no processor on average."""
        if waiting > _contended(self._used) and self._used > 1:
            if self._used == self._all:  # the last trial did not help, or this is the first one
                self._retry, longest = now + self._pause, RETRY_SECONDS[1]
                self._pause = min(2 * self._pause, longest)
            self._set_thread_count(max(1, self._used - ceil(waiting)))
        elif self._used == self._all:
            self._pause = RETRY_SECONDS[0]
        elif now >= self._retry:
            self._set_thread_count(self._all)

    def _set_thread_count(self, count: int) -> None:
        global has_limited
        has_limited = has_limited or count < self._all
        self._used = count
        self._limit(count)


has_limited = False
"""True once a thread of this process has computed with fewer threads: only then do runs call
`begin_run` and `end_run`."""
_of_thread = threading.local()


def begin_run() -> None:
    """Limit the threads of torch for a run of this thread, as far as `adapt_threads` decided."""
    adapter: FreeProcessors | None = getattr(_of_thread, "adapter", None)
    if adapter is not None:
        adapter.begin_run()


def end_run() -> None:
    """Give torch the number of threads that it had before the run."""
    adapter: FreeProcessors | None = getattr(_of_thread, "adapter", None)
    if adapter is not None:
        adapter.end_run()


def adapt_threads() -> None:
    """Adapt the number of threads that the kernels of this thread use to the free processors."""
    if inf == CHECK_SECONDS:
        return
    adapter: FreeProcessors | None = getattr(_of_thread, "adapter", None)
    if adapter is None:
        adapter = _of_thread.adapter = FreeProcessors()
    adapter.adapt()


def run_on_free_processors(function: Callable[..., Result], /, *arguments: Any) -> Result:
    """Call a function that computes something, with as many threads as processors are free, each on
    a processor of its own."""
    try:
        thread_placement.begin_run(torch.get_num_threads())
        if has_limited:
            begin_run()
        adapt_threads()
        return function(*arguments)
    finally:
        thread_placement.end_run()
        if has_limited:
            end_run()
