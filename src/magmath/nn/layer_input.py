"""The input of a layer, in a type that its weight can multiply."""

from __future__ import annotations

from typing import Any

from magmath.api.data_types import astype
from magmath.arrays.array import Array, as_array, floating


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
