"""The current pool: made by `init` or the first operation, ended by `shutdown` or at exit."""

from __future__ import annotations

import atexit
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from magmath.engine.engine import Engine
from magmath.errors import WorkerLost
from magmath.layout.mesh import set_printed_pool_size

if TYPE_CHECKING:
    from magmath.runtime.pool import Pool

_engine: Engine | None = None


class Session:
    """What `init` returns: a context manager that shuts the pool down at its end.

    At the end of a block without an error it waits for what the workers still do, and raises what
    went wrong there.
    """

    def __init__(self, pool: Pool) -> None:
        self.pool = pool

    def __repr__(self) -> str:
        return f"<Session with {self.pool!r}>"

    def __enter__(self) -> Pool:
        return self.pool

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if _engine is not None and _engine.pool is self.pool:
            _close(finish=error is None)


def init(
    workers: int = 0,
    *,
    device: str = "auto",
    threads: int | None = None,
    launcher: str | Sequence[str] = "mpiexec",
    deterministic: bool = False,
    memory_limit: int | None = None,
    seed: int = 0,
    heartbeat_timeout: float | None = 5.0,
) -> Session:
    """Start a pool of workers, in place of the current one; also a context manager.

    workers        0: one worker inside this process. n: n processes, each with its own share of
                   the cores (or its own GPU)
    device         "cpu", "cuda", or "auto": CUDA where there is a GPU; the workers of a host take
                   its GPUs in turn
    threads        threads of each worker; by default the cores that this process may use, divided
                   between them
    launcher       "mpiexec" (the embedded one), "srun", "threads" (workers as threads of this
                   process), or any command line in which {n} stands for the number of workers
    deterministic  results are bit-identical for any number of workers, at some cost in speed
    memory_limit   bytes that a worker may hold; by default its share of its host's memory, less a
                   reserve
    seed           of the random numbers
    heartbeat_timeout  seconds that a worker may be stopped (by a signal, a debugger, a suspended
                   host) until it counts as lost; None: it is waited for

    Arrays of an earlier pool are lost with it. Raises WorkerError if the workers do not start.
    """
    from magmath.runtime import start_pool

    shutdown()
    pool = start_pool(
        workers,
        device=device,
        threads=threads,
        launcher=launcher,
        deterministic=deterministic,
        memory_limit=memory_limit,
        seed=seed,
        heartbeat_timeout=heartbeat_timeout,
    )
    use(pool)
    return Session(pool)


def use(pool: Pool) -> Engine:
    """Make `pool` the current one."""
    global _engine
    _engine = Engine(pool)
    return _engine


def shutdown() -> None:
    """End the current pool, if there is one, when its workers have done what they were asked to.

    Raises what went wrong there and has not been raised yet; the pool is closed all the same.
    """
    _close(finish=True)


def _close(finish: bool) -> None:
    global _engine
    if _engine is None:
        return
    pool, _engine = _engine.pool, None
    try:
        if finish:
            pool.finish()
    finally:
        pool.close()


def engine() -> Engine:
    """The engine of the current pool; starts the in-process worker if there is none."""
    if _engine is None:
        init()
        assert _engine is not None
    elif _engine.pool.closed:
        raise WorkerLost(_engine.pool.end_reason)
    return _engine


def _pool_size() -> int:
    return 0 if _engine is None else _engine.pool.workers


def pool() -> Pool:
    """The current pool: its workers, mesh, devices and counters. Prints as a short description."""
    return engine().pool


atexit.register(shutdown)
set_printed_pool_size(_pool_size)
