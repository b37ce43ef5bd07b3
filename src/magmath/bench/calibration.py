"""Calibration: measures the constants of the cost model (`cost/machine.py`) on this machine.

Arithmetic and memory are measured in this process. Links are measured by the moves of programs of
two worker processes, one pool that shares memory and one that exchanges messages. Every constant is
the best of several rounds, since what else runs on the machine only adds time.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, NamedTuple, final

import numpy as np
import torch

import magmath as mm
from magmath.bench.operation_calibration import operation_rates
from magmath.core.cpu import cpu_name
from magmath.cost import DEFAULT_MACHINE, GemmRate, Level, Link, Machine, OperationRate
from magmath.engine import session
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
STEPS: Final = (
    "matrix products",
    "memory",
    "element-wise operations",
    "operations on one thread",
    "operations on all threads",
    "contention",
    "shared memory",
    "messages",
)


def calibrate(report: Report) -> Machine:
    """Return the machine with all constants that can be measured; a current pool is shut down."""
    machine = replace(DEFAULT_MACHINE, source=cpu_name(), memory=_memory_of_a_worker())
    report(STEPS[0])
    machine = replace(machine, gemm=tuple(_gemm_rates()))
    report(STEPS[1])
    bandwidth = _bandwidth(1)
    host = max(
        bandwidth, _bandwidth(_processors())
    )  # a busy machine must not seem slower by threads
    machine = replace(machine, bandwidth=bandwidth, host_bandwidth=host)
    report(STEPS[2])
    machine = _with_elementwise(machine)
    mm.shutdown()
    rates: list[OperationRate] = []
    for step, threads in zip(STEPS[3:5], sorted({1, _processors()}), strict=False):
        report(step)
        rates += operation_rates(machine, threads)
    machine = replace(machine, operations=tuple(rates), cache=_cache_bytes())
    report(STEPS[5])
    machine = replace(machine, crowding=_contention(), crowded_barrier=_crowded_barrier(machine))
    report(STEPS[6])
    with mm.init(workers=2, device="cpu"):
        shared = _link(machine.shared)
        level = Level("host", 0, shared.bandwidth, max(shared.barrier, shared.latency))
        machine = replace(
            machine, shared=shared, levels=(level,), control_seconds=_control_seconds()
        )
    report(STEPS[7])
    command = (sys.executable, "-m", "magmath.bench.simulated_network", "host")
    session.set_current_pool(
        Pool(ProcessTransport(2, WorkerOptions("cpu", 1), worker_command=command))
    )
    try:
        return replace(machine, messages=_link(machine.messages))
    finally:
        mm.shutdown()


def _processors() -> int:
    return len(os.sched_getaffinity(0))


def _memory_of_a_worker() -> float:
    """Return the bytes of memory that one of as many workers as processors has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / _processors()


def _cache_bytes() -> float:
    """Return the bytes of the last cache; the default where the system does not tell."""
    for name in ("SC_LEVEL3_CACHE_SIZE", "SC_LEVEL2_CACHE_SIZE"):
        found = os.sysconf(name) if name in os.sysconf_names else 0
        if found > 0:
            return float(found)
    return DEFAULT_MACHINE.cache


def _contention() -> float:
    """Return the factor of the time of a product while one is computed on each processor."""
    processors = _processors()
    a = torch.ones((_CROWDED_EXTENT, _CROWDED_EXTENT))

    def seconds(end: float) -> list[float]:
        out, found = torch.empty_like(a), []
        while time.perf_counter() < end:
            start = time.perf_counter()
            torch.mm(a, a, out=out)
            found.append(time.perf_counter() - start)
        return found

    def quick(found: list[float]) -> float:  # other programs only add time
        return sorted(found)[len(found) // 10]

    with _threads(1), ThreadPoolExecutor(processors) as pool:
        alone = quick(seconds(time.perf_counter() + _ROUND_SECONDS))
        end = time.perf_counter() + 2 * _ROUND_SECONDS
        crowded = [
            quick(f.result()) for f in [pool.submit(seconds, end) for _ in range(processors)]
        ]
    return max(1.0, sum(crowded) / len(crowded) / alone)


def _crowded_barrier(machine: Machine) -> float:
    """Return the least seconds of a barrier of two workers for each processor.

    Waits for workers that compute on the same processor depend on what the system lets run, so it
    is the time that barriers add to a program: between two lengths of a chain of moves, less the
    time of the calls, which take turns on the processors.
    """
    with warnings.catch_warnings():  # more workers than processors, as intended
        warnings.simplefilter("ignore", RuntimeWarning)
        with mm.init(workers=2 * _processors(), device="cpu", threads=1):
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


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Within, torch computes with this number of threads."""
    former = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(former)


def _gemm_rates() -> Iterator[GemmRate]:
    """Return the speeds of large products of the types that BLAS has, on one thread and on all."""
    for dtype in (torch.float32, torch.float64, torch.complex64, torch.complex128):
        a = torch.ones((_GEMM_EXTENT, _GEMM_EXTENT), dtype=dtype)
        out = torch.empty_like(a)
        flops = 2 * _GEMM_EXTENT**3  # as operations count theirs, whatever the type
        for threads in sorted({1, _processors()}):
            with _threads(threads):
                seconds = _best(lambda a=a, out=out: torch.mm(a, a, out=out))  # type: ignore[misc]
            yield GemmRate(str(dtype).removeprefix("torch."), threads, flops / seconds)


def _bandwidth(threads: int) -> float:
    """Bytes per second that threads read and write in all."""
    source = torch.zeros(_LARGE_BYTES, dtype=torch.uint8)
    target = torch.zeros_like(source)
    with _threads(threads):
        return 2 * _LARGE_BYTES / _best(lambda: target.copy_(source))


def _with_elementwise(machine: Machine) -> Machine:
    """Return the machine with rates of the classes of element-wise operations, and the time of a
    call."""
    x = torch.full((_CACHED,), 1.5)
    out, one = torch.empty_like(x), torch.ones(1)
    with _threads(1):
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
    found: dict[str, float] = {}
    for number in range(_MOVES):
        rows = mm.full(shape, float(number), dtype=mm.float32, layout=mm.Layout.split(0))
        mm.evaluate(rows)
        with mm.profile() as profile:
            columns = rows.redistribute(mm.Layout.split(1))
            mm.evaluate((columns + 1.0).redistribute(mm.Layout.split(0)))  # a barrier in between
        for run in profile.runs:
            for step in run.instructions:
                kind = "barrier" if step.operation == "barrier" else "move"
                if step.measured is not None:
                    found[kind] = min(step.measured, found.get(kind, step.measured))
    return found


def _control_seconds() -> float:
    """Return the time from a request to the workers to its answer, of a program that computes
    nothing large."""
    add = mm.compile(lambda x: mm.sum(x + 1))
    x: Any = mm.ones(2)
    return _best(lambda: float(add(x)))
