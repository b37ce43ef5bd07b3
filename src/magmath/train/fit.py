"""Training: the step's graph, its strategy, and the loop over epochs."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import partial
from operator import is_
from typing import TYPE_CHECKING, Any

import magmath as mm
from magmath.array import session
from magmath.array.array import Array
from magmath.array.creation import asarray, variable
from magmath.array.engine import Compiled, Engine, Progress
from magmath.array.explain import explain_program
from magmath.array.handle import evaluate
from magmath.array.variable import Variable, overwrite
from magmath.autodiff import gradients
from magmath.core.dtypes import int64
from magmath.core.integers import require_integer
from magmath.errors import DataError, MagmathError, NonFiniteLoss
from magmath.graph import Graph, Node, Shape, apply
from magmath.layout import Layout
from magmath.nn.layers import Noise
from magmath.nn.losses import accuracy
from magmath.ops import creation, gathering, windows
from magmath.ops import elementwise as e
from magmath.ops.leaves import constant, parameter, variable_leaf
from magmath.optim.minimizing import rate_dtype
from magmath.optim.states import Slot
from magmath.passes import pipeline
from magmath.passes.environment import Environment
from magmath.passes.price import predicted_seconds
from magmath.train.history import EpochRecord, History
from magmath.train.report import NullReporter, Reporter, console_reporter
from magmath.train.strategy import Choice, check_strategy, choose, parameter_layout

if TYPE_CHECKING:
    from magmath.array.explanation import Explanation
    from magmath.train.network import NeuralNetwork

PROBABILITY_ERROR = 1e-2
"""How far the probabilities of a sample may be from a sum of 1."""
ORDER_STREAM = 1 << 41  # streams of epochs and dropout, apart from those that users draw
NOISE_STREAM = 1 << 42


Settings = tuple[int, str, bool, tuple[str, ...] | None]
"""Batch size, strategy, shuffle, metrics."""


class Fit:
    """One call of `fit`: data on the workers, compiled steps, and the epochs run with them."""

    def __init__(self, network: NeuralNetwork, x: Any, y: Any, settings: Settings) -> None:
        batch_size, strategy, shuffle, metrics = settings
        check_strategy(strategy)
        self.network = network
        self.engine = session.engine()
        self.optimizer = network.optimizer
        self._given = _values_of(x, y)
        self._settings = settings
        self._between_epochs = True
        self.samples, self.targets = _data_set(network, x, y, "fit")
        self.count = self.samples.shape[0]
        self.batch_size = min(require_integer("fit: batch_size", batch_size, 1), self.count)
        self.validation: tuple[Any, Any] | None = None
        self.shuffle = shuffle
        if unknown := {*(metrics or ())} - {"accuracy"}:
            raise MagmathError(f"fit: the only metric is 'accuracy', was given {sorted(unknown)}")
        asked = None if metrics is None else "accuracy" in metrics
        self.measures = _measures_accuracy(network, self.targets, asked)
        self.parameters = list(network.parameters.values())
        self._prepare(strategy)
        network._trained = self

    def serves(self, x: Any, y: Any, settings: Settings) -> bool:
        """True if another call of `fit` can go on with these compiled steps: the same immutable
        arrays, settings, parameters and pool, and nothing was broken off."""
        network, given = self.network, _values_of(x, y)
        return (
            given is not None
            and self._given is not None
            and all(map(is_, given, self._given))
            and settings == self._settings
            and self._between_epochs
            and self.engine is session.engine()
            and self.optimizer is network.optimizer
            and list(map(id, self.parameters)) == list(map(id, network.parameters.values()))
            and all(map(is_, self._kept_variables, self._variables()))
        )

    def _variables(self) -> list[Variable]:
        """The parameters with what the optimizer keeps of them."""
        return [v for kept in self.optimizer.kept.of(self.parameters) for v in kept.variables()]

    # compiling --------------------------------------------------------------------------------

    def _prepare(self, strategy: str) -> None:
        optimizer, engine = self.optimizer, self.engine
        self.rate = parameter(optimizer.rate(0), rate_dtype(self.parameters))
        self.epoch = parameter(0, int64)
        self.seed = parameter(self.network.seed_or_pool(), int64)
        last = _continued(self.network, engine)
        self.step: Variable = last.step if last else variable("step", 0, dtype=int64)
        self.done: int = last.done if last else 0  # epochs, also those of earlier calls
        self.position = variable("position", 0, dtype=int64)
        self.kept = optimizer.kept.of(self.parameters)
        self.choice, self.prices = self._chosen(strategy)
        for layout, kept in zip(self._layouts(self.choice), self.kept, strict=True):
            kept.move(layout)
        self._kept_variables = self._variables()
        self.full = self._compiled(self.batch_size)
        rest = self.count % self.batch_size
        self.rest = self._compiled(rest) if rest else None

    def _compiled(self, batch: int) -> tuple[Graph, Compiled]:
        slots = [kept.slot(lambda v: v.leaf) for kept in self.kept]
        graph = self.engine.cut(self._graph(batch, slots))
        return graph, self.engine.compile(graph)

    def _graph(self, batch: int, slots: Sequence[Slot]) -> Graph:
        """One step: take a batch, compute the loss, update the parameters, move on."""
        x, y = self._batch(batch)
        parameters = [Array(slot.value) for slot in slots]
        names = dict(zip(self.network.parameters, parameters, strict=True))
        noise = Noise(self.seed, e.add(self.step.leaf, constant(NOISE_STREAM, int64)))
        outputs = self.network.forward(x, names, noise)
        loss = self.network.loss(outputs, y).node
        emitted = (loss, accuracy(outputs, y).node) if self.measures else (loss,)
        slopes = gradients(loss, [slot.value for slot in slots])
        pairs = self.optimizer.next_values(slots, slopes, self.rate)
        whole = self.count - self.count % self.batch_size
        moved = e.add(self.position.leaf, constant(batch, int64))
        position = e.call("remainder", moved, constant(max(whole, 1), int64))
        if batch != self.batch_size:
            position = e.add(self.position.leaf, constant(0, int64))
        step = e.add(self.step.leaf, constant(1, int64))
        pairs += [(self.position.leaf, position), (self.step.leaf, step)]
        return Graph(
            tuple([value for _, value in pairs]), tuple([target for target, _ in pairs]), emitted
        )

    def _batch(self, batch: int) -> tuple[Array, Array]:
        """The samples and targets of this step, in the epoch's order."""
        if self.shuffle:
            stream = e.add(self.epoch, constant(ORDER_STREAM, int64))
            order = apply(creation.PERMUTATION, self.seed, stream, shape=(self.count,), dtype=int64)
        else:
            order = creation.iota((self.count,), 0)
        start: Node = self.position.leaf
        if batch != self.batch_size:
            start = constant(self.count - batch, int64)
        index = windows.window(order, 0, start, batch)
        x = gathering.take(self.samples.evaluated(), index, 0)
        y = gathering.take(self.targets.evaluated(), index, 0)
        return Array(x), Array(y)

    # strategy -----------------------------------------------------------------------------------

    def _layers(self) -> list[str]:
        return sorted({name.split(".")[0] for name in self.network.parameters}, key=int)

    def _chosen(self, strategy: str) -> tuple[dict[str, str], dict[str, float]]:
        if self.engine.environment.workers == 1:
            return dict.fromkeys(self._layers(), "data"), {}
        return choose(self._layers(), self._cost, strategy)

    def _layouts(self, choice: Choice) -> list[Layout]:
        """The layouts of the parameters by this choice."""
        environment = self.engine.environment
        return [
            parameter_layout(
                choice[name.split(".")[0]], v.shape, environment.mesh, environment.shares_memory
            )
            for name, v in self.network.parameters.items()
        ]

    def _cost(self, choice: Choice) -> float:
        """The predicted seconds of a step with the parameters in other layouts."""
        slots = [
            kept.slot(partial(_planned, layout))
            for layout, kept in zip(self._layouts(choice), self.kept, strict=True)
        ]
        graph = self.engine.cut(self._graph(self.batch_size, slots))
        planned = pipeline.run(graph, self.engine.environment)
        return predicted_seconds(planned, self.engine.environment)

    # running ------------------------------------------------------------------------------------

    def epochs(self, epochs: int, reporter: Reporter | None, verbose: bool) -> History:
        """Train for a number of epochs."""
        epochs = require_integer("fit: epochs", epochs, 0)
        report: Reporter = reporter or (console_reporter() if verbose else NullReporter())
        steps = math.ceil(self.count / self.batch_size)
        history = History(strategy=", ".join(f"{k}: {v}" for k, v in self.choice.items()))
        self.network.history = history
        report.begin(epochs, steps)
        try:
            for epoch in range(epochs):
                record = self._epoch(epoch, steps, report, history)
                history.records.append(record)
                report.epoch(record)
        finally:
            report.end()
        return history

    def _epoch(self, epoch: int, steps: int, report: Reporter, history: History) -> EpochRecord:
        self.epoch.value = self.done
        self.rate.value = self.optimizer.rate(self.done)
        self._between_epochs = False
        start = time.perf_counter()
        per_step, first_step = 2 if self.measures else 1, len(history.steps)
        full = steps - (self.rest is not None)

        def progress(done: int, values: list[float]) -> None:
            history.steps += values[::per_step]
            _check_finite(values[::per_step], epoch, done, steps)
            samples = min(done * self.batch_size, self.count)
            speed = samples / max(time.perf_counter() - start, 1e-9)
            report.step(done, values[-per_step] if values else math.nan, speed)

        values = self._run(self.full, full, progress)
        weights = [self.batch_size] * full
        if self.rest is not None:
            last = self._run(self.rest, 1)
            progress(steps, last)
            values += last
            weights.append(self.count % self.batch_size)
        self._between_epochs = True
        seconds = time.perf_counter() - start
        losses = values[::per_step]
        _check_finite(losses, epoch, len(losses), steps)
        history.steps[first_step:] = losses
        self.done += 1
        scored = score(self.network, *self.validation) if self.validation is not None else {}
        return EpochRecord(
            epoch=epoch + 1,
            loss=_mean(losses, weights),
            accuracy=_mean(values[1::2], weights) if self.measures else None,
            validation_loss=scored.get("loss"),
            validation_accuracy=scored.get("accuracy"),
            seconds=seconds,
            samples_per_second=self.count / max(seconds, 1e-9),
        )

    def _run(
        self, step: tuple[Graph, Compiled], steps: int, progress: Progress | None = None
    ) -> list[float]:
        """Run a step so many times; what it emits."""
        graph, compiled = step
        variables = [target.value() for target in graph.targets if target is not None]
        _, run = overwrite(
            variables,
            lambda: self.engine.run(compiled, graph.leaves, steps=steps, progress=progress),
        )
        return run.values()

    def explain(self) -> Explanation:
        """The step's program, and what the strategies were predicted to cost."""
        prices = "\n".join(f"  {k}: {v * 1e6:.0f} µs a step" for k, v in self.prices.items())
        chosen = ", ".join(f"{k}: {v}" for k, v in self.choice.items())
        heading = f"layers {chosen}\npredicted\n{prices}"
        program = self.full[1].program
        return explain_program(program, session.engine().environment, heading=heading)


def _planned(layout: Layout, v: Variable) -> Node:
    """A leaf for a variable in another layout; what has another shape lies as it does."""
    return variable_leaf(v.shape, v.dtype, layout if v.shape == layout.shape else v.layout, None)


def _values_of(x: Any, y: Any) -> tuple[Node, Node] | None:
    """The values of arrays, which are others after an update in place; None for what is not on the
    workers."""
    arrays = isinstance(x, Array) and isinstance(y, Array)
    return (x.evaluated(), y.evaluated()) if arrays else None


def _continued(network: NeuralNetwork, engine: Engine) -> Fit | None:
    """The earlier `fit` that this one goes on from: of these very parameters and this optimizer."""
    last: Fit | None = network._trained
    if last is None or last.engine is not engine or last.optimizer is not network.optimizer:
        return None
    pairs = zip(last.parameters, network.parameters.values(), strict=True)
    return last if all(a is b for a, b in pairs) else None


def _mean(values: Sequence[float], weights: Sequence[int]) -> float:
    total = sum(v * w for v, w in zip(values, weights, strict=False))
    return total / max(sum(weights[: len(values)]), 1)


def _check_finite(losses: Sequence[float], epoch: int, done: int, steps: int) -> None:
    for i, loss in enumerate(losses):
        if not math.isfinite(loss):
            step = done - len(losses) + i + 1
            raise NonFiniteLoss(
                f"fit: the loss became {loss} at step {step} of {steps} in epoch {epoch + 1}; "
                f"lower the learning rate, or look for nan or huge values in the data; parameters "
                f"that have become nan too must be made again: net.load(path) of a file from "
                f"before, or another network"
            )


def _data_set(network: NeuralNetwork, x: Any, y: Any, operation: str) -> tuple[Array, Array]:
    """Samples and targets on the workers, checked, and the network built for them."""
    engine = session.engine()
    samples = _on_workers(asarray(x, dtype=network.dtype), engine.environment)
    targets = asarray(y)
    if samples.ndim < 2 or samples.shape[0] == 0:
        raise DataError(
            f"{operation}: samples must be (N, …) with N ≥ 1, was given {samples.shape}"
        )
    if targets.ndim == 0 or targets.shape[0] != samples.shape[0]:
        raise DataError(
            f"{operation}: {samples.shape[0]} samples need as many targets, was given "
            f"{targets.shape}"
        )
    network.build(samples.shape[1:])
    if network.classifies and targets.ndim == 1:
        _check_labels(network, targets, operation)
    if network.classifies and targets.ndim == 2:
        _check_probabilities(targets, operation)
    if targets.dtype.is_floating:
        targets = asarray(targets, dtype=network.dtype)
    return samples, _on_workers(targets, engine.environment)


def _on_workers(array: Array, environment: Environment) -> Array:
    """The array where every worker can take any sample: one copy a host, or one on each worker."""
    return array.redistribute(environment.whole(array.shape, shared=True))


def _measures_accuracy(network: NeuralNetwork, targets: Array, asked: bool | None) -> bool:
    """True if accuracy is measured: where it is asked for, and by default (None) of cross-entropy
    and of integer labels. DataError where it is asked for and there are no classes."""
    outputs = _output_shape(network)
    labels = targets.ndim == 1 and targets.dtype.is_integer
    classes = len(outputs) == 1 and outputs[0] > 1
    if asked is None:
        return classes and (labels or network.classifies)
    if asked and not (classes and (labels or targets.shape[1:] == outputs)):
        raise DataError(
            f"fit: accuracy is of two classes or more and integer labels, or a number for each "
            f"class; the outputs have shape {outputs}, the targets {targets.shape} "
            f"{targets.dtype}; leave `metrics` out"
        )
    return asked


def _output_shape(network: NeuralNetwork) -> Shape:
    """The shape of the outputs for one sample."""
    shape = network.input_shape
    assert shape is not None
    for layer in network.layers:
        shape = layer.output_shape(shape)
    return shape


def _check_probabilities(targets: Array, operation: str) -> None:
    low, totals = mm.min(targets), mm.sum(targets, axis=1)
    far = mm.max(mm.abs(totals - 1))
    evaluate(low, far)
    if not (float(low) >= 0 and float(far) <= PROBABILITY_ERROR):
        raise DataError(
            f"{operation}: cross-entropy takes integer labels, or probabilities: numbers that are "
            f"not negative and have sum 1 for each sample; the least target is {float(low):.4g}, "
            f"and a sum differs from 1 by {float(far):.4g}; for other targets take "
            f'loss="mean_squared_error"'
        )


def _check_labels(network: NeuralNetwork, labels: Array, operation: str) -> None:
    classes = _output_shape(network)[0]
    if not labels.dtype.is_integer:
        raise DataError(
            f"{operation}: labels must be integers, or (N, {classes}) probabilities, was given "
            f"{labels.dtype}; convert them with mm.astype(labels, mm.int64)"
        )
    low, high = int(mm.min(labels)), int(mm.max(labels))
    if low < 0 or high >= classes:
        raise DataError(
            f"{operation}: labels must lie in 0 … {classes - 1} (the network has {classes} "
            f"outputs), was given labels from {low} to {high}; mend the labels, or give the last "
            f"layer more units"
        )


def score(network: NeuralNetwork, x: Any, y: Any) -> dict[str, float]:
    """Mean loss and, of classifiers, accuracy."""
    from magmath.train.network import SCORING_ROWS

    samples, targets = _data_set(network, x, y, "evaluate")
    count = samples.shape[0]
    totals = {"loss": 0.0, "accuracy": 0.0}
    measures = _measures_accuracy(network, targets, None)
    for start in range(0, count, SCORING_ROWS):
        stop = min(start + SCORING_ROWS, count)
        outputs = network.forward(samples[start:stop])
        part = targets[start:stop]
        figures = {"loss": network.loss(outputs, part)}
        if measures:
            figures["accuracy"] = accuracy(outputs, part)
        evaluate(*figures.values())
        for name, value in figures.items():
            totals[name] += float(value) * (stop - start)
    return {name: totals[name] / count for name in figures}
