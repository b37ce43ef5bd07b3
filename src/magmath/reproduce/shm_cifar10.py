"""SHM-Learn-Dist's scaling experiment: loss and accuracy against time on 1, 2, 4 and 8 workers, and
the times of a parameter server; PyTorch's DDP on the same batches for comparison.

Workers are processes, each with its own batch; the gradients are averaged. Without CIFAR-10 a
smaller data set of this machine and a smaller network replace it.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from statistics import median
from typing import TYPE_CHECKING, Any, final

import numpy as np

import magmath as mm
from magmath.core.resources import processor_count
from magmath.reproduce.ddp import DdpRun, train_by_ddp
from magmath.reproduce.drawing import new_figure
from magmath.reproduce.experiment import Experiment, Options
from magmath.reproduce.image_task import ImageTask, image_task
from magmath.reproduce.section import Finding, Plot, Section, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from magmath.data import Dataset

WORKERS = (1, 2, 4, 8)
BATCH = {1: 128, 2: 128, 4: 128, 8: 64}
RATE = {1: 0.5, 2: 0.5, 4: 0.4, 8: 0.6}
"""The report's Table 5.1: images of each worker in a step, and learning rates."""
REDUCED_RATE = 0.2
"""With fewer images: the rate at which all numbers of workers train."""
PAPER_ACCURACY = {1: 81.8, 2: 77.15, 4: 71.0}
PAPER_SECONDS = {1: 260.0, 2: 138.44, 4: 84.2}
IMAGES, QUICK_IMAGES = 307_200, 16_000
REPEATS = 9
WARM_SECONDS = 3.0
"""Seconds of training before the measured run."""
LOSS_TOLERANCE = 0.02
"""Largest difference of the losses of the first epoch, of their value, that rounding explains."""
UNSTABLE = (
    "training is unstable at this learning rate, so a difference in one step grows in the later "
    "ones. The first difference is a jump of the gradient: where the largest numbers of a pooling "
    "window are equal up to rounding, or the input of a relu is zero up to rounding, the order of "
    "a sum decides"
)
"""Why losses differ although network, initial weights and batches are the same."""
STAGES = ("gather", "average", "broadcast")


@final
@dataclass(frozen=True)
class CifarRun:
    """Training on some workers: seconds, losses and accuracies after every epoch, and the medians
    of the seconds of each stage of the parameter server."""

    seconds: list[float]
    losses: list[float]
    accuracies: list[float]
    stages: dict[str, float]
    parameters: int


@final
@dataclass(frozen=True)
class CifarProblem:
    """Data set and network, and the number of images that training sees."""

    task: ImageTask
    images: int

    @property
    def data(self) -> Dataset:
        """The data set."""
        return self.task.data

    @property
    def epochs(self) -> int:
        """The number of passes over the training images."""
        return max(1, round(self.images / len(self.data.train_labels)))

    def batch(self, workers: int) -> int:
        """Return the number of images of all workers in a step."""
        return min(BATCH[workers] * workers, len(self.data.train_labels))

    def rate(self, workers: int) -> float:
        """Return the learning rate for a number of workers."""
        return RATE[workers] if self.task.is_paper else REDUCED_RATE

    def build(self, workers: int) -> mm.nn.NeuralNetwork:
        """Return a new network, the same for every number of workers."""
        return self.task.build(self.rate(workers), seed=0)


def problem_of(options: Options) -> CifarProblem:
    """Return the problem for these options.

    Raises MissingDataError or DataError, as `image_task` does.
    """
    substitutes = (
        ("mnist-5k", "digits") if options.quick else ("fashion-mnist", "mnist-5k", "digits")
    )
    images = QUICK_IMAGES if options.quick else IMAGES
    return CifarProblem(image_task(options, substitutes), images)


def run(options: Options) -> Section:
    """Train on 1, 2, 4 and 8 workers."""
    problem = problem_of(options)
    has_peer = not {"all", "torch"}.isdisjoint(options.peers)
    runs, peers = {}, {}
    for workers in WORKERS:
        options.console.print(f"  {_counted(workers, 'worker')}")
        runs[workers] = train(problem, workers)
        if has_peer:
            options.console.print(f"  PyTorch's DDP on {_counted(workers, 'process')}")
            peers[workers] = train_peer(problem, workers)
    note = " Dashed: PyTorch's DDP on the same batches." if has_peer else ""
    return Section(
        (
            _introduction(problem),
            Plot(
                "Training loss against time",
                _curves(runs, peers, "losses", "mean loss of an epoch"),
                f"Report: Fig. 6.2.{note}",
            ),
            Plot(
                "Test accuracy against time",
                _curves(runs, peers, "accuracies", "test accuracy, %", 100.0),
                f"Report: Fig. 6.3.{note}",
            ),
            _results_table(runs, problem),
            *([_peer_table(runs, peers)] if has_peer else []),
            Plot(
                "A parameter server: gather, average and broadcast",
                _bars(runs),
                "Milliseconds for the gradients of all parameters. Report: Fig. 6.4 to 6.6.",
            ),
            _stages_table(runs),
            *_findings(runs),
            *([_same_losses(runs, peers), _peer_speed(runs, peers)] if has_peer else []),
        ),
        {
            **{str(workers): vars(found) for workers, found in runs.items()},
            "ddp": {str(workers): vars(found) for workers, found in peers.items()},
        },
    )


def train_peer(problem: CifarProblem, workers: int) -> DdpRun:
    """Train by PyTorch's DDP, from the same weights on the same batches."""
    with mm.init(threads=1):
        return train_by_ddp(
            problem.build(workers),
            problem.task.network,
            problem.data,
            workers=workers,
            batch=problem.batch(workers),
            epochs=problem.epochs,
            rate=problem.rate(workers),
            python=sys.executable,
        )


def train(problem: CifarProblem, workers: int) -> CifarRun:
    """Train in a pool of its own; the time is that of the steps, without compilation and tests.

    Compiled code replaces the interpreted step after about a second: until then the time of an
    epoch does not count.
    """
    data, network = problem.data, problem.build(workers)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "init: .* workers share", RuntimeWarning)  # intended
        pool = mm.init(workers, threads=1)
    with pool:
        images, labels = mm.asarray(data.train_images), mm.asarray(data.train_labels)
        options: dict[str, Any] = {
            "batch_size": problem.batch(workers),
            "strategy": "data",
            "metrics": (),
        }
        warm, spent = problem.build(workers), 0.0
        while spent < WARM_SECONDS:
            spent += sum(warm.fit(images, labels, **options).seconds)
        scores = _Accuracy(data)
        history = network.fit(images, labels, epochs=problem.epochs, callbacks=[scores], **options)
        parameters = sum(p.size for p in network.parameters.values())
        stages = stage_seconds(workers, parameters)
    seconds = list(accumulate(history.seconds))
    return CifarRun(seconds, history.loss, scores.accuracies, stages, parameters)


@final
class _Accuracy(mm.train.Callback):
    """Measures the accuracy of the test images after every epoch."""

    def __init__(self, data: Dataset) -> None:
        self._data = data
        self.accuracies: list[float] = []

    def on_epoch_end(self, trainer: Any, record: Any) -> None:
        """Score the test images."""
        scores = np.asarray(trainer.predict(self._data.test_images))
        self.accuracies.append(float(np.mean(scores.argmax(axis=1) == self._data.test_labels)))


def stage_seconds(workers: int, count: int) -> dict[str, float]:
    """Return the seconds in which worker 0 gathers `count` float32 numbers of every worker,
    averages them, and sends the result to all."""
    everywhere, server = mm.Layout.replicated(), mm.Layout.on(0)
    seconds_of: dict[str, list[float]] = {stage: [] for stage in STAGES}

    def timed(stage: str, compute: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        result = compute()
        mm.evaluate(result, wait=True)
        seconds_of[stage].append(time.perf_counter() - start)
        return result

    own = mm.ones((workers, count), dtype=mm.float32).redistribute(mm.Layout.split(0))
    for number in range(REPEATS + 2):
        gradients = own * float(number)  # new numbers: copies of known arrays are kept
        mm.evaluate(gradients, wait=True)
        gathered = timed("gather", partial(gradients.redistribute, server))
        mean = timed("average", partial(_mean_on, gathered, server))
        timed("broadcast", partial(mean.redistribute, everywhere))
    return {stage: median(seconds[2:]) for stage, seconds in seconds_of.items()}


def _mean_on(gathered: Any, server: Any) -> Any:
    return mm.mean(gathered, axis=0).redistribute(server)


def _introduction(problem: CifarProblem) -> str:
    return (
        f"{problem.task.text}. Every run sees "
        f"{problem.epochs * len(problem.data.train_labels):,} images; each worker, "
        "a process with one thread, has batches of 128 images, of 64 with 8 workers (Table 5.1). "
        f"The machine has {processor_count()} cores, the report's cluster a GPU for each worker."
    )


def _counted(count: int, noun: str) -> str:
    plural = "es" if noun.endswith("s") else "s"
    return f"{count} {noun}{plural * (count != 1)}"


def _curves(
    runs: dict[int, CifarRun], peers: dict[int, DdpRun], name: str, label: str, scale: float = 1.0
) -> Figure:
    figure = new_figure()
    axes = figure.subplots()
    for number, (workers, found) in enumerate(runs.items()):
        color = f"C{number}"
        values = scale * np.array(getattr(found, name))
        axes.plot(found.seconds, values, marker=".", color=color, label=str(workers))
        if workers in peers:
            peer = peers[workers]
            axes.plot(peer.seconds, scale * np.array(getattr(peer, name)), "--", color=color)
    axes.set(xlabel="seconds of training", ylabel=label)
    axes.grid(alpha=0.3)
    axes.legend(title="workers")
    return figure


def _bars(runs: dict[int, CifarRun]) -> Figure:
    figure = new_figure()
    axes = figure.subplots()
    for i, stage in enumerate(STAGES):
        positions = [position + 0.27 * i for position in range(len(runs))]
        axes.bar(
            positions, [found.stages[stage] * 1e3 for found in runs.values()], 0.27, label=stage
        )
    axes.set_xticks([position + 0.27 for position in range(len(runs))], list(map(str, runs)))
    axes.set(xlabel="workers", ylabel="ms")
    axes.legend()
    return figure


def _results_table(runs: dict[int, CifarRun], problem: CifarProblem) -> Table:
    rows = [
        (
            workers,
            BATCH[workers],
            problem.rate(workers),
            found.losses[-1],
            100 * found.accuracies[-1],
            found.seconds[-1],
            PAPER_ACCURACY.get(workers),
            PAPER_SECONDS.get(workers),
        )
        for workers, found in runs.items()
    ]
    columns = (
        "workers", "batch", "learning rate", "loss", "accuracy, %", "seconds",
        "report: accuracy, %", "report: seconds",
    )  # fmt: skip
    return Table.of("After the last image", columns, rows)


def _peer_table(runs: dict[int, CifarRun], peers: dict[int, DdpRun]) -> Table:
    rows = [
        (
            workers,
            found.losses[-1],
            peers[workers].losses[-1],
            100 * found.accuracies[-1],
            100 * peers[workers].accuracies[-1],
            found.seconds[-1],
            peers[workers].seconds[-1],
        )
        for workers, found in runs.items()
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


def _stages_table(runs: dict[int, CifarRun]) -> Table:
    rows = [
        (workers, *[found.stages[stage] * 1e3 for stage in STAGES])
        for workers, found in runs.items()
    ]
    count = next(iter(runs.values())).parameters
    note = f"Medians of {REPEATS}, {count:,} parameters in float32. The report has plots only."
    return Table.of("Milliseconds of each stage", ("workers", *STAGES), rows, note)


def _findings(runs: dict[int, CifarRun]) -> list[Finding]:
    return [_accuracy(runs), _speed(runs), _averages(runs), _transfers(runs)]


def _accuracy(runs: dict[int, CifarRun]) -> Finding:
    final = {workers: found.accuracies[-1] for workers, found in runs.items()}
    falls = final[1] >= final[4] and final[2] >= final[8]
    return Finding(
        "For the same images, more workers end with a lower accuracy",
        "81.8 % with 1 worker, 77.15 % with 2, about 71 % with 4",
        ", ".join(f"{100 * value:.1f} % with {workers}" for workers, value in final.items()),
        agrees=falls,
        reason="" if falls else "the accuracies differ by less than their noise in this short run",
    )


def _speed(runs: dict[int, CifarRun]) -> Finding:
    seconds = {workers: found.seconds[-1] for workers, found in runs.items()}
    statement, paper = "More workers need less time", "260 s, 138.44 s and 84.2 s with 1, 2 and 4"
    ours = ", ".join(f"{value:.2f} s with {workers}" for workers, value in seconds.items())
    cores = processor_count()
    usable = [workers for workers in runs if workers <= cores]
    if len(usable) < 2:
        return Finding(statement, paper, ours, None, "this machine has one core for all workers")
    faster = seconds[usable[-1]] < seconds[usable[0]]
    return Finding(
        statement,
        paper,
        f"{ours}; the {cores} cores serve at most {usable[-1]} workers",
        agrees=faster,
        reason="" if faster else "the network is small, or other programs use the cores",
    )


def _averages(runs: dict[int, CifarRun]) -> Finding:
    seconds = [found.stages["average"] for found in runs.values()]
    growth, linear = seconds[-1] / seconds[0], WORKERS[-1] / WORKERS[0]
    rises = seconds == sorted(seconds) and linear / 2 <= growth <= 2 * linear
    return Finding(
        "The time of averaging grows linearly with the workers",
        "seems to scale linearly (Fig. 6.4)",
        f"{growth:.1f} × from 1 to 8 workers, where linear growth is {linear:.0f} ×",
        agrees=rises,
        reason=""
        if rises
        else f"{runs[1].parameters:,} parameters are few, and workers that share a core wait for "
        "one another: the time of a command outweighs the sums",
    )


def _transfers(runs: dict[int, CifarRun]) -> Finding:
    four, eight = runs[4].stages, runs[8].stages
    gather, broadcast = four["gather"] < eight["gather"], eight["broadcast"] < four["broadcast"]
    return Finding(
        "Gathering is faster with 4 workers than with 8, broadcasting is slower",
        "unusual; attributed to MPI's choice of algorithms (Fig. 6.5, 6.6)",
        f"gather {four['gather'] * 1e3:.2f} and {eight['gather'] * 1e3:.2f} ms, broadcast "
        f"{four['broadcast'] * 1e3:.2f} and {eight['broadcast'] * 1e3:.2f} ms with 4 and 8",
        agrees=gather and broadcast,
        reason=""
        if gather and broadcast
        else "the workers share the memory of one host: each transfer is a copy, whose time "
        "depends on the bytes and on the cores that are free",
    )


def _same_losses(runs: dict[int, CifarRun], peers: dict[int, DdpRun]) -> Finding:
    first = {w: abs(found.losses[0] / peers[w].losses[0] - 1.0) for w, found in runs.items()}
    last = {w: abs(found.losses[-1] / peers[w].losses[-1] - 1.0) for w, found in runs.items()}
    agrees = max(first.values()) < LOSS_TOLERANCE
    return Finding(
        "The losses are those of PyTorch's DDP on the same batches",
        "not compared",
        f"the losses of the first epoch differ by at most {max(first.values()):.1e} of their value,"
        f" those of the last one by {max(last.values()):.1e}",
        agrees=agrees,
        reason=UNSTABLE if max([*first.values(), *last.values()]) >= LOSS_TOLERANCE else "",
    )


def _peer_speed(runs: dict[int, CifarRun], peers: dict[int, DdpRun]) -> Finding:
    ratios = {w: peers[w].seconds[-1] / found.seconds[-1] for w, found in runs.items()}
    faster = min(ratios.values()) >= 1.0
    slower, cores = [w for w, ratio in ratios.items() if ratio < 1.0], processor_count()
    return Finding(
        "Training takes no longer than with PyTorch's DDP",
        "not compared",
        "time of DDP over ours: "
        + ", ".join(f"{ratio:.2f} × with {workers}" for workers, ratio in ratios.items()),
        agrees=faster,
        reason=""
        if faster
        else "DDP is faster with "
        + _listed([_counted(w, "worker") for w in slower])
        + (
            f"; above {cores} workers, several share one of the {cores} cores, and so does the "
            "process that controls them"
            if slower[-1] > cores
            else ""
        )
        + ". A step of this network is short, so what else the machine was running counts",
    )


def _listed(words: list[str]) -> str:
    """Return words as a list in prose."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if words[1:] else words)


EXPERIMENT = Experiment(
    "shm-cifar10",
    "SHM-Learn-Dist: CIFAR-10 on 1, 2, 4 and 8 workers",
    "SHM-Learn-Dist report, §6, Fig. 6.2–6.6, Table 5.1",
    run,
)
