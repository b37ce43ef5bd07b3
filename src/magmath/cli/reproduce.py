"""`magmath reproduce`: repeats the papers' experiments and writes a report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from magmath.cli.output_folder import output_folder
from magmath.core.json_text import json_text
from magmath.errors import OptionError

if TYPE_CHECKING:
    from magmath.reproduce import Experiment
    from magmath.reproduce.report import Report

PAGE, NUMBERS = "report.html", "report.json"


def reproduce(
    *names: str,
    all: Annotated[bool, Parameter(negative=())] = False,
    list: Annotated[bool, Parameter(negative=())] = False,
    quick: Annotated[bool, Parameter(negative=())] = False,
    data: Path | None = None,
    peers: Annotated[str, Parameter(name=("--peers", "--peer"))] = "all",
    output: Path = Path("runs/reproduce"),
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Repeat experiments of the papers on this machine, and compare the results in a report.

    The report is one HTML page, readable on a telephone. It has plots and tables, and compares the
    papers' statements with the results of this machine, with reasons for differences. All numbers
    are in report.json too. Both are written after each experiment, so an interrupted run leaves a
    report. Tables and statements are also printed. Without names, list the experiments.

    For example:

        magmath reproduce --list

        magmath reproduce magmadnn-layers --quick

        magmath reproduce --all --quick --output report

        magmath reproduce dmath-table1 --json

    Parameters
    ----------
    names
        The experiments.
    all
        Run all experiments.
    list
        List the experiments.
    quick
        Reduced sizes: one or two minutes for each experiment.
    data
        Folder of the paper's data set, for an experiment that takes one.
    peers
        The other frameworks to measure, separated by commas; "all", or "none".
    output
        Folder for report.html and report.json.
    json
        Print one JSON object: the list of the experiments, or the content of report.json and, of a
        single experiment, its numbers by name.
    """
    from magmath.reproduce import EXPERIMENTS, Options
    from magmath.reproduce.report import run_experiments

    console = Console(highlight=False)
    if list or not (names or all):
        if json:
            print(json_text({"experiments": _listed(EXPERIMENTS)}))
        else:
            _print_list(EXPERIMENTS, console)
        return
    chosen = [*EXPERIMENTS] if all else [*dict.fromkeys(names)]
    if unknown := [name for name in chosen if name not in EXPERIMENTS]:
        raise OptionError(
            f"reproduce: unknown experiment {unknown[0]!r}; known are {', '.join(EXPERIMENTS)}"
        )
    peer_names = _peers(peers)
    options = Options(quick, data, peer_names, Console(stderr=True, highlight=False))
    with output_folder(output):
        report = run_experiments(
            [EXPERIMENTS[name] for name in chosen],
            options,
            lambda report: _write(report, output),
        )
    if json:
        print(json_text(report.as_data() | _only_numbers(report)))
    else:
        _print_results(report, console)
        console.print(f"Report: {output / PAGE}", markup=False, soft_wrap=True)
    report.raise_if_failed()


def _peers(text: str) -> tuple[str, ...]:
    """Return the names of other frameworks. Raises OptionError for one that no experiment has."""
    from magmath.bench import BENCHES
    from magmath.bench.case import RunOptions

    known = {system.peer for system in BENCHES["layers"].systems(RunOptions()) if system.peer}
    names = tuple(name.strip() for name in text.split(","))
    if unknown := [name for name in names if name not in {*known, "all", "none"}]:
        raise OptionError(
            f"--peers: unknown framework {unknown[0]!r}; known are {', '.join(sorted(known))}, "
            "all and none"
        )
    return names


def _listed(experiments: dict[str, Experiment]) -> list[dict[str, str]]:
    """Return the experiments as plain data for JSON."""
    return [
        {"name": known.name, "title": known.title, "reference": known.reference}
        for known in experiments.values()
    ]


def _print_list(experiments: dict[str, Experiment], console: Console) -> None:
    for known in experiments.values():
        console.print(f"[bold]{known.name:18}[/] {known.title} ({known.reference})")


def _only_numbers(report: Report) -> dict[str, Any]:
    """Return the numbers of the only experiment; none of several."""
    sections = [result.section for result in report.results if result.section is not None]
    return sections[0].data if len(report.results) == len(sections) == 1 else {}


def _print_results(report: Report, console: Console) -> None:
    """Print the tables and statements of all experiments."""
    from magmath.reproduce.page import cell_text
    from magmath.reproduce.section import Finding, Table

    for section in (result.section for result in report.results if result.section is not None):
        for table in section.of_kind(Table):
            heads = [escape(column) for column in table.columns]
            shown = RichTable(*heads, title=escape(table.title), caption=escape(table.note))
            for row in table.rows:
                shown.add_row(*[escape(cell_text(cell)) for cell in row])
            console.print(shown)
        for finding in section.of_kind(Finding):
            reason = f" ({finding.reason})" if finding.reason else ""
            compared = f"Paper: {finding.paper}; here: {finding.ours}{reason}"
            text = f"{finding.verdict}: {finding.statement}. {compared}"
            console.print(text, markup=False, soft_wrap=True)


def _write(report: Report, folder: Path) -> None:
    """Write the page and the numbers of a report, each complete or not at all."""
    from magmath.core.atomic_replace import atomic_replace
    from magmath.reproduce.page import page

    numbers = json_text(report.as_data()) + "\n"
    for name, text in ((PAGE, page(report)), (NUMBERS, numbers)):
        with atomic_replace(folder / name) as draft:
            Path(draft).write_text(text, encoding="utf-8")
