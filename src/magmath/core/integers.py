"""Validation of integers that users give: sizes, counts, seeds."""

from __future__ import annotations

import operator

from magmath.errors import OptionError


def require_integer(name: str, value: object, least: int) -> int:
    """Return `value` as an int. Raises OptionError unless it is an integer of at least `least`."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = least - 1
    if number < least:
        raise OptionError(f"{name} must be an integer of at least {least}, was given {value!r}")
    return number
