"""Checks and conversions of outputs, targets and weights, which losses share."""

from __future__ import annotations

from typing import Any

from magmath.api.data_types import astype
from magmath.arrays.array import Array, as_arrays, floating
from magmath.core.keyword_hints import keyword_hints
from magmath.core.shapes import can_broadcast_to
from magmath.core.shared_docstrings import F, with_paragraph
from magmath.errors import ShapeError
from magmath.graph import Shape

_ARGUMENTS = """
Outputs and targets have one shape, otherwise ShapeError. `reduction` is "mean" over all elements or
"sum", both 0-d, or "none" for the loss of each element; another one raises OptionError. The result
has the type of the outputs, the default floating point type if they are integers.
"""


def with_common_arguments(function: F) -> F:
    """Add the paragraph on outputs, targets and `reduction` to the docstring of a loss, and hints
    about names of other libraries."""
    return keyword_hints(with_paragraph(function, _ARGUMENTS))


def in_one_type(name: str, outputs: Any, targets: Any) -> tuple[Array, Array]:
    """Return both as arrays, the targets in the outputs' type; integer outputs as floating point
    numbers, since targets would be truncated and differences wrap.

    Raises ShapeError unless both have the same shape, because broadcasting is rarely intended.
    """
    outputs, targets = as_arrays(name, outputs, targets)
    check_shapes(name, outputs, targets)
    outputs = floating(name, outputs)
    return outputs, astype(targets, outputs.dtype, copy=False)


def check_shapes(name: str, outputs: Array, targets: Array) -> None:
    """Raise ShapeError unless outputs and targets have the same shape."""
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


def weighted(losses: Array, weight: Any) -> Array:
    """Return losses times factors of the elements, if there are any."""
    return losses if weight is None else losses * factors_of_elements(weight, losses)


def typed_factors(weight: Any, values: Array) -> Array:
    """Return factors as an array of the type of the values, which they must not widen."""
    return astype(as_arrays("loss", values, weight)[1], values.dtype, copy=False)


def factors_of_elements(weight: Any, values: Array) -> Array:
    """Return factors of values. Raises ShapeError unless they broadcast to the values' shape."""
    factors = typed_factors(weight, values)
    if not can_broadcast_to(factors.shape, values.shape):
        raise ShapeError(
            f"loss: weights of shape {factors.shape} do not broadcast to the losses "
            f"{values.shape}; give a factor of each element, or of each class in the last dimension"
        )
    return factors
