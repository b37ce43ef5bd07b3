"""The search: runs trials in pools that they share, and stops those that cannot win."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, final

import numpy as np

from magmath.api.creation import asarray
from magmath.engine import session
from magmath.errors import DataError, NonFiniteLoss, OptionError
from magmath.train.history import EpochRecord
from magmath.train.listeners import Listener
from magmath.train.network import NeuralNetwork
from magmath.train.parameter_search.curve import POINTS, LossCurve
from magmath.train.parameter_search.database import Database
from magmath.train.parameter_search.proposals import Proposals, proposals
from magmath.train.parameter_search.results import SearchResults, State, Trial, best_of
from magmath.train.parameter_search.space import RESERVED, Amount, Settings, Space, step_images
from magmath.train.trainer import Trainer

Build = Callable[..., NeuralNetwork]
OnProgress = Callable[[SearchResults, Trial], None]


def search(
    build: Build,
    x: Any,
    y: Any,
    space: Mapping[str, Sequence[Any]],
    *,
    images: int = 307_200,
    threshold: float = 1.8,
    method: str = "grid",
    trials: int | None = None,
    early_stopping: bool = True,
    halving: int | None = None,
    storage: str | os.PathLike[str] | None = None,
    seed: int = 0,
    device: str = "auto",
    on_progress: OnProgress | None = None,
) -> SearchResults:
    """Train a network with different settings on samples x (N, …) and targets y; return all trials.

    The winner has the smallest area under its loss–time curve among the trials whose least loss is
    at most `threshold`: the area alone would prefer a short run with a large loss. Every trial sees
    the same number of images. Source: SHM-Learn-Dist report, §5.

    build           returns a new network for settings, given as keyword arguments:
                    `build(learning_rate=0.1)`
    space           lists of values by name. "batch" is the number of samples of each worker in a
                    step; for each of "workers" a pool is started, which its trials share with their
                    tuned kernels and compiled programs (without it: the current pool); the other
                    names are arguments of `build`
    images          samples that each trial sees; the numbers of steps and epochs follow from it
    method          "grid": all combinations; "random": a choice of `trials` of them; "optuna":
                    `trials` proposals of Optuna (`pip install 'magmath[search]'`)
    early_stopping  end a trial as soon as its area exceeds the best admissible one of the same
                    number of workers. This cannot change the winner if no loss is negative
    halving         successive halving: all trials train for a part of the epochs, the best of them
                    by the last loss, one in `halving`, so many times longer, and so on. It may
                    change the winner; needs a method other than "optuna"
    storage         an SQLite file, to which each trial is written when it ends. A search that was
                    killed goes on with it
    on_progress     receives the results so far and the current trial after every epoch

    The time is that of training, without compilation: the first trial with a size of step is
    preceded by an epoch that does not count.

    Raises OptionError for an empty space or impossible numbers, DataError for batches larger than
    the data, for a file that is no results database, or that belongs to another search.
    """
    x, y = np.asarray(x), np.asarray(y)
    if x.ndim == 0 or len(x) != len(y):
        raise DataError(f"search: x and y need one length, were given {x.shape} and {y.shape}")
    if halving is not None and (halving < 2 or method == "optuna"):
        raise OptionError(
            f"search: halving must be at least 2, with method 'grid' or 'random', was given "
            f"{halving} with {method!r}"
        )
    spaced = Space.of(space)
    amount = Amount.of(spaced, images, len(x))
    order = proposals(method, spaced, trials, seed, threshold)
    description = {
        "space": {name: list(values) for name, values in spaced.values.items()},
        "images": images, "threshold": threshold, "method": method, "trials": trials,
        "early_stopping": early_stopping, "halving": halving, "seed": seed,
        "samples": _described(x), "targets": _described(y),
        "network": _network_text(build, spaced),
    }  # fmt: skip
    kept = np.random.default_rng(seed).permutation(len(x))[: amount.samples]
    database = Database(storage, description)
    try:
        pools = _Pools(x[kept], y[kept], device)
        runner = _Search(
            build, amount, threshold, early_stopping, seed, pools, database, on_progress
        )
        with pools.closing():
            return runner.halved(order, halving) if halving else runner.all(order)
    finally:
        database.close()


def _described(values: Any) -> list[Any]:
    """Return what tells data sets apart, in plain values."""
    return [list(values.shape), str(values.dtype), float(np.sum(values, dtype=np.float64))]


def _network_text(build: Build, space: Space) -> str:
    """Return the network and the optimizer of the first trial as text, without the addresses of
    functions."""
    network = _built(build, space.settings()[0])
    text = f"{network.module!r}, {network.trainer.optimizer!r}"
    return " ".join(re.sub(r" at 0x[0-9a-f]+", "", text).split())


def _built(build: Build, settings: Settings) -> NeuralNetwork:
    """Return the network of a trial. Raises OptionError if the function returns anything else."""
    network = build(**{name: v for name, v in settings.items() if name not in RESERVED})
    if not isinstance(network, NeuralNetwork):
        raise OptionError(
            f"search: build must return a NeuralNetwork, it returned {type(network).__name__}"
        )
    return network


@final
class _Pools:
    """The pool of the current trial, with the samples on its workers."""

    def __init__(self, x: Any, y: Any, device: str) -> None:
        self._x, self._y, self._device = x, y, device
        self._workers: int | None = None
        self._data: tuple[Any, Any] | None = None
        self._own = False

    def data(self, workers: int | None) -> tuple[Any, Any]:
        """Return the samples in a pool of so many workers, which is started if there is another;
        for None in the current pool."""
        if self._data is None or workers != self._workers:
            self._data = None
            if workers is not None:
                session.init(workers, device=self._device)
                self._own = True
            self._workers = workers
            self._data = asarray(self._x), asarray(self._y)
        return self._data

    @contextmanager
    def closing(self) -> Iterator[None]:
        """Shut the last own pool down at the end."""
        try:
            yield
        finally:
            self._data = None
            if self._own:
                session.shutdown()


@final
class _Search:
    """The trials that are done, and the loop over the others."""

    def __init__(
        self,
        build: Build,
        amount: Amount,
        threshold: float,
        early_stopping: bool,
        seed: int,
        pools: _Pools,
        database: Database,
        on_progress: OnProgress | None,
    ) -> None:
        self._build, self._amount, self._threshold = build, amount, threshold
        self._early_stopping, self._seed, self._pools = early_stopping, seed, pools
        self._database, self._on_progress = database, on_progress
        self._trials = database.trials()
        self._warm: set[tuple[Any, ...]] = set()

    def all(self, order: Proposals) -> SearchResults:
        """Run all trials to their end."""
        for trial in self._trials:
            order.tell(trial)
        for settings in order.remaining():
            run = self._started(settings, len(self._trials))
            run.train(self._amount.epochs)
            self._end(run.trial)
            order.tell(run.trial)
        return self._results()

    def halved(self, order: Proposals, factor: int) -> SearchResults:
        """Run all trials of each number of workers for a while, and the best of them further."""
        done = {repr(trial.settings) for trial in self._trials}
        numbered = enumerate(order.remaining())
        groups: dict[Any, list[tuple[int, Settings]]] = {}
        for number, settings in numbered:
            groups.setdefault(settings.get("workers"), []).append((number, settings))
        for group in groups.values():
            if all(repr(settings) in done for _, settings in group):
                continue
            self._halve([self._started(settings, number) for number, settings in group], factor)
        return self._results()

    def _halve(self, runs: list[_Run], factor: int) -> None:
        epochs = self._amount.epochs
        rungs = 0
        while factor ** (rungs + 1) <= min(len(runs), epochs):
            rungs += 1
        for rung in reversed(range(rungs + 1)):
            for run in runs:
                run.train(max(1, epochs // factor**rung))
            ended = [run for run in runs if run.trial.state != "finished"]
            runs = sorted(
                [run for run in runs if run not in ended],
                key=lambda run: run.trial.curve.losses[-1],
            )
            if rung:
                count = max(1, len(runs) // factor)
                ended += [run.eliminated() for run in runs[count:]]
                runs = runs[:count]
            for run in ended:
                self._end(run.trial)
        for run in runs:
            self._end(run.trial)

    def _end(self, trial: Trial) -> None:
        """Store a trial."""
        self._database.add(trial)
        others = [t for t in self._trials if t.number != trial.number]
        self._trials = sorted([*others, trial], key=lambda t: t.number)
        if self._on_progress is not None:
            self._on_progress(self._results(), trial)

    def _results(self) -> SearchResults:
        images = self._amount.epochs * self._amount.samples
        return SearchResults(tuple(self._trials), self._threshold, images)

    def _started(self, settings: Settings, number: int) -> _Run:
        key = (settings.get("workers"), settings["batch"])
        data = self._pools.data(settings.get("workers"))
        if key not in self._warm:
            warm = _Run(
                self._network(settings), Trial(-1, settings, "finished", LossCurve()), data, 1
            )
            warm.train(1)
            self._warm.add(key)
        points = max(1, POINTS // self._amount.epochs)
        trial = Trial(number, settings, "finished", LossCurve())
        return _Run(self._network(settings), trial, data, points, self._limit, self._show)

    def _network(self, settings: Settings) -> NeuralNetwork:
        network = _built(self._build, settings)
        if network.seed is None:
            old = network.trainer
            network.trainer = Trainer(old.module, old.loss, old.optimizer, seed=self._seed)
        return network

    def _limit(self, trial: Trial) -> float:
        """Return the area from which on a trial cannot win."""
        if not self._early_stopping:
            return float("inf")
        rivals = [t for t in self._trials if t.workers == trial.workers]
        best = best_of(rivals, self._threshold)
        return float("inf") if best is None else best.curve.area

    def _show(self, trial: Trial) -> None:
        if self._on_progress is not None:
            self._on_progress(self._results(), trial)


def no_limit(trial: Trial) -> float:
    """Return infinity."""
    return float("inf")


def show_nothing(trial: Trial) -> None:
    """Ignore the progress of a trial."""


@final
class _Run(Listener[Trainer]):
    """A trial under way: its network, and its curve so far."""

    def __init__(
        self,
        network: NeuralNetwork,
        trial: Trial,
        data: tuple[Any, Any],
        points: int,
        limit: Callable[[Trial], float] = no_limit,
        show: Callable[[Trial], None] = show_nothing,
    ) -> None:
        self.network, self.trial, self._data, self._points = network, trial, data, points
        self._limit, self._show = limit, show
        self._epochs = 0

    def train(self, epochs: int) -> None:
        """Train until `epochs` epochs are done, or until the trial is stopped or diverges."""
        if self.trial.state != "finished" or epochs <= self._epochs:
            return
        try:
            self.network.fit(
                *self._data,
                batch_size=step_images(self.trial.settings),
                epochs=epochs - self._epochs,
                metrics=(),
                callbacks=[self],
            )
        except NonFiniteLoss:
            self._set("diverged", self.trial.curve)

    def eliminated(self) -> _Run:
        """Return this run, whose trial is now eliminated."""
        self._set("eliminated", self.trial.curve)
        return self

    def on_epoch_end(self, trainer: Trainer, record: EpochRecord) -> None:
        """Extend the curve, and stop if the trial cannot win."""
        self._epochs += 1
        assert trainer.history is not None
        steps = trainer.history.steps
        losses = steps[-len(steps) // len(trainer.history.records) :]
        curve = self.trial.curve.extended(losses, record.seconds, self._points)
        state: State = "finished"
        if curve.area > self._limit(self.trial):
            state = "stopped"
            trainer.stop()
        self._set(state, curve)
        self._show(self.trial)

    def _set(self, state: State, curve: LossCurve) -> None:
        self.trial = Trial(self.trial.number, self.trial.settings, state, curve)
