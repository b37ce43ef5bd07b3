"""Labels of classes: their checks, their masks, and the factors of classes.

Masks are nodes, not arrays: as parts of the loss's expression they are computed in its program.
"""

from __future__ import annotations

import math
from typing import Any

from magmath.api.data_types import astype
from magmath.api.manipulation import reshape
from magmath.arrays.array import Array
from magmath.arrays.indexing.index_checks import known_values
from magmath.core.dtypes import int64, integer_bounds
from magmath.errors import DTypeError, PositionError, ShapeError
from magmath.graph import Node, Shape, apply
from magmath.nn.losses.loss_operands import typed_factors
from magmath.ops import creation, manipulation
from magmath.ops import elementwise as e
from magmath.ops.leaves import constant


def valid_mask(labels: Array, classes: int) -> tuple[Node, Node]:
    """Return which labels are in range, and the class mask, with class 0 for all others."""
    node = labels_for_classes(labels, classes + 1).node
    first, end = constant(0, node.dtype), constant(classes, node.dtype)
    valid = e.call("logical_and", e.call("greater_equal", node, first), e.call("less", node, end))
    return valid, _class_mask(e.where(valid, node, first), classes)


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


def selected(mask: Node, values: Array) -> Array:
    """Return the values where the mask is true, otherwise 0."""
    return Array(e.where(mask, values.node, constant(0, values.dtype)))


def nan_unless(valid: Node, losses: Array) -> Array:
    """Return the losses of samples, nan for those that are not valid. A factor makes their
    gradients nan too, so that a step of the user's own shows the mistake."""
    one, nan = constant(1, losses.dtype), constant(math.nan, losses.dtype)
    return Array(e.multiply(losses.node, e.where(valid, one, nan)))


def check_labels(name: str, outputs: Array, labels: Array, ignored: int | None = None) -> None:
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


def _axis_hint(outputs: Shape, labels: Shape) -> str:
    """Return the likely remedy for outputs and labels whose shapes do not fit."""
    if labels == (outputs[0], 1, *outputs[2:]):
        return "; give labels[:, 0]"
    if labels == outputs[:-1]:
        return "; if the classes are the last axis, use mm.moveaxis(outputs, -1, 1)"
    if len(labels) == 1 and len(outputs) > 2:
        return "; for one label an image, end the network with Flatten or GlobalAvgPool and Dense"
    return ""


def is_column_of_labels(outputs: Array, targets: Array) -> bool:
    """Return True for labels (N, 1, …) of several classes, which lack the squeeze."""
    column = (*outputs.shape[:1], 1, *outputs.shape[2:])
    return targets.dtype.is_integer and targets.shape == column != outputs.shape


def class_factors(weight: Any, outputs: Array) -> Array:
    """Return the factors of the classes, in a shape that broadcasts with the outputs."""
    factors = typed_factors(weight, outputs)
    if factors.shape != (outputs.shape[1],):
        raise ShapeError(
            f"loss: weight must have a number for each of the {outputs.shape[1]} classes, was "
            f"given {factors.shape}; a class without influence has weight 0"
        )
    return reshape(factors, (1, outputs.shape[1], *[1] * (outputs.ndim - 2)))
