"""The run of experiments, and the report: results, machine, versions."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, final

from magmath import __version__
from magmath.bench import host_info
from magmath.errors import ExperimentError, MagmathError
from magmath.reproduce.experiment import Experiment, Options
from magmath.reproduce.section import VERDICTS, Finding, Section

PACKAGES = ("torch", "numpy", "scipy", "llvmlite", "mpi4py", "mpich", "jax", "tensorflow", "triton")


@final
@dataclass(frozen=True)
class Result:
    """The section of an experiment, or None and the text of the error that ended it."""

    experiment: Experiment
    section: Section | None
    error: str
    seconds: float

    @property
    def verdict(self) -> str:
        """The number of findings of each kind, in words."""
        if self.section is None:
            return "failed"
        verdicts = [finding.agrees for finding in self.section.of_kind(Finding)]
        counts = [(verdicts.count(kind), forms) for kind, forms in VERDICTS.items()]
        texts = [f"{n} {one if n == 1 else several}" for n, (one, several) in counts if n]
        return ", ".join(texts) or "no statement"

    def as_data(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "name": self.experiment.name,
            "title": self.experiment.title,
            "reference": self.experiment.reference,
            "seconds": self.seconds,
            "error": self.error or None,
            **({} if self.section is None else self.section.as_data()),
        }


@final
@dataclass(frozen=True)
class Report:
    """All results, with the information that is needed to assess and repeat them.

    `remaining`: names of the experiments that have not ended yet.
    """

    results: tuple[Result, ...]
    remaining: tuple[str, ...]
    quick: bool
    date: str
    command: str
    commit: str | None
    machine: dict[str, str | int]
    environment: dict[str, str]
    versions: dict[str, str]

    @property
    def title(self) -> str:
        """The title of the page."""
        return "magmath: the papers' experiments, repeated"

    def as_data(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        fields = {name: value for name, value in vars(self).items() if name != "results"}
        return {**fields, "experiments": [result.as_data() for result in self.results]}

    def raise_if_failed(self) -> None:
        """Raise ExperimentError if an experiment failed."""
        failed = [f"{r.experiment.name}: {r.error}" for r in self.results if r.section is None]
        if failed:
            raise ExperimentError("reproduce: " + "\n".join(failed))


def run_experiments(
    experiments: Sequence[Experiment],
    options: Options,
    save: Callable[[Report], object] = lambda report: None,
) -> Report:
    """Run the experiments in order; one that fails is recorded, and the others run.

    `save` receives the report so far after each of them.
    """
    report = _empty(options, [experiment.name for experiment in experiments])
    for number, experiment in enumerate(experiments, start=1):
        heading = f"{number} of {len(experiments)}  [bold]{experiment.name}[/]  {experiment.title}"
        options.console.print(heading)
        result = _run(experiment, options)
        options.console.print(f"  {result.verdict}, {result.seconds:.0f} s")
        report = replace(report, results=(*report.results, result), remaining=report.remaining[1:])
        save(report)
    return report


def _run(experiment: Experiment, options: Options) -> Result:
    start = time.perf_counter()
    section, error = None, ""
    try:
        section = experiment.run(options)
    except Exception as raised:
        known = isinstance(raised, MagmathError)
        error = str(raised) if known else f"{type(raised).__name__}: {raised}"
        options.console.print(f"  failed: {error}", markup=False)
    return Result(experiment, section, error, time.perf_counter() - start)


def _empty(options: Options, remaining: Sequence[str]) -> Report:
    """Return a report without results on this machine."""
    versions = {name: host_info.package_version(name) for name in PACKAGES}
    return Report(
        results=(),
        remaining=tuple(remaining),
        quick=options.quick,
        date=datetime.now(UTC).isoformat(timespec="minutes"),
        command=shlex.join(["magmath", *sys.argv[1:]]),
        commit=host_info.source_commit(),
        machine=host_info.describe(),
        environment=host_info.tuning_variables(),
        versions={"magmath": __version__, **{k: v for k, v in versions.items() if v}},
    )
