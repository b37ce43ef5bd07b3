"""Broadcast of a sequence of panels, each produced by one rank and read by all, through ring
buffers.

With shared memory, ranks read a panel in the memory of its producer, without barriers: each rank
counts the panels that it has written and read, and waits only for the counts that it needs. A rank
can run ahead by the depth of the ring. Without shared memory, a panel is sent to every other rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from magmath.comm.communicator import Communicator
from magmath.comm.shared_counters import set_counter, wait_for_counter
from magmath.core.block_cyclic import RING_DEPTH, round_to_cache_lines
from magmath.core.cpu import CACHE_LINE

Words = NDArray[np.uint64]

WRITTEN, READ = 0, CACHE_LINE // 8
"""Words of a rank's counters: the number of panels that it has written, and that it has read."""


@final
class PanelBroadcast:
    """Panels of up to `panel` bytes, numbered from 0, in `memory`: uint8, one tensor for each rank,
    None for the ranks whose memory this one cannot access.

    Every rank calls `start`. Then, for each number in ascending order, one rank calls `make` and
    `publish`, and all ranks call `read` and `release`. A rank may make a panel before it has
    released the previous one, but not earlier.
    """

    def __init__(self, comm: Communicator, memory: Sequence[Tensor | None], panel: int) -> None:
        self._comm = comm
        self._shared = comm.shares_memory and comm.size > 1
        self._memory = memory
        self._stride = CACHE_LINE + round_to_cache_lines(panel)
        self._status: list[int] = [0] * RING_DEPTH
        self._counters: list[Words] = []
        self._addresses: list[int] = []
        self._flags = 0
        if self._shared:
            self._counters = [_counter_words(m) for m in memory if m is not None]
            self._addresses = [counters.ctypes.data for counters in self._counters]
            self._flags = comm.flags.ctypes.data

    def start(self) -> None:
        """Restart at number 0. Collective; panels read before become invalid."""
        if self._shared:
            self._counters[self._comm.rank][:] = 0
            self._comm.barrier()

    def make(self, number: int, nbytes: int) -> Tensor:
        """Return the buffer of panel `number` after all ranks have released its previous
        content."""
        if self._shared and number >= RING_DEPTH:
            for rank in range(self._comm.size):
                self._reach(rank, READ, number - RING_DEPTH + 1)
        return self._slot(self._comm.rank, number)[CACHE_LINE : CACHE_LINE + nbytes]

    def publish(self, number: int, nbytes: int, status: int = 0) -> None:
        """Make panel `number` and a status visible to the other ranks."""
        self._status[number % RING_DEPTH] = status
        if self._shared:
            slot = self._slot(self._comm.rank, number)
            slot[:8].view(torch.int64).fill_(status)
            self._set(WRITTEN, number + 1)
        elif self._comm.size > 1:
            slot = self._slot(self._comm.rank, number)[CACHE_LINE : CACHE_LINE + nbytes]
            header = torch.tensor([status])
            other_ranks = [r for r in range(self._comm.size) if r != self._comm.rank]
            self._comm.exchange([(r, t) for r in other_ranks for t in (header, slot)], [])

    def read(self, number: int, owner: int, nbytes: int) -> tuple[Tensor, int]:
        """Wait for panel `number` of rank `owner`; return it, read-only, and its status."""
        if self._shared:
            self._reach(owner, WRITTEN, number + 1)
            slot = self._slot(owner, number)
            return slot[CACHE_LINE : CACHE_LINE + nbytes], int(slot[:8].view(torch.int64))
        slot = self._slot(self._comm.rank, number)[CACHE_LINE : CACHE_LINE + nbytes]
        if owner == self._comm.rank:
            return slot, self._status[number % RING_DEPTH]
        header = torch.zeros(1, dtype=torch.int64)
        self._comm.exchange([], [(owner, header), (owner, slot)])
        return slot, int(header)

    def release(self, number: int) -> None:
        """Declare that this rank has finished reading panel `number`."""
        if self._shared:
            self._set(READ, number + 1)

    def _slot(self, rank: int, number: int) -> Tensor:
        memory = self._memory[rank]
        assert memory is not None
        first = 2 * CACHE_LINE + number % RING_DEPTH * self._stride
        return memory[first : first + self._stride]

    def _set(self, word: int, count: int) -> None:
        set_counter(self._addresses[self._comm.rank], word, count)

    def _reach(self, rank: int, word: int, count: int) -> None:
        wait_for_counter(self._flags, self._addresses[rank], word, count)


def _counter_words(memory: Tensor) -> Words:
    return memory[: 2 * CACHE_LINE].numpy().view(np.uint64)
