"""Callbacks: objects whose methods `fit` calls during training."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, final

from magmath.errors import MagmathError
from magmath.train.history import EpochRecord
from magmath.train.report import Reporter

if TYPE_CHECKING:
    from magmath.array.array import Array
    from magmath.train.trainer import Trainer


class Callback:
    """The base class of callbacks; its methods do nothing."""

    def on_train_begin(self, trainer: Trainer, epochs: int, steps: int) -> None:
        """`fit` begins, with this number of epochs and of steps in each."""

    def on_epoch_begin(self, trainer: Trainer, epoch: int) -> None:
        """An epoch begins; the count starts at 0 with the trainer's first epoch."""

    def on_step_end(self, trainer: Trainer, done: int, loss: float, speed: float) -> None:
        """`done` steps of this epoch are done, the last one with this loss; `speed` is in samples
        per second.

        Steps run on the workers without the controller, which receives their progress periodically.
        """

    def on_epoch_end(self, trainer: Trainer, record: EpochRecord) -> None:
        """An epoch has ended, validation included. `trainer.stop()` makes it the last one."""

    def on_train_end(self, trainer: Trainer, finished: bool) -> None:
        """`fit` ends; `finished` is False if an exception (Ctrl-C too) ends it."""


@final
class Reporting(Callback):
    """Passes the progress to a reporter."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter

    def on_train_begin(self, trainer: Trainer, epochs: int, steps: int) -> None:
        """Training starts."""
        self._reporter.begin(epochs, steps)

    def on_step_end(self, trainer: Trainer, done: int, loss: float, speed: float) -> None:
        """Steps are done."""
        self._reporter.step(done, loss, speed)

    def on_epoch_end(self, trainer: Trainer, record: EpochRecord) -> None:
        """An epoch ended."""
        self._reporter.epoch(record)

    def on_train_end(self, trainer: Trainer, finished: bool) -> None:
        """Training ended."""
        self._reporter.end()


@final
class _OfRecord(Callback):
    """Calls a function with each epoch's record."""

    def __init__(self, function: Callable[[EpochRecord], object]) -> None:
        self._function = function

    def on_epoch_end(self, trainer: Trainer, record: EpochRecord) -> None:
        """Call the function."""
        self._function(record)


class BestWeights(Callback):
    """Keeps the state of the module at the end of the best epoch, and restores it after training.

    monitor   a name of `EpochRecord.figures`: by default "validation_loss", without validation
              data "loss"
    mode      "min" or "max"; by default "min" for losses and errors, otherwise "max"
    restore   if False, the module keeps its state after the last epoch; `best` has the best state
    """

    def __init__(
        self, monitor: str | None = None, *, mode: str | None = None, restore: bool = True
    ) -> None:
        if mode not in (None, "min", "max"):
            raise MagmathError(f"{type(self).__name__}: mode is 'min' or 'max', was given {mode!r}")
        self.monitor = monitor
        self.mode = mode
        self.restore = restore
        self._forget()

    def _forget(self) -> None:
        self.best: dict[str, Array] | None = None
        self.best_epoch: int | None = None
        self.best_value = math.nan

    def on_train_begin(self, trainer: Trainer, epochs: int, steps: int) -> None:
        """Discard the best state of an earlier training run."""
        self._forget()

    def on_epoch_end(self, trainer: Trainer, record: EpochRecord) -> None:
        """Keep the state if it is the best one."""
        self._note(trainer, record)

    def _note(self, trainer: Trainer, record: EpochRecord) -> bool:
        """Keep the state if it is the best one; return True if it is."""
        name, value = self._monitored(record)
        better = self._sign(name) * (self.best_value - value)
        if better > self._margin or math.isnan(better):
            self.best = trainer.module.state_dict()
            self.best_epoch, self.best_value = record.epoch, value
            return True
        return False

    _margin = 0.0

    def _monitored(self, record: EpochRecord) -> tuple[str, float]:
        figures = record.figures()
        name = self.monitor
        if name is None:
            name = "validation_loss" if "validation_loss" in figures else "loss"
        if name not in figures:
            raise MagmathError(
                f"{type(self).__name__}: there is no figure {name!r}; there are "
                f"{', '.join(figures)}; give fit(…, validation=(x, y)) or metrics for others"
            )
        return name, figures[name]

    def _sign(self, name: str) -> int:
        """Return 1 if smaller values are better, otherwise -1."""
        mode = self.mode or ("min" if "loss" in name or "error" in name else "max")
        return 1 if mode == "min" else -1

    def on_train_end(self, trainer: Trainer, finished: bool) -> None:
        """Restore the best state, unless an exception ended training."""
        if finished and self.restore and self.best is not None:
            trainer.module.load_state_dict(self.best)


@final
class EarlyStopping(BestWeights):
    """Stops training after `patience` epochs without an improvement of the monitored value by more
    than `minimum_change`; see `BestWeights` for the other arguments."""

    def __init__(
        self,
        patience: int = 5,
        monitor: str | None = None,
        *,
        mode: str | None = None,
        minimum_change: float = 0.0,
        restore_best: bool = True,
    ) -> None:
        super().__init__(monitor, mode=mode, restore=restore_best)
        self.patience = patience
        self._margin = minimum_change
        self.waited = 0

    def on_train_begin(self, trainer: Trainer, epochs: int, steps: int) -> None:
        """Discard the best state, and restart the count of epochs without improvement."""
        super().on_train_begin(trainer, epochs, steps)
        self.waited = 0

    def on_epoch_end(self, trainer: Trainer, record: EpochRecord) -> None:
        """Count the epochs without improvement."""
        self.waited = 0 if self._note(trainer, record) else self.waited + 1
        if self.waited >= self.patience:
            trainer.stop()


@final
class LearningRateSchedule(Callback):
    """Sets the optimizer's learning rate at the beginning of each epoch.

    schedule   a function of the epoch, from 0, that returns the rate
    """

    def __init__(self, schedule: Callable[[int], float]) -> None:
        self.schedule = schedule

    def on_epoch_begin(self, trainer: Trainer, epoch: int) -> None:
        """Set the rate."""
        trainer.optimizer.learning_rate = float(self.schedule(epoch))


def as_callback(given: Any) -> Callback:
    """Return a callback, or one that calls the given function of the epoch's record."""
    if isinstance(given, Callback):
        return given
    if isinstance(given, type) or not callable(given):
        raise MagmathError(
            f"fit: a callback is an object such as mm.train.EarlyStopping(5), or a function of the "
            f"epoch's record; was given {given!r}"
        )
    return _OfRecord(given)
