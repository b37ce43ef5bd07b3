"""`magmath reproduce`: repeats the papers' experiments and writes a report."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.console import Console

from magmath.cli.output_folder import create_folder, prepare_file
from magmath.errors import OptionError

if TYPE_CHECKING:
    from magmath.reproduce import Experiment
    from magmath.reproduce.report import Report

FILE = "report.html"


def reproduce(
    *names: str,
    all: Annotated[bool, Parameter(negative=())] = False,
    list: Annotated[bool, Parameter(negative=())] = False,
    quick: Annotated[bool, Parameter(negative=())] = False,
    data: Path | None = None,
    peers: Annotated[str, Parameter(name=("--peers", "--peer"))] = "all",
    output: Path = Path("runs/reproduce"),
    json: Path | None = None,
) -> None:
    """Repeat experiments of the papers on this machine, and compare the results in a report.

    The report is one HTML page without other files, readable on a telephone. It has plots and
    tables, and compares the papers' statements with the results of this machine, with reasons for
    differences. It is written after each experiment, so an interrupted run leaves a report too.
    Without names, list the experiments.

    For example:

        magmath reproduce --list

        magmath reproduce magmadnn-layers --quick

        magmath reproduce --all --quick --output report

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
        Folder for the report.
    json
        Write all numbers to this file.
    """
    from magmath.reproduce import EXPERIMENTS, Options
    from magmath.reproduce.report import run_experiments

    console = Console(highlight=False)
    if list or not (names or all):
        _print_list(EXPERIMENTS, console)
        return
    chosen = [*EXPERIMENTS] if all else [*dict.fromkeys(names)]
    if unknown := [name for name in chosen if name not in EXPERIMENTS]:
        raise OptionError(
            f"reproduce: unknown experiment {unknown[0]!r}; known are {', '.join(EXPERIMENTS)}"
        )
    others = _peers(peers)
    create_folder(output)
    if json is not None:
        prepare_file(json, "--json")
    options = Options(quick, data, others, Console(stderr=True, highlight=False))
    report = run_experiments(
        [EXPERIMENTS[name] for name in chosen],
        options,
        lambda report: _write(report, output / FILE, json),
    )
    console.print(f"Report: {output / FILE}", markup=False, soft_wrap=True)
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


def _print_list(experiments: dict[str, Experiment], console: Console) -> None:
    for known in experiments.values():
        console.print(f"[bold]{known.name:18}[/] {known.title} ({known.reference})")


def _write(report: Report, path: Path, json: Path | None) -> None:
    from magmath.core.atomic_replace import atomic_replace
    from magmath.reproduce.page import page

    contents = {path: page(report)}
    if json is not None:
        contents[json] = jsonlib.dumps(report.as_data(), indent=1) + "\n"
    for file, text in contents.items():
        with atomic_replace(file) as draft:
            Path(draft).write_text(text, encoding="utf-8")
