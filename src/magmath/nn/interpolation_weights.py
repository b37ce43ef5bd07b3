"""Weights of interpolation along one dimension: the share of each element in each new one."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

CUBIC = -0.75
"""The constant of cubic convolution (Keys 1981) in PyTorch and ONNX."""
CATMULL_ROM = -0.5
"""That of Pillow, which PyTorch has for antialiased images."""


@lru_cache(maxsize=256)
def interpolation_weights(
    positions: tuple[float, ...],
    extent: int,
    *,
    cubic: float | None = None,
    scale: float = 1.0,
    only_inside: bool = False,
) -> Any:
    """Return the matrix (new, extent) of the interpolation at positions among `extent` elements.

    cubic        the constant of cubic convolution; None for linear interpolation
    scale        the factor by which the filter is wider than the elements, against aliases
    only_inside  True if elements outside have no share; otherwise those at the ends have it
    """
    reach = (1 if cubic is None else 2) * scale
    weights = np.zeros((len(positions), extent))
    for row, position in zip(weights, positions, strict=True):
        near = np.arange(np.floor(position - reach) + 1, np.floor(position + reach) + 1)
        shares = _filter(np.abs(near - position) / scale, cubic)
        inside = np.clip(near, 0, extent - 1).astype(int)
        if only_inside:
            shares = np.where(inside == near, shares, 0.0)
        np.add.at(row, inside, shares / shares.sum())
    weights.setflags(write=False)
    return weights


def _filter(distance: Any, cubic: float | None) -> Any:
    """Return the share of an element at this distance."""
    if cubic is None:
        return np.maximum(1.0 - distance, 0.0)
    far = np.where(distance < 2, cubic_tail(distance, cubic), 0.0)
    return np.where(distance <= 1, cubic_core(distance, cubic), far)


def cubic_core(distance: Any, constant: float) -> Any:
    """Return the share of elements at distances of 0 to 1 in cubic convolution."""
    return ((constant + 2) * distance - (constant + 3)) * distance * distance + 1


def cubic_tail(distance: Any, constant: float) -> Any:
    """Return the share of elements at distances of 1 to 2 in cubic convolution."""
    return (((distance - 5) * distance + 8) * distance - 4) * constant
