"""Dropout."""

from __future__ import annotations

from typing import final

from magmath.array.array import Array
from magmath.errors import MagmathError
from magmath.nn.functional import dropout
from magmath.nn.module import Module
from magmath.nn.variables import RngState


@final
class Dropout(Module):
    """In training mode each element is zeroed with probability `rate`, the rest scaled by
    1/(1-rate); otherwise the input itself.

    rate   the probability
    seed   of a random stream of its own (`rng`, saved with the module); without one the mask is
           drawn from the sequence of `mm.random`

    Source: Srivastava et al. (2014). The mask is the same for every number of workers.
    """

    def __init__(self, rate: float = 0.5, *, seed: int | None = None) -> None:
        if not 0 <= rate < 1:
            raise MagmathError(f"Dropout: rate must be in [0, 1), was given {rate}")
        self.rate = rate
        self.seed = seed
        self.rng: RngState | None = None

    def __call__(self, x: Array) -> Array:
        """(…) → (…)."""
        if self.seed is not None and self.rng is None:
            self.rng = RngState(self.seed)
        return dropout(x, self.rate, training=self.training, rng=self.rng)
