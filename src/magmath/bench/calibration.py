"""Calibration: measures the constants of the cost model (`cost/machine.py`) on this machine.

Arithmetic and memory are measured in this process. Links are measured by the moves of programs of
two worker processes, one pool that shares memory and one that exchanges messages. Every constant is
the best of several rounds, since what else runs on the machine only adds time.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final, NamedTuple, final

import numpy as np
import torch

import magmath as mm
from magmath.bench.operation_calibration import operation_rates
from magmath.core.cpu import cache_sizes, cpu_name
from magmath.core.python_processes import module_command
from magmath.core.resources import processor_count
from magmath.cost import DEFAULT_MACHINE, GemmRate, Level, Link, Machine
from magmath.cost.machine import memory_of_a_worker
from magmath.engine import session
from magmath.kernels.thread_count import torch_threads
from magmath.runtime.pool import Pool
from magmath.runtime.transport.processes import ProcessTransport
from magmath.runtime.transport_interface import WorkerOptions

_GEMM_EXTENT: Final = 768
_CALLS: Final = 5
_LARGE_BYTES: Final = 1 << 26  # of an array that no cache holds
_CACHED: Final = 1 << 13  # elements of an array that the first cache holds
_ROUND_SECONDS: Final = 0.1
_CROWDED_EXTENT: Final = 256
_MOVES: Final = 8  # rounds of each move
_MOVED: Final = ((64, 64), (2048, 2048))  # shapes: latency counts, and bandwidth counts
_CHAINS: Final = (4, 36)  # moves of a program whose barriers are measured

Report = Callable[[str], None]
"""Receives the name of each constant before it is measured."""


def calibrate(report: Report) -> Machine:
    """Return the machine with all constants that can be measured; a current pool is shut down."""
    mm.shutdown()
    machine = replace(DEFAULT_MACHINE, source=cpu_name(), memory=memory_of_a_worker())
    for name, with_constants in STEPS.items():
        report(name)
        machine = with_constants(machine)
    return machine


def _with_products(machine: Machine) -> Machine:
    """Return the machine with the speeds of matrix products."""
    return replace(machine, gemm=tuple(_gemm_rates()))


def _with_memory(machine: Machine) -> Machine:
    """Return the machine with the bandwidths of its memory and the size of its last cache."""
    bandwidth = _bandwidth(1)
    all_threads = _bandwidth(processor_count())  # which a busy machine must not make seem slower
    return replace(
        machine,
        bandwidth=bandwidth,
        host_bandwidth=max(bandwidth, all_threads),
        cache=_cache_bytes(),
    )


def _with_operations_on_one_thread(machine: Machine) -> Machine:
    return replace(machine, operations=tuple(operation_rates(machine, 1)))


def _with_operations_on_all_threads(machine: Machine) -> Machine:
    threads = processor_count()
    rates = operation_rates(machine, threads) if threads > 1 else ()
    return replace(machine, operations=(*machine.operations, *rates))


def _with_contention(machine: Machine) -> Machine:
    """Return the machine with the times of workers that share its processors."""
    return replace(machine, crowding=_contention(), crowded_barrier=_crowded_barrier(machine))


def _with_shared_memory(machine: Machine) -> Machine:
    """Return the machine with the link between workers that share memory."""
    with mm.init(workers=2, device="cpu"):
        shared = _link(machine.shared)
        control_seconds = _control_seconds()
    level = Level("host", 0, shared.bandwidth, max(shared.barrier, shared.latency))
    return replace(machine, shared=shared, levels=(level,), control_seconds=control_seconds)


def _with_messages(machine: Machine) -> Machine:
    """Return the machine with the link between workers that exchange messages."""
    command = (*module_command("magmath.bench.simulated_network"), "host")
    session.set_current_pool(
        Pool(ProcessTransport(2, WorkerOptions("cpu", 1), worker_command=command))
    )
    try:
        return replace(machine, messages=_link(machine.messages))
    finally:
        mm.shutdown()


def _cache_bytes() -> float:
    """Return the bytes of the last cache; the default where the system does not tell."""
    return float(max(cache_sizes().values(), default=DEFAULT_MACHINE.cache))


def _contention() -> float:
    """Return the factor of the time of a product while one is computed on each processor."""
    processors = processor_count()
    a = torch.ones((_CROWDED_EXTENT, _CROWDED_EXTENT))

    def product_seconds(end: float) -> float:
        """Return the tenth percentile of repeated products: other programs only add time."""
        out, seconds = torch.empty_like(a), []
        while time.perf_counter() < end:
            start = time.perf_counter()
            torch.mm(a, a, out=out)
            seconds.append(time.perf_counter() - start)
        return sorted(seconds)[len(seconds) // 10]

    with torch_threads(1), ThreadPoolExecutor(processors) as pool:
        alone = product_seconds(time.perf_counter() + _ROUND_SECONDS)
        end = time.perf_counter() + 2 * _ROUND_SECONDS
        runs = [pool.submit(product_seconds, end) for _ in range(processors)]
        crowded = [run.result() for run in runs]
    return max(1.0, sum(crowded) / len(crowded) / alone)


def _crowded_barrier(machine: Machine) -> float:
    """Return the least seconds of a barrier of two workers for each processor.

    Waits for workers that compute on the same processor depend on what the system lets run, so it
    is the time that barriers add to a program: between two lengths of a chain of moves, less the
    time of the calls, which take turns on the processors.
    """
    with warnings.catch_warnings():  # more workers than processors, as intended
        warnings.simplefilter("ignore", RuntimeWarning)
        with mm.init(workers=2 * processor_count(), device="cpu", threads=1):
            short, long = (_chain_seconds(length) for length in _CHAINS)
    barriers = long.barriers - short.barriers
    added = long.seconds - short.seconds - 2 * (long.calls - short.calls)
    return max(added / barriers, machine.shared.barrier) if barriers else machine.crowded_barrier


@final
class _Chain(NamedTuple):
    """The seconds of a chain of moves, the number of its barriers, and the seconds of its calls on
    one worker."""

    seconds: float
    barriers: int
    calls: float


def _chain_seconds(length: int) -> _Chain:
    """Measure a compiled chain of moves of a small array, on the current pool."""

    @mm.compile
    def chain(x: Any) -> Any:
        for axis in range(1, length + 1):
            x = (x + 1.0).redistribute(mm.Layout.split(axis % 2))
        return x

    rows = mm.zeros(_MOVED[0], dtype=mm.float32, layout=mm.Layout.split(0))
    barriers, best = 0, [float("inf")]
    for _ in range(_MOVES):
        with mm.profile() as profile:
            mm.evaluate(chain(rows), wait=True)
        steps = profile.instructions
        barriers = sum(step.operation == "barrier" for step in steps)
        calls = [min(step.by_worker) for step in steps if step.operation != "barrier"]
        best = list(map(min, best, calls)) if len(best) == len(calls) else calls
    return _Chain(_best(lambda: mm.evaluate(chain(rows), wait=True)), barriers, sum(best))


def _best(work: Callable[[], object]) -> float:
    """Return the seconds of the fastest of a few calls at least, and of as many as a short time
    allows."""
    work()
    calls, best, end = 0, float("inf"), time.perf_counter() + _ROUND_SECONDS
    while calls < _CALLS or time.perf_counter() < end:
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
        calls += 1
    return best


def _gemm_rates() -> Iterator[GemmRate]:
    """Return the speeds of large products of the types that BLAS has, on one thread and on all."""
    for dtype in (torch.float32, torch.float64, torch.complex64, torch.complex128):
        a = torch.ones((_GEMM_EXTENT, _GEMM_EXTENT), dtype=dtype)
        out = torch.empty_like(a)
        flops = 2 * _GEMM_EXTENT**3  # as operations count theirs, whatever the type
        for threads in sorted({1, processor_count()}):
            with torch_threads(threads):
                seconds = _best(lambda a=a, out=out: torch.mm(a, a, out=out))  # type: ignore[misc]
            yield GemmRate(str(dtype).removeprefix("torch."), threads, flops / seconds)


def _bandwidth(threads: int) -> float:
    """Bytes per second that threads read and write in all."""
    source = torch.zeros(_LARGE_BYTES, dtype=torch.uint8)
    target = torch.zeros_like(source)
    with torch_threads(threads):
        return 2 * _LARGE_BYTES / _best(lambda: target.copy_(source))


def _with_elementwise(machine: Machine) -> Machine:
    """Return the machine with rates of the classes of element-wise operations, and the time of a
    call."""
    x = torch.full((_CACHED,), 1.5)
    out, one = torch.empty_like(x), torch.ones(1)
    with torch_threads(1):
        call = _best(lambda: torch.add(one, one, out=one))

        def rate(work: Callable[[], object]) -> float:
            return _CACHED / max(_best(work) - call, 1e-9)

        return replace(
            machine,
            arithmetic=rate(lambda: torch.add(x, x, out=out)),
            division=rate(lambda: torch.div(x, x, out=out)),
            transcendental=rate(lambda: torch.exp(x, out=out)),
            call_seconds=call,
        )


def _link(default: Link) -> Link:
    """Return the link between the two workers of the current pool, from moves of blocks of rows to
    blocks of columns, in which each worker receives a quarter of the array."""
    small, large = (_move_seconds(shape) for shape in _MOVED)
    nbytes = (np.prod(_MOVED[1]) - np.prod(_MOVED[0])) * 4 / 4
    bandwidth = float(nbytes) / max(large["move"] - small["move"], 1e-9)
    barrier = small.get("barrier", default.barrier)
    latency = small["move"] if not default.shared_memory else default.latency
    return replace(default, latency=latency, bandwidth=bandwidth, barrier=barrier)


def _move_seconds(shape: tuple[int, int]) -> dict[str, float]:
    """Return the least seconds of a move of a float32 array, and of a barrier where there are
    any."""
    least: dict[str, float] = {}
    for number in range(_MOVES):
        rows = mm.full(shape, float(number), dtype=mm.float32, layout=mm.Layout.split(0))
        mm.evaluate(rows)
        with mm.profile() as profile:
            columns = rows.redistribute(mm.Layout.split(1))
            mm.evaluate((columns + 1.0).redistribute(mm.Layout.split(0)))  # a barrier in between
        steps = [step for run in profile.runs for step in run.instructions]
        for step in steps:
            if step.measured is not None:
                kind = "barrier" if step.operation == "barrier" else "move"
                least[kind] = min(step.measured, least.get(kind, step.measured))
    return least


def _control_seconds() -> float:
    """Return the time from a request to the workers to its answer, of a program that computes
    nothing large."""
    add = mm.compile(lambda x: mm.sum(x + 1))
    x: Any = mm.ones(2)
    return _best(lambda: float(add(x)))


STEPS: Final[Mapping[str, Callable[[Machine], Machine]]] = {
    "matrix products": _with_products,
    "memory": _with_memory,
    "element-wise operations": _with_elementwise,
    "operations on one thread": _with_operations_on_one_thread,
    "operations on all threads": _with_operations_on_all_threads,
    "contention": _with_contention,
    "shared memory": _with_shared_memory,
    "messages": _with_messages,
}
"""The steps of a calibration; each adds constants to a machine."""
