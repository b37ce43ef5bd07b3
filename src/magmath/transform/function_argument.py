"""The functions that transformations and loops are given: their check, their form, and the names
of results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from magmath.arrays.array import Array
from magmath.arrays.inputs.number_list import is_number
from magmath.arrays.tree import flatten, unflatten


def require_function(requirement: str, value: Any) -> None:
    """Raise TypeError for an object that cannot be called; `requirement` begins the message."""
    if not callable(value) or isinstance(value, Array):
        raise TypeError(f"{requirement}, was given {described(value)}")


def named(
    transformed: Callable[..., Any], name: str, function: Callable[..., Any]
) -> Callable[..., Any]:
    """Give a transformed function a name and the documentation of the function; return it."""
    function_name = getattr(function, "__name__", type(function).__name__)
    transformed.__name__ = f"{name}({function_name})"
    transformed.__doc__ = getattr(function, "__doc__", None)
    return transformed


def with_own_handles(value: Any) -> Any:
    """Return nested values whose arrays have handles of their own: an update in place within a
    function changes no argument.

    Lists, tuples and dictionaries that contain arrays are new ones, of the classes that `flatten`
    keeps. Everything else stays the same object: variables, numbers, and lists and dictionaries
    without arrays, which the function may fill.
    """
    if type(value) is Array:
        return Array(value.node)
    leaves, tree = flatten(value)
    if tree is None or not any(type(x) is Array for x in leaves):
        return value
    items = [with_own_handles(x) for x in (value.values() if tree.keys is not None else value)]
    return unflatten(tree._replace(parts=(None,) * len(items)), items)


def with_keywords_last(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with a dictionary of the keyword arguments as its last argument."""

    def called(*values: Any) -> Any:
        return function(*values[:-1], **values[-1])

    called.__qualname__ = getattr(function, "__qualname__", repr(function))
    return called


def described(value: Any) -> str:
    """Return how a message shows an object: numbers and text in full, an array by its shape and
    type."""
    if isinstance(value, (Array, np.ndarray)):
        return f"an array of shape {value.shape} and type {value.dtype}"
    if value is None or isinstance(value, (str, bytes)) or is_number(value):
        return repr(value)
    return f"an object of type {type(value).__name__}"
