"""The sources of a heap's chunks: private memory of one device, or host memory that all workers
share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import final

import torch
from torch import Tensor

from magmath.comm import Communicator
from magmath.errors import MemoryLimitError
from magmath.memory.pages import return_pages


class ChunkSource(ABC):
    """The allocator of a heap's chunks: memory of `device`, seen from worker `rank` of `size`."""

    device: torch.device
    rank: int
    size: int

    @abstractmethod
    def chunk(self, nbytes: int) -> tuple[Tensor | None, ...]:
        """Allocate a chunk: for each worker its uint8 tensor of `nbytes`, or None if not
        accessible."""

    def return_unused(self, memory: Tensor) -> bool:
        """Return the memory of a part of this worker's chunk to the system; False if only whole
        chunks can be returned."""
        if self.device.type != "cpu":
            return False
        return_pages(memory)
        return True


@final
class PrivateSource(ChunkSource):
    """Memory of one device that no other worker can access."""

    def __init__(self, device: torch.device, rank: int = 0, size: int = 1) -> None:
        self.device = device
        self.rank = rank
        self.size = size

    def chunk(self, nbytes: int) -> tuple[Tensor | None, ...]:
        try:
            own_memory = torch.empty(nbytes, dtype=torch.uint8, device=self.device)
        except RuntimeError as error:
            raise MemoryLimitError(
                f"the {self.device.type} of worker {self.rank} has no {nbytes / 1e6:,.0f} MB left; "
                f"free arrays, or divide them over more workers"
            ) from error
        return tuple([own_memory if rank == self.rank else None for rank in range(self.size)])


@final
class SharedWindowSource(ChunkSource):
    """Host memory shared by all workers. Allocating a chunk is collective."""

    def __init__(self, communicator: Communicator) -> None:
        self.device = torch.device("cpu")
        self.rank = communicator.rank
        self.size = communicator.size
        self._communicator = communicator

    def chunk(self, nbytes: int) -> tuple[Tensor | None, ...]:
        return tuple(self._communicator.shared_window(nbytes))
