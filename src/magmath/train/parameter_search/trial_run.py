"""The run of one trial: its network is trained, and stopped as soon as it cannot win."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

from magmath.errors import NonFiniteLoss
from magmath.train.history import EpochRecord
from magmath.train.listeners import Listener
from magmath.train.network import NeuralNetwork
from magmath.train.parameter_search.curve import LossCurve
from magmath.train.parameter_search.results import Trial, TrialState
from magmath.train.parameter_search.space import step_images
from magmath.train.trainer import Trainer


def no_limit(trial: Trial) -> float:
    """Return infinity."""
    return float("inf")


def show_nothing(trial: Trial) -> None:
    """Ignore the progress of a trial."""


@final
class TrialRun(Listener[Trainer]):
    """The run of a trial: its network, its loss curve so far, and the rule that stops it.

    epochs   the epochs of a complete trial
    points   the points of the curve for each of them
    """

    def __init__(
        self,
        network: NeuralNetwork,
        trial: Trial,
        data: tuple[Any, Any],
        epochs: int,
        points: int,
        limit: Callable[[Trial], float] = no_limit,
        show: Callable[[Trial], None] = show_nothing,
    ) -> None:
        self.network, self.trial, self._data = network, trial, data
        self._all_epochs, self._points = epochs, points
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
                callbacks=[self],
            )
        except NonFiniteLoss:
            self._set_trial("diverged", self.trial.curve)

    def eliminate(self) -> TrialRun:
        """Mark the trial as eliminated, and return this run."""
        self._set_trial("eliminated", self.trial.curve)
        return self

    def on_epoch_end(self, trainer: Trainer, record: EpochRecord) -> None:
        """Extend the curve, and stop if the trial cannot win."""
        self._epochs += 1
        assert trainer.history is not None
        all_losses = trainer.history.step_losses
        steps = len(all_losses) // len(trainer.history.records)
        curve = self.trial.curve.extended(all_losses[-steps:], record.seconds, self._points)
        state: TrialState = "finished"
        if self._epochs < self._all_epochs and curve.area > self._limit(self.trial):
            state = "stopped"
            trainer.stop()
        self._set_trial(state, curve)
        self._show(self.trial)

    def _set_trial(self, state: TrialState, curve: LossCurve) -> None:
        self.trial = Trial(self.trial.number, self.trial.settings, state, curve)
