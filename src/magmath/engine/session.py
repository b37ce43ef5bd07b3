"""The current pool: started by `init` or the first operation, ended by `shutdown` or at exit."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, final

from magmath.core.byte_sizes import WORKSPACE_LIMIT
from magmath.core.keyword_hints import keyword_hints
from magmath.core.module_locks import module_lock
from magmath.engine.eager.eager_computation import EagerComputation
from magmath.engine.engine import Engine
from magmath.engine.lifetimes.kept_expressions import KEPT
from magmath.engine.traces import tracing
from magmath.errors import WorkerError, WorkerLost
from magmath.graph import Node
from magmath.layout.mesh import set_printed_pool_size

if TYPE_CHECKING:
    from magmath.runtime.pool import Pool
    from magmath.runtime.pool_factory import PoolOptions
    from magmath.runtime.run_handle import RunHandle

current_engine: Engine | None = None
"""The engine of the current pool; None before the first operation and after `shutdown`."""
_options: PoolOptions | None = None
"""The options of the last pool, with which `restart` starts another."""
_session: Session | None = None
"""The result of the last `init`."""
_profiler: Callable[[RunHandle], object] | None = None
"""What receives each run of the current pool, and of pools that start later."""
_starting = module_lock(__name__, "_starting")


@final
class Session:
    """The result of `init`: a context manager that shuts the pool down at its end.

    At the end of a block without an error it waits for the workers and raises their failures.
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
        if current_engine is not None and current_engine.pool is self.pool:
            _close(finish=error is None)


@keyword_hints
def init(
    workers: int = 0,
    *,
    device: str = "auto",
    threads: int | None = None,
    launcher: str | Sequence[str] = "mpiexec",
    hosts: Sequence[str] | str | None = None,
    deterministic: bool = False,
    memory_limit: int | None = None,
    seed: int = 0,
    winograd: bool = True,
    workspace_limit: int = WORKSPACE_LIMIT,
    fold_bias: str = "auto",
    flush_denormals: bool = True,
    heartbeat_timeout: float | None = 5.0,
) -> Session:
    """Start a pool of workers that replaces the current one; return a context manager.

    workers        0: one worker inside this process. n: n processes, each with its own share of
                   the cores (or its own GPU)
    device         "cpu", "cuda", or "auto": CUDA if the host has a GPU; the GPUs of a host are
                   assigned to its workers in turn
    threads        threads of each worker; by default the cores that this process may use, divided
                   between them; with `deterministic` always 1
    launcher       "mpiexec" (the embedded one), "srun", "threads" (workers as threads of this
                   process), or any command line in which {n} stands for the number of workers
    hosts          names of the hosts on which "mpiexec" starts the workers by ssh, each with or
                   without its number of workers: ["a:2", "b:2"] or "a:2,b:2". Workers of one host
                   share memory, and hosts exchange messages. With workers=0 the numbers of the list
                   count. The hosts need the same magmath at the same path (docs/hosts.md)
    deterministic  results are bit-identical for any number of workers, each of which computes with
                   one thread
    memory_limit   maximum bytes of arrays on a worker, at least 4096; by default its share of its
                   host's memory, less a reserve
    seed           seed of the random numbers
    winograd       float32 convolutions with 3×3 and 5×5 filters may use Winograd's algorithms where
                   these are faster, and those with large filters Fourier transforms; their rounding
                   errors are up to 10 times those of the direct sum. Deterministic mode never uses
                   them
    workspace_limit  maximum bytes of temporary memory that an algorithm for a convolution may need;
                   with more, faster algorithms are available. 0: only those without such memory
    fold_bias      how a product, its bias and their gradients are computed: "epilogue" (the bias is
                   added while the product is stored), "separate", "realigned" or "widened" (bias
                   and weights are one matrix, and the inputs get a column of ones), or "auto", the
                   fastest by measurement. The results differ by rounding. Deterministic mode never
                   folds
    flush_denormals  numbers below the smallest normal one count as 0 in training steps: those of
                   `fit`, `CompiledStep` and optimizers, and compiled functions that compute
                   gradients and assign variables (arithmetic on such numbers is up to 100 times
                   slower on some processors); all other computations keep gradual underflow, as
                   NumPy does
    heartbeat_timeout  seconds that a worker may be stopped (by a signal, a debugger, a suspended
                   host) until it counts as lost; None: without limit

    Arrays of an earlier pool are lost with it. Options are checked before it ends: OptionError and
    DeviceError leave it as it is, and so does WorkerError for a missing launcher or a host that
    does not answer. Raises WorkerError if the workers do not start. A failure of the earlier pool
    that was not raised yet is raised as soon as the new pool has started.
    """
    global _options, _session
    from magmath.runtime import PoolOptions, prepare_pool

    options = PoolOptions(
        workers=workers,
        device=device,
        threads=threads,
        launcher=launcher,
        hosts=hosts,
        deterministic=deterministic,
        memory_limit=memory_limit,
        seed=seed,
        winograd=winograd,
        workspace_limit=workspace_limit,
        fold_bias=fold_bias,
        flush_denormals=flush_denormals,
        heartbeat_timeout=heartbeat_timeout,
    )
    start = prepare_pool(options)
    failure: Exception | None = None
    try:
        shutdown()
    except Exception as error:  # of the earlier pool: later lines must not compute in a default one
        failure = error
    pool = start()
    _options = options
    set_current_pool(pool)
    _session = Session(pool)
    if failure is not None:
        raise failure
    return _session


def restart() -> Pool:
    """Start a pool like the one that was lost, and make it the current one.

    If it does not start, fewer workers are tried, down to one; of several hosts, one is left out.
    The lost pool stays the current one until another has started. Raises the error of the first try
    if none starts.
    """
    global _options
    from magmath.runtime import start_pool

    assert _options is not None
    first: Exception | None = None
    with _starting:
        if current_engine is not None:
            current_engine.pool.close()
        for options in _smaller_pools(_options):
            try:
                pool = start_pool(options)
            except (WorkerError, WorkerLost) as error:
                first = first or error
                continue
            _options = options
            set_current_pool(pool)
            if _session is not None:
                _session.pool = pool  # ends with the block of the session
            return pool
    assert first is not None
    raise first


def _smaller_pools(options: PoolOptions) -> Iterator[PoolOptions]:
    """Yield the options, then with fewer workers, down to one, or without one of the hosts: then
    the others have as many workers as before."""
    from magmath.runtime.hosts import parse_hosts

    yield options
    if options.hosts is None:
        for count in range(options.workers - 1, 0, -1):
            yield replace(options, workers=count)
        return
    hosts = str(parse_hosts(options.hosts, options.workers)).split(",")
    for left_out in hosts if len(hosts) > 1 else ():
        yield replace(options, hosts=[host for host in hosts if host != left_out], workers=0)


def set_current_pool(pool: Pool) -> Engine:
    """Make `pool` the current pool; return its engine."""
    global current_engine
    current_engine = Engine(pool)
    current_engine.profiler = _profiler
    return current_engine


@contextmanager
def profiling(profiler: Callable[[RunHandle], object]) -> Iterator[None]:
    """Measure runs in a `with` block and give them to a function, also those of pools that start in
    the block."""
    global _profiler
    first, former = current_engine, _profiler
    _profiler = profiler
    if first is not None:
        first.profiler = profiler
    try:
        yield
    finally:
        _profiler = former
        for engine_of_block in (first, current_engine):
            if engine_of_block is not None:
                engine_of_block.profiler = former


def shutdown() -> None:
    """End the current pool, if any, after its workers have finished all commands.

    Raises failures that have not been raised yet; the pool is closed even then.
    """
    _close(finish=True)


def _close(finish: bool) -> None:
    global current_engine
    if current_engine is None:
        return
    pool, current_engine = current_engine.pool, None
    try:
        if finish:
            pool.finish()
    finally:
        pool.close()


def engine() -> Engine:
    """Return the engine of the current pool; starts the in-process worker if no pool exists."""
    if current_engine is None:
        with _starting:
            if current_engine is None:  # no other thread has started a pool
                init()
        assert current_engine is not None
    elif current_engine.pool.closed:
        raise WorkerLost(current_engine.pool.end_reason)
    return current_engine


def has_open_pool() -> bool:
    """Return True if there is a current pool whose workers this process can reach."""
    return current_engine is not None and current_engine.pool.end_reason is None


def deferred_interrupts() -> AbstractContextManager[None]:
    """Defer Ctrl-C until the end of the context, for a write and what follows from it: see
    `Pool.defer_interrupts`. Without a pool, return a context that does nothing."""
    engine = current_engine
    if engine is None or engine.pool.closed:
        return nullcontext()
    return engine.pool.defer_interrupts()


def has_fallible_runs() -> bool:
    """Return True if a run of the current pool can fail for its data, or has failed."""
    return current_engine is not None and current_engine.runs.has_fallible_runs


def leaf_of_new_node(node: Node) -> Node | None:
    """Return an input leaf with the value of a new node if it is small and computed at once;
    otherwise, and without a pool, None."""
    engine = current_engine
    return None if engine is None else engine.eager_computation.leaf_of_new_node(node)


def argument_leaf(node: Node) -> Node | None:
    """Return an input leaf with the value of a new argument of a differentiated function, if it is
    small and no function is traced; otherwise None."""
    engine = current_engine
    if engine is None or tracing.current() is not None:
        return None
    return engine.eager_computation.argument_leaf(node)


def eager_indexing() -> EagerComputation | None:
    """Return the `EagerComputation` of the pool for indexing, which reads and writes parts of small
    arrays without expressions; None while a function is traced or differentiated."""
    return None if KEPT.value is not None else eager_computation()


def eager_computation() -> EagerComputation | None:
    """Return the `EagerComputation` of the pool, which computes small arrays at once; None while a
    function is traced."""
    engine = current_engine
    if engine is None or engine.pool.closed:
        return None
    eager = engine.eager_computation
    return eager if eager.max_eager_bytes and tracing.TRACE.value is None else None


def _pool_size() -> int:
    return 0 if current_engine is None else current_engine.pool.workers


def pool() -> Pool:
    """Return the current pool, with its workers, mesh, devices and counters.

    It prints as a short description.
    """
    return engine().pool


atexit.register(shutdown)
set_printed_pool_size(_pool_size)
