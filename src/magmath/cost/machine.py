"""The machine: the measured constants of the hardware that all predictions use.

`magmath calibrate` measures them once per machine, for the processors that it may use there, and
stores them in the cache directory. The defaults describe a typical server; plans depend more on the
ratios of the constants than on their values.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from math import ceil, inf, prod
from typing import Final, final

import msgspec

from magmath.core.cpu import cpu_name
from magmath.core.disk_cache import DiskCache
from magmath.core.dtypes import DType
from magmath.core.resources import memory_share, processor_count
from magmath.cost.collective_costs import Level
from magmath.cost.link import Link
from magmath.cost.operation_rate import OperationRate

MACHINES: Final = DiskCache("machine")
DIVISION_FLOPS: Final = 3.0
"""Operations per element from which an element-wise operation counts as a division or a root."""
TRANSCENDENTAL_FLOPS: Final = 8.0
"""Operations per element from which it counts as transcendental, such as exp and sin."""


SHARED: Final = Link(latency=2e-6, bandwidth=2e10, shared_memory=True, barrier=2e-6)
MESSAGES: Final = Link(latency=2e-5, bandwidth=2e9, shared_memory=False, barrier=2e-5)
TEAM: Final = Link(latency=1e-6, bandwidth=3e10, shared_memory=True, barrier=1e-6)


@final
@dataclass(frozen=True)
class GemmRate:
    """The speed of large matrix products of one type: arithmetic operations per second."""

    dtype: str
    threads: int
    flops: float


@final
@dataclass(frozen=True)
class Machine:
    """The hardware of one host, and its network. Rates are per second and per thread unless stated
    otherwise; a GPU counts as one thread.

    gemm             speeds of large matrix products
    operations       measured speeds of single operations; others are predicted from the rates
    bandwidth        bytes of memory that one thread reads and writes
    host_bandwidth   the same for all workers of the innermost level together; inf if each worker
                     has its own memory
    arithmetic       elements of simple element-wise operations (add, multiply, maximum) in cache
    division         elements of divisions and square roots
    transcendental   elements of exp, log, sin and others
    call_seconds     fixed time of one kernel call
    control_seconds  time from a request to a worker process to its answer
    shared           link between workers that read one another's memory
    messages         link between workers that exchange messages
    team             link between threads of one worker
    exchange_seconds time that a collective kernel adds for each exchange
    panel_seconds    the same for kernels that pass panels on and wait for one another
    lapack_scaling   share of their speed that threads reach within LAPACK
    cache            bytes of the last cache of the host
    crowding         factor of the time of arithmetic while all processors of the host compute
    crowded_barrier  seconds of a barrier of more workers than the host has processors
    memory           bytes of memory of one worker
    levels           the levels of the network, from the links of single workers to those of hosts
    processors       independent processors of a worker's device, which compute tiles of a product
                     concurrently; 1 for a processor core
    tile             rows and columns of such a tile
    source           origin of the constants: "default", or the processor that was measured
    """

    gemm: tuple[GemmRate, ...] = (GemmRate("float32", 1, 1e11),)
    operations: tuple[OperationRate, ...] = ()
    bandwidth: float = 1e10
    host_bandwidth: float = 1e12
    arithmetic: float = 1e11
    division: float = 2e10
    transcendental: float = 1e10
    call_seconds: float = 2e-6
    control_seconds: float = 1e-4
    shared: Link = SHARED
    messages: Link = MESSAGES
    team: Link = TEAM
    exchange_seconds: float = 3e-5
    panel_seconds: float = 1e-4
    lapack_scaling: float = 0.75
    cache: float = 3.2e7
    crowding: float = 1.0
    crowded_barrier: float = 5e-5
    memory: float = 4e9
    levels: tuple[Level, ...] = (Level("host", 0, SHARED.bandwidth, SHARED.latency),)
    processors: int = 1
    tile: tuple[int, int] = (1, 1)
    source: str = "default"

    @property
    def max_workers(self) -> float:
        """The number of workers that all levels connect; inf if one connects any number."""
        return prod(level.fan_out or inf for level in self.levels)

    def gemm_flops(self, dtype: DType, threads: int) -> float:
        """Return the operations per second of large products of a type on this many threads.

        A type that was not measured has the speed of the first one that was; a number of threads
        that was not measured that of the nearest one.
        """
        measured = {rate.dtype for rate in self.gemm}
        name = dtype.name if dtype.name in measured else self.gemm[0].dtype
        rates = [rate for rate in self.gemm if rate.dtype == name]
        return min(rates, key=lambda rate: abs(rate.threads - threads)).flops

    def operation_rate(self, name: str, threads: int) -> OperationRate | None:
        """Return the measured speed of an operation on this many threads, or on the nearest
        measured number; None for an operation that was not measured."""
        rates = self._rates.get(name, ())
        return min(rates, key=lambda rate: abs(rate.threads - threads), default=None)

    @cached_property
    def _rates(self) -> dict[str, list[OperationRate]]:
        rates: dict[str, list[OperationRate]] = {}
        for rate in self.operations:
            rates.setdefault(rate.name, []).append(rate)
        return rates

    def tile_efficiency(self, rows: float, columns: float, parts: float = 1.0) -> float:
        """Return the share of full speed for a product with a result of this shape.

        A kernel computes whole tiles, and as many of them concurrently as the device has
        processors; the last tiles leave processors idle (wave quantization). `parts`: largest
        number of parts into which the summed dimension may be divided in addition.
        """
        across, down = ceil(columns / self.tile[1]), ceil(rows / self.tile[0])
        tiles = across * down * max(1, min(int(parts), -(-self.processors // (across * down))))
        filled = rows * columns / (across * down * self.tile[0] * self.tile[1])
        return filled * tiles / (ceil(tiles / self.processors) * self.processors)

    def elementwise_seconds(self, elements: float, flops: float, threads: int) -> float:
        """Return the seconds of an element-wise operation of `flops` operations per element, in
        cache."""
        rate = self.arithmetic
        if flops >= TRANSCENDENTAL_FLOPS:
            rate = self.transcendental
        elif flops >= DIVISION_FLOPS:
            rate = self.division
        return elements / (rate * threads)

    def worker_bandwidth(self, workers: int, threads: int) -> float:
        """Return the bytes of memory per second for each of several workers of a host that compute
        concurrently."""
        return min(self.bandwidth * threads, self.host_bandwidth / workers)


DEFAULT_MACHINE: Final = Machine()


def calibration_remark(source: str) -> str:
    """Return a remark to a prediction by the constants of this source, if they are the defaults."""
    if source != DEFAULT_MACHINE.source:
        return ""
    return " (predicted for a typical server; `magmath calibrate` measures this one)"


def current_machine() -> Machine:
    """Return the constants that were measured on this machine with the processors that this process
    may use, and the memory that it may use now; otherwise the defaults."""
    content = MACHINES.read(_name())
    if content is None:
        return DEFAULT_MACHINE
    try:
        machine = msgspec.json.decode(content, type=Machine)
    except msgspec.MsgspecError:  # written by another version
        return DEFAULT_MACHINE
    return replace(machine, memory=memory_of_a_worker())


def memory_of_a_worker() -> float:
    """Return the bytes of arrays that one of as many workers as processors may have."""
    return float(memory_share(processor_count()))


def store_machine(machine: Machine) -> None:
    """Store measured constants for this and later processes of this machine that may use as many
    processors."""
    MACHINES.write(_name(), msgspec.json.encode(machine))


def _name() -> str:
    """Return the name of this machine's entry in the cache."""
    fields = ",".join(Machine.__dataclass_fields__)
    description = f"{cpu_name()}, {processor_count()} processors, {fields}"
    return sha256(description.encode()).hexdigest()[:32]
