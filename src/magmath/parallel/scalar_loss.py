"""The check of what a loss function returns."""

from __future__ import annotations

from typing import Any

from magmath.arrays.array import Array
from magmath.errors import ShapeError


def scalar_loss(operation: str, loss: Any) -> Array:
    """Return the result of a loss function. Raises ShapeError if it is not a 0-d array."""
    if not isinstance(loss, Array) or loss.shape != ():
        result = f"shape {loss.shape}" if isinstance(loss, Array) else type(loss).__name__
        raise ShapeError(
            f"{operation}: the loss must be a 0-d array, was given {result}; reduce it with mm.mean"
        )
    return loss
