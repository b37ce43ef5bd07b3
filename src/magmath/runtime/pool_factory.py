"""Starting a pool: the choice of a transport, and the options of the workers."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import final

from magmath.core.byte_sizes import WORKSPACE_LIMIT
from magmath.core.gc_threshold import collect_less_often
from magmath.core.integers import require_integer, require_seed
from magmath.core.resources import processor_count
from magmath.errors import OptionError
from magmath.runtime.device import check_device_name, choose_device
from magmath.runtime.hosts import HostList, check_hosts, parse_hosts
from magmath.runtime.launch import check_launcher
from magmath.runtime.pool import Pool
from magmath.runtime.transport_interface import HEARTBEAT_TIMEOUT, Transport, WorkerOptions

FOLD_BIAS = ("auto", "separate", "epilogue", "realigned", "widened")
"""The forms in which plans add biases to products (`passes/fold_bias.py`)."""
MIN_MEMORY_LIMIT = 1 << 12
"""The smallest memory limit in bytes: a heap of 64 chunks, each of which holds some numbers."""


@final
@dataclass(frozen=True, slots=True)
class PoolOptions:
    """The options of a pool.

    workers        0: one worker inside this process; n: n processes
    device         "cpu", "cuda", or "auto": the GPUs if there are some, one for each worker
    threads        processor threads of each worker; by default the processors that this process
                   may use (`core/resources.py`) are divided among the workers of a host
    launcher       "mpiexec" (that of the mpich package, or the system's), "srun", a command in
                   which {n} stands for the number of workers, or "threads": a simulated pool
    hosts          names of the hosts on which "mpiexec" starts the workers, each with or without
                   its number of workers ("a:2"); with "threads", hosts that are simulated
    endpoint       the connection of processes to the controller: "ipc", "tcp" or "tcp://ADDRESS";
                   by default ipc for "mpiexec" on this host, otherwise tcp, encrypted
    deterministic  results have the same bits for any number of workers; each worker computes with
                   one thread, since several threads add in another order
    seed           the seed of the default generator of random numbers
    memory_limit   bytes that the arrays of one worker may use, at least MIN_MEMORY_LIMIT; by
                   default its share of the memory of its host (`core/resources.py`)
    winograd       convolutions may use Winograd's algorithms and Fourier transforms, except in
                   deterministic mode
    workspace_limit  maximum bytes of temporary memory of an algorithm for a convolution
    fold_bias      how plans add biases to products: one of FOLD_BIAS
    flush_denormals  numbers below the smallest normal one count as 0 in training steps
    heartbeat_timeout  seconds that a worker may be stopped, or its host silent, until it counts as
                       lost; None: no limit
    """

    workers: int = 0
    device: str = "auto"
    threads: int | None = None
    launcher: str | Sequence[str] = "mpiexec"
    hosts: Sequence[str] | str | None = None
    endpoint: str | None = None
    deterministic: bool = False
    memory_limit: int | None = None
    seed: int = 0
    winograd: bool = True
    workspace_limit: int = WORKSPACE_LIMIT
    fold_bias: str = "auto"
    flush_denormals: bool = True
    heartbeat_timeout: float | None = HEARTBEAT_TIMEOUT


def start_pool(options: PoolOptions) -> Pool:
    """Start a pool. Raises as `prepare_pool`, and WorkerError if the workers do not start."""
    return prepare_pool(options)()


def prepare_pool(options: PoolOptions) -> Callable[[], Pool]:
    """Check the options, as far as they can be checked before a worker starts; return a function
    that starts the pool.

    So a wrong option leaves a running pool as it is. Warns if there are more workers than
    processors, which they then share. Raises OptionError, DeviceError for a device that this
    machine does not have, and WorkerError if the launcher is missing or a host does not answer.
    """
    workers = require_integer("init: workers", options.workers, 0)
    seed = require_seed("init: seed", options.seed)
    limit = _memory_limit(options.memory_limit)
    workspace = require_integer("init: workspace_limit", options.workspace_limit, 0)
    _check_timeout(options.heartbeat_timeout)
    for name in ("deterministic", "winograd", "flush_denormals"):
        _check_switch(name, getattr(options, name))
    _check_fold_bias(options.fold_bias)
    launcher = options.launcher
    check_launcher(launcher)
    hosts = _parse_hosts(options.hosts, workers, launcher)
    workers = workers if hosts is None else hosts.workers
    # Other launchers may start workers on other hosts.
    is_local = launcher == "mpiexec" and hosts is None
    are_here = is_local or workers == 0 or launcher == "threads"
    check_device_name(options.device)
    if are_here:
        choose_device(options.device)
    worker_options = WorkerOptions(
        options.device,
        _threads(options, workers if are_here else 0),
        options.deterministic,
        limit,
        options.winograd,
        workspace,
        options.flush_denormals,
    )
    if hosts is not None and launcher == "mpiexec":
        check_hosts(hosts)
    transport = _transport(workers, options, worker_options, hosts)
    if is_local:
        _warn_about_shared_processors(workers)
    return partial(
        Pool,
        transport,
        deterministic=options.deterministic,
        seed=seed,
        memory_limit=limit,
        fold_bias=options.fold_bias,
    )


def _warn_about_shared_processors(workers: int) -> None:
    usable = processor_count()
    if workers > usable:
        warnings.warn(
            f"init: {workers} workers share {usable} processors of this machine and will "
            f"be slow; workers={usable} is the most that it can run at once",
            RuntimeWarning,
            stacklevel=5,  # the line that called mm.init, which has a decorator
        )


def _check_switch(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise OptionError(f"init: {name} must be True or False, was given {value!r}")


def _check_fold_bias(value: str) -> None:
    if value not in FOLD_BIAS:
        raise OptionError(f"init: fold_bias must be one of {FOLD_BIAS}, was given {value!r}")


def _memory_limit(value: int | None) -> int | None:
    """Return the memory limit. Raises OptionError for one that holds no arrays."""
    limit = _optional_integer("init: memory_limit, in bytes,", value)
    if limit is not None and limit < MIN_MEMORY_LIMIT:
        raise OptionError(
            f"init: memory_limit must be at least {MIN_MEMORY_LIMIT} bytes, which the smallest "
            f"programs need on a worker, was given {limit}; it is a number of bytes: 1 << 30 is "
            f"one GiB"
        )
    return limit


def _threads(options: PoolOptions, workers_here: int) -> int | None:
    """Return the threads of each worker; None if workers, of which none is known to be on this
    host, choose their number."""
    threads = _optional_integer("init: threads", options.threads)
    if options.deterministic:
        return 1
    if threads is None and workers_here:
        return max(1, processor_count() // workers_here)
    return threads


def _optional_integer(name: str, value: int | None) -> int | None:
    return None if value is None else require_integer(name, value, 1)


def _parse_hosts(
    hosts: Sequence[str] | str | None, workers: int, launcher: str | Sequence[str]
) -> HostList | None:
    """Return the list of hosts of the pool; None if the user gives none."""
    if hosts is None:
        return None
    if launcher not in ("mpiexec", "threads"):
        raise OptionError(
            f'init: hosts needs launcher="mpiexec" or "threads"; the launcher {launcher!r} takes '
            f"its hosts from its own options or from the job"
        )
    return parse_hosts(hosts, workers)


def _check_timeout(seconds: object) -> None:
    number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if seconds is not None and not (number and 0 < seconds < math.inf):  # type: ignore[operator]
        raise OptionError(
            "init: heartbeat_timeout must be a positive number of seconds, or None for no limit, "
            f"was given {seconds!r}"
        )


def _transport(
    workers: int, options: PoolOptions, worker_options: WorkerOptions, hosts: HostList | None
) -> Transport:
    collect_less_often()
    if workers == 0:
        from magmath.kernels.thread_count import shorten_waits
        from magmath.runtime.transport.inline import InlineTransport

        shorten_waits()
        return InlineTransport(worker_options)
    if options.launcher == "threads":
        from magmath.kernels.thread_count import shorten_waits
        from magmath.runtime.transport.threads import ThreadTransport

        shorten_waits()
        return ThreadTransport(
            workers, worker_options, hosts=None if hosts is None else hosts.of_worker
        )
    from magmath.runtime.transport.processes import ProcessTransport

    return ProcessTransport(
        workers,
        worker_options,
        launcher=options.launcher,
        endpoint=options.endpoint,
        heartbeat_timeout=options.heartbeat_timeout,
        hosts=hosts,
    )
