"""Tensors cut from one piece of memory, one after the other, and given back together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod

import torch
from torch import Tensor

from magmath.core.block_cyclic import round_to_cache_lines


class Scratch:
    """Bytes, uint8, from which tensors are taken."""

    def __init__(self, memory: Tensor) -> None:
        self._memory = memory
        self._used = 0

    def take(self, dtype: torch.dtype, *shape: int) -> Tensor:
        """A tensor of undefined values; what is taken must fit."""
        nbytes = prod(shape) * dtype.itemsize
        start, self._used = self._used, self._used + round_to_cache_lines(nbytes)
        assert self._used <= len(self._memory), "a kernel needs more workspace than it said"
        return self._memory[start : start + nbytes].view(dtype).view(shape)

    @contextmanager
    def returning(self) -> Iterator[None]:
        """Within, more may be taken, and is given back at the end."""
        used = self._used
        try:
            yield
        finally:
            self._used = used
