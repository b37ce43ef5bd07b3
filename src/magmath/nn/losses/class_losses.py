"""Losses of scores for classes: cross-entropy and hinge loss."""

from __future__ import annotations

from typing import Any, Literal

from magmath.api import elementwise, reductions
from magmath.api.activations import log_softmax, relu
from magmath.api.creation import ones
from magmath.api.data_types import astype
from magmath.api.searching import where
from magmath.arrays.array import Array, as_array, floating
from magmath.core.keyword_hints import keyword_hints
from magmath.errors import OptionError, ShapeError
from magmath.nn.losses.class_labels import (
    check_labels,
    class_factors,
    is_column_of_labels,
    nan_unless,
    selected,
    valid_mask,
)
from magmath.nn.losses.loss_operands import check_shapes, in_one_type
from magmath.nn.losses.loss_reduction import Reduction, reduced, wide_sum
from magmath.ops import elementwise as e


@keyword_hints
def cross_entropy(
    outputs: Array,
    targets: Array,
    *,
    weight: Any = None,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    reduction: Reduction = "mean",
) -> Array:
    """Return -log softmax(outputs)[label], or for probabilities -Σ p · log softmax(outputs).

    outputs          (N, classes, …) scores before softmax
    targets          (N, …) integers in [0, classes), or probabilities of the shape of the outputs
    weight           (classes,) factors; with integer targets the mean is a weighted one
    label_smoothing  share of each target that is spread evenly over all classes
    ignore_index     samples with this label have loss 0 and do not count in the mean; with
                     probabilities, which have no labels, it raises OptionError

    A label out of range, except `ignore_index`, raises PositionError if this process knows the
    labels: numbers, NumPy arrays and small computed arrays, while no function is traced. Otherwise
    its loss and gradient are nan; `fit` and `evaluate` raise DataError for it.

    Source of label_smoothing: Szegedy et al. (2016), section 7.
    """
    outputs, targets = floating("cross_entropy", outputs), as_array("cross_entropy", targets)
    if outputs.ndim < 2:
        raise ShapeError(
            f"cross_entropy: outputs must be (N, classes), was given {outputs.shape}; for one "
            f"sample, give outputs[None]"
        )
    if not 0 <= label_smoothing <= 1:
        raise OptionError(
            f"cross_entropy: label_smoothing must be in [0, 1], was given {label_smoothing}; "
            f"typical is 0.1"
        )
    log_probability = log_softmax(outputs, axis=1)
    factors = None if weight is None else class_factors(weight, outputs)
    if targets.ndim == outputs.ndim and not is_column_of_labels(outputs, targets):
        check_shapes("cross_entropy", outputs, targets)
        if ignore_index is not None:
            raise OptionError(
                f"cross_entropy: ignore_index is a label, was given {ignore_index} with "
                f"probabilities {targets.shape}; give integer labels, or take the mean of the "
                f"losses that count, with reduction='none'"
            )
        probabilities = astype(targets, outputs.dtype, copy=False)
        if label_smoothing:
            even = label_smoothing / outputs.shape[1]
            probabilities = probabilities * (1 - label_smoothing) + even
        scaled = log_probability if factors is None else log_probability * factors
        losses = elementwise.negative(reductions.sum(probabilities * scaled, axis=1))
        return reduced(losses, reduction)
    return _cross_entropy_of_labels(
        log_probability, targets, factors, label_smoothing, ignore_index, reduction
    )


def _cross_entropy_of_labels(
    log_probability: Array,
    labels: Array,
    factors: Array | None,
    smoothing: float,
    ignored: int | None,
    reduction: Reduction,
) -> Array:
    """Return the cross-entropy for integer targets; `factors` are those of the classes, and samples
    with the label `ignored` do not count."""
    check_labels("cross_entropy", log_probability, labels, ignored)
    classes = log_probability.shape[1]
    valid, mask = valid_mask(labels, classes)
    scaled = log_probability if factors is None else log_probability * factors
    losses = elementwise.negative(reductions.sum(selected(mask, scaled), axis=1))
    if smoothing:
        spread = elementwise.negative(reductions.sum(scaled, axis=1)) * (smoothing / classes)
        losses = losses * (1 - smoothing) + spread
    counted = None if ignored is None else labels != ignored
    if counted is None:
        losses = nan_unless(valid, losses)
    else:
        allowed = e.call("logical_or", valid, e.call("logical_not", counted.node))
        losses = where(counted, nan_unless(allowed, losses), 0.0)
    if reduction != "mean" or (factors is None and counted is None):
        return reduced(losses, reduction)
    weights = ones(labels.shape, dtype=losses.dtype)
    if factors is not None:
        weights = reductions.sum(selected(mask, factors), axis=1)
    if counted is not None:
        weights = where(counted, weights, 0.0)
    mean = wide_sum(losses) / wide_sum(weights)
    return astype(mean, losses.dtype, copy=False)


@keyword_hints
def hinge(
    outputs: Array,
    targets: Array,
    *,
    margin: float = 1.0,
    power: Literal[1, 2] = 1,
    weight: Any = None,
    reduction: Reduction = "mean",
) -> Array:
    """Return the hinge loss, to a power.

    For outputs of any shape and targets -1 and 1 of the same shape: max(0, margin - t · y), element
    by element. For outputs (N, classes) and integer targets (N,): the sum over the wrong classes i
    of max(0, margin - y[label] + y[i]), divided by the number of classes; `weight` (classes,) is a
    factor of each sample by its label. Labels out of range are as in `cross_entropy`.
    Source: Crammer and Singer (2001).
    """
    outputs, targets = floating("hinge", outputs), as_array("hinge", targets)
    if targets.ndim == outputs.ndim and not is_column_of_labels(outputs, targets):
        if weight is not None:
            raise OptionError(
                "hinge: weight is a factor of each class, for labels; with targets -1 and 1 scale "
                "the losses of reduction='none'"
            )
        outputs, targets = in_one_type("hinge", outputs, targets)
        return reduced(_to_power(relu(margin - targets * outputs), power), reduction)
    if outputs.ndim != 2:
        raise ShapeError(
            f"hinge: outputs must be (N, classes) for labels, was given {outputs.shape}; for two "
            f"classes give targets -1 and 1 of the outputs' shape"
        )
    check_labels("hinge", outputs, targets)
    valid, mask = valid_mask(targets, outputs.shape[1])
    label_scores = reductions.sum(selected(mask, outputs), axis=1, keepdims=True)
    excess = _to_power(relu(margin - label_scores + outputs), power)
    other_excess = selected(e.call("logical_not", mask), excess)
    losses = reductions.sum(other_excess, axis=1) / outputs.shape[1]
    losses = nan_unless(valid, losses)
    if weight is not None:
        factors = class_factors(weight, outputs)
        losses = losses * reductions.sum(selected(mask, factors), axis=1)
    return reduced(losses, reduction)


def _to_power(x: Array, power: int) -> Array:
    """Return x or its square. Raises OptionError for other powers."""
    if power not in (1, 2):
        raise OptionError(f"hinge: power must be 1 or 2, was given {power}")
    return x if power == 1 else elementwise.square(x)
