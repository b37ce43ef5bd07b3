"""Pools for tests, one of each kind, started on first use and shared by later tests.

The kinds: "inline" (the worker of this process), "planned" (the same, but small arrays are computed
by programs too), "gpu" (the worker of this process, on CUDA), "shared" (threads that share memory),
"eager" (the same, but this process computes small arrays; in all other pools of several workers,
the workers do),
"limited" (the same with a memory limit, or the worker of this process),
"messages" (threads that exchange messages), "overlapped" (the same, with every possible move
concurrent with other work), "hosts" (threads on two simulated hosts), "exact" and "exact hosts"
(deterministic) and "processes" (MPI). A pool that a failing test has closed is replaced.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from magmath.core.options import DEBUG
from magmath.cost import GemmRate, Machine
from magmath.engine import session
from magmath.engine.array_sizes import SmallSizes
from magmath.engine.engine import Engine
from magmath.runtime import Pool, PoolOptions, start_pool
from magmath.runtime.transport.threads import ThreadTransport
from magmath.runtime.transport_interface import WorkerOptions

PROCESSORS = 2
"""Threads of the workers of a pool in total, whatever the machine has."""
MEMORY_LIMIT = 1 << 20
"""Bytes of a worker of a "limited" pool."""
NOTHING_IS_SMALL = SmallSizes(-1, -1)
"""Programs compute all arrays."""
_engines: dict[tuple[str, int], Engine] = {}


def engine_of(kind: str, workers: int = 1) -> Engine:
    """The engine on the pool of this kind and size."""
    key = kind, workers
    if key not in _engines or _engines[key].pool.closed:
        _engines[key] = Engine(start(kind, workers))
        _adjust(_engines[key], kind)
    return _engines[key]


def _adjust(engine: Engine, kind: str) -> None:
    if kind not in ("inline", "eager", "gpu"):
        engine.small_sizes = NOTHING_IS_SMALL
    if kind == "overlapped":
        engine.environment = replace(engine.environment, overlap_min_bytes=0)


def start(kind: str, workers: int) -> Pool:
    """A new pool of a kind."""
    if kind in ("inline", "planned"):
        return start_pool(PoolOptions(0, device="cpu"))
    if kind == "gpu":
        return start_pool(PoolOptions(0, device="cuda"))
    threads = max(1, PROCESSORS // workers)  # plans depend on them
    if kind in ("shared", "eager"):
        return start_pool(PoolOptions(workers, launcher="threads", device="cpu", threads=threads))
    if kind == "limited":
        inline = PoolOptions(0, device="cpu", memory_limit=MEMORY_LIMIT)
        several = replace(inline, workers=workers, launcher="threads", threads=threads)
        return start_pool(several if workers > 1 else inline)
    if kind == "exact":
        return start_pool(
            PoolOptions(
                workers, launcher="threads", device="cpu", threads=threads, deterministic=True
            )
        )
    if kind in ("hosts", "exact hosts"):
        hosts = [2 * rank // workers for rank in range(workers)]
        exact = kind == "exact hosts"
        options = WorkerOptions("cpu", 1, deterministic=exact)
        return Pool(ThreadTransport(workers, options, hosts=hosts), deterministic=exact)
    if kind in ("messages", "overlapped"):
        return Pool(ThreadTransport(workers, WorkerOptions("cpu", 1), shares_memory=False))
    with warnings.catch_warnings():  # more workers than processors: slow, and meant
        warnings.simplefilter("ignore", RuntimeWarning)
        return start_pool(PoolOptions(workers, device="cpu", threads=1))


@contextmanager
def debugged(switches: str, kind: str, workers: int = 1) -> Iterator[Pool]:
    """Make a new pool of a kind the current one, whose workers have these switches of
    MAGMATH_DEBUG, and the former one again."""
    former = session.current_engine
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(DEBUG.name, switches)
        pool = start(kind, workers)
        try:
            _adjust(session.set_current_pool(pool), kind)
            yield pool
        finally:
            session.current_engine = former
            pool.close()


def close_pool(kind: str, workers: int) -> None:
    """Close the pool of this kind and size, if a test has started it."""
    engine = _engines.pop((kind, workers), None)
    if engine is not None:
        engine.pool.close()


def close_pools(*, all_tests: bool = True) -> None:
    """Close the pools of this process, which returns their memory; `engine_of` starts new ones.

    `all_tests`: look for cycles in what tests of other modules have left too, which takes seconds.
    """
    if all_tests:
        gc.unfreeze()
    gc.collect()  # modules and their arrays refer to each other
    for key in [key for key in _engines if key[0] != "processes"]:
        _engines.pop(key).pool.close()
    gc.collect()
    if sys.platform == "linux":  # the C library keeps freed memory
        ctypes.CDLL(None).malloc_trim(0)


@contextmanager
def current(kind: str, workers: int = 1) -> Iterator[Pool]:
    """Make the pool of a kind the current one, with no programs known, and the former one again."""
    former = session.current_engine
    pool = engine_of(kind, workers).pool
    engine = session.set_current_pool(pool)
    _adjust(engine, kind)
    try:
        yield pool
    finally:
        session.current_engine = former
        if not pool.closed:
            engine.forget_programs()  # which the workers keep otherwise


def machine_of_speed(rate: float) -> Machine:
    """A machine on which all arithmetic has this rate, so that sharing it pays off."""
    gemm = (GemmRate("float32", 1, rate),)
    return Machine(gemm=gemm, arithmetic=rate, division=rate, transcendental=rate)
