"""Validation of integers that users give: sizes, counts, seeds."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from magmath.core.shown_value import shown
from magmath.errors import OptionError

if TYPE_CHECKING:
    from typing_extensions import TypeIs


def is_integer(value: object) -> TypeIs[int]:
    """Return True for an integer of Python or NumPy, or a 0-d array; False for sequences."""
    return hasattr(value, "__index__") and not getattr(value, "ndim", 0)


def require_seed(name: str, value: object) -> int:
    """Return a seed of random numbers as an int. Raises OptionError unless it is an integer from 0
    to 2^63 - 1."""
    number = require_integer(name, value, 0)
    if number >= 1 << 63:
        raise OptionError(f"{name} must be less than 2^63, was given {number}; pass it % 2**63")
    return number


def require_integer(name: str, value: object, min_value: int) -> int:
    """Return `value` as an int. Raises OptionError unless it is an integer of at least
    `min_value`."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = min_value - 1
    if number < min_value:
        raise OptionError(
            f"{name} must be an integer of at least {min_value}, was given {shown(value)}"
        )
    return number
