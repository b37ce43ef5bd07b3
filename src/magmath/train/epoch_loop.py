"""The loop over the epochs of one call of `fit`: steps, callbacks, validation, checkpoints.

`trainer.py` prepares the step and the data; this module runs them. It sees the trainer as an
`EpochTrainer`, so it does not import `Trainer`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, final

from magmath.arrays.array import Array
from magmath.engine import session
from magmath.errors import NonFiniteLoss
from magmath.optim import LossScale, Optimizer
from magmath.optim.rates import observe_metrics
from magmath.parallel.strategy import DELAYS
from magmath.train.checkpoint import Checkpoint
from magmath.train.epoch_metrics import weighted_mean
from magmath.train.feeds import Feed, FeedRun
from magmath.train.history import EpochRecord, History, summarized_delays
from magmath.train.listeners import Listener, has_step_callback
from magmath.train.loss_scale_history import with_scaling
from magmath.train.step import StepSequence, TrainingStep


class EpochTrainer(Protocol):
    """The attributes of a trainer that the loop over its epochs uses."""

    epochs_done: int
    stop_requested: bool
    """True after a callback has called `stop` in this epoch."""

    @property
    def optimizer(self) -> Optimizer:
        """The optimizer, whose rates observe the metrics of each epoch."""

    @property
    def loss_scale(self) -> LossScale | None:
        """The scale of the loss, or None."""

    @property
    def seed(self) -> int | None:
        """The seed of the order of the samples; None for that of the pool."""

    def score(self, feed: Feed) -> dict[str, Any]:
        """Return the loss and the metrics of a feed, in evaluation mode."""


@final
class _Reported(NamedTuple):
    """What the steps of an epoch report.

    values    the values of all steps, in order: as many for each step as it has names
    samples   the number of samples of each step
    """

    values: list[float]
    samples: list[int]

    def add(self, values: list[float], samples_per_step: int, steps: int) -> None:
        """Append the values of `steps` steps."""
        self.values.extend(values)
        self.samples.extend([samples_per_step] * steps)


@final
class EpochLoop:
    """The loop over epochs of one call of `fit`.

    step_now   returns the training step of the trainer as it is now, with its variables in place,
               and the feed of its batches. It is called before each epoch, since callbacks of
               epochs may change anything, such as the loss or the loader; those of steps may
               assign values and learning rates, and move variables
    """

    def __init__(
        self,
        trainer: EpochTrainer,
        step_now: Callable[[], tuple[TrainingStep, Feed]],
        validation: Feed | None,
        checkpoint: Checkpoint | None,
        listeners: Sequence[Listener[Any]],
    ) -> None:
        self._trainer, self._step_now = trainer, step_now
        self._step, self._feed = step_now()
        self._validation, self._checkpoint = validation, checkpoint
        self._listeners = listeners
        self._has_step_callback = has_step_callback(listeners)

    def run(self, first: int, last: int, history: History) -> None:
        """Train the epochs from `first`, counted from 0, up to but not including `last`."""
        trainer = self._trainer
        trainer.stop_requested = False
        finished = False
        begun: list[Listener[Any]] = []
        try:
            for listener in self._listeners:
                listener.on_train_begin(trainer, last, self._step.steps)
                begun.append(listener)
            if self._checkpoint is not None:
                self._checkpoint.restore_listeners()
            for epoch in self._epochs(first, last):
                self._notify("on_epoch_begin", trainer.epochs_done)
                record = self._epoch(epoch, history)
                history.records.append(record)
                observe_metrics(trainer.optimizer.learning_rates, record.figures())
                self._notify("on_epoch_end", record)
                if self._checkpoint is not None:
                    self._checkpoint.save(history, last)
                if trainer.stop_requested:
                    break
            finished = True
        finally:
            for listener in begun:
                listener.on_train_end(trainer, finished)

    def _epochs(self, first: int, last: int) -> range:
        """Return the numbers of the epochs to train: none after a callback has ended the training
        that is resumed."""
        stopped = self._checkpoint is not None and self._checkpoint.is_complete(last)
        return range(first, first if stopped else last)

    def _notify(self, event: str, *values: Any) -> None:
        for listener in self._listeners:
            getattr(listener, event)(self._trainer, *values)

    def _epoch(self, epoch: int, history: History) -> EpochRecord:
        """Train one epoch, count it, and return its record."""
        trainer = self._trainer
        self._step, self._feed = self._step_now()
        if self._checkpoint is not None:
            self._checkpoint.check_included()
        step = self._step
        scale = trainer.loss_scale
        skipped = 0 if scale is None else scale.skipped
        start = time.perf_counter()
        reported = self._run_steps(epoch, history, start)
        values, weights = reported.values, reported.samples
        seconds = time.perf_counter() - start
        trainer.epochs_done += 1
        columns = {name: values[i :: len(step.reported)] for i, name in enumerate(step.reported)}
        loss = weighted_mean(columns["loss"], weights)
        figures = {k: m.figure(columns.get(k, ()), weights) for k, m in step.metrics.items()}
        delays = summarized_delays(columns.get(DELAYS, ()))
        record = self._record(epoch, loss, figures, seconds, delays)
        if scale is not None:
            record = with_scaling(record, scale, skipped)
        return record

    def _run_steps(self, epoch: int, history: History, start: float) -> _Reported:
        """Run the steps of an epoch, which began at the time `start`; return what they report.

        Raises NonFiniteLoss, and what a listener raises. Even then the variables have the values
        after the last step, and `history.step_losses` has the losses of the completed steps.
        """
        trainer, step = self._trainer, self._step
        values_per_step, first_step = len(step.reported), len(history.step_losses)
        before = 0  # steps of this epoch before the current run

        def progress(completed_steps: int, values: list[float]) -> None:
            completed_steps += before
            losses = values[::values_per_step]
            history.step_losses.extend(losses)
            _check_finite(losses, epoch, completed_steps, step.steps)
            samples = min(completed_steps * step.batch_size, step.count)
            speed = samples / max(time.perf_counter() - start, 1e-9)
            self._notify("on_step_end", completed_steps, losses[-1] if losses else math.nan, speed)

        seed = session.engine().stream_state.seed if trainer.seed is None else trainer.seed
        step.begin_epoch(trainer.epochs_done)
        reported = _Reported([], [])
        try:
            for feed_run, (exchanges, steps) in self._runs_of_epoch(seed):
                samples_per_step = feed_run.samples_per_step
                values = step.run(
                    samples_per_step, exchanges, feed_run.operands, trainer.epochs_done, seed,
                    steps, progress if steps > 1 else None,
                )  # fmt: skip
                if steps == 1:
                    self._end_single_step(partial(progress, 1, values), before + 1)
                reported.add(values, samples_per_step, steps)
                before += steps
        except BaseException:
            if session.has_open_pool():  # the workers are between two steps
                step.collect()
            raise
        step.collect()
        step.end_epoch()
        losses = reported.values[::values_per_step]
        _check_finite(losses, epoch, step.steps, step.steps)
        history.step_losses[first_step:] = losses
        return reported

    def _runs_of_epoch(self, seed: int) -> Iterator[tuple[FeedRun, StepSequence]]:
        """Yield the runs of this epoch: steps of one kind on the same operands."""
        first = self._trainer.optimizer.steps
        for feed_run in self._feed.runs(self._trainer.epochs_done, seed):
            for sequence in self._step_sequences(first, feed_run.steps):
                yield feed_run, sequence
            first += feed_run.steps

    def _end_single_step(self, report: Callable[[], None], completed_steps: int) -> None:
        """Report a step that ran alone, the last of `completed_steps` steps of the epoch.

        Callbacks for each step see the trained values, and may change them and the learning rate.
        They may also train other modules, which moves the variables that these share with the step.
        """
        if self._has_step_callback:
            self._step.collect()
        report()
        if self._has_step_callback:
            self._step.place(self._feed)
            self._step.set_rates(self._trainer.epochs_done, completed_steps)

    def _step_sequences(self, first: int, count: int) -> Iterator[StepSequence]:
        """Yield the runs of steps from step `first` of the training on (see
        `TrainingStep.step_sequences`), of one step each if a callback is called after each one."""
        alone = self._has_step_callback and not self._step.strategy.is_asynchronous
        for sequence in self._step.step_sequences(first, count):
            if alone:
                yield from [sequence._replace(steps=1)] * sequence.steps
            else:
                yield sequence

    def _record(
        self,
        epoch: int,
        loss: float,
        figures: dict[str, Any],
        seconds: float,
        delays: dict[str, Any],
    ) -> EpochRecord:
        """Return the record of an epoch, with the scores of the validation data."""
        scored: dict[str, Any] = {}
        if self._validation is not None:
            scores = self._trainer.score(self._validation)
            scored = {k: v.tolist() if isinstance(v, Array) else v for k, v in scores.items()}
        return EpochRecord(
            epoch=epoch + 1,
            loss=loss,
            accuracy=figures.get("accuracy"),
            validation_loss=scored.pop("loss", None),
            validation_accuracy=scored.get("accuracy"),
            seconds=seconds,
            samples_per_second=self._step.count / max(seconds, 1e-9),
            metrics=figures,
            validation_metrics=scored,
            delays=delays,
        )


def _check_finite(losses: Sequence[float], epoch: int, completed_steps: int, steps: int) -> None:
    """Raise NonFiniteLoss for the first loss that is not finite; the last one is of step
    `completed_steps`."""
    for i, loss in enumerate(losses):
        if not math.isfinite(loss):
            step = completed_steps - len(losses) + i + 1
            raise NonFiniteLoss(
                f"fit: the loss became {loss} at step {step} of {steps} in epoch {epoch + 1}; "
                "lower the learning rate, or look for nan or huge values in the data; if "
                "parameters have become nan, load earlier ones with net.load(path), or make a new "
                "network"
            )
