"""PyTorch's operators of dropout."""

from __future__ import annotations

import magmath as mm
from magmath.nn import functional as f


def dropout(
    x: mm.Array, rate: float, training: bool | None = True, *, per_channel: bool = False
) -> mm.Array:
    """Return x with elements or channels dropped in training; `training` None counts as True."""
    return f.dropout(x, rate, training=training is not False, per_channel=per_channel)


def feature_dropout(x: mm.Array, rate: float, training: bool) -> mm.Array:
    """Return x with channels dropped in training."""
    return dropout(x, rate, training, per_channel=True)


def native_dropout(x: mm.Array, rate: float, training: bool | None) -> tuple[mm.Array, None]:
    """Return the first result of PyTorch's operator; the second is the mask."""
    return dropout(x, rate, training), None
