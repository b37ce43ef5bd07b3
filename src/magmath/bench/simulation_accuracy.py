"""The accuracy of simulated steps in a benchmark result: ratios, and the ranking of systems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple, final

if TYPE_CHECKING:
    from magmath.bench.result import BenchResult

MEDIAN_MARK = 0.05
"""Largest accepted median of the errors."""
WORST_MARK = 0.12
"""Largest accepted error."""
RANKING_MARK = 0.9
"""Least accepted rank correlation."""


@final
class SimulatedRow(NamedTuple):
    """The seconds of a step of a system: the fastest round, and the simulation."""

    case: str
    system: str
    measured: float
    simulated: float

    @property
    def ratio(self) -> float:
        """Simulated over measured seconds."""
        return self.simulated / self.measured

    @property
    def error(self) -> float:
        """The difference of the simulated seconds, as a share of the measured ones."""
        return abs(self.ratio - 1.0)


@final
@dataclass(frozen=True)
class SimulationAccuracy:
    """The rows of a result, and Kendall's τ of the ranking of the systems in each case with several
    workers."""

    rows: tuple[SimulatedRow, ...]
    rankings: dict[str, float]

    @property
    def median_error(self) -> float:
        """The median of the errors."""
        return median([row.error for row in self.rows])

    @property
    def worst(self) -> SimulatedRow:
        """The row with the largest error."""
        return max(self.rows, key=lambda row: row.error)

    def as_data(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        rows = [{**row._asdict(), "ratio": row.ratio} for row in self.rows]
        return {
            "rows": rows,
            "median_error": self.median_error,
            "worst_error": self.worst.error,
            "kendall_tau": self.rankings,
        }

    def lines(self) -> list[str]:
        """Return the table and the summary as text."""
        width = max(len(f"{row.case}, {row.system}") for row in self.rows)
        lines = [f"{'':{width}}  measured     simulated    ratio"]
        lines += [
            f"{f'{row.case}, {row.system}':{width}}  {row.measured * 1e3:8.3f} ms  "
            f"{row.simulated * 1e3:8.3f} ms  {row.ratio:6.2f}"
            for row in self.rows
        ]
        worst = self.worst
        lines.append(
            f"error of simulated steps: median {self.median_error:.1%} (mark {MEDIAN_MARK:.0%}), "
            f"worst {worst.error:.1%} (mark {WORST_MARK:.0%}; {worst.case}, {worst.system})"
        )
        lines += [
            f"ranking of strategies, {case}: Kendall's τ {tau:.2f} (mark {RANKING_MARK})"
            for case, tau in self.rankings.items()
        ]
        return lines


def simulation_accuracy(result: BenchResult) -> SimulationAccuracy | None:
    """Return the accuracy of the simulated steps of a result; None if there are none."""
    rows = [
        SimulatedRow(
            case.name,
            name,
            min(system.seconds) / case.case.work,
            system.record["simulated_seconds"],
        )
        for case in result.cases
        for name, system in case.systems.items()
        if system.seconds and "simulated_seconds" in system.record
    ]
    if not rows:
        return None
    rankings = {}
    for case in result.cases:
        case_rows = [row for row in rows if row.case == case.name]
        if len(case_rows) > 1 and case.case.parameters.get("workers", 1) > 1:
            rankings[case.name] = kendall_tau(
                [row.measured for row in case_rows], [row.simulated for row in case_rows]
            )
    return SimulationAccuracy(tuple(rows), rankings)


def kendall_tau(x: Sequence[float], y: Sequence[float]) -> float:
    """Return the rank correlation of two sequences: concordant minus discordant pairs, as a share
    of all pairs (Kendall 1938). Ties count as neither."""
    signs = [_sign(x[i] - x[j]) * _sign(y[i] - y[j]) for i, j in combinations(range(len(x)), 2)]
    return sum(signs) / len(signs)


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)
