"""The input of a layer, in a type that its weight can multiply, and checks of its parameters."""

from __future__ import annotations

from typing import Any

from magmath.api.data_types import astype
from magmath.arrays.array import Array, as_array, floating
from magmath.core.integers import require_integer
from magmath.errors import OptionError, ShapeError
from magmath.graph import Shape


def layer_input(name: str, x: Any, weight: Array | None) -> Array:
    """Return x as an array; integers and booleans are converted to the weight's type, without a
    weight as elsewhere.

    NumPy's promotion would give float64 for int64 and float32. `name` is the function that errors
    name.
    """
    if weight is None:
        return floating(name, x)
    x = as_array(name, x)
    return x if x.dtype.kind in ("float", "complex") else astype(x, weight.dtype)


def check_shape(
    name: str,
    argument: str,
    values: Any,
    shape: Shape,
    meaning: str,
    remedy: str = "give one of this shape",
) -> None:
    """Raise ShapeError unless a parameter is None or has this shape, since one that broadcasts is
    a mistake. `meaning` says what its numbers are, in the message."""
    if values is None:
        return
    found = as_array(name, values).shape
    if found != shape:
        raise ShapeError(
            f"{name}: takes a {argument} of shape {shape}, {meaning}; was given {found}; {remedy}"
        )


def checked_padding_row(name: str, padding_idx: int, count: int) -> int:
    """Return the row of an embedding with this many rows that stands for padding. Raises
    OptionError if it has no such row; `name` is the function that errors name."""
    index = require_integer(f"{name}: padding_idx", padding_idx, -count)
    if index >= count:
        raise OptionError(
            f"{name}: padding_idx must be less than count, {count}, was given {index}"
        )
    return index % count
