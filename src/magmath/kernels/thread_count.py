"""The number of threads that local kernels may use, in torch and OpenBLAS, and their spin times.

NumPy and SciPy each contain their own OpenBLAS, and SciPy's is loaded late. The limit is stored, so
that `magmath.kernels.fortran` can set it for the library that it loads.

A process created by `os.fork` (multiprocessing's method "fork") has none of its parent's threads,
but its OpenMP and OpenBLAS libraries still wait for them. So such a process computes with one
thread.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Final, final

import torch
from threadpoolctl import LibController, ThreadpoolController, threadpool_info

from magmath.core import wait_policy
from magmath.core.module_locks import module_lock
from magmath.core.resources import processor_count
from magmath.core.thread_placement import release_caller
from magmath.kernels.scipy_openblas import load_blas_of_scipy

_REREAD: Final = ("openblas_thread_timeout", "openblas_read_env", "blas_thread_shutdown_")
"""Functions of OpenBLAS: return the current setting, read it again, and end the threads, which
start again with the next multithreaded product."""

_limit: int | None = None
_is_fork = False
_count_lock = module_lock(__name__, "_count_lock")
"""Guards the numbers of threads of every BLAS, `_limit` and `_before_running`."""


def max_threads() -> int:
    """Return the maximum number of threads that kernels of this process may use."""
    return 1 if _is_fork else processor_count()


def set_threads(count: int) -> None:
    """Limit the kernels of this thread, and every BLAS of the process, to `count` threads. Raises
    ValueError below 1."""
    global _limit
    if count < 1:
        raise ValueError(f"set_threads: needs at least 1 thread, was given {count}")
    _limit = count = 1 if _is_fork else count
    torch.set_num_threads(count)
    limit_loaded()


def limit_running(count: int) -> None:
    """Compute with `count` threads from now on; the limit of this process does not change.

    Every BLAS keeps this number until the next call, or until `restore_running`.
    """
    global _before_running
    count = min(count, max_threads())
    torch.set_num_threads(count)
    with _count_lock:
        if _before_running is None:
            _before_running = BlasThreads()
        for library in _libraries(_controller()):
            _set_count(library, count)


def restore_running() -> None:
    """Give every BLAS the number of threads that it had before the first `limit_running`."""
    with _count_lock:
        if _before_running is not None:
            _before_running.restore()


def processor_limit() -> int | None:
    """Return the number of processors of this process if torch has more threads, otherwise None.
    Libraries count the processors of the affinity mask and ignore quotas."""
    count = processor_count()
    return count if count < torch.get_num_threads() else None


def limit_loaded() -> None:
    """Apply the limit, if one is set, to the libraries that are loaded."""
    if _limit is not None:
        for library in _libraries(ThreadpoolController()):
            _set_count(library, _limit)


def _libraries(controller: ThreadpoolController) -> list[LibController]:
    """Return every BLAS."""
    libraries: list[LibController] = controller.select(user_api="blas").lib_controllers
    return libraries


def _set_count(library: LibController, count: int) -> None:
    """Set the number of threads of a BLAS, in any thread, for the whole process.

    From version 3.8 on, threadpoolctl ignores calls of all threads but the first, which controls
    the libraries until it ends or releases them.
    """
    release = getattr(library, "clear_controlling_thread", lambda *, force: None)
    with _count_lock:  # another thread could take control in between
        release(force=True)
        library.set_num_threads(count)
        release(force=True)


@final
class BlasThreads:
    """The numbers of threads of every BLAS, and the limit for those that are loaded later, as they
    were at the construction of this object.

    They count for the whole process, unlike the number of torch, which each thread has of its own.
    """

    def __init__(self) -> None:
        load_blas_of_scipy()  # a library that is loaded later would not be restored
        libraries = _libraries(ThreadpoolController())
        with _count_lock:
            self._counts = {library: library.num_threads for library in libraries}
            self._limit, self._before_running = _limit, _before_running

    def restore(self) -> None:
        """Set these numbers again."""
        global _limit, _before_running
        with _count_lock:
            _limit, _before_running = self._limit, self._before_running
            for library, count in self._counts.items():
                _set_count(library, count)


_before_running: BlasThreads | None = None
"""The numbers before the first `limit_running`; None before that."""


@final
class _BlasLimits:
    """Temporary numbers of threads of every BLAS, which count for all threads of the process.

    Contexts of several threads may overlap and end in any order: of those that have not ended, the
    last that began decides, and the end of all of them restores the numbers from before.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[object, int] = {}
        self._before: dict[LibController, int] = {}

    @contextmanager
    def limit(self, count: int) -> Iterator[None]:
        """Compute with this number of threads within the context."""
        context = object()
        with self._lock:
            if not self._counts:
                libraries = _libraries(_controller())
                self._before = {library: library.num_threads for library in libraries}
            self._counts[context] = count
            self._apply()
        try:
            yield
        finally:
            with self._lock:
                del self._counts[context]
                self._apply()

    def _apply(self) -> None:
        count = next(reversed(self._counts.values()), None)
        for library, before in self._before.items():
            _set_count(library, before if count is None else count)


_blas_limits = _BlasLimits()


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Limit every BLAS to one thread within the context, for threads that compute concurrently."""
    with _blas_limits.limit(1):
        yield


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Compute with this number of threads of torch within the context."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def threads_of_kernels(count: int) -> Iterator[None]:
    """Compute with this number of threads of torch, in this thread, and of every BLAS within the
    context."""
    with torch_threads(count), _blas_limits.limit(count):
        yield


@contextmanager
def single_threaded() -> Iterator[None]:
    """Limit every kernel to one thread within the context. Threads that synchronize after each
    operation stall whenever another process uses one of their processors."""
    if torch.get_num_threads() == 1:
        yield
        return
    with threads_of_kernels(1):
        yield


@contextmanager
def more_threads(factor: int) -> Iterator[None]:
    """Multiply the number of threads by `factor` within the context, up to the number of
    processors, for a worker that computes while others wait."""
    release_caller()  # it may start threads
    before = torch.get_num_threads()
    count = max(before, min(before * factor, max_threads()))
    with threads_of_kernels(count):
        yield


def shorten_waits() -> None:
    """Apply `core/wait_policy.py` to libraries that were loaded before magmath.

    OpenBLAS can read its environment again. GNU OpenMP cannot, but its threads spin only briefly if
    it has more threads than processors, so this function creates another team, which sleeps.
    """
    libraries = threadpool_info()
    for library in libraries:
        if library["internal_api"] == "openblas":
            _reload_spin_time(ctypes.CDLL(library["filepath"]))
    if wait_policy.was_torch_loaded_first:
        for library in libraries:
            if library["prefix"] == "libgomp":
                _park_team(library["filepath"])


def _reload_spin_time(library: ctypes.CDLL) -> None:
    """Make an OpenBLAS read its spin time again if its current value differs."""
    if not all(hasattr(library, name) for name in _REREAD):
        return  # an older version, or a build that hides these functions
    current, read, end_threads = (getattr(library, name) for name in _REREAD)
    if current() != int(os.environ[wait_policy.OPENBLAS]):
        read()
        end_threads()


@cache
def _park_team(path: str) -> None:
    """Create a team of OpenMP threads in a thread that then sleeps forever. The team is so large
    that all teams in total have more threads than there are processors."""
    library = ctypes.CDLL(path)
    available = library.omp_get_num_procs()
    size = available - torch.get_num_threads() + 2
    if available == 1 or not hasattr(library, "GOMP_parallel"):
        return
    is_created = threading.Event()

    def park() -> None:
        function = ctypes.cast(library.omp_get_max_threads, ctypes.c_void_p)
        library.GOMP_parallel(function, None, ctypes.c_uint(max(size, 2)), ctypes.c_uint(0))
        is_created.set()
        threading.Event().wait()

    threading.Thread(target=park, name="magmath-parked-team", daemon=True).start()
    is_created.wait()


@lru_cache(maxsize=1)
def _controller() -> ThreadpoolController:
    load_blas_of_scipy()  # a library must be loaded to be found
    return ThreadpoolController()


def _after_fork() -> None:
    global _is_fork, _blas_limits, _before_running
    _is_fork, _before_running = True, None
    _blas_limits = _BlasLimits()  # a thread of the parent may hold the former one's lock
    set_threads(1)


os.register_at_fork(after_in_child=_after_fork)
