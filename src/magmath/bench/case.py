"""What a benchmark consists of: cases, systems, and the comparisons that are asked of them.

All of it is plain data, so that the list of benchmarks is read without loading anything.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

Parameters = dict[str, Any]


@dataclass(frozen=True)
class RunOptions:
    """What the command line chose.

    `peers` may also be ("all",) or ("none",). `cases` are texts of which a case's name has one; all
    cases where there are none. `pythons` are the interpreters that a peer is looked for in, one
    after the other.
    """

    peers: tuple[str, ...] = ("all",)
    workers: int = 2
    quick: bool = False
    cases: tuple[str, ...] = ()
    pythons: tuple[str, ...] = (sys.executable,)

    @property
    def rounds(self) -> int:
        return 3 if self.quick else 7


def supports_all(case: Case) -> str:
    """Of systems that take part in every case."""
    return ""


@dataclass(frozen=True)
class System:
    """Something that is measured: a factory of contestants, and the processes it runs in.

    `peer` is the name for `--peers`; it is empty for magmath itself and for what only serves as
    a measure, such as the rate of the bare GEMMs. `settings` join the parameters of each case.
    `unsupported_reason` says why it takes no part in a case; nothing if it does.
    """

    name: str
    factory: str
    peer: str = ""
    processes: int = 1
    launcher: Literal["direct", "mpiexec"] = "direct"
    settings: Parameters = field(default_factory=dict)
    unsupported_reason: Callable[[Case], str] = supports_all


@dataclass(frozen=True)
class Case:
    """One workload. A round does `work` units of it, whatever the system.

    Cases of one `group` belong together in a plot, along `x`.
    """

    name: str
    parameters: Parameters
    work: float
    unit: Literal["images/s", "GB/s", "GFLOP/s", "s"]
    group: str
    x: float


@dataclass(frozen=True)
class Comparison:
    """A figure made from the rounds of system `own` and the best of `others`, round by round.

    "ratio": the others' time over ours, to be at least `mark(case)`. "excess": our time minus
    theirs in seconds, to be at most `mark(case)`.
    """

    title: str
    own: str
    others: tuple[str, ...]
    mark: Callable[[Case], float | None]
    kind: Literal["ratio", "excess"] = "ratio"


@dataclass(frozen=True)
class Bench:
    """A benchmark: its name on the command line, and what depends on the options.

    `x_name` says what the `x` of its cases is.
    """

    name: str
    title: str
    x_name: str
    cases: Callable[[RunOptions], list[Case]]
    systems: Callable[[RunOptions], list[System]]
    comparisons: Callable[[RunOptions], list[Comparison]]


def constant_mark(mark: float) -> Callable[[Case], float | None]:
    """A mark that is the same for every case."""
    return lambda case: mark
