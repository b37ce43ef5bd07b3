"""How many threads the local kernels may use, and how long these spin: torch and OpenBLAS alike.

NumPy and SciPy each bring an OpenBLAS of their own, and SciPy's loads late. The limit is kept, so
that `magmath.kernels.blas` can set it for the library that it loads.

A process made by `os.fork` (multiprocessing's method "fork") has none of its parent's threads, but
the libraries of OpenMP and OpenBLAS in it still wait for them. So such a process computes with one
thread.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Final

import torch
from threadpoolctl import ThreadpoolController, threadpool_info, threadpool_limits

from magmath.core import wait_policy
from magmath.core.resources import processor_count

_REREAD: Final = ("openblas_thread_timeout", "openblas_read_env", "blas_thread_shutdown_")
"""Functions of OpenBLAS: the setting that it has read, reading it again, ending the threads, which
begin again with the next product that is divided."""

_limit: int | None = None
_is_fork = False


def most_threads() -> int:
    """The most threads that kernels of this process may use."""
    return 1 if _is_fork else processor_count()


def set_threads(count: int) -> None:
    """Let every kernel of this process use at most `count` threads; ValueError below 1."""
    global _limit
    if count < 1:
        raise ValueError(f"set_threads: needs at least 1 thread, was given {count}")
    _limit = count = 1 if _is_fork else count
    torch.set_num_threads(count)
    limit_loaded()


def limit_to_processors() -> None:
    """Take no more threads than this process has processors: a library counts those of the affinity
    mask, and knows no quota."""
    count = processor_count()
    if count < torch.get_num_threads():
        set_threads(count)


def limit_loaded() -> None:
    """Set the limit for the libraries that are loaded by now, if there is one."""
    if _limit is not None:
        threadpool_limits(_limit, "blas")


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Every BLAS uses one thread within: for threads that compute side by side."""
    with _controller().limit(limits=1, user_api="blas"):
        yield


@contextmanager
def single_threaded() -> Iterator[None]:
    """Every kernel uses one thread within: threads that meet after each operation stand still
    whenever another process has one of their processors."""
    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        with single_threaded_blas():
            yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def more_threads(factor: int) -> Iterator[None]:
    """Within, kernels may use so many times the threads, as far as there are processors: for a
    worker that computes while others wait."""
    before = torch.get_num_threads()
    count = max(before, min(before * factor, most_threads()))
    torch.set_num_threads(count)
    try:
        with _controller().limit(limits=count, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)


def shorten_waits() -> None:
    """Apply `core/wait_policy.py` to the libraries of this process that were loaded before magmath.

    OpenBLAS reads its environment again. GNU OpenMP does not: it spins shortly by itself where it
    has more threads than there are processors, so one more team of threads, which sleeps, is made.
    """
    loaded = threadpool_info()
    for found in loaded:
        if found["internal_api"] == "openblas":
            _reread(ctypes.CDLL(found["filepath"]))
    if wait_policy.was_torch_loaded_first:
        for found in loaded:
            if found["prefix"] == "libgomp":
                _park_team(found["filepath"])


def _reread(library: ctypes.CDLL) -> None:
    """Have an OpenBLAS read how long its threads spin, if it has read another value."""
    if not all(hasattr(library, name) for name in _REREAD):
        return  # an older one, or one that hides its functions
    current, read, end_threads = (getattr(library, name) for name in _REREAD)
    if current() != int(os.environ[wait_policy.OPENBLAS]):
        read()
        end_threads()


@cache
def _park_team(path: str) -> None:
    """Make a team of OpenMP threads in a thread that sleeps from then on, large enough that all
    teams together have more threads than there are processors."""
    library = ctypes.CDLL(path)
    available = library.omp_get_num_procs()
    size = available - torch.get_num_threads() + 2
    if available == 1 or not hasattr(library, "GOMP_parallel"):
        return
    made = threading.Event()

    def park() -> None:
        harmless = ctypes.cast(library.omp_get_max_threads, ctypes.c_void_p)
        library.GOMP_parallel(harmless, None, ctypes.c_uint(max(size, 2)), ctypes.c_uint(0))
        made.set()
        threading.Event().wait()

    threading.Thread(target=park, name="magmath-parked-team", daemon=True).start()
    made.wait()


@lru_cache(maxsize=1)
def _controller() -> ThreadpoolController:
    import scipy.linalg.cython_blas  # noqa: F401  its library must be loaded to be found

    return ThreadpoolController()


def _after_fork() -> None:
    global _is_fork
    _is_fork = True
    set_threads(1)


os.register_at_fork(after_in_child=_after_fork)
