"""The search: trains the proposed trials in shared pools, and returns their results."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from magmath.api.creation import asarray
from magmath.engine import session
from magmath.errors import OptionError, ShapeError
from magmath.train.network import NeuralNetwork
from magmath.train.parameter_search.curve import POINTS, LossCurve
from magmath.train.parameter_search.database import Database
from magmath.train.parameter_search.proposals import Proposals, proposals
from magmath.train.parameter_search.results import SearchResults, Trial, best_of
from magmath.train.parameter_search.space import RESERVED, Amount, Settings, Space
from magmath.train.parameter_search.trial_run import TrialRun

Build = Callable[..., NeuralNetwork]
WARM_SECONDS = 2.0
"""Seconds of training that precede the first trial with a new step size: compiled code replaces the
interpreted step after about a second."""
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
                    `build(learning_rate=0.1)`. Its trainer keeps its strategy, callbacks, loss
                    scale and metrics; without metrics, only the loss is computed
    space           lists of values by name. "batch_per_worker" is the number of samples of each
                    worker in a step; for each value of "workers" one pool is started, whose trials
                    share tuned kernels and compiled programs (without "workers": the current
                    pool); the other names are arguments of `build`
    images          samples that each trial sees; the numbers of steps and epochs follow from it
    method          "grid": all combinations; "random": a choice of `trials` of them; "optuna":
                    `trials` proposals of Optuna (`pip install 'magmath[search]'`)
    early_stopping  end a trial with the epoch in which its area exceeds the best admissible one of
                    the same number of workers. This cannot change the winner if no loss is negative
    halving         successive halving: all trials train for a part of the epochs; then one in
                    `halving`, those with the lowest last loss, trains `halving` times as long, and
                    so on. It may change the winner; needs a method other than "optuna"
    storage         an SQLite file, to which each trial is written when it ends. A search that was
                    killed continues from it
    on_progress     receives the results so far and the current trial after every epoch

    The time is that of training, without compilation: before the first trial with a new step
    size, other layers or another optimizer, epochs run that are not measured, for about two
    seconds, but at least one of them and at most twice those of a trial.

    Raises ShapeError if the lengths of x and y differ, OptionError for an empty space, impossible
    numbers, or trials that are too short for halving, DataError for batches larger than the data,
    for a file that is not a results database or belongs to another search.
    """
    x, y = np.asarray(x), np.asarray(y)
    if x.ndim == 0 or len(x) != len(y):
        raise ShapeError(f"search: x and y need one length, were given {x.shape} and {y.shape}")
    rules = _Rules(images, threshold, method, trials, early_stopping, halving, seed, device)
    all_settings = Space.of(space)
    amount = Amount.of(all_settings, images, len(x))
    if halving is not None and amount.epochs < halving:
        raise OptionError(
            f"search: halving by {halving} needs trials of at least {halving} epochs, {images} "
            f"images are {amount.epochs} of {amount.samples}; take more images, or omit halving"
        )
    order = proposals(method, all_settings, trials, seed, threshold)
    subset = np.random.default_rng(seed).permutation(len(x))[: amount.samples]
    with closing(Database(storage, rules.description(build, all_settings, x, y))) as database:
        pools = _Pools(x[subset], y[subset], device)
        trial_search = _Search(build, amount, rules, pools, database, on_progress)
        with pools.closing():
            if halving:
                return trial_search.successive_halving(order, halving)
            return trial_search.full_trials(order)


@final
@dataclass(frozen=True)
class _Rules:
    """The rules of a search: the arguments of `search` on which its results depend."""

    images: int
    threshold: float
    method: str
    trials: int | None
    early_stopping: bool
    halving: int | None
    seed: int
    device: str

    def __post_init__(self) -> None:
        if self.halving is not None and (self.halving < 2 or self.method == "optuna"):
            raise OptionError(
                f"search: halving must be at least 2, with method 'grid' or 'random', was given "
                f"{self.halving} with {self.method!r}"
            )

    def description(
        self, build: Build, space: Space, x: npt.NDArray[Any], y: npt.NDArray[Any]
    ) -> dict[str, Any]:
        """Return the identity of the search with this space and these samples, for its database."""
        environment = session.engine().environment
        in_pool = {} if "workers" in space.values else {"workers": environment.workers}
        return {
            **in_pool,
            "space": {name: list(values) for name, values in space.values.items()},
            **asdict(self),
            "samples": _described(x),
            "targets": _described(y),
            "network": _network_text(build, space),
        }


def _described(values: Any) -> list[Any]:
    """Return properties that distinguish data sets, as plain values."""
    return [list(values.shape), str(values.dtype), float(np.sum(values, dtype=np.float64))]


def _network_text(build: Build, space: Space) -> str:
    """Return the network, the loss and the optimizer of the first trial as text, without the
    addresses of functions."""
    network = _built(build, space.settings()[0])
    return _without_addresses(f"{network.module!r}, {network.loss!r}, {network.optimizer!r}")


def _without_addresses(text: str) -> str:
    """Return the text of objects in one line, without the addresses of functions."""
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
        """Return the samples on the workers of a pool of this size, which is started if the
        current one has another size; for None, on the current pool."""
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
        """Shut down the last pool that the search started, at the end of the block."""
        try:
            yield
        finally:
            self._data = None
            if self._own:
                session.shutdown()


@final
class _Search:
    """The completed trials, and the loop over the remaining ones."""

    def __init__(
        self,
        build: Build,
        amount: Amount,
        rules: _Rules,
        pools: _Pools,
        database: Database,
        on_progress: OnProgress | None,
    ) -> None:
        self._build, self._amount, self._rules = build, amount, rules
        self._pools, self._database, self._on_progress = pools, database, on_progress
        self._trials = database.trials()
        self._warm: set[tuple[Any, ...]] = set()

    def full_trials(self, order: Proposals) -> SearchResults:
        """Train every trial for all its epochs."""
        for trial in self._trials:
            order.tell(trial)
        for settings in order.remaining():
            run = self._start_trial(settings, len(self._trials))
            run.train(self._amount.epochs)
            self._end(run.trial)
            order.tell(run.trial)
        return self._results()

    def successive_halving(self, order: Proposals, factor: int) -> SearchResults:
        """Train the trials of each number of workers in rounds, of which only the best continue."""
        completed = {repr(trial.settings) for trial in self._trials}
        numbered = enumerate(order.remaining())
        groups: dict[Any, list[tuple[int, Settings]]] = {}
        for number, settings in numbered:
            groups.setdefault(settings.get("workers"), []).append((number, settings))
        for group in groups.values():
            if all(repr(settings) in completed for _, settings in group):
                continue
            self._forget(settings for _, settings in group)
            self._halve([self._start_trial(settings, number) for number, settings in group], factor)
        return self._results()

    def _forget(self, group: Iterable[Settings]) -> None:
        """Drop the stored trials of a group that is trained again, which must not stop them."""
        repeated = {repr(settings) for settings in group}
        self._trials = [trial for trial in self._trials if repr(trial.settings) not in repeated]

    def _halve(self, runs: list[TrialRun], factor: int) -> None:
        """Train the runs in rounds: each multiplies the epochs, and keeps one run in `factor`."""
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
                ended += [run.eliminate() for run in runs[count:]]
                runs = runs[:count]
            for run in ended:
                self._end(run.trial)
        for run in runs:
            self._end(run.trial)

    def _end(self, trial: Trial) -> None:
        """Store a trial."""
        self._database.add(trial)
        other_trials = [t for t in self._trials if t.number != trial.number]
        self._trials = sorted([*other_trials, trial], key=lambda t: t.number)
        if self._on_progress is not None:
            self._on_progress(self._results(), trial)

    def _results(self) -> SearchResults:
        images = self._amount.epochs * self._amount.samples
        return SearchResults(tuple(self._trials), self._rules.threshold, images)

    def _start_trial(self, settings: Settings, number: int) -> TrialRun:
        """Return the run of a trial in its pool, after warming up for a new step or network."""
        data = self._pools.data(settings.get("workers"))
        network = self._network(settings)
        step = settings.get("workers"), settings["batch_per_worker"]
        key = (*step, _without_addresses(repr(network.module)), type(network.optimizer))
        epochs = self._amount.epochs
        if key not in self._warm:
            self._warm_up(settings, data, 2 * epochs)
            self._warm.add(key)
        points = max(1, POINTS // epochs)
        trial = Trial(number, settings, "finished", LossCurve())
        return TrialRun(network, trial, data, epochs, points, self._limit, self._show)

    def _warm_up(self, settings: Settings, data: tuple[Any, Any], max_epochs: int) -> None:
        """Train for some epochs, `max_epochs` at most, while the step is compiled in the
        background."""
        trial = Trial(-1, settings, "finished", LossCurve())
        run = TrialRun(self._network(settings), trial, data, max_epochs, 1)
        for epochs in range(1, max_epochs + 1):
            run.train(epochs)
            if run.trial.state == "diverged" or run.trial.curve.seconds[-1] >= WARM_SECONDS:
                break

    def _network(self, settings: Settings) -> NeuralNetwork:
        """Return the network of a trial, with the seed of the search unless it has its own, and
        with the metrics that its trainer was given: those by default are not computed."""
        network = _built(self._build, settings)
        trainer = network.trainer
        if trainer.seed is None:
            trainer.seed = self._rules.seed
        if trainer.metrics is None:
            trainer.metrics = ()
        return network

    def _limit(self, trial: Trial) -> float:
        """Return the area above which a trial cannot win."""
        if not self._rules.early_stopping:
            return float("inf")
        rivals = [t for t in self._trials if t.workers == trial.workers]
        best = best_of(rivals, self._rules.threshold)
        return float("inf") if best is None else best.curve.area

    def _show(self, trial: Trial) -> None:
        if self._on_progress is not None:
            self._on_progress(self._results(), trial)
