"""Losses of bits, which are 0 or 1, or of their probabilities: binary cross-entropy."""

from __future__ import annotations

from typing import Any

from magmath.api import elementwise
from magmath.api.activations import stop_gradient
from magmath.api.data_types import finfo
from magmath.api.searching import where
from magmath.arrays.array import Array
from magmath.arrays.indexing.index_checks import known_values
from magmath.errors import RangeError
from magmath.nn.losses.loss_operands import (
    factors_of_elements,
    in_one_type,
    weighted,
    with_common_arguments,
)
from magmath.nn.losses.loss_reduction import Reduction, reduced

MIN_LOG = -100.0
"""The value that `binary_cross_entropy` uses for the logarithm of 0, as in PyTorch."""
MIN_PRODUCT = 1e-12
"""The least value of p · (1 - p) in the derivative of `binary_cross_entropy`, as in PyTorch."""


@with_common_arguments
def binary_cross_entropy(
    outputs: Array, targets: Array, *, weight: Any = None, reduction: Reduction = "mean"
) -> Array:
    """Return -t · log(p) - (1 - t) · log(1 - p) for probabilities p, element by element.

    Logarithms are at least -100, and the derivative (p - t) / (p · (1 - p)) is at most 1e12. For
    scores use `binary_cross_entropy_with_logits`, which is more exact. `weight` is a factor for
    each element, and broadcasts.

    An output outside [0, 1] raises RangeError if this process knows the outputs, as for the labels
    of `cross_entropy`.
    """
    outputs, targets = in_one_type("binary_cross_entropy", outputs, targets)
    _check_probabilities("binary_cross_entropy", outputs)
    least = max(MIN_PRODUCT, finfo(outputs.dtype).smallest_normal)
    is_end = outputs * (1.0 - outputs) < least  # close to 0 or 1
    inner, end = where(is_end, 0.5, outputs), stop_gradient(outputs)
    slope = stop_gradient(outputs - targets) * (1.0 / least)  # (outputs - end) is 0
    at_end = _cross_entropy_of_bits(_log(end), _log(1.0 - end), targets) + (outputs - end) * slope
    within = _cross_entropy_of_bits(elementwise.log(inner), elementwise.log(1.0 - inner), targets)
    losses = where(is_end, at_end, within)
    return reduced(weighted(losses, weight), reduction)


@with_common_arguments
def binary_cross_entropy_with_logits(
    outputs: Array,
    targets: Array,
    *,
    weight: Any = None,
    pos_weight: Any = None,
    reduction: Reduction = "mean",
) -> Array:
    """Return `binary_cross_entropy` of sigmoid(outputs), without overflow.

    `weight` is a factor of each element, `pos_weight` a factor of the term with t; both broadcast.
    """
    outputs, targets = in_one_type("binary_cross_entropy_with_logits", outputs, targets)
    is_one = outputs > 0  # both terms of each form are positive, so no digits cancel
    near = elementwise.logaddexp(where(is_one, -outputs, outputs), 0.0)
    ones_factor = 1.0 if pos_weight is None else factors_of_elements(pos_weight, outputs)
    far = where(is_one, 1.0 - targets, -(ones_factor * targets)) * outputs
    if pos_weight is not None:
        near = near * ((ones_factor - 1.0) * targets + 1.0)
    return reduced(weighted(far + near, weight), reduction)


def _cross_entropy_of_bits(log_one: Array, log_zero: Array, targets: Array) -> Array:
    """Return the binary cross-entropy from the logarithms of the probabilities of 1 and of 0."""
    return elementwise.negative(targets * log_one + (1.0 - targets) * log_zero)


def _log(x: Array) -> Array:
    """Return the logarithm, at least -100."""
    positive = x > 0
    return elementwise.maximum(
        where(positive, elementwise.log(where(positive, x, 1.0)), MIN_LOG), MIN_LOG
    )


def _check_probabilities(name: str, outputs: Array) -> None:
    """Raise RangeError for an output outside [0, 1], if this process knows the values."""
    values = known_values(outputs.node)
    if values is None or not values.size or (values.min() >= 0 and values.max() <= 1):
        return
    is_outside = (values < 0) | (values > 1)
    if is_outside.any():  # nan is not
        raise RangeError(
            f"{name}: outputs are probabilities in [0, 1], was given {values[is_outside][0]}; for "
            f"scores use mm.nn.{name}_with_logits, or give mm.sigmoid(outputs)"
        )
