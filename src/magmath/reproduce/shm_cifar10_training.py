"""Training of SHM-Learn-Dist's scaling experiment on some workers, and PyTorch's DDP on the same
batches.

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
from magmath.reproduce.ddp import DdpRun, train_by_ddp
from magmath.reproduce.experiment import Options
from magmath.reproduce.image_task import ImageTask, image_task

if TYPE_CHECKING:
    from magmath.data import Dataset

WORKERS = (1, 2, 4, 8)
BATCH = {1: 128, 2: 128, 4: 128, 8: 64}
RATE = {1: 0.5, 2: 0.5, 4: 0.4, 8: 0.6}
"""The report's Table 5.1: images of each worker in a step, and learning rates."""
REDUCED_RATE = 0.2
"""With fewer images: the rate at which all numbers of workers train."""
IMAGES, QUICK_IMAGES = 307_200, 16_000
REPEATS = 9
"""Measurements of each stage of the parameter server."""
WARM_SECONDS = 3.0
"""Seconds of training before the measured run."""
STAGES = ("gather", "average", "broadcast")
"""The stages of a parameter server."""


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

    rows = mm.ones((workers, count), dtype=mm.float32).redistribute(mm.Layout.split(0))
    for number in range(REPEATS + 2):
        gradients = rows * float(number)  # new numbers: copies of known arrays are kept
        mm.evaluate(gradients, wait=True)
        gathered = timed("gather", partial(gradients.redistribute, server))
        mean = timed("average", partial(_mean_on, gathered, server))
        timed("broadcast", partial(mean.redistribute, everywhere))
    return {stage: median(seconds[2:]) for stage, seconds in seconds_of.items()}


def _mean_on(gathered: Any, server: Any) -> Any:
    return mm.mean(gathered, axis=0).redistribute(server)
