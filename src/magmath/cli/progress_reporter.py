"""Progress of a training run in the terminal: a bar with speed and remaining time, a line per
epoch.

`NeuralNetwork.fit` calls the reporter; without a terminal, only the lines are written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, final

from rich.console import Console
from rich.progress import (
    BarColumn,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from magmath.diagnostics.progress import progress_bar

if TYPE_CHECKING:
    from magmath.train import EpochRecord


@final
class ProgressReporter:
    """Shows the progress of `fit`: `begin` once, `step` periodically, `epoch` after each epoch,
    `end`.

    `completed` returns the number of epochs that were completed before `begin`, as in a training
    that is resumed.
    """

    def __init__(self, console: Console, completed: Callable[[], int] = int) -> None:
        self.console = console
        self._completed = completed
        self._epochs = 0
        self._steps = 0
        self._finished = 0
        self._task = TaskID(0)
        self._bar = progress_bar(
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("loss {task.fields[loss]}"),
            TextColumn("{task.fields[speed]} images/s"),
            TimeRemainingColumn(compact=True),
            TextColumn("left"),
            console=console,
        )

    def begin(self, epochs: int, steps: int) -> None:
        """Start the display for `epochs` of `steps` steps each."""
        self._epochs, self._steps, self._finished = epochs, steps, self._completed()
        self._task = self._bar.add_task(
            "fit",
            total=epochs * steps,
            completed=self._finished * steps,
            epoch=self._current(),
            loss="–",
            speed="–",
        )
        self._bar.start()

    def step(self, completed_steps: int, loss: float, samples_per_second: float) -> None:
        """Show the completed steps of the current epoch, and the last loss."""
        self._bar.update(
            self._task,
            completed=self._finished * self._steps + completed_steps,
            epoch=self._current(),
            loss=f"{loss:.4f}",
            speed=f"{samples_per_second:,.0f}",
        )

    def epoch(self, record: EpochRecord) -> None:
        """Print the line of a completed epoch."""
        self._finished = record.epoch
        self._bar.update(self._task, completed=self._finished * self._steps)
        self.console.print(self._line(record), highlight=False)

    def end(self) -> None:
        """Stop the display at the end of training. Idempotent."""
        self._bar.stop()

    def _current(self) -> str:
        """Return the number of the current epoch, and of all."""
        return f"{min(self._finished + 1, self._epochs)}/{self._epochs}"

    def _line(self, record: EpochRecord) -> str:
        width = len(str(self._epochs))
        parts = [
            f"epoch {record.epoch:{width}}/{self._epochs}",
            _figures("loss", record.loss, record.accuracy),
            _figures("validation", record.validation_loss, record.validation_accuracy),
            f"{record.seconds:.2f} s",
        ]
        return "  ".join(part for part in parts if part)


def _figures(name: str, loss: float | None, accuracy: float | None) -> str:
    if loss is None:
        return ""
    return f"{name} {loss:.4f}" + ("" if accuracy is None else f" ({accuracy:.2%})")
