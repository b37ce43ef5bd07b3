"""How many threads the local kernels may use: torch and both OpenBLAS libraries alike.

NumPy and SciPy each bring an OpenBLAS of their own, and SciPy's loads late. The limit is kept, so
that `magmath.kernels.blas` can set it for the library that it loads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import torch
from threadpoolctl import ThreadpoolController, threadpool_limits

_limit: int | None = None


def set_threads(count: int) -> None:
    """Let every kernel of this process use at most `count` threads; ValueError below 1."""
    global _limit
    if count < 1:
        raise ValueError(f"set_threads: needs at least 1 thread, was given {count}")
    _limit = count
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


@lru_cache(maxsize=1)
def _controller() -> ThreadpoolController:
    import scipy.linalg.cython_blas  # noqa: F401  its library must be loaded to be found

    return ThreadpoolController()
