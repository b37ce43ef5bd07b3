"""Validation of real numbers that users give: rates, shares, factors."""

from __future__ import annotations

from math import inf

from magmath.core.shown_value import shown
from magmath.errors import OptionError


def is_real_number(value: object) -> bool:
    """Return True for a number, also in a 0-d array; False for an array with an axis."""
    return hasattr(value, "__float__") and not getattr(value, "ndim", 0)


def require_share(name: str, value: object) -> None:
    """Raise OptionError unless `value` is a number from 0 to 1."""
    if not (is_real_number(value) and 0 <= float(value) <= 1):  # type: ignore[arg-type]
        raise OptionError(f"{name} must be a number from 0 to 1, was given {shown(value)}")


def require_number(name: str, value: object, least: float, below: float = inf) -> None:
    """Raise OptionError unless `value` is a number of at least `least` and less than `below`."""
    is_number = is_real_number(value)
    if is_number and least <= float(value) < below:  # type: ignore[arg-type]
        return
    is_infinite = is_number and float(value) == inf  # type: ignore[arg-type]
    upper = f" and less than {below:g}" if below < inf or is_infinite else ""
    raise OptionError(
        f"{name} must be a number of at least {least:g}{upper}, was given {shown(value)}"
    )
