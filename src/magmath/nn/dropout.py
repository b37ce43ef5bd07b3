"""Dropout: random elements of an array become zero in training."""

from __future__ import annotations

from magmath.api import random
from magmath.api.creation import zeros_like
from magmath.api.random import Distributions
from magmath.api.searching import where
from magmath.arrays.array import Array
from magmath.core.dtypes import compute_dtype
from magmath.core.keyword_hints import keyword_hints
from magmath.core.real_numbers import require_share


@keyword_hints
def dropout(
    x: Array,
    rate: float = 0.5,
    *,
    training: bool = True,
    rng: Distributions | None = None,
    per_channel: bool = False,
) -> Array:
    """Set each element to zero with probability `rate` in training, and scale the others by
    1/(1-rate).

    per_channel  if True, each channel of each image (N, channels, *space) is kept or set to zero as
                 a whole. Source: Tompson et al. (2015)

    The mask is drawn from `rng` (`mm.random.Generator`, `mm.nn.RngState`), or the pool's generator,
    by global element index: the same for every layout and number of workers.
    Source: Srivastava et al. (2014).
    """
    require_share("dropout: rate", rate)
    if not training or rate == 0:
        return x
    if rate == 1:
        return zeros_like(x)
    draw = random.uniform if rng is None else rng.uniform
    shape = (*x.shape[:2], *[1] * len(x.shape[2:])) if per_channel else x.shape
    # Half types have too few numbers in [0, 1) for a small rate.
    is_kept = draw(shape=shape, dtype=compute_dtype(x.dtype)) >= rate
    return where(is_kept, x * (1.0 / (1.0 - rate)), 0.0)
