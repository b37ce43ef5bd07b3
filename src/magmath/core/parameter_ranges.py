"""The ranges of the parameters of random distributions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from magmath.errors import OptionError

LARGEST: Final = 1e12
"""The largest parameter. Factorials of larger numbers have no correct digit after the point."""
LARGEST_COUNT: Final = float(2**63 - 1024)
"""The largest number of float64 that int64 has."""
MAX_ITEMS: Final = 1e9
"""The most items of a kind in a hypergeometric distribution, as in NumPy."""
MIN_EXPONENT: Final = 1.0001
"""The least exponent of Zipf's distribution; at smaller ones nearly all numbers exceed int64."""


@final
@dataclass(frozen=True)
class ParameterRange:
    """The numbers that a parameter of a distribution may have, both ends included."""

    distribution: str
    parameter: str
    low: float
    high: float

    def contains(self, value: float) -> bool:
        """Return True if a number is in the range; NaN is not."""
        return self.low <= value <= self.high

    def check(self, values: float | np.ndarray[Any, Any]) -> None:
        """Raise OptionError unless all numbers are in the range; NaN is in none."""
        inside = (values >= self.low) & (values <= self.high)
        if not np.all(inside):
            raise OptionError(self.message(np.extract(np.logical_not(inside), values)[0]))

    def message(self, value: float) -> str:
        """Return the message of the error for a number that is not in the range."""
        given = repr(float(value)).removesuffix(".0")
        return (
            f"random.{self.distribution}: {self.parameter} must be from {self.low:g} to "
            f"{self.high:g}, was given {given}"
        )
