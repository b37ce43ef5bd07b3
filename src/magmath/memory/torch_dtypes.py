"""Conversion between the dtypes of magmath, torch and NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from magmath.core.dtypes import DTYPES, DType

TORCH: dict[DType, torch.dtype] = {dtype: getattr(torch, name) for name, dtype in DTYPES.items()}
MAGMATH: dict[torch.dtype, DType] = {tensor: dtype for dtype, tensor in TORCH.items()}
NUMPY: dict[DType, np.dtype[Any]] = {  # NumPy has no bfloat16
    dtype: np.dtype(name) for name, dtype in DTYPES.items() if name != "bfloat16"
}


def to_torch(dtype: DType) -> torch.dtype:
    """Return the torch dtype of `dtype`."""
    return TORCH[dtype]


def as_tensor(values: Any, device: torch.device | None = None) -> torch.Tensor:
    """Call torch's `as_tensor`, which shares memory if possible; a read-only array is copied, since
    tensors cannot be read-only."""
    if isinstance(values, np.ndarray) and not values.flags.writeable:
        values = values.copy()
    return torch.as_tensor(values, device=device)


def from_torch(dtype: torch.dtype) -> DType:
    """Return the DType of a torch dtype. Raises KeyError for unsupported types."""
    return MAGMATH[dtype]
