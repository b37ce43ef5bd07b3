"""Reporters of the progress of `fit`."""

from __future__ import annotations

import sys
from typing import Protocol, TextIO, final

from magmath.train.history import EpochRecord


class Reporter(Protocol):
    """An object that receives the progress of training."""

    def begin(self, epochs: int, steps: int) -> None:
        """Training starts, with this number of epochs and of steps in each."""

    def step(self, completed_steps: int, loss: float, samples_per_second: float) -> None:
        """Show the number of completed steps of this epoch, and the last loss."""

    def epoch(self, record: EpochRecord) -> None:
        """An epoch has ended."""

    def end(self) -> None:
        """Training ended, normally or by an exception."""


@final
class ConsoleReporter(Reporter):
    """A reporter that prints a line for every epoch."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._epochs = 0

    def begin(self, epochs: int, steps: int) -> None:
        self._epochs = epochs

    def step(self, completed_steps: int, loss: float, samples_per_second: float) -> None: ...

    def epoch(self, record: EpochRecord) -> None:
        figures = {
            "loss": record.loss,
            "accuracy": record.accuracy,
            "validation loss": record.validation_loss,
            "validation accuracy": record.validation_accuracy,
        }
        text = "  ".join(
            f"{name} {value:.4f}" for name, value in figures.items() if value is not None
        )
        speed = f"{record.samples_per_second:,.0f} samples/s"
        print(
            f"epoch {record.epoch}/{self._epochs}  {text}  {speed}", file=self._stream, flush=True
        )

    def end(self) -> None: ...


def console_reporter() -> ConsoleReporter:
    """Return a reporter that prints lines on standard output."""
    return ConsoleReporter(sys.stdout)
