"""Staging of device tensors in host memory for communication.

Device tensors are copied through pinned host memory, which works on every machine. Communicators
only see host tensors.
"""

from __future__ import annotations

import torch
from torch import Tensor


def host_copy(tensor: Tensor) -> Tensor:
    """Return `tensor` itself if it is in host memory, otherwise a pinned copy."""
    if tensor.is_cpu:
        return tensor
    buffer = host_buffer(tensor)
    buffer.copy_(tensor)
    return buffer


def host_buffer(tensor: Tensor) -> Tensor:
    """Return `tensor` itself if it is in host memory, otherwise pinned memory of its shape and
    dtype."""
    if tensor.is_cpu:
        return tensor
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)


def copy_back(tensor: Tensor, buffer: Tensor) -> None:
    """Copy `buffer`, created by the functions above, into `tensor`."""
    if buffer is not tensor:
        tensor.copy_(buffer)
