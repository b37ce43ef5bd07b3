"""The checks before whole arrays are sent to the workers, fetched from them, or written."""

from __future__ import annotations

import torch

from magmath.core.dtypes import DType
from magmath.errors import DTypeError, LayoutError, MemoryLimitError, ShapeError
from magmath.layout import Layout
from magmath.memory.torch_dtypes import from_torch, to_torch


def check_put(tensor: torch.Tensor, layout: Layout, workers: int) -> DType:
    """Return the element type of a tensor that can be sent to this number of workers. Raises
    ShapeError, LayoutError or DTypeError for others."""
    if tuple(tensor.shape) != layout.shape:
        raise ShapeError(
            f"put: the layout is for shape {layout.shape}, the array has shape "
            f"{tuple(tensor.shape)}; bind the layout to this shape"
        )
    if max(layout.mesh.workers) >= workers:
        raise LayoutError(
            f"put: layout {layout} needs worker {max(layout.mesh.workers)}, the pool has "
            f"workers 0 to {workers - 1}; use a mesh of the pool's workers"
        )
    if layout.is_partial:
        raise LayoutError(
            f"put: layout {layout} has a pending reduction; put the array replicated or split "
            f"and redistribute it"
        )
    try:
        return from_torch(tensor.dtype)
    except KeyError:
        raise DTypeError(
            f"put: arrays of {tensor.dtype} cannot be sent to the workers; convert the array "
            f"to one of magmath's dtypes"
        ) from None


def new_tensor(shape: tuple[int, ...], dtype: DType) -> torch.Tensor:
    """Return an uninitialized tensor for a whole array. Raises MemoryLimitError."""
    try:
        return torch.empty(shape, dtype=to_torch(dtype))
    except RuntimeError as error:
        raise MemoryLimitError(
            f"get: this process has no memory for a whole array of {shape} {dtype}; fetch parts of "
            "it, or save it to a file"
        ) from error


def require_complete(operation: str, layout: Layout) -> None:
    """Raise LayoutError if a reduction is pending."""
    if layout.is_partial:
        raise LayoutError(
            f"{operation} needs an array without pending reductions, this one is {layout}; "
            f"redistribute it first"
        )
