"""Validation of real numbers that users give: rates, shares, factors."""

from __future__ import annotations

from math import inf

from magmath.core.shown_value import shown
from magmath.errors import OptionError


def require_number(name: str, value: object, least: float, below: float = inf) -> None:
    """Raise OptionError unless `value` is a number of at least `least` and less than `below`."""
    is_number = hasattr(value, "__float__") and not getattr(value, "ndim", 0)
    if is_number and least <= float(value) < below:  # type: ignore[arg-type]
        return
    is_infinite = is_number and float(value) == inf  # type: ignore[arg-type]
    upper = f" and less than {below:g}" if below < inf or is_infinite else ""
    raise OptionError(
        f"{name} must be a number of at least {least:g}{upper}, was given {shown(value)}"
    )
