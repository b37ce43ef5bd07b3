"""The factors by which workers of a simulation are slower than others."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from magmath.errors import OptionError


def checked_slowdown(slowdown: Mapping[int, float] | None, workers: int) -> dict[int, float]:
    """Return the factors by worker; none by default.

    Raises OptionError for a worker that the simulation does not have, and for a factor that is not
    a positive number.
    """
    factors = dict(slowdown or {})
    for worker, factor in factors.items():
        if isinstance(worker, bool) or worker not in range(workers):
            raise OptionError(
                f"simulate: slowdown names workers from 0 to {workers - 1}, was given {worker!r}"
            )
        if not _is_positive(factor):
            raise OptionError(
                f"simulate: slowdown of worker {worker} must be a positive number, such as 3.0 for "
                f"a worker that takes three times as long, was given {factor!r}"
            )
    return {int(worker): float(factor) for worker, factor in factors.items()}


def _is_positive(value: Any) -> bool:
    """Return True for finite numbers above 0."""
    try:
        return not isinstance(value, str) and 0.0 < float(value) < math.inf
    except (TypeError, ValueError):
        return False
