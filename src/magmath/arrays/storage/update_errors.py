"""The errors of updates in place that arrays refuse."""

from __future__ import annotations

from magmath.errors import DTypeError, MagmathError, ShapeError, StateError
from magmath.graph import Node


def update_error(old: Node, new: Node) -> MagmathError:
    """Return the error for an update in place that would change the shape or type of an array."""
    if new.shape != old.shape:
        return ShapeError(
            f"update in place: the array has shape {old.shape}, its new value would have "
            f"{new.shape}; write a = a + b for an array of another shape"
        )
    return DTypeError(
        f"update in place: the array is {old.dtype}, which must not change, and with this operand "
        f"its new value would be {new.dtype}; convert the operand, as in "
        f"a += b.astype(mm.{old.dtype}), or write a = a + b for an array of another type"
    )


def unread_write_error() -> MagmathError:
    """Return the error for a write into an array to which no name refers."""
    return StateError(
        "x[i] = v: no name refers to the array x, so what is written could not be read; if x is "
        "y[k] for an array of positions or a mask k, it is a copy of elements of y: write into y "
        "with one index, or give x a name"
    )
