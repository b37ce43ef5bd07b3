"""Device tensors on their way through communication that reads host memory.

They are copied through pinned host memory, which is right on every machine. This is the one place
that knows of it: communicators are handed host tensors only.
"""

from __future__ import annotations

import torch
from torch import Tensor


def host_copy(tensor: Tensor) -> Tensor:
    """`tensor` itself where it lies in host memory, else a pinned copy of it."""
    if tensor.is_cpu:
        return tensor
    buffer = host_buffer(tensor)
    buffer.copy_(tensor)
    return buffer


def host_buffer(tensor: Tensor) -> Tensor:
    """`tensor` itself where it lies in host memory, else pinned memory of its shape and dtype."""
    if tensor.is_cpu:
        return tensor
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)


def copy_back(tensor: Tensor, buffer: Tensor) -> None:
    """Copy what arrived in `buffer`, made by the functions above, into `tensor`."""
    if buffer is not tensor:
        tensor.copy_(buffer)
