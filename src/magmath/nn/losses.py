"""Losses: the mean over a batch of how far outputs are from targets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import magmath as mm
from magmath.array.array import Array
from magmath.errors import DTypeError, MagmathError, ShapeError
from magmath.graph import apply
from magmath.ops import creation, manipulation
from magmath.ops import elementwise as e


def class_mask(labels: Array, classes: int) -> Array:
    """(N, classes) booleans, true at each sample's label."""
    shape = (labels.shape[0], classes)
    column = manipulation.reshape(labels.node, (labels.shape[0], 1))
    numbers = apply(creation.IOTA, shape=shape, dtype=labels.dtype, axis=1)
    return Array(e.call("equal", numbers, column))


def cross_entropy(outputs: Array, labels: Array) -> Array:
    """The mean of -log softmax(outputs)[label].

    outputs: (N, classes) scores before softmax. labels: (N,) integers in [0, classes), or
    (N, classes) probabilities. A label out of range counts as loss 0; `fit` and `evaluate` check.
    """
    if outputs.ndim != 2:
        raise ShapeError(f"cross_entropy: outputs must be (N, classes), was given {outputs.shape}")
    log_probability = mm.log_softmax(outputs, axis=1)
    if labels.ndim == 2:
        if labels.shape != outputs.shape:
            raise ShapeError(
                f"cross_entropy: probabilities {labels.shape} do not fit outputs {outputs.shape}"
            )
        return mm.negative(mm.mean(mm.sum(labels * log_probability, axis=1)))
    if labels.ndim != 1 or not labels.dtype.is_integer:
        raise DTypeError(
            f"cross_entropy: labels must be (N,) integers or (N, classes) probabilities, was given "
            f"{labels.shape} {labels.dtype}; convert classes with mm.astype(labels, mm.int64)"
        )
    mask = class_mask(labels, outputs.shape[1])
    return mm.negative(mm.mean(mm.sum(mm.where(mask, log_probability, 0.0), axis=1)))


def mean_squared_error(outputs: Array, targets: Array) -> Array:
    """The mean over all elements of (outputs - targets)², in the outputs' type."""
    if outputs.shape != targets.shape:
        raise ShapeError(
            f"mean_squared_error: outputs {outputs.shape} and targets {targets.shape} differ"
        )
    return mm.mean(mm.square(outputs - mm.astype(targets, outputs.dtype, copy=False)))


def accuracy(outputs: Array, labels: Array) -> Array:
    """The share of samples whose label has the largest output; of equal ones the first counts.

    outputs: (N, classes). labels: (N,) integers, or (N, classes) probabilities.
    """
    truth = _first_maximum(labels) if labels.ndim == 2 else mm.astype(labels, mm.int64)
    return mm.mean(mm.astype(_first_maximum(outputs) == truth, outputs.dtype))


def _first_maximum(rows: Array) -> Array:
    """What `argmax` of each row gives, in operations that have a native form; the number of columns
    for rows with nan."""
    columns = Array(apply(creation.IOTA, shape=rows.shape, dtype=mm.int64, axis=1))
    largest = rows == mm.max(rows, axis=1, keepdims=True)
    return mm.min(mm.where(largest, columns, rows.shape[1]), axis=1)


LOSSES: dict[str, Callable[[Array, Array], Array]] = {
    "cross_entropy": cross_entropy,
    "mean_squared_error": mean_squared_error,
}


def loss_function(loss: Any) -> Callable[[Array, Array], Array]:
    """The loss of this name, or the function given."""
    if callable(loss):
        function: Callable[[Array, Array], Array] = loss
        return function
    if loss not in LOSSES:
        raise MagmathError(f"loss {loss!r} is not known; there are {', '.join(LOSSES)}")
    return LOSSES[loss]
