"""Variables as arguments of functions: their check, and the remedy for other objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from magmath.arrays.array import Array
from magmath.arrays.variables.variable import Variable
from magmath.engine.traces import tracing
from magmath.errors import DTypeError, StateError

TRAINABLE_FLAGS = object()
"""Represents the trainable flags of all parameters, as state that compiled functions depend on."""


def is_module(value: Any) -> bool:
    """Return True for a module of `mm.nn`, which this layer of the package does not import."""
    return callable(getattr(value, "named_parameters", None))


def remedy_for(value: Any) -> str:
    """Return what to write in place of an object that is given for one or more variables."""
    if isinstance(value, Variable):
        return "put it in a list: [v]"
    if hasattr(type(value), "describe_missing"):
        return str(value.describe_missing())
    if is_module(value):
        return "give the parameters of a module: module.trainable()"
    if isinstance(value, Array):
        return "a variable is made with mm.variable(name, value)"
    if isinstance(value, str):
        return "give the variable itself instead of its name"
    if isinstance(value, Mapping):
        return "give the values of a dictionary: list(d.values())"
    if isinstance(value, Iterable):
        return "give a list of variables: list(x)"
    return "variables are made with mm.variable(name, value)"


def depend_on_trainable_flags() -> None:
    """Record that a traced function depends on which parameters are frozen."""
    trace = tracing.current()
    if trace is not None:
        trace.depend_on_state(TRAINABLE_FLAGS)


def check_trainable(operation: str, variables: Iterable[Variable]) -> None:
    """Raise an error if a step cannot update one of the variables: StateError if it is frozen,
    DTypeError if it is of integers or truth values."""
    depend_on_trainable_flags()
    for v in variables:
        if not (v.dtype.is_floating or v.dtype.kind == "complex"):
            raise DTypeError(
                f"{operation}: variable {v.name} is {v.dtype}, steps need floating point; give the "
                f"variable a floating-point type, or leave it out and assign its values"
            )
        if not v.trainable:
            raise StateError(
                f"{operation}: parameter {v.name} is frozen; give the parameters that are not, "
                f"module.trainable(), or call module.unfreeze()"
            )


def checked_variables(operation: str, variables: Any) -> list[Variable]:
    """Return the variables of a list or tuple.

    Raises TypeError, whose message has a remedy, for other objects.
    """
    if not isinstance(variables, (list, tuple)):
        raise TypeError(
            f"{operation}: needs a list of variables, was given {type(variables).__name__}; "
            f"{remedy_for(variables)}"
        )
    for v in variables:
        if not isinstance(v, Variable):
            raise TypeError(
                f"{operation}: needs a list of variables, was given a list with "
                f"{type(v).__name__}; {remedy_for(v)}"
            )
    return list(variables)
