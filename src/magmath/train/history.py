"""The history of training: losses and metrics of every epoch, as lists, JSON or a plot."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, final

from magmath.core.atomic_replace import atomic_replace
from magmath.core.json_text import json_text


@final
@dataclass(frozen=True)
class EpochRecord:
    """The losses and metrics of one epoch; None if not measured. Accuracies are in [0, 1].

    `metrics` and `validation_metrics` have all metrics by name, as numbers or nested lists (such as
    a confusion matrix). Training metrics are those of the outputs before each step's update.
    `skipped_steps` and `loss_scale` are the number of steps that changed nothing because gradients
    overflowed, and the scale of the loss after the epoch; None without loss scaling.
    `delays`, of asynchronous strategies, has the "mean" and the "max" of the delays of updates,
    and as "histogram" the number of updates for each delay from 0.
    """

    epoch: int
    loss: float
    accuracy: float | None
    validation_loss: float | None
    validation_accuracy: float | None
    seconds: float
    samples_per_second: float
    metrics: dict[str, Any] = field(default_factory=dict)
    validation_metrics: dict[str, Any] = field(default_factory=dict)
    skipped_steps: int | None = None
    loss_scale: float | None = None
    delays: dict[str, Any] = field(default_factory=dict)

    def figures(self) -> dict[str, Any]:
        """Return losses and metrics by the names that callbacks monitor: "loss", "accuracy",
        "validation_loss", "validation_accuracy", …"""
        figures: dict[str, Any] = {"loss": self.loss, **self.metrics}
        if self.validation_loss is not None:
            figures["validation_loss"] = self.validation_loss
        figures |= {f"validation_{name}": value for name, value in self.validation_metrics.items()}
        return figures


@final
@dataclass(repr=False)
class History:
    """The epochs of a training run. `loss`, `accuracy` … are lists with one entry per epoch."""

    records: list[EpochRecord] = field(default_factory=list)
    step_losses: list[float] = field(default_factory=list, repr=False)
    """The training loss of each step of all epochs."""
    strategy: str = ""

    def __repr__(self) -> str:
        """Return the number of epochs, and the figures of the last one."""
        last = self.records[-1].figures() if self.records else {}
        numbers = {k: v for k, v in last.items() if isinstance(v, (int, float))}
        shown = [f"epochs={len(self.records)}", *[f"{k}={v:.4g}" for k, v in numbers.items()]]
        return f"History({', '.join(shown)})"

    @property
    def history(self) -> dict[str, list[Any]]:
        """Losses and metrics by Keras's names: "loss", "accuracy", "val_loss", "val_accuracy", …"""
        names = dict.fromkeys(name for r in self.records for name in r.figures())
        return {name.replace("validation_", "val_", 1): self.metric(name) for name in names}

    @property
    def loss(self) -> list[float]:
        """The mean training loss of each epoch."""
        return [r.loss for r in self.records]

    @property
    def accuracy(self) -> list[float]:
        """The training accuracy of each epoch in which it was measured."""
        return [r.accuracy for r in self.records if r.accuracy is not None]

    @property
    def validation_loss(self) -> list[float]:
        """The validation loss after each epoch with validation data."""
        return [r.validation_loss for r in self.records if r.validation_loss is not None]

    @property
    def validation_accuracy(self) -> list[float]:
        """The validation accuracy after each epoch with validation data."""
        return [r.validation_accuracy for r in self.records if r.validation_accuracy is not None]

    def metric(self, name: str) -> list[Any]:
        """Return a loss or metric, by its name in `EpochRecord.figures`, of each epoch in which it
        was measured."""
        return [r.figures()[name] for r in self.records if name in r.figures()]

    @property
    def skipped_steps(self) -> list[int]:
        """The number of skipped steps of each epoch with loss scaling."""
        return [r.skipped_steps for r in self.records if r.skipped_steps is not None]

    @property
    def loss_scale(self) -> list[float]:
        """The scale of the loss after each epoch with loss scaling."""
        return [r.loss_scale for r in self.records if r.loss_scale is not None]

    @property
    def delays(self) -> list[dict[str, Any]]:
        """The delays of updates in each epoch of an asynchronous strategy: "mean", "max" and
        "histogram"."""
        return [r.delays for r in self.records if r.delays]

    @property
    def seconds(self) -> list[float]:
        """The seconds that each epoch took, without validation."""
        return [r.seconds for r in self.records]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write strategy and epochs to a JSON file."""
        content = {"strategy": self.strategy, "epochs": [asdict(r) for r in self.records]}
        with atomic_replace(path) as draft:
            Path(draft).write_text(json_text(content) + "\n")

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Plot loss and accuracy against the epoch; the suffix of `path` determines the format."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(9, 3.5), layout="constrained")
        left, right = figure.subplots(1, 2)
        epochs = [r.epoch for r in self.records]
        _lines(left, epochs, {"training": self.loss, "validation": self.validation_loss})
        _lines(right, epochs, {"training": self.accuracy, "validation": self.validation_accuracy})
        left.set(
            xlabel="epoch", ylabel="loss", yscale="log" if _are_positive(self.loss) else "linear"
        )
        right.set(xlabel="epoch", ylabel="accuracy")
        figure.savefig(path, dpi=120)


def summarized_delays(delays: Sequence[float]) -> dict[str, Any]:
    """Return mean, maximum and histogram of the delays of updates; nothing for no updates."""
    if not delays:
        return {}
    counts = Counter(map(int, delays))
    largest = max(counts)
    return {
        "mean": sum(delays) / len(delays),
        "max": largest,
        "histogram": [counts[delay] for delay in range(largest + 1)],
    }


def _are_positive(values: list[float]) -> bool:
    return bool(values) and min(values) > 0


def _lines(axes: object, epochs: list[int], series: dict[str, list[float]]) -> None:
    """Draw each series that has a value for every epoch."""
    from matplotlib.axes import Axes

    assert isinstance(axes, Axes)
    for name, values in series.items():
        if len(values) == len(epochs):
            axes.plot(epochs, values, marker=".", label=name)
    axes.grid(alpha=0.3)
    if axes.lines:
        axes.legend()
