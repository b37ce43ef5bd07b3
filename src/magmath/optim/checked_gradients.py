"""The gradients of an update: checked, and converted to arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from magmath.arrays.array import Array, as_array
from magmath.arrays.variables.variable import Variable
from magmath.arrays.variables.variable_list import check_trainable, is_module, remedy_for
from magmath.errors import DTypeError, OptionError, ShapeError


def checked_gradients(gradients: Any) -> dict[Variable, Array]:
    """Return the gradients of an update as arrays, by the variables.

    Raises TypeError for anything but a dictionary of arrays by variable, DTypeError for variables
    of integers and for complex gradients of real ones, ShapeError for other shapes than those of
    the variables, OptionError if it is empty, StateError for a variable that is frozen.
    """
    if not isinstance(gradients, Mapping):
        remedy = "write optimizer.update(dict(zip(variables, gradients)))"
        if isinstance(gradients, tuple) and any(isinstance(x, Mapping) for x in gradients):
            remedy = (
                "mm.value_and_grad returns a tuple of value and gradients: give its second element"
            )
        elif is_module(gradients):
            remedy = "loss, gradients = mm.value_and_grad(f, module.trainable()) computes it"
        raise TypeError(
            f"update: needs a dictionary of gradients by variable, was given "
            f"{type(gradients).__name__}; {remedy}"
        )
    for v in gradients.keys():  # noqa: SIM118  it may be a `GradientMap`
        if not isinstance(v, Variable):
            raise TypeError(
                f"update: the keys of the dictionary must be variables, was given "
                f"{type(v).__name__}; {remedy_for(v)}"
            )
    if not gradients:
        raise OptionError(
            "update: needs the gradient of at least one variable, was given an empty dictionary; "
            "if all parameters are frozen, call module.unfreeze()"
        )
    check_trainable("update", gradients.keys())
    return {v: _checked_gradient(v, gradient) for v, gradient in gradients.items()}


def _checked_gradient(v: Variable, gradient: Any) -> Array:
    """Return the gradient of a variable as an array; see `checked_gradients`."""
    if gradient is None:
        raise TypeError(
            f"update: the gradient of variable {v.name} must be an array, was given None; leave "
            f"the variable out to keep its value"
        )
    array = as_array(f"update of variable {v.name}", gradient)
    if array.shape != v.shape:
        raise ShapeError(
            f"update: variable {v.name} has shape {v.shape}, its gradient {array.shape}; give the "
            f"gradient by this variable: mm.grad(loss, v)"
        )
    if array.dtype.kind == "complex" and v.dtype.kind != "complex":
        raise DTypeError(
            f"update: variable {v.name} is {v.dtype}, so its gradient must be real, was given "
            f"{array.dtype}; give the gradient by this variable, mm.grad(loss, v), or take the "
            f"real part, mm.real(x)"
        )
    return array
