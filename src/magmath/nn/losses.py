"""Losses: differences of outputs from targets, as functions of (outputs, targets).

Values and gradients are those of the corresponding PyTorch functions. `reduction` is "mean", "sum"
or "none", which returns the loss of each sample (or element). `fit` accepts a loss by its name in
`LOSSES` or as a function.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

from magmath.api import elementwise, reductions, statistics
from magmath.api.activations import log_softmax, relu, stop_gradient
from magmath.api.creation import ones
from magmath.api.data_types import astype, finfo
from magmath.api.manipulation import reshape
from magmath.api.searching import where
from magmath.arrays.array import Array, as_array, as_arrays, floating
from magmath.arrays.indexing.index_checks import known_values
from magmath.core.dtypes import compute_dtype, int64, integer_bounds
from magmath.core.foreign_names import LOSS_NAMES
from magmath.core.shapes import can_broadcast_to
from magmath.core.shared_docstrings import F, with_paragraph
from magmath.errors import DTypeError, OptionError, PositionError, RangeError, ShapeError
from magmath.graph import Node, Shape, apply
from magmath.ops import creation, manipulation
from magmath.ops import elementwise as e
from magmath.ops.leaves import constant

__all__ = [
    "LOSSES",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "hinge",
    "huber",
    "kl_divergence",
    "mean_absolute_error",
    "mean_squared_error",
]


def __dir__() -> list[str]:
    return __all__


Reduction = Literal["mean", "sum", "none"]
MIN_LOG = -100.0
"""The value that `binary_cross_entropy` uses for the logarithm of 0, as in PyTorch."""
MIN_PRODUCT = 1e-12
"""The least value of p · (1 - p) in the derivative of `binary_cross_entropy`, as in PyTorch."""

_ARGUMENTS = """
Outputs and targets have one shape, otherwise ShapeError. `reduction` is "mean" over all elements or
"sum", both 0-d, or "none" for the loss of each element; another one raises OptionError. The result
has the type of the outputs, the default floating point type if they are integers.
"""


def _documented(function: F) -> F:
    return with_paragraph(function, _ARGUMENTS)


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
    factors = None if weight is None else _class_factors(weight, outputs)
    if targets.ndim == outputs.ndim and not _is_column_of_labels(outputs, targets):
        _check_shapes("cross_entropy", outputs, targets)
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
        weighted = log_probability if factors is None else log_probability * factors
        losses = elementwise.negative(reductions.sum(probabilities * weighted, axis=1))
        return _reduced(losses, reduction)
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
    _check_labels("cross_entropy", log_probability, labels, ignored)
    classes = log_probability.shape[1]
    valid, mask = _valid_mask(labels, classes)
    weighted = log_probability if factors is None else log_probability * factors
    losses = elementwise.negative(reductions.sum(_selected(mask, weighted), axis=1))
    if smoothing:
        spread = elementwise.negative(reductions.sum(weighted, axis=1)) * (smoothing / classes)
        losses = losses * (1 - smoothing) + spread
    counted = None if ignored is None else labels != ignored
    if counted is None:
        losses = _nan_unless(valid, losses)
    else:
        allowed = e.call("logical_or", valid, e.call("logical_not", counted.node))
        losses = where(counted, _nan_unless(allowed, losses), 0.0)
    if reduction != "mean" or (factors is None and counted is None):
        return _reduced(losses, reduction)
    weights = ones(labels.shape, dtype=losses.dtype)
    if factors is not None:
        weights = reductions.sum(_selected(mask, factors), axis=1)
    if counted is not None:
        weights = where(counted, weights, 0.0)
    mean = _wide_sum(losses) / _wide_sum(weights)
    return astype(mean, losses.dtype, copy=False)


@_documented
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
    outputs, targets = _in_one_type("binary_cross_entropy", outputs, targets)
    _check_probabilities("binary_cross_entropy", outputs)
    least = max(MIN_PRODUCT, finfo(outputs.dtype).smallest_normal)
    is_end = outputs * (1.0 - outputs) < least  # close to 0 or 1
    inner, end = where(is_end, 0.5, outputs), stop_gradient(outputs)
    slope = stop_gradient(outputs - targets) * (1.0 / least)  # (outputs - end) is 0
    at_end = _cross_entropy_of_bits(_log(end), _log(1.0 - end), targets) + (outputs - end) * slope
    within = _cross_entropy_of_bits(elementwise.log(inner), elementwise.log(1.0 - inner), targets)
    losses = where(is_end, at_end, within)
    return _reduced(_weighted(losses, weight), reduction)


def _weighted(losses: Array, weight: Any) -> Array:
    """Return losses times factors of the elements, if there are any."""
    return losses if weight is None else losses * _factors_of_elements(weight, losses)


def _factors(weight: Any, values: Array) -> Array:
    """Return factors as an array of the type of the values, which they must not widen."""
    return astype(as_arrays("loss", values, weight)[1], values.dtype, copy=False)


def _factors_of_elements(weight: Any, values: Array) -> Array:
    """Return factors of values. Raises ShapeError unless they broadcast to the values' shape."""
    factors = _factors(weight, values)
    if not can_broadcast_to(factors.shape, values.shape):
        raise ShapeError(
            f"loss: weights of shape {factors.shape} do not broadcast to the losses "
            f"{values.shape}; give a factor of each element, or of each class in the last dimension"
        )
    return factors


def _cross_entropy_of_bits(log_one: Array, log_zero: Array, targets: Array) -> Array:
    """Return the binary cross-entropy from the logarithms of the probabilities of 1 and of 0."""
    return elementwise.negative(targets * log_one + (1.0 - targets) * log_zero)


@_documented
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
    outputs, targets = _in_one_type("binary_cross_entropy_with_logits", outputs, targets)
    is_one = outputs > 0  # both terms of each form are positive, so no digits cancel
    near = elementwise.logaddexp(where(is_one, -outputs, outputs), 0.0)
    ones_factor = 1.0 if pos_weight is None else _factors_of_elements(pos_weight, outputs)
    far = where(is_one, 1.0 - targets, -(ones_factor * targets)) * outputs
    if pos_weight is not None:
        near = near * ((ones_factor - 1.0) * targets + 1.0)
    return _reduced(_weighted(far + near, weight), reduction)


@_documented
def mean_squared_error(outputs: Array, targets: Array, *, reduction: Reduction = "mean") -> Array:
    """Return (outputs - targets)² element by element, in the outputs' type."""
    outputs, targets = _in_one_type("mean_squared_error", outputs, targets)
    return _reduced(elementwise.square(outputs - targets), reduction)


@_documented
def mean_absolute_error(outputs: Array, targets: Array, *, reduction: Reduction = "mean") -> Array:
    """Return |outputs - targets| element by element: the L1 loss, whose gradient at 0 is 0."""
    outputs, targets = _in_one_type("mean_absolute_error", outputs, targets)
    return _reduced(elementwise.abs(outputs - targets), reduction)


@_documented
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
    outputs, targets = _in_one_type("huber", outputs, targets)
    distance = outputs - targets
    near = elementwise.clip(distance, -delta, delta)
    return _reduced(near * (distance - 0.5 * near), reduction)


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
    if targets.ndim == outputs.ndim and not _is_column_of_labels(outputs, targets):
        if weight is not None:
            raise OptionError(
                "hinge: weight is a factor of each class, for labels; with targets -1 and 1 scale "
                "the losses of reduction='none'"
            )
        outputs, targets = _in_one_type("hinge", outputs, targets)
        return _reduced(_to_power(relu(margin - targets * outputs), power), reduction)
    if outputs.ndim != 2:
        raise ShapeError(
            f"hinge: outputs must be (N, classes) for labels, was given {outputs.shape}; for two "
            f"classes give targets -1 and 1 of the outputs' shape"
        )
    _check_labels("hinge", outputs, targets)
    valid, mask = _valid_mask(targets, outputs.shape[1])
    label_scores = reductions.sum(_selected(mask, outputs), axis=1, keepdims=True)
    excess = _to_power(relu(margin - label_scores + outputs), power)
    other_excess = _selected(e.call("logical_not", mask), excess)
    losses = reductions.sum(other_excess, axis=1) / outputs.shape[1]
    losses = _nan_unless(valid, losses)
    if weight is not None:
        factors = _class_factors(weight, outputs)
        losses = losses * reductions.sum(_selected(mask, factors), axis=1)
    return _reduced(losses, reduction)


@_documented
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
    outputs, targets = _in_one_type("kl_divergence", outputs, targets)
    if log_targets:
        losses = elementwise.exp(targets) * (targets - outputs)
    else:
        logarithm = elementwise.log(where(targets == 0, 1.0, targets))  # 0 · log 0 is 0
        losses = targets * logarithm - targets * outputs
    if reduction == "batchmean":
        return astype(_wide_sum(losses) / outputs.shape[0], losses.dtype, copy=False)
    return _reduced(losses, reduction)


# parts ----------------------------------------------------------------------------------------


# Masks are nodes, not arrays: as parts of the loss's expression they are computed in its program.


def _valid_mask(labels: Array, classes: int) -> tuple[Node, Node]:
    """Return which labels are in range, and the class mask, with class 0 for all others."""
    node = labels_for_classes(labels, classes + 1).node
    first, end = constant(0, node.dtype), constant(classes, node.dtype)
    valid = e.call("logical_and", e.call("greater_equal", node, first), e.call("less", node, end))
    return valid, _class_mask(e.where(valid, node, first), classes)


def _selected(mask: Node, values: Array) -> Array:
    """Return the values where the mask is true, otherwise 0."""
    return Array(e.where(mask, values.node, constant(0, values.dtype)))


def _nan_unless(valid: Node, losses: Array) -> Array:
    """Return the losses of samples, nan for those that are not valid. A factor makes their
    gradients nan too, so that a step of the user's own shows the mistake."""
    one, nan = constant(1, losses.dtype), constant(math.nan, losses.dtype)
    return Array(e.multiply(losses.node, e.where(valid, one, nan)))


def class_mask(labels: Array, classes: int) -> Array:
    """Return (N, classes, …) booleans, true at the label of each of the (N, …) samples."""
    return Array(_class_mask(labels_for_classes(labels, classes).node, classes))


def _class_mask(labels: Node, classes: int) -> Node:
    samples, *rest = labels.shape
    column = manipulation.reshape(labels, (samples, 1, *rest))
    shape = (samples, classes, *rest)
    numbers = apply(creation.IOTA, shape=shape, dtype=labels.dtype, axis=1)
    return e.call("equal", numbers, column)


def labels_for_classes(labels: Array, classes: int) -> Array:
    """Return labels in an integer type that has the number of each class."""
    _, largest = integer_bounds(labels.dtype)
    return labels if classes - 1 <= largest else astype(labels, int64)


def _reduced(losses: Array, reduction: str) -> Array:
    """Return the mean or the sum of the losses, or the losses. Raises OptionError for an unknown
    reduction."""
    if reduction == "mean":
        return statistics.mean(losses)
    if reduction == "sum":
        return reductions.sum(losses)
    if reduction == "none":
        return losses
    raise OptionError(f'loss: reduction must be "mean", "sum" or "none", was given {reduction!r}')


def _wide_sum(values: Array) -> Array:
    """Return the sum of all values, in float32 for half types, which it may exceed."""
    return reductions.sum(astype(values, compute_dtype(values.dtype), copy=False))


def _in_one_type(name: str, outputs: Any, targets: Any) -> tuple[Array, Array]:
    """Return both as arrays, the targets in the outputs' type; integer outputs as floating point
    numbers, since targets would be truncated and differences wrap.

    Raises ShapeError unless both have the same shape, because broadcasting is rarely intended.
    """
    outputs, targets = as_arrays(name, outputs, targets)
    _check_shapes(name, outputs, targets)
    outputs = floating(name, outputs)
    return outputs, astype(targets, outputs.dtype, copy=False)


def _check_shapes(name: str, outputs: Array, targets: Array) -> None:
    if outputs.shape != targets.shape:
        raise ShapeError(
            f"{name}: outputs {outputs.shape} and targets {targets.shape} differ; "
            f"{_shape_remedy(outputs.shape, targets)}"
        )


def _shape_remedy(outputs: Shape, targets: Array) -> str:
    """Return the likely remedy for outputs and targets that should have the same shape."""
    if [n for n in outputs if n != 1] == [n for n in targets.shape if n != 1]:
        return f"give mm.reshape(targets, {outputs})"
    if outputs[:1] != targets.shape[:1]:
        return "give a target for each sample"
    if targets.ndim == 1 and targets.dtype.is_integer and len(outputs) == 2:
        return (
            f"for class labels use cross_entropy, or give mm.nn.functional.one_hot(targets, "
            f"{outputs[1]})"
        )
    return f"the last layer must return {targets.shape[1:]} numbers for each sample"


def _check_labels(name: str, outputs: Array, labels: Array, ignored: int | None = None) -> None:
    """Raise DTypeError or ShapeError unless there is an integer label for each of the outputs, and
    PositionError for a label out of range, if this process knows the values."""
    fitting = (outputs.shape[0], *outputs.shape[2:])
    if not labels.dtype.is_integer:
        raise DTypeError(
            f"{name}: labels must be {fitting} integers or {outputs.shape} numbers for the outputs "
            f"{outputs.shape}, was given {labels.shape} {labels.dtype}; convert classes with "
            f"mm.astype(labels, mm.int64)"
        )
    if labels.shape != fitting:
        raise ShapeError(
            f"{name}: outputs {outputs.shape} have the classes along axis 1 and need labels "
            f"{fitting}, was given {labels.shape}{_axis_hint(outputs.shape, labels.shape)}"
        )
    values, classes = known_values(labels.node), outputs.shape[1]
    if values is None or not values.size or (values.min() >= 0 and values.max() < classes):
        return
    is_outside = (values < 0) | (values >= classes)
    if ignored is not None:
        is_outside &= values != ignored
    if is_outside.any():
        hint = "; ignore_index=… leaves samples out" if name == "cross_entropy" else ""
        raise PositionError(
            f"{name}: labels for outputs {outputs.shape} go from 0 to {classes - 1}, was given "
            f"{values[is_outside][0]}{hint}"
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


def _is_column_of_labels(outputs: Array, targets: Array) -> bool:
    """Return True for labels (N, 1, …) of several classes, which lack the squeeze."""
    column = (*outputs.shape[:1], 1, *outputs.shape[2:])
    return targets.dtype.is_integer and targets.shape == column != outputs.shape


def _axis_hint(outputs: Shape, labels: Shape) -> str:
    """Return the likely remedy for outputs and labels whose shapes do not fit."""
    if labels == (outputs[0], 1, *outputs[2:]):
        return "; give labels[:, 0]"
    if labels == outputs[:-1]:
        return "; if the classes are the last axis, use mm.moveaxis(outputs, -1, 1)"
    if len(labels) == 1 and len(outputs) > 2:
        return "; for one label an image, end the network with Flatten or GlobalAvgPool and Dense"
    return ""


def _class_factors(weight: Any, outputs: Array) -> Array:
    """Return the factors of the classes, in a shape that broadcasts with the outputs."""
    factors = _factors(weight, outputs)
    if factors.shape != (outputs.shape[1],):
        raise ShapeError(
            f"loss: weight must have a number for each of the {outputs.shape[1]} classes, was "
            f"given {factors.shape}; a class without influence has weight 0"
        )
    return reshape(factors, (1, outputs.shape[1], *[1] * (outputs.ndim - 2)))


def _log(x: Array) -> Array:
    """Return the logarithm, at least -100."""
    positive = x > 0
    return elementwise.maximum(
        where(positive, elementwise.log(where(positive, x, 1.0)), MIN_LOG), MIN_LOG
    )


def _to_power(x: Array, power: int) -> Array:
    """Return x or its square. Raises OptionError for other powers."""
    if power not in (1, 2):
        raise OptionError(f"hinge: power must be 1 or 2, was given {power}")
    return x if power == 1 else elementwise.square(x)


LOSSES: dict[str, Callable[[Array, Array], Array]] = {
    "cross_entropy": cross_entropy,
    "binary_cross_entropy": binary_cross_entropy,
    "binary_cross_entropy_with_logits": binary_cross_entropy_with_logits,
    "mean_squared_error": mean_squared_error,
    "mean_absolute_error": mean_absolute_error,
    "huber": huber,
    "hinge": hinge,
    "kl_divergence": kl_divergence,
}
"""The losses that `fit` accepts by name."""


def loss_function(loss: Any) -> Callable[[Array, Array], Array]:
    """Return the loss of this name, or the given function."""
    if callable(loss):
        function: Callable[[Array, Array], Array] = loss
        return function
    if loss not in LOSSES:
        equivalent = LOSS_NAMES.get(loss) if isinstance(loss, str) else None
        hint = f'; write "{equivalent}"' if equivalent else ""
        raise OptionError(f"loss {loss!r} is not known; there are {', '.join(LOSSES)}{hint}")
    return LOSSES[loss]
