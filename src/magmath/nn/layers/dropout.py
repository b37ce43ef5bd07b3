"""The dropout layer."""

from __future__ import annotations

from typing import final

from magmath.arrays.array import Array
from magmath.core.real_numbers import require_share
from magmath.nn.dropout import dropout
from magmath.nn.module import Module
from magmath.nn.variables import RngState


@final
class Dropout(Module):
    """Sets each element to zero with probability `rate` in training mode, and scales the others by
    1/(1-rate); in evaluation mode returns the input.

    rate         the probability
    per_channel  if True, each channel of each image (N, channels, *space) is kept or set to zero as
                 a whole. Source: Tompson et al. (2015)
    seed         the seed of the layer's own generator (`rng`, saved with the module); without
                 one the mask is drawn from `mm.random`

    Source: Srivastava et al. (2014). The mask is the same for every number of workers.
    """

    def __init__(
        self, rate: float = 0.5, *, per_channel: bool = False, seed: int | None = None
    ) -> None:
        require_share("Dropout: rate", rate)
        self.rate = rate
        self.per_channel = per_channel
        self.seed = seed
        self.rng: RngState | None = None

    def __call__(self, x: Array) -> Array:
        """(…) → (…)."""
        self._make_states()
        return dropout(
            x, self.rate, training=self.training, rng=self.rng, per_channel=self.per_channel
        )

    def _make_states(self) -> None:
        if self.seed is not None and self.rng is None:
            self.rng = RngState(self.seed)
