"""Plots of cases that exist at several sizes: the ratio to a peer, and how time grows with size."""

from __future__ import annotations

from statistics import geometric_mean
from typing import TYPE_CHECKING

from magmath.bench.result import BenchResult, CaseResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_ratios(result: BenchResult, axes: Axes) -> None:
    """Draw the first comparison of every case, a colour for each size; the line is equality."""
    sizes = list(dict.fromkeys(case.case.group for case in result.cases))
    names = list(dict.fromkeys(_name(case) for case in result.cases))
    for number, size in enumerate(sizes):
        cases = [case for case in result.cases if case.case.group == size and case.figures]
        positions = [names.index(_name(case)) + (number - 1) * 0.25 for case in cases]
        axes.barh(positions, [case.figures[0].median for case in cases], 0.25, label=size)
    axes.axvline(1.0, color="black", linewidth=1)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xscale("log", base=2)
    titles = [case.figures[0].title for case in result.cases if case.figures]
    axes.set_title(f"× {titles[0]}" if titles else "no ratio")
    axes.legend()
    axes.grid(visible=True, axis="x", alpha=0.3)


def draw_growth(result: BenchResult, axes: Axes) -> None:
    """Draw the geometric mean of each system's seconds along the size, over all cases that it
    measures."""
    for system in result.cases[0].systems:
        measured = [c for c in result.cases if system in c.systems and c.systems[system].seconds]
        sizes = sorted({case.case.x for case in measured})
        means = [
            geometric_mean([case.rate(system) for case in measured if case.case.x == size])
            for size in sizes
        ]
        axes.plot(sizes, means, marker="o", label=system)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(result.x_name)
    axes.set_ylabel("seconds, geometric mean of the programs that the system runs")
    axes.set_title("time against size")
    axes.legend()
    axes.grid(visible=True, alpha=0.3)


def _name(case: CaseResult) -> str:
    return case.case.name.rpartition(", ")[0]
