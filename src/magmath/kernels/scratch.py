"""A stack allocator for temporary tensors in one block of memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import final

import numpy as np
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
        assert self._used <= len(self._memory), "a kernel needs more workspace than it said"
        return self._memory[start : start + nbytes].view(dtype).view(shape)

    @contextmanager
    def returning(self) -> Iterator[None]:
        """Free all tensors that are allocated within the context at its end."""
        used = self._used
        try:
            yield
        finally:
            self._used = used


@final
class _Shared(threading.local):
    """The workspace of each thread."""

    def __init__(self) -> None:
        self.memory = torch.empty(0, dtype=torch.uint8)


_shared = _Shared()


def shared_workspace(nbytes: int) -> Tensor:
    """Return uninitialized memory on the processor, of at least `nbytes` bytes, for one call.

    The calls of a thread share it, since a thread executes one call at a time. It grows to the
    largest request: mapping new pages for each call would take as long as many kernels.
    """
    if len(_shared.memory) < nbytes:
        _shared.memory = torch.empty(0, dtype=torch.uint8)  # frees the smaller one first
        _shared.memory = torch.from_numpy(np.empty(nbytes, np.uint8))  # NumPy asks for huge pages
    return _shared.memory
