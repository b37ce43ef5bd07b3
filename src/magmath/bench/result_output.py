"""Output of a benchmark result: a table, and a JSON file."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from magmath.bench.result import BenchResult, CaseResult, ComparisonResult, SystemResult
from magmath.bench.simulation_accuracy import simulation_accuracy
from magmath.core.atomic_replace import atomic_replace
from magmath.core.json_text import json_text

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
                console.print(f"{case.name}: {line}", markup=False)
        if values := case.disagreement():
            listed = ", ".join(f"{name} {value:.6g}" for name, value in values.items())
            console.print(f"[bold red]{case.name}: results differ:[/] {listed}")
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
    title = f"{result.title} ({result.cases[0].unit})"
    kinds = _figure_kinds(result)
    figures = [name if kind == "excess" else f"× {name}" for name, kind in kinds.items()]
    headers = [*result.cases[0].systems, *figures]
    _print_rows(title, headers, {c.name: _cells(c, kinds) for c in result.cases}, console)


def _print_memory(result: BenchResult, console: Console) -> None:
    """Print the peaks of memory of each case, if they were measured."""
    names = [name for name in result.cases[0].systems if has_peaks(result, name)]
    if not names:
        return
    rows = {
        case.name: [memory_text(case.systems[name].peak_bytes) for name in names]
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
    return rate_text(case.rate(name), case.unit)


def rate_text(rate: float, unit: str) -> str:
    """Format a rate with three digits; seconds with a unit prefix."""
    if unit != "s":
        return f"{rate:,.0f}" if rate >= 1000 else f"{rate:.3g}"
    factor, name = next((pair for pair in _SECONDS if rate >= pair[0]), (1.0, "s"))
    return f"{float(f'{rate / factor:.3g}'):g} {name}"


def _figure_text(figure: ComparisonResult) -> str:
    color = {True: "green", False: "red", None: "default"}[figure.has_reached_mark]
    low, high = min(figure.rounds), max(figure.rounds)
    return f"[{color}]{figure.median:.2f}[/] ({low:.2f}–{high:.2f})"


def _notes(name: str, system: SystemResult) -> Iterable[str]:
    """Yield the notes on the record of a system, in addition to its rate."""
    record = system.record
    if system.state in ("failed", "left out"):
        yield f"{name} {system.state}: {system.reason.splitlines()[0]}"
    if "compile_seconds" in record:
        yield f"{name}: {record['variant']}; compilation took {record['compile_seconds']:.1f} s"
    elif "variant" in record:
        yield f"{name}: {record['variant']}"
    if "first_seconds" in record and system.seconds:
        yield f"{name}: the first time took {rate_text(record['first_seconds'], 's')}"
    if "stages" in record:
        listed = ", ".join(f"{k} {v * 1e3:.0f}" for k, v in record["stages"].items())
        yield f"{name}: {record['nodes']} nodes; ms: {listed}"
    if "planned_bytes" in record:
        planned = memory_text([record["planned_bytes"]])
        yield f"{name}: {record['instructions']} instructions, {planned} MB planned"
    if "predicted_seconds" in record:
        ratio = record["predicted_seconds"] / record["measured_seconds"]
        share = record["accurate_share"]
        yield f"{name}: predicted ÷ measured {ratio:.2f}, accurate for {share:.0%} of the time"
    for variant, reason in record.get("failed_variants", {}).items():
        yield f"{name}: the variant {variant!r} failed: {reason.splitlines()[0]}"


def save_result(result: BenchResult, path: Path) -> None:
    """Write all measurements to `path` as JSON."""
    data = result.as_data()
    if (accuracy := simulation_accuracy(result)) is not None:
        data["simulation"] = accuracy.as_data()
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_replace(path) as draft:
        Path(draft).write_text(json_text(data) + "\n")
