"""The check of the functions that transformations and loops are given."""

from __future__ import annotations

from typing import Any

import numpy as np

from magmath.arrays.array import Array
from magmath.arrays.number_list import is_number


def require_function(requirement: str, value: Any) -> None:
    """Raise TypeError for an object that cannot be called; `requirement` begins the message."""
    if not callable(value) or isinstance(value, Array):
        raise TypeError(f"{requirement}, was given {_described(value)}")


def _described(value: Any) -> str:
    """Return how a message shows an object: numbers and text in full, an array by its shape and
    type."""
    if isinstance(value, (Array, np.ndarray)):
        return f"an array of shape {value.shape} and type {value.dtype}"
    if value is None or isinstance(value, (str, bytes)) or is_number(value):
        return repr(value)
    return f"an object of type {type(value).__name__}"
