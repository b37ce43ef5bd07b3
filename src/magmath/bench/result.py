"""The result of a benchmark run: every round of every system, and the comparisons."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from statistics import geometric_mean, median
from typing import Any, Literal, final

from magmath.bench.case import Case, Comparison, Plot
from magmath.errors import ExperimentError


@final
@dataclass
class SystemResult:
    """One system in one case: the `seconds` of each round, the `record` of the system, and the
    `peak_bytes` of each measurement of memory."""

    state: Literal["measured", "absent", "failed", "left out"]
    reason: str = ""
    seconds: list[float] = field(default_factory=list)
    record: dict[str, Any] = field(default_factory=dict)
    peak_bytes: list[int] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The median of the seconds."""
        return median(self.seconds)


@final
@dataclass
class ComparisonResult:
    """A comparison's values, one for each round, and whether their median reaches the mark."""

    title: str
    kind: Literal["ratio", "excess"]
    rounds: list[float]
    mark: float | None

    @property
    def median(self) -> float:
        """The median of the rounds."""
        return median(self.rounds)

    @property
    def has_reached_mark(self) -> bool | None:
        """True if the median reaches the mark; None without a mark."""
        if self.mark is None:
            return None
        return self.median >= self.mark if self.kind == "ratio" else self.median <= self.mark


@final
@dataclass
class CaseResult:
    """Every system in one case."""

    case: Case
    systems: dict[str, SystemResult]
    figures: list[ComparisonResult]

    @property
    def name(self) -> str:
        """The name of the case."""
        return self.case.name

    @property
    def group(self) -> str:
        """The group of the case, whose cases are in one plot."""
        return self.case.group

    @property
    def unit(self) -> str:
        """The unit of rates."""
        return self.case.unit

    def measured(self) -> list[str]:
        """Return the names of the systems that have not failed."""
        return [name for name, system in self.systems.items() if system.state == "measured"]

    def rate(self, name: str) -> float:
        """Return work per second by the median round; for the unit "s", the seconds per unit of
        work."""
        seconds, work = self.systems[name].median, self.case.work
        return seconds / work if self.unit == "s" else work / seconds

    def disagreement(self) -> dict[str, float]:
        """Return the losses or checks by system if they differ by more than rounding; otherwise
        empty."""
        values = {
            name: float(result.record[key])
            for name, result in self.systems.items()
            for key in ("loss", "check")
            if key in result.record
        }
        if not values:
            return {}
        low, high = min(values.values()), max(values.values())
        agree = high - low <= self.case.tolerance * abs(high)
        return {} if agree and math.isfinite(high) else values


@final
@dataclass(frozen=True)
class RatioSummary:
    """The medians of one ratio over the cases of a group, or over "all cases": their geometric
    mean, and the worst case."""

    group: str
    title: str
    geometric_mean: float
    worst: float
    worst_case: str


@final
@dataclass
class BenchResult:
    """A complete run, with the information that is needed to assess and repeat it."""

    bench: str
    title: str
    x_name: str
    quick: bool
    rounds: int
    date: str
    command: str
    commit: str | None
    machine: dict[str, str | int]
    environment: dict[str, str]
    versions: dict[str, str]
    absent: dict[str, str]
    interrupted: bool
    cases: list[CaseResult]
    plot: Plot = "rates"

    def as_data(self) -> dict[str, Any]:
        """Return plain data for JSON, including medians and verdicts."""
        data = asdict(self) | {"summaries": [asdict(summary) for summary in self.summaries()]}
        for case, plain in zip(self.cases, data["cases"], strict=True):
            for figure, record in zip(case.figures, plain["figures"], strict=True):
                record |= {"median": figure.median, "reached": figure.has_reached_mark}
            for name, system in case.systems.items():
                if system.state == "measured":
                    plain["systems"][name] |= {"median": system.median, "rate": case.rate(name)}
        return data

    def summaries(self) -> list[RatioSummary]:
        """Return a summary of each ratio for each group in which several cases have it, and for all
        cases if there are several such groups."""
        groups = dict.fromkeys(case.group for case in self.cases)
        summaries = [
            summary
            for group in groups
            for summary in _summaries(group, [c for c in self.cases if c.group == group])
        ]
        several = len({summary.group for summary in summaries}) != 1
        return [*summaries, *(_summaries("all cases", self.cases) if several else ())]

    def raise_if_incomplete(self) -> None:
        """Raise ExperimentError if a system failed or results differ; KeyboardInterrupt if the run
        was interrupted."""
        failed = [
            f"{name} failed in {case.name!r}: {result.reason}"
            for case in self.cases
            for name, result in case.systems.items()
            if result.state == "failed"
        ]
        differing = [
            f"results differ in {case.name!r}: {values}"
            for case in self.cases
            if (values := case.disagreement())
        ]
        if failed or differing:
            raise ExperimentError(f"bench {self.bench}: " + "\n".join(failed + differing))
        if self.interrupted:
            raise KeyboardInterrupt


def compare_systems(
    case: Case, systems: dict[str, SystemResult], comparisons: list[Comparison]
) -> list[ComparisonResult]:
    """Return the comparisons between measured systems."""
    return [
        figure
        for comparison in comparisons
        if (figure := _compare(case, systems, comparison)) is not None
    ]


def _compare(
    case: Case, systems: dict[str, SystemResult], comparison: Comparison
) -> ComparisonResult | None:
    measured: dict[str, list[float]] = {
        name: getattr(system, comparison.quantity)
        for name, system in systems.items()
        if system.state == "measured"
    }
    own_rounds = measured.get(comparison.own)
    other_rounds = [measured[name] for name in comparison.others if name in measured]
    if own_rounds is None or not other_rounds:
        return None
    best = [min(rounds) for rounds in zip(*other_rounds, strict=True)]
    pairs = list(zip(own_rounds, best, strict=True))
    ratio = comparison.kind == "ratio"
    rounds = [
        best_value / own_value if ratio else own_value - best_value
        for own_value, best_value in pairs
    ]
    return ComparisonResult(comparison.title, comparison.kind, rounds, comparison.mark(case))


def _summaries(group: str, cases: Iterable[CaseResult]) -> Iterator[RatioSummary]:
    ratios: dict[str, dict[str, float]] = {}
    for case in cases:
        for figure in case.figures:
            if figure.kind == "ratio":
                ratios.setdefault(figure.title, {})[case.name] = figure.median
    for title, values in ratios.items():
        if len(values) > 1:
            worst = min(values, key=values.__getitem__)
            yield RatioSummary(group, title, geometric_mean(values.values()), values[worst], worst)
