"""SHM-Learn-Dist's scaling experiment: loss and accuracy against time on 1, 2, 4 and 8 workers, and
the times of a parameter server; PyTorch's DDP on the same batches for comparison."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from magmath.core.resources import processor_count
from magmath.reproduce.ddp import DdpRun
from magmath.reproduce.drawing import new_figure
from magmath.reproduce.experiment import Experiment, Options
from magmath.reproduce.section import Part, Plot, Section, Table
from magmath.reproduce.shm_cifar10_findings import Peers, Runs, counted, findings
from magmath.reproduce.shm_cifar10_training import (
    BATCH,
    REPEATS,
    STAGES,
    WORKERS,
    CifarProblem,
    CifarRun,
    problem_of,
    train,
    train_peer,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER_ACCURACY = {1: 81.8, 2: 77.15, 4: 71.0}
PAPER_SECONDS = {1: 260.0, 2: 138.44, 4: 84.2}


def run(options: Options) -> Section:
    """Train on 1, 2, 4 and 8 workers."""
    problem = problem_of(options)
    has_peer = not {"all", "torch"}.isdisjoint(options.peers)
    runs: dict[int, CifarRun] = {}
    peers: dict[int, DdpRun] = {}
    for workers in WORKERS:
        options.console.print(f"  {counted(workers, 'worker')}")
        runs[workers] = train(problem, workers)
        if has_peer:
            options.console.print(f"  PyTorch's DDP on {counted(workers, 'process')}")
            peers[workers] = train_peer(problem, workers)
    return Section(
        (
            _introduction(problem),
            *_training_plots(runs, peers),
            _results_table(runs, problem),
            *([_peer_table(runs, peers)] if peers else []),
            *_stage_parts(runs),
            *findings(runs, peers),
        ),
        {
            **{str(workers): vars(own_run) for workers, own_run in runs.items()},
            "ddp": {str(workers): vars(peer) for workers, peer in peers.items()},
        },
    )


def _introduction(problem: CifarProblem) -> str:
    return (
        f"{problem.task.text}. Every run sees "
        f"{problem.epochs * len(problem.data.train_labels):,} images; each worker, "
        "a process with one thread, has batches of 128 images, of 64 with 8 workers (Table 5.1). "
        f"The machine has {processor_count()} cores, the report's cluster a GPU for each worker."
    )


def _training_plots(runs: Runs, peers: Peers) -> list[Part]:
    note = " Dashed: PyTorch's DDP on the same batches." if peers else ""
    return [
        Plot(
            "Training loss against time",
            _curves(runs, peers, lambda run: run.losses, "mean loss of an epoch"),
            f"Report: Fig. 6.2.{note}",
        ),
        Plot(
            "Test accuracy against time",
            _curves(runs, peers, lambda run: [100 * x for x in run.accuracies], "test accuracy, %"),
            f"Report: Fig. 6.3.{note}",
        ),
    ]


def _curves(
    runs: Runs, peers: Peers, values: Callable[[CifarRun | DdpRun], list[float]], label: str
) -> Figure:
    """Return the curves of some values of the runs against their seconds."""
    figure = new_figure()
    axes = figure.subplots()
    for number, (workers, own_run) in enumerate(runs.items()):
        color = f"C{number}"
        axes.plot(own_run.seconds, values(own_run), marker=".", color=color, label=str(workers))
        if workers in peers:
            peer = peers[workers]
            axes.plot(peer.seconds, values(peer), "--", color=color)
    axes.set(xlabel="seconds of training", ylabel=label)
    axes.grid(alpha=0.3)
    axes.legend(title="workers")
    return figure


def _results_table(runs: Runs, problem: CifarProblem) -> Table:
    rows = [
        (
            workers,
            BATCH[workers],
            problem.rate(workers),
            own_run.losses[-1],
            100 * own_run.accuracies[-1],
            own_run.seconds[-1],
            PAPER_ACCURACY.get(workers),
            PAPER_SECONDS.get(workers),
        )
        for workers, own_run in runs.items()
    ]
    columns = (
        "workers", "batch", "learning rate", "loss", "accuracy, %", "seconds",
        "report: accuracy, %", "report: seconds",
    )  # fmt: skip
    return Table.of("After the last image", columns, rows)


def _peer_table(runs: Runs, peers: Peers) -> Table:
    rows = [
        (
            workers,
            own_run.losses[-1],
            peers[workers].losses[-1],
            100 * own_run.accuracies[-1],
            100 * peers[workers].accuracies[-1],
            own_run.seconds[-1],
            peers[workers].seconds[-1],
        )
        for workers, own_run in runs.items()
    ]
    columns = (
        "workers", "loss", "loss, DDP", "accuracy, %", "accuracy, DDP, %", "seconds",
        "seconds, DDP",
    )  # fmt: skip
    note = (
        "The same network, initial weights and batches in PyTorch's DistributedDataParallel over "
        "gloo, one thread for each process, static graph and gradients as bucket views."
    )
    return Table.of("magmath and PyTorch's DDP after the last image", columns, rows, note)


def _stage_parts(runs: Runs) -> list[Part]:
    """Return the plot and the table of the stages of a parameter server."""
    milliseconds = {
        n: [1e3 * own_run.stages[stage] for stage in STAGES] for n, own_run in runs.items()
    }
    count = next(iter(runs.values())).parameters
    return [
        Plot(
            "A parameter server: gather, average and broadcast",
            _bars(milliseconds),
            "Milliseconds for the gradients of all parameters. Report: Fig. 6.4 to 6.6.",
        ),
        Table.of(
            "Milliseconds of each stage",
            ("workers", *STAGES),
            [(workers, *values) for workers, values in milliseconds.items()],
            f"Medians of {REPEATS}, {count:,} parameters in float32. The report has plots only.",
        ),
    ]


def _bars(milliseconds: dict[int, list[float]]) -> Figure:
    figure = new_figure()
    axes = figure.subplots()
    width, positions = 0.27, np.arange(len(milliseconds))
    for i, stage in enumerate(STAGES):
        heights = [of_stages[i] for of_stages in milliseconds.values()]
        axes.bar(positions + width * i, heights, width, label=stage)
    axes.set_xticks(positions + width, list(map(str, milliseconds)))
    axes.set(xlabel="workers", ylabel="ms")
    axes.legend()
    return figure


EXPERIMENT = Experiment(
    "shm-cifar10",
    "SHM-Learn-Dist: CIFAR-10 on 1, 2, 4 and 8 workers",
    "SHM-Learn-Dist report, §6, Fig. 6.2–6.6, Table 5.1",
    run,
)
