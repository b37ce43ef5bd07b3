"""Output of a benchmark result: a table, a JSON file, a plot."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from magmath.bench.growth_plots import draw_growth, draw_ratios
from magmath.bench.result import BenchResult, CaseResult, ComparisonResult, SystemResult
from magmath.bench.simulation_accuracy import draw_errors, draw_steps, simulation_accuracy
from magmath.core.atomic_replace import atomic_replace

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def print_result(result: BenchResult, console: Console) -> None:
    """Print the table of medians and ratios, and all notes and failures."""
    _print_table(result, console)
    _print_memory(result, console)
    if result.environment:
        listed = " ".join(f"{name}={value}" for name, value in result.environment.items())
        console.print(f"set in the environment: {listed}", markup=False)
    for name, reason in result.absent.items():
        console.print(f"{name}: absent ({reason})", markup=False)
    for case in result.cases:
        for name, system in case.systems.items():
            for line in _notes(name, system):
                console.print(f"{case.case.name}: {line}", markup=False)
        if values := case.disagreement():
            listed = ", ".join(f"{name} {value:.6g}" for name, value in values.items())
            console.print(f"[bold red]{case.case.name}: results differ:[/] {listed}")
    for summary in result.summaries():
        console.print(
            f"{summary.group}: × {summary.title}: geometric mean {summary.geometric_mean:.2f}, "
            f"worst {summary.worst:.2f} ({summary.worst_case})",
            markup=False,
        )
    if (accuracy := simulation_accuracy(result)) is not None:
        for line in accuracy.lines():
            console.print(line, markup=False, soft_wrap=True)
    console.print(
        f"Medians of {result.rounds} rounds in turns; a ratio is made within each round, its range "
        "over the rounds in brackets. Green: the mark is reached."
        + (" A quick look, not a record." if result.quick else "")
    )


def _print_table(result: BenchResult, console: Console) -> None:
    """Print the rates and the comparisons of each case."""
    title = f"{result.title} ({result.cases[0].case.unit})"
    kinds = _figure_kinds(result)
    figures = [name if kind == "excess" else f"× {name}" for name, kind in kinds.items()]
    headers = [*result.cases[0].systems, *figures]
    _print_rows(title, headers, {c.case.name: _cells(c, kinds) for c in result.cases}, console)


def _print_memory(result: BenchResult, console: Console) -> None:
    """Print the peaks of memory of each case, if they were measured."""
    names = [name for name in result.cases[0].systems if has_peaks(result, name)]
    if not names:
        return
    rows = {
        case.case.name: [memory_text(case.systems[name].peak_bytes) for name in names]
        for case in result.cases
    }
    console.print()
    _print_rows("peak of resident memory in the first steps (MB)", names, rows, console)


def has_peaks(result: BenchResult, name: str) -> bool:
    """Return True if the memory of a system was measured."""
    return any(case.systems[name].peak_bytes for case in result.cases if name in case.systems)


def memory_text(peaks: Sequence[int]) -> str:
    """Format the median of peaks in MB, and their range if it is wide enough to be seen."""
    if not peaks:
        return "–"
    low, middle, high = (f"{f(peaks) / 1e6:,.0f}" for f in (min, median, max))
    return middle if low == high else f"{middle} ({low} to {high})"


def _print_rows(
    title: str, headers: list[str], rows: dict[str, list[str]], console: Console
) -> None:
    """Print one row for each case, or one block if the console is too narrow."""
    table = _table(headers, rows, title)
    unlimited = console.options.update(max_width=sys.maxsize)
    if Measurement.get(console, unlimited, table).maximum <= console.width:
        console.print(table)
        return
    console.print(title, style="table.title")
    for name, cells in rows.items():
        console.print(f"\n{name}", style="bold", markup=False)
        console.print(_block(headers, cells))
    console.print()


def _table(headers: list[str], rows: dict[str, list[str]], title: str) -> Table:
    table = Table("case", title=title, title_justify="left")
    for header in headers:
        table.add_column(header, justify="right")
    for name, cells in rows.items():
        table.add_row(name, *cells)
    return table


def _block(headers: list[str], cells: list[str]) -> Table:
    block = Table(box=None, show_header=False)
    for header, cell in zip(headers, cells, strict=True):
        if cell:
            block.add_row(header, cell)
    return block


def _cells(case: CaseResult, kinds: Iterable[str]) -> list[str]:
    """Return the rate of every system in a case, and every comparison."""
    figures = {figure.title: _figure_text(figure) for figure in case.figures}
    rates = [_rate_text(case, name) for name in case.systems]
    return [*rates, *[figures.get(title, "") for title in kinds]]


def _figure_kinds(result: BenchResult) -> dict[str, str]:
    """Return the titles of the comparisons, and whether each is a ratio or an excess."""
    return {figure.title: figure.kind for case in result.cases for figure in case.figures}


def _rate_text(case: CaseResult, name: str) -> str:
    if case.systems[name].state != "measured":
        return case.systems[name].state
    return rate_text(case.rate(name), case.case.unit)


def rate_text(rate: float, unit: str) -> str:
    """Format a rate with three digits; seconds with a unit prefix."""
    if unit != "s":
        return f"{rate:,.0f}" if rate >= 1000 else f"{rate:.3g}"
    factor, name = next((pair for pair in _SECONDS if rate >= pair[0]), (1.0, "s"))
    return f"{float(f'{rate / factor:.3g}'):g} {name}"


def _figure_text(figure: ComparisonResult) -> str:
    color = {True: "green", False: "red", None: "default"}[figure.reached]
    low, high = min(figure.rounds), max(figure.rounds)
    return f"[{color}]{figure.median:.2f}[/] ({low:.2f}–{high:.2f})"


def _notes(name: str, system: SystemResult) -> Iterable[str]:
    if system.state in ("failed", "left out"):
        yield f"{name} {system.state}: {system.reason.splitlines()[0]}"
    if "compile_seconds" in system.record:
        yield f"{name}: {system.record['variant']}, compiled in {_seconds(system)} s"
    elif "variant" in system.record:
        yield f"{name}: {system.record['variant']}"
    if "first_seconds" in system.record and system.seconds:
        yield f"{name}: the first time took {rate_text(system.record['first_seconds'], 's')}"
    if "stages" in system.record:
        listed = ", ".join(f"{k} {v * 1e3:.0f}" for k, v in system.record["stages"].items())
        yield f"{name}: {system.record['nodes']} nodes; ms: {listed}"
    if "planned_bytes" in system.record:
        count, planned = (
            system.record["instructions"],
            memory_text([system.record["planned_bytes"]]),
        )
        yield f"{name}: {count} instructions, {planned} MB planned"
    if "predicted_seconds" in system.record:
        ratio = system.record["predicted_seconds"] / system.record["measured_seconds"]
        share = system.record["accurate_share"]
        yield f"{name}: predicted ÷ measured {ratio:.2f}, accurate for {share:.0%} of the time"
    for variant, reason in system.record.get("failed_variants", {}).items():
        yield f"{name}: the variant {variant!r} failed: {reason.splitlines()[0]}"


def _seconds(system: SystemResult) -> str:
    return f"{system.record['compile_seconds']:.1f}"


def save_result(result: BenchResult, path: Path) -> None:
    """Write all measurements to `path` as JSON."""
    data = result.as_data()
    if (accuracy := simulation_accuracy(result)) is not None:
        data["simulation"] = accuracy.as_data()
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_replace(path) as draft:
        Path(draft).write_text(json.dumps(data, indent=1) + "\n")


def plot_result(result: BenchResult, path: Path) -> None:
    """Draw the panels of a result, by its kind of plot."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    panels = _PANELS[result.plot](result)
    height = 4 if result.plot == "rates" else 8
    figure, axes = plt.subplots(
        1, len(panels), figsize=(1.25 * height * len(panels), height), squeeze=False,
        layout="constrained",
    )  # fmt: skip
    for draw, panel in zip(panels, axes[0], strict=True):
        draw(panel)
    figure.suptitle(f"{result.title} – {result.machine['cpu']}, {result.machine['cores']} cores")
    path.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"svg.hashsalt": result.bench}):  # otherwise no two files are equal
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)


Draw = Callable[["Axes"], None]


def _rate_panels(result: BenchResult) -> list[Draw]:
    """Return one panel for each group of cases: lines along x, or bars for a single case."""
    groups = groupby(result.cases, key=lambda case: case.case.group)
    return [partial(_panel, list(cases), result.x_name) for _, cases in groups]


def _ratio_and_growth_panels(result: BenchResult) -> list[Draw]:
    return [partial(draw_ratios, result), partial(draw_growth, result)]


def _simulation_panels(result: BenchResult) -> list[Draw]:
    return [partial(draw_steps, result), partial(draw_errors, result)]


_PANELS: dict[str, Callable[[BenchResult], list[Draw]]] = {
    "simulation": _simulation_panels,
    "rates": _rate_panels,
    "ratios and growth": _ratio_and_growth_panels,
}


def _panel(cases: list[CaseResult], x_name: str, axes: Axes) -> None:
    systems = [name for name, system in cases[0].systems.items() if system.state == "measured"]
    axes.set_title(cases[0].case.group)
    axes.set_ylabel(cases[0].case.unit)
    if len(cases) == 1 or cases[0].case.unit == "s":
        width = 0.8 / len(systems)
        for i, name in enumerate(systems):
            positions = [position + i * width for position in range(len(cases))]
            axes.bar(positions, [case.rate(name) for case in cases], width, label=name)
        middle = 0.4 - width / 2
        names = [case.case.name for case in cases]
        axes.set_xticks([position + middle for position in range(len(cases))], names)
    else:
        for name in systems:
            measured = [case for case in cases if case.systems[name].state == "measured"]
            xs, rates = [case.case.x for case in measured], [case.rate(name) for case in measured]
            axes.plot(xs, rates, marker="o", label=name)
        axes.set_xlabel(x_name)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
    axes.set_ylim(bottom=0 if axes.get_yscale() == "linear" else None)
    axes.legend()
    axes.grid(visible=True, alpha=0.3)
