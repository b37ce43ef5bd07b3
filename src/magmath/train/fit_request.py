"""The arguments of one call of `fit`, checked and completed by their defaults."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, final

from magmath.arrays.array import Array
from magmath.arrays.tree import flatten
from magmath.core.integers import require_integer
from magmath.data.loader import Loader
from magmath.errors import OptionError
from magmath.train.checkpoint import Checkpoint, CheckpointTrainer
from magmath.train.listeners import Listener, Reporting, as_listener, callback_list
from magmath.train.reporter import console_reporter
from magmath.train.validation import training_and_validation
from magmath.train.weighted_loss import ClassWeights, class_weights

BATCH_SIZE = 32

ValidationData = tuple[Any, Any] | tuple[Any, Any, Any] | Loader | None
"""Inputs, targets and perhaps weights of samples, or a loader."""


@final
class FitOptions(TypedDict, total=False):
    """The types of the options of `fit`; `FitRequest.of` has their defaults."""

    sample_weight: Any
    batch_size: int | None
    epochs: int
    validation: ValidationData
    validation_data: ValidationData
    validation_split: float
    class_weight: Mapping[int, float] | Sequence[float] | None
    shuffle: bool | None
    checkpoint: str | os.PathLike[str] | None
    resume: bool
    restarts: int
    verbose: bool
    callbacks: Sequence[Any]


@final
@dataclass(frozen=True)
class FitRequest:
    """One call of `fit`.

    samples        inputs, targets and weights of the samples; a loader has all of them
    class_weights  factors of the losses of samples by their class, or None
    validation     what is scored after each epoch, or None
    checkpoint     the folder of the training state, or None
    listeners      the callbacks, and the report of each epoch
    """

    samples: tuple[Any, Any, Any]
    class_weights: ClassWeights | None
    validation: Any
    batch_size: int
    shuffle: bool
    epochs: int
    checkpoint: str | os.PathLike[str] | None
    resume: bool
    restarts: int
    listeners: Sequence[Listener[Any]]

    @staticmethod
    def of(
        x: Any,
        y: Any,
        always: Sequence[Any] = (),
        *,
        batch_size: int | None = None,
        epochs: int = 1,
        validation: ValidationData = None,
        validation_data: ValidationData = None,
        validation_split: float = 0.0,
        class_weight: Mapping[int, float] | Sequence[float] | None = None,
        sample_weight: Any = None,
        shuffle: bool | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        resume: bool = False,
        restarts: int = 0,
        verbose: bool = False,
        callbacks: Sequence[Any] = (),
    ) -> FitRequest:
        """Return the request of these arguments of `fit`, with the callbacks `always` of the
        trainer. Raises OptionError for arguments that do not fit each other."""
        epochs = require_integer("fit: epochs", epochs, 0)
        restarts = require_integer("fit: restarts", restarts, 0)
        weights = class_weights(class_weight)
        samples, held_out = training_and_validation(
            (x, y, sample_weight), validation, validation_data, validation_split
        )
        size, shuffles = _batching(samples[0], batch_size, shuffle)
        if resume and checkpoint is None:
            raise OptionError("fit: resume=True needs checkpoint=, the folder to resume from")
        if restarts:
            _check_restarts(checkpoint, (*samples[:2], held_out))
        listeners = [as_listener(c) for c in (*always, *callback_list(callbacks))]
        listeners += [Reporting(console_reporter())] if verbose else []
        return FitRequest(
            samples, weights, held_out, size, shuffles, epochs, checkpoint, resume, restarts,
            listeners,
        )  # fmt: skip

    def checkpoint_of(self, trainer: CheckpointTrainer) -> Checkpoint | None:
        """Return the checkpoint of a trainer in the folder; None without a folder."""
        if self.checkpoint is None:
            return None
        return Checkpoint(trainer, self.checkpoint, self.listeners)


def _check_restarts(checkpoint: object, data: Any) -> None:
    """Raise an error unless training can continue in another pool."""
    if checkpoint is None:
        raise OptionError("fit: restarts= needs checkpoint=, the folder to restart from")
    if any(isinstance(leaf, Array) for leaf in flatten(data)[0]):
        raise OptionError(
            "fit: restarts= needs data that outlive a pool, was given arrays of magmath; pass "
            "arrays of NumPy, np.asarray(x), or a Loader, for training and validation"
        )


def _batching(x: Any, batch_size: int | None, shuffle: bool | None) -> tuple[int, bool]:
    """Return the batch size and whether `fit` shuffles. Raises OptionError if they are given in
    addition to a loader."""
    if isinstance(x, Loader):
        if batch_size is not None or shuffle is not None:
            raise OptionError(
                "fit: a Loader has its own batch_size and shuffle; pass them to the Loader and not "
                "to fit"
            )
        return x.batch_size, x.shuffle
    size = BATCH_SIZE if batch_size is None else batch_size
    return require_integer("fit: batch_size", size, 1), shuffle is None or shuffle
