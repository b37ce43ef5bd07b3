"""Losses of numbers, element by element: errors, and the divergence of distributions."""

from __future__ import annotations

from typing import Literal

from magmath.api import elementwise
from magmath.api.data_types import astype
from magmath.api.searching import where
from magmath.arrays.array import Array
from magmath.errors import OptionError
from magmath.nn.losses.loss_operands import in_one_type, with_common_arguments
from magmath.nn.losses.loss_reduction import Reduction, reduced, wide_sum


@with_common_arguments
def mean_squared_error(outputs: Array, targets: Array, *, reduction: Reduction = "mean") -> Array:
    """Return (outputs - targets)² element by element, in the outputs' type."""
    outputs, targets = in_one_type("mean_squared_error", outputs, targets)
    return reduced(elementwise.square(outputs - targets), reduction)


@with_common_arguments
def mean_absolute_error(outputs: Array, targets: Array, *, reduction: Reduction = "mean") -> Array:
    """Return |outputs - targets| element by element: the L1 loss, whose gradient at 0 is 0."""
    outputs, targets = in_one_type("mean_absolute_error", outputs, targets)
    return reduced(elementwise.abs(outputs - targets), reduction)


@with_common_arguments
def huber(
    outputs: Array, targets: Array, *, delta: float = 1.0, reduction: Reduction = "mean"
) -> Array:
    """Return ½ d² if |d| ≤ delta, otherwise delta · (|d| - ½ delta), for d = outputs - targets.

    Divided by delta it is the smooth L1 loss. Source: Huber (1964).
    """
    if not delta > 0:
        raise OptionError(
            f"huber: delta must be positive, was given {delta}; for |d| take mean_absolute_error"
        )
    outputs, targets = in_one_type("huber", outputs, targets)
    distance = outputs - targets
    near = elementwise.clip(distance, -delta, delta)
    return reduced(near * (distance - 0.5 * near), reduction)


@with_common_arguments
def kl_divergence(
    outputs: Array,
    targets: Array,
    *,
    log_targets: bool = False,
    reduction: Reduction | Literal["batchmean"] = "mean",
) -> Array:
    """Return the Kullback–Leibler divergence t · (log t - outputs), element by element.

    The outputs are logarithms of probabilities, such as those of `mm.log_softmax`; the targets are
    probabilities, or their logarithms with `log_targets`. The divergence of two distributions is
    the sum: "batchmean" is its mean over the first dimension, "mean" that over all elements.
    """
    outputs, targets = in_one_type("kl_divergence", outputs, targets)
    if log_targets:
        losses = elementwise.exp(targets) * (targets - outputs)
    else:
        logarithm = elementwise.log(where(targets == 0, 1.0, targets))  # 0 · log 0 is 0
        losses = targets * logarithm - targets * outputs
    if reduction == "batchmean":
        return astype(wide_sum(losses) / outputs.shape[0], losses.dtype, copy=False)
    return reduced(losses, reduction)
