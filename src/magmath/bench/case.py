"""The parts of a benchmark: cases, systems, and comparisons between them.

All parts are plain data, so that listing the benchmarks loads no framework.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, final

# Losses after one epoch from the same weights differ by rounding, which training grows.
LOSS_TOLERANCE = 0.01

PEERS = "magmath.bench.peers"
"""The package of the contestants of other frameworks."""

Parameters = dict[str, Any]
Plot = Literal["rates", "ratios and growth", "simulation"]


@final
@dataclass(frozen=True)
class RunOptions:
    """The options of the command line.

    `peers` may also be ("all",) or ("none",). `cases`: substrings, one of which the name of a
    selected case contains; all cases if empty. `pythons`: the interpreters in which a peer is
    searched, in order. `hosts`: the hosts of the workers, as `mm.init` takes them, for benchmarks
    of the network; None: the network is simulated. `device`: "cpu", or "cuda" for benchmarks of
    networks.
    """

    peers: tuple[str, ...] = ("all",)
    workers: int = 2
    hosts: str | None = None
    device: str = "cpu"
    quick: bool = False
    cases: tuple[str, ...] = ()
    pythons: tuple[str, ...] = (sys.executable,)

    @property
    def rounds(self) -> int:
        """The number of rounds of a case."""
        return 3 if self.quick else 7

    @property
    def memory_runs(self) -> int:
        """The number of processes in which the memory of a case is measured."""
        return 1 if self.quick else 3


def on_cpu(case: Case) -> str:
    """Return a reason for cases on a GPU, for systems that are measured on processors alone."""
    return "" if case.parameters["device"] == "cpu" else "it is measured on processors"


def supports_all(case: Case) -> str:
    """Return an empty reason, for systems that support every case."""
    return ""


@final
@dataclass(frozen=True)
class System:
    """A measured system: a factory of contestants, and the processes that it runs in.

    `peer`: the name for `--peers`; empty for magmath itself and for reference measurements, such as
    the rate of bare GEMMs. `settings` are added to the parameters of each case, `environment` to
    the environment variables of its processes.
    `unsupported_reason` returns why the system skips a case, or an empty string.
    """

    name: str
    factory: str
    peer: str = ""
    processes: int = 1
    launcher: Literal["direct", "mpiexec"] = "direct"
    settings: Parameters = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    unsupported_reason: Callable[[Case], str] = supports_all


@final
@dataclass(frozen=True)
class Case:
    """One workload. A round does `work` units of it, for every system.

    Cases of one `group` are in one plot, along `x` if that is a size, otherwise by name. Losses and
    checks of systems that differ by more than `tolerance` are reported.
    """

    name: str
    parameters: Parameters
    work: float
    unit: Literal["images/s", "sequences/s", "GB/s", "GFLOP/s", "s"]
    group: str
    x: float
    tolerance: float = LOSS_TOLERANCE


@final
@dataclass(frozen=True)
class Comparison:
    """A comparison of system `own` with the best of `others`, round by round.

    "ratio": the time of the others divided by ours, at least `mark(case)`. "excess": our time minus
    theirs in seconds, at most `mark(case)`. `quantity`: the compared one, where it is not time.
    """

    title: str
    own: str
    others: tuple[str, ...]
    mark: Callable[[Case], float | None]
    kind: Literal["ratio", "excess"] = "ratio"
    quantity: Literal["seconds", "peak_bytes"] = "seconds"


@final
@dataclass(frozen=True)
class Bench:
    """A benchmark: its name on the command line, and functions of the options.

    `x_name`: the meaning of `x` of its cases. `plot`: a panel of rates for each group, or the
    ratios of all cases and the growth of their time along x, or simulated against measured
    seconds. `uses_hosts`: it can measure the network between hosts. `uses_gpus`: it can
    measure on a GPU. `measures_memory`: the peak of resident memory is measured too, in new
    processes.
    """

    name: str
    title: str
    x_name: str
    cases: Callable[[RunOptions], list[Case]]
    systems: Callable[[RunOptions], list[System]]
    comparisons: Callable[[RunOptions], list[Comparison]]
    plot: Plot = "rates"
    uses_hosts: bool = False
    uses_gpus: bool = False
    measures_memory: bool = False


def constant_mark(mark: float | None) -> Callable[[Case], float | None]:
    """Return a mark function that is the same for every case."""
    return lambda case: mark
