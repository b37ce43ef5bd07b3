"""Weights of the samples of a loss by their classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any, final

from magmath.api import statistics
from magmath.api.creation import asarray
from magmath.api.data_types import astype
from magmath.api.indexing import take
from magmath.api.manipulation import reshape
from magmath.api.searching import argmax
from magmath.arrays.array import Array
from magmath.core.dtypes import int64
from magmath.errors import DataError, OptionError, ShapeError

ClassWeights = tuple[float, ...]
"""The weight of each class; that of other classes is 1."""


def class_weights(given: Mapping[int, float] | Sequence[float] | None) -> ClassWeights | None:
    """Return the weights of classes, given by class or in order.

    Raises OptionError for negative weights and classes that are not integers from 0.
    """
    if given is None:
        return None
    pairs = given.items() if isinstance(given, Mapping) else enumerate(given)
    table = {_class(label): float(weight) for label, weight in pairs}
    if not table or not all(weight >= 0 for weight in table.values()):
        raise OptionError(
            f"fit: class_weight has a number of at least 0 for each class, was given {given!r}"
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
    """The mean of the losses of samples, each multiplied by the weight of its class, as in Keras.

    The mean is over the number of samples, not over the sum of the weights. `loss` has a parameter
    `reduction`. Raises OptionError otherwise.
    """

    def __init__(self, loss: Callable[..., Array], weights: ClassWeights) -> None:
        self._loss, self._weights = loss, weights
        if "reduction" not in signature(loss).parameters:
            raise OptionError(
                "fit: class_weight needs the loss of each sample: a loss by name, or a function "
                "(outputs, targets, reduction='mean') that returns it for reduction='none'"
            )

    def __call__(self, outputs: Any, targets: Any) -> Array:
        """Return the weighted mean for a batch."""
        if not isinstance(targets, Array) or not isinstance(outputs, Array):
            raise DataError("fit: class_weight needs one array of labels as targets")
        losses = self._loss(outputs, targets, reduction="none")
        labels = _labels(outputs, targets)
        classes = max(outputs.shape[1] if outputs.ndim > 1 else 1, 2)
        if len(self._weights) > classes:
            raise OptionError(
                f"fit: class_weight has a weight for class {len(self._weights) - 1}, and the "
                f"outputs have {classes} classes"
            )
        table = [*self._weights, *[1.0] * (classes - len(self._weights))]
        weights = take(asarray(table, dtype=losses.dtype), labels)
        if losses.shape[: weights.ndim] != weights.shape:
            raise ShapeError(
                f"fit: class_weight has weights for labels {weights.shape}, and the losses of the "
                f"samples have shape {losses.shape}"
            )
        alike = reshape(weights, (*weights.shape, *[1] * (losses.ndim - weights.ndim)))
        return statistics.mean(losses * alike)


def _labels(outputs: Array, targets: Array) -> Array:
    """Return the class of each sample: its label, or the most probable class."""
    if targets.ndim == outputs.ndim > 1:
        if targets.shape[1] > 1:
            return argmax(targets, axis=1)
        targets = reshape(targets, (targets.shape[0], *targets.shape[2:]))
    return astype(targets, int64, copy=False)
