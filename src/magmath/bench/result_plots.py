"""Plots of a benchmark result: rates along x, ratios and growth by size, or simulated steps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import geometric_mean
from typing import TYPE_CHECKING

from magmath.bench.result import BenchResult, CaseResult
from magmath.bench.simulation_accuracy import WORST_MARK, SimulatedRow, simulation_accuracy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Draw = Callable[["Axes"], None]
CATEGORIES = ("", "case", "network")
"""The meanings of x that only number the cases."""
MIN_WIDTH = 9.0
"""The least width of a figure in inches, in which its title has place."""
WIDE_RANGE = 20.0
"""The ratio of the largest to the least rate from which bars have a logarithmic scale."""


def plot_result(result: BenchResult, path: Path) -> None:
    """Draw the panels of a result, by its kind of plot."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    panels = _PANELS[result.plot](result)
    height = 4 if result.plot == "rates" else 8
    figure, axes = plt.subplots(
        1, len(panels), figsize=(max(1.25 * height * len(panels), MIN_WIDTH), height),
        squeeze=False, layout="constrained",
    )  # fmt: skip
    for draw, panel in zip(panels, axes[0], strict=True):
        draw(panel)
    if result.plot == "rates":
        _add_common_legend(figure)
    figure.suptitle(f"{result.title} – {result.machine['cpu']}, {result.machine['cores']} cores")
    path.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"svg.hashsalt": result.bench}):  # otherwise no two files are equal
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)


def _add_common_legend(figure: Figure) -> None:
    """Add the legend of all panels, in which a system has one colour."""
    entries = [axes.get_legend_handles_labels() for axes in figure.axes]
    handles = {
        name: part for parts, names in entries for part, name in zip(parts, names, strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside right center", fontsize="small")


def _rate_panels(result: BenchResult) -> list[Draw]:
    """Return one panel for each group of cases: lines along x, or bars."""
    groups: dict[str, list[CaseResult]] = {}
    for case in result.cases:
        groups.setdefault(case.group, []).append(case)
    systems = _measured_systems(result.cases)
    return [partial(_draw_rates, cases, systems, result.x_name) for cases in groups.values()]


def _ratio_and_growth_panels(result: BenchResult) -> list[Draw]:
    return [partial(_draw_ratios, result), partial(_draw_growth, result)]


def _simulation_panels(result: BenchResult) -> list[Draw]:
    accuracy = simulation_accuracy(result)
    rows = () if accuracy is None else accuracy.rows
    return [partial(_draw_steps, rows), partial(_draw_errors, rows)]


_PANELS: dict[str, Callable[[BenchResult], list[Draw]]] = {
    "simulation": _simulation_panels,
    "rates": _rate_panels,
    "ratios and growth": _ratio_and_growth_panels,
}


def _draw_rates(cases: list[CaseResult], systems: list[str], x_name: str, axes: Axes) -> None:
    """Draw the rates of a group of cases, in each case those of the systems that are measured."""
    axes.set_title(cases[0].group)
    axes.set_ylabel(cases[0].unit)
    are_sizes = x_name not in CATEGORIES and all(case.case.x > 0 for case in cases)
    if are_sizes and len(cases) > 1 and cases[0].unit != "s":
        _draw_lines(cases, systems, axes)
        axes.set_xlabel(x_name)
    else:
        _draw_bars(cases, systems, axes)
    axes.set_ylim(bottom=0 if axes.get_yscale() == "linear" else None)
    axes.grid(visible=True, alpha=0.3)


def _measured_systems(cases: list[CaseResult]) -> list[str]:
    """Return the systems that are measured in a case at least."""
    return list(dict.fromkeys(name for case in cases for name in case.measured()))


def _draw_bars(cases: list[CaseResult], systems: list[str], axes: Axes) -> None:
    width = 0.8 / max(1, len(systems))
    drawn: list[float] = []
    for i, name in enumerate(systems):
        rates = {x: case.rate(name) for x, case in enumerate(cases) if name in case.measured()}
        if rates:
            positions = [x + i * width for x in rates]
            axes.bar(positions, list(rates.values()), width, label=name, color=f"C{i}")
        drawn += rates.values()
    middle, slanted = 0.4 - width / 2, len(cases) > 3
    axes.set_xticks(
        [x + middle for x in range(len(cases))],
        [case.name for case in cases],
        rotation=30.0 if slanted else 0.0,
        ha="right" if slanted else "center",
    )
    if len(cases) > 1 and drawn and max(drawn) > WIDE_RANGE * min(drawn):
        axes.set_yscale("log")


def _draw_lines(cases: list[CaseResult], systems: list[str], axes: Axes) -> None:
    for i, name in enumerate(systems):
        measured = [case for case in cases if name in case.measured()]
        xs, rates = [case.case.x for case in measured], [case.rate(name) for case in measured]
        if measured:
            axes.plot(xs, rates, marker="o", label=name, color=f"C{i}")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")


def _draw_ratios(result: BenchResult, axes: Axes) -> None:
    """Draw the first comparison of every case, a colour for each size; the line is equality."""
    sizes = list(dict.fromkeys(case.group for case in result.cases))
    programs = list(dict.fromkeys(_program_of(case) for case in result.cases))
    for number, size in enumerate(sizes):
        cases = [case for case in result.cases if case.group == size and case.figures]
        positions = [programs.index(_program_of(case)) + (number - 1) * 0.25 for case in cases]
        axes.barh(positions, [case.figures[0].median for case in cases], 0.25, label=size)
    axes.axvline(1.0, color="black", linewidth=1)
    axes.set_yticks(range(len(programs)), programs)
    axes.invert_yaxis()
    axes.set_xscale("log", base=2)
    titles = [case.figures[0].title for case in result.cases if case.figures]
    axes.set_title(f"× {titles[0]}" if titles else "no ratio")
    axes.legend()
    axes.grid(visible=True, axis="x", alpha=0.3)


def _program_of(case: CaseResult) -> str:
    """Return the name of a case without its size."""
    return case.name.rpartition(", ")[0]


def _draw_growth(result: BenchResult, axes: Axes) -> None:
    """Draw the geometric mean of each system's seconds along the size, over all cases that it
    measures."""
    for name in result.cases[0].systems:
        measured = [case for case in result.cases if name in case.measured()]
        sizes = sorted({case.case.x for case in measured})
        means = [
            geometric_mean([case.rate(name) for case in measured if case.case.x == size])
            for size in sizes
        ]
        axes.plot(sizes, means, marker="o", label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(result.x_name)
    axes.set_ylabel("seconds, geometric mean of the programs that the system runs")
    axes.set_title("time against size")
    axes.legend()
    axes.grid(visible=True, alpha=0.3)


def _draw_steps(rows: tuple[SimulatedRow, ...], axes: Axes) -> None:
    """Draw simulated against measured steps; the line is equality."""
    for name in dict.fromkeys(row.system for row in rows):
        system_rows = [row for row in rows if row.system == name]
        axes.scatter(
            [row.measured for row in system_rows],
            [row.simulated for row in system_rows],
            label=name,
        )
    if rows:
        ends = [f(v for row in rows for v in (row.measured, row.simulated)) for f in (min, max)]
        axes.plot(ends, ends, color="black", linewidth=1)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("measured seconds of a step")
    axes.set_ylabel("simulated seconds of a step")
    axes.legend()
    axes.grid(visible=True, alpha=0.3)


def _draw_errors(rows: tuple[SimulatedRow, ...], axes: Axes) -> None:
    """Draw the ratio of simulated to measured seconds of every case and system."""
    cases = list(dict.fromkeys(row.case for row in rows))
    systems = list(dict.fromkeys(row.system for row in rows))
    height = 0.8 / max(len(systems), 1)
    for number, name in enumerate(systems):
        system_rows = [row for row in rows if row.system == name]
        positions = [cases.index(row.case) + number * height for row in system_rows]
        axes.barh(positions, [row.ratio - 1.0 for row in system_rows], height, left=1.0, label=name)
    for limit in (1.0 - WORST_MARK, 1.0, 1.0 + WORST_MARK):
        axes.axvline(limit, color="black", linewidth=1, linestyle="-" if limit == 1.0 else ":")
    axes.set_yticks([i + 0.4 for i in range(len(cases))], cases)
    axes.invert_yaxis()
    axes.set_xlabel("simulated ÷ measured")
    axes.legend()
    axes.grid(visible=True, axis="x", alpha=0.3)
