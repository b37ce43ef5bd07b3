"""A rank that never waits for others, with which one rank's part of a program is measured alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np
import torch
from torch import Tensor

from magmath.comm.barrier_memory import allocate_flags
from magmath.comm.communicator import Communicator
from magmath.errors import DeviceError


@final
class IsolatedCommunicator(Communicator):
    """One rank of `size` whose peers exist as memory only.

    Barriers return immediately, messages are neither sent nor received, and shared windows of all
    ranks are memory of this process. Collectives leave their results unchanged.
    """

    def __init__(self, rank: int, size: int, shares_memory: bool) -> None:
        super().__init__(rank, size, shares_memory, size, size)
        self._flags = allocate_flags(size)

    def barrier(self) -> None: ...

    def shared_window(self, nbytes: int) -> list[Tensor]:
        # NumPy's zeros are pages that cost nothing until they are used.
        return [torch.from_numpy(np.zeros(nbytes, np.uint8)) for _ in range(self.size)]

    def allreduce_max(self, value: int) -> int:
        return value

    def duplicate(self) -> None:
        return None

    def probe(self) -> int:
        raise DeviceError("probe: an isolated rank receives no messages")

    def abort(self) -> None: ...

    def close(self) -> None: ...

    def _exchange(
        self, sends: Sequence[tuple[int, Tensor]], receives: Sequence[tuple[int, Tensor]]
    ) -> None: ...

    def _allreduce(self, tensor: Tensor, reduction: str) -> None: ...

    def _allgather(self, out: Tensor, tensor: Tensor) -> None: ...

    def _reduce_scatter(self, out: Tensor, tensor: Tensor, reduction: str) -> None: ...

    def _all_to_all(self, out: Tensor, tensor: Tensor) -> None: ...
