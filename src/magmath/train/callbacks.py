"""Callbacks: objects whose methods `fit` calls at fixed points of training."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, final

from magmath.core.integers import is_integer
from magmath.core.keyword_hints import KeywordHints
from magmath.core.monitored_figure import monitored_figure, monitored_mode
from magmath.errors import OptionError
from magmath.train.history import EpochRecord
from magmath.train.listeners import Listener
from magmath.train.trainer import Trainer

if TYPE_CHECKING:
    from magmath.arrays.array import Array


class Callback(Listener[Trainer], metaclass=KeywordHints):
    """The base class of callbacks; its methods do nothing.

    A callback whose attributes change during training returns them from `state_dict` and restores
    them in `load_state_dict`. Then a resumed training continues as an uninterrupted one does.
    """


class BestWeights(Callback):
    """Keeps the state of the module at the end of the best epoch, and restores it after training.

    monitor   a name of `EpochRecord.figures`: by default "validation_loss", without validation
              data "loss"
    mode      "min" or "max": whether less or more is better; by default "min" for names with the
              word "loss" or "error", as in mean_squared_error, and "max" for names with "accuracy",
              "precision", "recall" or "f1". Others need it
    restore   if False, the module keeps its state after the last epoch; `best` has the best state
    """

    _margin = 0.0
    """The least improvement that counts."""

    def __init__(
        self, monitor: str | None = None, *, mode: str | None = None, restore: bool = True
    ) -> None:
        if monitor is not None and not isinstance(monitor, str):
            raise OptionError(
                f"{type(self).__name__}: monitor is the name of a figure, such as "
                f"'validation_loss', was given {monitor!r}"
            )
        self.monitor = monitor
        self.mode = monitored_mode(type(self).__name__, monitor or "loss", mode)
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
        self._update_best(trainer, record)

    def _update_best(self, trainer: Trainer, record: EpochRecord) -> bool:
        """Keep the state if it is the best one; return True if it is. A value that is nan is worse
        than all others."""
        value = self._monitored(record)
        gain = value - self.best_value if self.mode == "max" else self.best_value - value
        is_first = self.best is None or (math.isnan(self.best_value) and not math.isnan(value))
        if is_first or gain > self._margin:
            self.best = trainer.module.state_dict()
            self.best_epoch, self.best_value = record.epoch, value
            return True
        return False

    def _monitored(self, record: EpochRecord) -> float:
        """Return the value that is monitored. Raises OptionError if it is not recorded."""
        figures = record.figures()
        name = self.monitor
        if name is None:
            name = "validation_loss" if "validation_loss" in figures else "loss"
        return monitored_figure(type(self).__name__, name, figures)

    def state_dict(self) -> dict[str, Any]:
        """Return the best state of the module, its epoch and its value."""
        return {
            "best": self.best, "best_epoch": self.best_epoch, "best_value": self.best_value
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state_dict` returned."""
        self.best, self.best_epoch = state["best"], state["best_epoch"]
        self.best_value = state["best_value"]

    def on_train_end(self, trainer: Trainer, finished: bool) -> None:
        """Restore the best state, unless an exception ended training."""
        if finished and self.restore and self.best is not None:
            trainer.module.load_state_dict(self.best)


@final
class EarlyStopping(BestWeights):
    """Stops training after `patience` epochs without an improvement of the monitored value by more
    than `minimum_change`, or with `patience=0` after the first one; see `BestWeights` for the other
    arguments."""

    def __init__(
        self,
        patience: int = 5,
        monitor: str | None = None,
        *,
        mode: str | None = None,
        minimum_change: float = 0.0,
        restore_best: bool = True,
    ) -> None:
        if not is_integer(patience) or patience < 0:
            raise OptionError(
                f"EarlyStopping: patience is a number of epochs, at least 0, was given "
                f"{patience!r}; write EarlyStopping(5, monitor='loss')"
            )
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
        self.waited = 0 if self._update_best(trainer, record) else self.waited + 1
        if self.waited and self.waited >= self.patience:
            trainer.stop()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of `BestWeights`, and the number of epochs without improvement."""
        return {**super().state_dict(), "waited": self.waited}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state_dict` returned."""
        super().load_state_dict(state)
        self.waited = state["waited"]


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
