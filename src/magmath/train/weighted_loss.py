"""Weights of the samples of a loss: given for each sample, or by class."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any, final

from magmath.api import statistics
from magmath.api.creation import asarray
from magmath.api.data_types import astype
from magmath.api.elementwise import logical_and
from magmath.api.indexing import take
from magmath.api.manipulation import reshape
from magmath.api.searching import argmax, where
from magmath.arrays.array import Array
from magmath.core.dtypes import int64
from magmath.errors import DataError, OptionError, ShapeError

ClassWeights = tuple[float, ...]
"""The weight of each class; that of other classes is 1."""


def class_weights(weights: Mapping[int, float] | Sequence[float] | None) -> ClassWeights | None:
    """Return the weights of classes, given by class or in order.

    Raises OptionError for negative weights and classes that are not integers from 0.
    """
    if weights is None:
        return None
    pairs = weights.items() if isinstance(weights, Mapping) else enumerate(weights)
    table = {_class(label): float(weight) for label, weight in pairs}
    if not table or not all(weight >= 0 for weight in table.values()):
        raise OptionError(
            f"fit: class_weight has a number of at least 0 for each class, was given {weights!r}; "
            f"a class of weight 0 does not count"
        )
    return tuple([table.get(label, 1.0) for label in range(max(table) + 1)])


def _class(label: Any) -> int:
    if not hasattr(label, "__index__") or int(label) < 0:
        raise OptionError(
            f"fit: class_weight is a dictionary from classes 0, 1, … to weights, or a list of "
            f"weights; was given the class {label!r}"
        )
    return int(label)


@final
class WeightedLoss:
    """The mean of the losses of samples, each multiplied by weights, as in Keras.

    classes   the weights of the samples by their classes, or None
    option    the option of `fit` that asks for weights, for messages

    The mean is over the number of samples, not over the sum of the weights. `loss` has a parameter
    `reduction`. Raises OptionError otherwise.
    """

    def __init__(
        self, loss: Callable[..., Array], classes: ClassWeights | None, option: str
    ) -> None:
        self._loss, self._classes, self._option = loss, classes, option
        if "reduction" not in signature(loss).parameters:
            raise OptionError(
                f"fit: {option} needs the loss of each sample: a loss by name, or a function "
                "(outputs, targets, reduction='mean') that returns it for reduction='none'"
            )

    def __call__(self, outputs: Any, targets: Any, weights: Array | None = None) -> Array:
        """Return the weighted mean for a batch; `weights` (N,) are those of its samples."""
        if not isinstance(targets, Array) or not isinstance(outputs, Array):
            raise DataError(
                f"fit: {self._option} needs one array of outputs and one of targets, was given "
                f"several; multiply by the weights in a loss of your own"
            )
        losses = self._loss(outputs, targets, reduction="none")
        if self._classes is not None:
            losses = self._weighted(losses, _weights_by_class(self._classes, outputs, targets))
        if weights is not None:
            losses = self._weighted(losses, weights)
        return statistics.mean(losses)

    def _weighted(self, losses: Array, weights: Array) -> Array:
        """Return the losses of samples multiplied by weights, which the first axes number."""
        if losses.shape[: weights.ndim] != weights.shape:
            raise ShapeError(
                f"fit: {self._option} has weights of shape {weights.shape}, and the losses of the "
                f"samples have shape {losses.shape}; the loss needs a number for each sample"
            )
        alike = reshape(weights, (*weights.shape, *[1] * (losses.ndim - weights.ndim)))
        return losses * astype(alike, losses.dtype, copy=False)


def _weights_by_class(table: ClassWeights, outputs: Array, targets: Array) -> Array:
    """Return the weight of each sample by its class, 1 for labels that are no class."""
    classes = max(outputs.shape[1] if outputs.ndim > 1 else 1, 2)
    if len(table) > classes:
        raise OptionError(
            f"fit: class_weight has a weight for class {len(table) - 1}, and the outputs have "
            f"{classes} classes; leave it out, or give the last layer more units"
        )
    values = [*table, *[1.0] * (classes - len(table))]
    labels = _labels(outputs, targets)
    has_class = logical_and(labels >= 0, labels < classes)  # the loss may ignore other labels
    weights = take(asarray(values, dtype=outputs.dtype), where(has_class, labels, 0))
    return where(has_class, weights, 1.0)


def _labels(outputs: Array, targets: Array) -> Array:
    """Return the class of each sample: its label, or the most probable class."""
    if targets.ndim == outputs.ndim > 1:
        if targets.shape[1] > 1:
            return argmax(targets, axis=1)
        targets = reshape(targets, (targets.shape[0], *targets.shape[2:]))
    return astype(targets, int64, copy=False)
