"""The bridge between magmath's dtypes and torch's, one table, read both ways; and NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from magmath.core.dtypes import DTYPES, DType

TORCH: dict[DType, torch.dtype] = {dtype: getattr(torch, name) for name, dtype in DTYPES.items()}
MAGMATH: dict[torch.dtype, DType] = {tensor: dtype for dtype, tensor in TORCH.items()}
NUMPY: dict[DType, np.dtype[Any]] = {  # which has no bfloat16
    dtype: np.dtype(name) for name, dtype in DTYPES.items() if name != "bfloat16"
}


def to_torch(dtype: DType) -> torch.dtype:
    """torch's name of `dtype`."""
    return TORCH[dtype]


def as_tensor(values: Any, device: torch.device | None = None) -> torch.Tensor:
    """torch's `as_tensor`, which shares memory where it can; of an array that may not be written to
    a copy, since no tensor is protected, and torch warns of one that shares its memory."""
    if isinstance(values, np.ndarray) and not values.flags.writeable:
        values = values.copy()
    return torch.as_tensor(values, device=device)


def from_torch(dtype: torch.dtype) -> DType:
    """magmath's name of a torch dtype; KeyError for quantised and other exotic types."""
    return MAGMATH[dtype]
