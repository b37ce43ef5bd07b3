"""The bridge between magmath's dtypes and torch's: one table, read both ways."""

from __future__ import annotations

import torch

from magmath.core.dtypes import DTYPES, DType

TORCH: dict[DType, torch.dtype] = {dtype: getattr(torch, name) for name, dtype in DTYPES.items()}
MAGMATH: dict[torch.dtype, DType] = {tensor: dtype for dtype, tensor in TORCH.items()}


def to_torch(dtype: DType) -> torch.dtype:
    """torch's name of `dtype`."""
    return TORCH[dtype]


def from_torch(dtype: torch.dtype) -> DType:
    """magmath's name of a torch dtype; KeyError for quantised and other exotic types."""
    return MAGMATH[dtype]
