"""Metrics: measures of the quality of outputs, as functions of (outputs, targets).

A metric consists of counts, which are summed over the batches of an epoch, and a function of the
sums that returns the metric's value: the share of hits for accuracy, a ratio of counts for F1. So
the value for many batches is that for all their samples, whatever the batch sizes. The values are
those of scikit-learn. The workers compute counts and values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple, final

from magmath.api import elementwise, reductions
from magmath.api.creation import full
from magmath.api.data_types import astype, iinfo
from magmath.api.manipulation import reshape
from magmath.api.products import matrix_transpose
from magmath.api.searching import where
from magmath.arrays.array import Array, as_array
from magmath.core.dtypes import float64, int64
from magmath.errors import DTypeError, OptionError, ShapeError
from magmath.graph import apply
from magmath.nn.losses.class_labels import class_mask
from magmath.ops import creation

__all__ = [
    "METRICS",
    "Metric",
    "accuracy",
    "class_ratio",
    "confusion_matrix",
    "f1",
    "mean_absolute_error",
    "mean_squared_error",
    "precision",
    "recall",
    "top_k",
    "top_k_accuracy",
]


def __dir__() -> list[str]:
    return __all__


Average = Literal["micro", "macro"] | None
Counts = tuple[Array, ...]


@final
@dataclass(frozen=True)
class Metric:
    """A metric that accumulates over batches.

    counts  (outputs, targets) → arrays whose sums over batches are those of all samples
    result  these sums, in the same order → the value of the metric
    """

    counts: Callable[[Array, Array], Counts]
    result: Callable[..., Array]

    def __call__(self, outputs: Array, targets: Array) -> Array:
        """Return the value for one batch."""
        outputs = as_array("metric: outputs", outputs)
        return self.result(*self.counts(outputs, as_array("metric: targets", targets)))


# classes --------------------------------------------------------------------------------------


def accuracy(outputs: Array, targets: Array) -> Array:
    """Return the share of samples whose label has the largest output, the first of equal ones.

    outputs: (N, classes), or (N,) integers that are predicted labels. targets: (N,) integers, or
    (N, classes) probabilities. Labels out of range count as misses, also those that a loss ignores
    (`ignore_index`).
    """
    return METRICS["accuracy"](outputs, targets)


def top_k_accuracy(outputs: Array, targets: Array, k: int = 5) -> Array:
    """Return the share of samples whose label is among the k largest outputs (N, classes).

    Of equal outputs those of larger classes count as larger, as in scikit-learn; nan is larger than
    all numbers. Samples whose label is out of range, or has the output nan, are no hits.
    """
    return top_k(k)(outputs, targets)


def precision(
    outputs: Array, targets: Array, average: Average = "macro", classes: int | None = None
) -> Array:
    """Return the share of correct predictions among those of a class; 0 without predictions.

    average  "macro": the mean over the classes that occur; "micro": the share over all classes;
             None: one number for each class
    classes  the number of classes, if the outputs are (N,) integers
    """
    return class_ratio("precision", average, classes)(outputs, targets)


def recall(
    outputs: Array, targets: Array, average: Average = "macro", classes: int | None = None
) -> Array:
    """Return the share of samples of a class that are predicted as it; see `precision`."""
    return class_ratio("recall", average, classes)(outputs, targets)


def f1(
    outputs: Array, targets: Array, average: Average = "macro", classes: int | None = None
) -> Array:
    """Return the harmonic mean of precision and recall; see `precision`."""
    return class_ratio("f1", average, classes)(outputs, targets)


def confusion_matrix(outputs: Array, targets: Array, classes: int | None = None) -> Array:
    """Return the numbers of samples of class i (row) predicted as j (column), as int64."""
    (matrix,) = _pair_counts(classes, outputs, targets)
    return matrix


def top_k(k: int) -> Metric:
    """Return `top_k_accuracy` as a `Metric`."""
    if k < 1:
        raise OptionError(f"top_k_accuracy: k must be at least 1, was given {k}")
    return Metric(partial(_top_hits, k), _mean)


def class_ratio(
    name: Literal["precision", "recall", "f1"],
    average: Average = "macro",
    classes: int | None = None,
) -> Metric:
    """Return `precision`, `recall` or `f1` as a `Metric`."""
    if average not in ("micro", "macro", None):
        raise OptionError(
            f'{name}: average must be "micro", "macro" or None, was given {average!r}'
        )
    return Metric(partial(_class_counts, classes), partial(_class_ratio, name, average))


def _hits(outputs: Array, targets: Array) -> Counts:
    """Return the number of samples whose predicted label is the true one, and of all samples."""
    predicted, truth = _classes_of("accuracy", outputs, targets)
    return _sum_and_size(predicted == truth)


def _top_hits(k: int, outputs: Array, targets: Array) -> Counts:
    """Return the number of samples for which fewer than k other outputs rank before the label's
    output, and of all samples."""
    if outputs.ndim != 2:
        raise ShapeError(
            f"top_k_accuracy: outputs must be (N, classes), was given {outputs.shape}"
            "; give one output for each class of each sample"
        )
    _, truth = _classes_of("top_k_accuracy", outputs, targets)
    mask = class_mask(truth, outputs.shape[1])
    columns = _columns(outputs)
    label_outputs = reductions.sum(where(mask, outputs, 0.0), axis=1, keepdims=True)
    not_later = columns <= reshape(truth, (truth.shape[0], 1))
    tied = elementwise.logical_and(
        outputs == label_outputs, not_later
    )  # the label's output among them
    not_ahead = elementwise.logical_or(outputs < label_outputs, tied)
    is_top = reductions.sum(astype(not_ahead, int64), axis=1) > outputs.shape[1] - k
    has_output = reductions.any(elementwise.logical_and(mask, outputs == label_outputs), axis=1)
    return _sum_and_size(elementwise.logical_and(is_top, has_output))


def _sum_and_size(values: Array) -> Counts:
    """Return the sum and the number of the values."""
    return reductions.sum(astype(values, float64)), full((), values.size, dtype=float64)


def _mean(total: Array, count: Array) -> Array:
    return total / count


def _one_hot(outputs: Array, targets: Array, classes: int | None) -> tuple[Array, Array]:
    """Return two arrays (N, classes) with 1 at the true and at the predicted label, otherwise 0."""
    labels = _labels(outputs, targets, classes)
    truth, predicted = (
        astype(class_mask(x, labels.classes), float64) for x in (labels.truth, labels.predicted)
    )
    return truth, predicted


def _pair_counts(classes: int | None, outputs: Array, targets: Array) -> Counts:
    """Return the number of samples for each pair of a true and a predicted class."""
    truth, predicted = _one_hot(outputs, targets, classes)
    return (astype(matrix_transpose(truth) @ predicted, int64),)


def _class_counts(classes: int | None, outputs: Array, targets: Array) -> Counts:
    """Return for each class the numbers of correct predictions, predictions, and samples."""
    truth, predicted = _one_hot(outputs, targets, classes)
    return tuple([reductions.sum(x, axis=0) for x in (truth * predicted, predicted, truth)])


def _class_ratio(
    name: str, average: Average, correct: Array, predicted: Array, samples: Array
) -> Array:
    """Return precision, recall or f1 from the numbers of `_class_counts`."""
    if average == "micro":
        correct, predicted, samples = [reductions.sum(x) for x in (correct, predicted, samples)]
    numerator, denominator = {
        "precision": (correct, predicted),
        "recall": (correct, samples),
        "f1": (2.0 * correct, predicted + samples),
    }[name]
    has_any = denominator > 0
    ratios = where(has_any, numerator / where(has_any, denominator, 1.0), 0.0)
    if average != "macro":
        return ratios
    occurs = astype(predicted + samples > 0, float64)
    return reductions.sum(ratios * occurs) / reductions.sum(occurs)


# numbers --------------------------------------------------------------------------------------


def mean_absolute_error(outputs: Array, targets: Array) -> Array:
    """Return the mean of |outputs - targets| over all elements."""
    return METRICS["mean_absolute_error"](outputs, targets)


def mean_squared_error(outputs: Array, targets: Array) -> Array:
    """Return the mean of (outputs - targets)² over all elements."""
    return METRICS["mean_squared_error"](outputs, targets)


def _errors(name: str, size: Callable[[Array], Array], outputs: Array, targets: Array) -> Counts:
    """Return the sum of the sizes of all differences, and their number."""
    _check_equal_shapes(name, outputs, targets)
    return _sum_and_size(size(astype(outputs, float64) - astype(targets, float64)))


# parts ----------------------------------------------------------------------------------------


@final
class _Labels(NamedTuple):
    """Predicted and true labels (N,), and the number of classes."""

    predicted: Array
    truth: Array
    classes: int


def _labels(outputs: Array, targets: Array, classes: int | None) -> _Labels:
    """Return the labels; `classes` is their number if the shapes do not tell it."""
    if outputs.ndim == 2:
        classes = outputs.shape[1]
    elif targets.ndim == 2:
        classes = targets.shape[1]
    if classes is None:
        raise OptionError(
            f"metric: outputs {outputs.shape} do not determine the number of classes; give "
            "classes=…, or outputs (N, classes)"
        )
    predicted, truth = _classes_of("metric", outputs, targets)
    return _Labels(predicted, truth, classes)


def _classes_of(name: str, outputs: Array, targets: Array) -> tuple[Array, Array]:
    """Return predicted and true labels (N,). Raises ShapeError for shapes that do not fit."""
    if outputs.ndim == targets.ndim == 2:
        _check_equal_shapes(name, outputs, targets)
    predicted, truth = _class_of(outputs), _class_of(targets)
    _check_equal_shapes(name, predicted, truth)
    return predicted, truth


def _class_of(x: Array) -> Array:
    """Return labels (N,) unchanged, or the first maximum of each row of (N, classes)."""
    if x.ndim == 2 and x.shape[1] == 1:
        raise ShapeError(
            f"metric: classes are (N,) integers or (N, classes) numbers, was given the single "
            f"column {x.shape}; give labels[:, 0]; of a single output the label is "
            f"mm.astype(y[:, 0] > 0.5, mm.int64)"
        )
    if x.ndim == 2:
        return _first_maximum(x)
    if x.ndim != 1 or not x.dtype.is_integer:
        raise DTypeError(
            f"metric: classes are (N,) integers or (N, classes) numbers, was given {x.shape} "
            f"{x.dtype}; convert labels with mm.astype(x, mm.int64)"
        )
    return astype(x, int64, copy=False)


def _first_maximum(rows: Array) -> Array:
    """Return `argmax` of each row, by operations that have a native form; a number that is no label
    for rows with nan."""
    largest = rows == reductions.max(rows, axis=1, keepdims=True)
    return reductions.min(where(largest, _columns(rows), iinfo(int64).max), axis=1)


def _columns(rows: Array) -> Array:
    """Return the column number of each element."""
    return Array(apply(creation.IOTA, shape=rows.shape, dtype=int64, axis=1))


def _check_equal_shapes(name: str, outputs: Array, targets: Array) -> None:
    if outputs.shape != targets.shape:
        raise ShapeError(
            f"{name}: outputs {outputs.shape} and targets {targets.shape} differ"
            f"{'; give labels[:, 0]' if targets.shape[1:] == (1,) else '; reshape one of them'}"
        )


METRICS: dict[str, Metric] = {
    "accuracy": Metric(_hits, _mean),
    "top_5_accuracy": top_k(5),
    "precision": class_ratio("precision"),
    "recall": class_ratio("recall"),
    "f1": class_ratio("f1"),
    "confusion_matrix": Metric(partial(_pair_counts, None), elementwise.positive),
    "mean_absolute_error": Metric(partial(_errors, "mean_absolute_error", elementwise.abs), _mean),
    "mean_squared_error": Metric(partial(_errors, "mean_squared_error", elementwise.square), _mean),
}
"""The metrics that training accepts by name."""
