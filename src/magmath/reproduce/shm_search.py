"""SHM-Learn-Dist's parameter search: the best batch size and learning rate for 1, 2, 4 and 8
workers, by `mm.train.search`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import magmath as mm
from magmath.reproduce.experiment import Experiment, Options
from magmath.reproduce.image_task import ImageTask, image_task
from magmath.reproduce.section import Finding, Plot, Section, Table
from magmath.train.parameter_search import histograms, matrices

WORKERS, QUICK_WORKERS = (1, 2, 4, 8), (1, 2)
BATCHES, QUICK_BATCHES = (16, 32, 64, 128, 256, 512), (16, 64)
RATES, QUICK_RATES = tuple(n / 10 for n in range(1, 10)), (0.1, 0.5, 0.9)
IMAGES, QUICK_IMAGES = 307_200, 7_680
THRESHOLD = 1.8
REDUCED_THRESHOLD = {"digits": 0.5, "cifar-10": 2.2}
"""Thresholds of reduced forms, by data set: what a few thousand images can reach."""
PAPER = {1: (128, 0.5), 2: (128, 0.5), 4: (128, 0.4), 8: (64, 0.6)}
"""The report's Table 5.1: batch and learning rate by workers."""


def run(options: Options) -> Section:
    """Search with the report's metric, on CIFAR-10 if it is there."""
    task = image_task(options, ("digits",))
    data = task.data
    workers = QUICK_WORKERS if options.quick else WORKERS
    batches = QUICK_BATCHES if options.quick else BATCHES
    fitting = [size for size in batches if size * max(workers) <= len(data.train_labels)]
    rates = QUICK_RATES if options.quick else RATES

    def show(results: mm.train.SearchResults, trial: mm.train.Trial) -> None:
        if results.trials and results.trials[-1].number == trial.number:
            options.console.print(f"  {trial.settings}: {trial.state}", markup=False)

    results = mm.train.search(
        task.build,
        data.train_images,
        data.train_labels,
        {"batch_per_worker": fitting, "learning_rate": list(rates), "workers": list(workers)},
        images=QUICK_IMAGES if options.quick else IMAGES,
        threshold=THRESHOLD if task.is_paper else REDUCED_THRESHOLD[data.name],
        on_progress=show,
    )
    return Section(
        (
            _introduction(task, results, [size for size in batches if size not in fitting]),
            _best_table(results),
            Plot(
                "Areas in the order of the least losses",
                histograms(results),
                "Report: Fig. 5.1 to 5.4. Gray: stopped; pale: above the threshold.",
            ),
            Plot(
                "Areas by batch and learning rate",
                matrices(results),
                "Report: Fig. 5.5 to 5.8. Frame: the winner; ≥: stopped; ×: diverged.",
            ),
            _finding(results, task.is_paper),
        ),
        {"trials": results.rows()},
    )


def _introduction(task: ImageTask, results: mm.train.SearchResults, too_large: list[int]) -> str:
    omitted = (
        f" Batches of {', '.join(map(str, too_large))} images for each worker are omitted: the "
        "data set has too few."
        if too_large
        else ""
    )
    return (
        f"{task.text}. Every trial sees {results.images:,} images. The best one has the smallest "
        "area under its loss–time curve among those whose least loss is at most "
        f"{results.threshold} (the report: {IMAGES:,} images, {THRESHOLD}).{omitted} Trials that "
        "cannot win are stopped; their areas are those at that time."
    )


def _best_table(results: mm.train.SearchResults) -> Table:
    rows = [
        (
            workers,
            None if best is None else best.settings["batch_per_worker"],
            None if best is None else best.settings["learning_rate"],
            None if best is None else best.curve.area,
            *PAPER.get(workers or 0, (None, None)),
        )
        for workers, best in results.best_by_workers.items()
    ]
    columns = (
        "workers",
        "batch per worker",
        "learning rate",
        "area, loss · s",
        "report: batch",
        "report: rate",
    )
    return Table.of("Best settings (Table 5.1)", columns, rows)


def _finding(results: mm.train.SearchResults, is_paper: bool) -> Finding:
    best_settings = {
        workers: (best.settings["batch_per_worker"], best.settings["learning_rate"])
        for workers, best in results.best_by_workers.items()
        if best is not None
    }
    equal = all(best_settings.get(workers) == PAPER[workers] for workers in PAPER)
    statement = (
        "The best settings are batches of 128 and rates of 0.4 to 0.6, with 8 workers smaller ones"
    )
    paper, ours = _settings_text(PAPER), _settings_text(best_settings) or "none"
    if not is_paper:
        reason = "this is another data set, network or number of images"
        return Finding(statement, paper, ours, None, reason)
    reason = "areas depend on the time of a step, so on the machine"
    return Finding.checked(statement, paper, ours, equal, reason)


def _settings_text(settings: Mapping[Any, tuple[Any, Any]]) -> str:
    """Return batches and rates by numbers of workers in words."""
    return "; ".join(
        f"{n} worker{'s' * (n != 1)}: batch {batch}, rate {rate}"
        for n, (batch, rate) in settings.items()
    )


EXPERIMENT = Experiment(
    "shm-search",
    "SHM-Learn-Dist: parameter search on 1 to 8 workers",
    "SHM-Learn-Dist report, §5, Fig. 5.1–5.8, Table 5.1",
    run,
)
