"""How many threads the local kernels may use: torch and both OpenBLAS libraries alike.

NumPy and SciPy each bring an OpenBLAS of their own, and SciPy's loads late. The limit is kept, so
that `magmath.kernels.blas` can set it for the library that it loads.

A process made by `os.fork` (multiprocessing's method "fork") has none of its parent's threads, but
the libraries of OpenMP and OpenBLAS in it still wait for them. So such a process computes with one
thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import torch
from threadpoolctl import ThreadpoolController, threadpool_limits

_limit: int | None = None
_is_fork = False


def most_threads() -> int:
    """The most threads that kernels of this process may use."""
    return 1 if _is_fork else len(os.sched_getaffinity(0))


def set_threads(count: int) -> None:
    """Let every kernel of this process use at most `count` threads; ValueError below 1."""
    global _limit
    if count < 1:
        raise ValueError(f"set_threads: needs at least 1 thread, was given {count}")
    _limit = count = 1 if _is_fork else count
    torch.set_num_threads(count)
    limit_loaded()


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


@lru_cache(maxsize=1)
def _controller() -> ThreadpoolController:
    import scipy.linalg.cython_blas  # noqa: F401  its library must be loaded to be found

    return ThreadpoolController()


def _after_fork() -> None:
    global _is_fork
    _is_fork = True
    set_threads(1)


os.register_at_fork(after_in_child=_after_fork)
