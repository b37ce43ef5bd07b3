"""Reductions of the losses of samples or elements to one number."""

from __future__ import annotations

from typing import Literal

from magmath.api import reductions, statistics
from magmath.api.data_types import astype
from magmath.arrays.array import Array
from magmath.core.dtypes import compute_dtype
from magmath.errors import OptionError

Reduction = Literal["mean", "sum", "none"]


def reduced(losses: Array, reduction: str) -> Array:
    """Return the mean or the sum of the losses, or the losses. Raises OptionError for an unknown
    reduction."""
    if reduction == "mean":
        return statistics.mean(losses)
    if reduction == "sum":
        return reductions.sum(losses)
    if reduction == "none":
        return losses
    raise OptionError(f'loss: reduction must be "mean", "sum" or "none", was given {reduction!r}')


def wide_sum(values: Array) -> Array:
    """Return the sum of all values, in float32 for half types, which it may exceed."""
    return reductions.sum(astype(values, compute_dtype(values.dtype), copy=False))
