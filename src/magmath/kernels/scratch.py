"""A stack allocator for temporary tensors in one block of memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import final

import torch
from torch import Tensor

from magmath.core.block_cyclic import round_to_cache_lines


@final
class Scratch:
    """Allocates tensors in `memory`, a uint8 tensor, in order."""

    def __init__(self, memory: Tensor) -> None:
        self._memory = memory
        self._used = 0

    def take(self, dtype: torch.dtype, *shape: int) -> Tensor:
        """Return an uninitialized tensor; it must fit into the remaining memory."""
        nbytes = prod(shape) * dtype.itemsize
        start, self._used = self._used, self._used + round_to_cache_lines(nbytes)
        assert self._used <= len(self._memory), "a kernel has requested too little workspace"
        return self._memory[start : start + nbytes].view(dtype).view(shape)

    @contextmanager
    def returning(self) -> Iterator[None]:
        """Free all tensors that are allocated within the context at its end."""
        used = self._used
        try:
            yield
        finally:
            self._used = used
