"""A callback that writes training for TensorBoard."""

from __future__ import annotations

import os
from numbers import Real
from typing import Any, final

import numpy as np

from magmath.core.optional_packages import import_package
from magmath.train.callbacks import Callback
from magmath.train.history import EpochRecord
from magmath.train.trainer import Trainer


@final
class TensorBoard(Callback):
    """Writes losses, metrics, learning rates and speed of every epoch for TensorBoard.

    folder       the folder of the files, which is made; `tensorboard --logdir FOLDER` shows them
    step_losses  write the loss of each step too, after its epoch. The steps stay one message
    histograms   write histograms of the parameters after each epoch

    Training and validation are two curves of one picture. Needs the package tensorboard
    (`pip install 'magmath[tensorboard]'`).
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        step_losses: bool = True,
        histograms: bool = False,
    ) -> None:
        import_package("tensorboard", "mm.train.TensorBoard")
        self.folder = os.fspath(folder)
        self.step_losses = step_losses
        self.histograms = histograms
        self._written = 0  # step losses
        self._writers: dict[str, Any] = {}

    def on_train_begin(self, trainer: Trainer, epochs: int, steps: int) -> None:
        """Begin after the steps of a resumed training."""
        self._written = 0 if trainer.history is None else len(trainer.history.step_losses)

    def __getstate__(self) -> dict[str, Any]:
        """Return the settings without the open files, for pickle and copy."""
        return {**vars(self), "_writers": {}}

    def _writer(self, curve: str) -> Any:
        """Return the writer of a curve, "training" or "validation"."""
        if curve not in self._writers:
            from torch.utils.tensorboard import SummaryWriter

            self._writers[curve] = SummaryWriter(os.path.join(self.folder, curve))
        return self._writers[curve]

    def on_epoch_end(self, trainer: Trainer, record: EpochRecord) -> None:
        """Write the figures of an epoch."""
        training, history = self._writer("training"), trainer.history
        epoch = trainer.epochs_done  # continues in a second fit
        for name, value in record.figures().items():
            if isinstance(value, Real):
                curve = "validation" if name.startswith("validation_") else "training"
                shown = name.removeprefix("validation_")
                self._writer(curve).add_scalar(f"epoch/{shown}", value, epoch)
        training.add_scalar("epoch/samples per second", record.samples_per_second, epoch)
        if record.loss_scale is not None:
            training.add_scalar("epoch/loss scale", record.loss_scale, epoch)
        steps = trainer.optimizer.steps
        for i, rate in enumerate(trainer.optimizer.rates(steps - 1, epoch - 1)):
            name = "learning rate" if i == 0 else f"learning rate of group {i}"
            training.add_scalar(f"epoch/{name}", rate, epoch)
        if self.step_losses and history is not None:
            new = history.step_losses[self._written :]
            for step, loss in enumerate(new, steps - len(new) + 1):
                training.add_scalar("step/loss", loss, step)
            self._written = len(history.step_losses)
        if self.histograms:
            for path, parameter in trainer.module.named_parameters():
                values = np.asarray(parameter.snapshot().astype("float32"))
                training.add_histogram(path.replace(".", "/"), values, epoch)
        for writer in self._writers.values():
            writer.flush()

    def on_train_end(self, trainer: Trainer, finished: bool) -> None:
        """Close the files."""
        for writer in self._writers.values():
            writer.close()
        self._writers = {}
