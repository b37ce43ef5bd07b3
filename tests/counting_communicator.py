"""A communicator wrapper that counts calls, messages and bytes, for tests.

Bytes and messages are the minimum that this rank must send to others; for a collective, that of the
optimal algorithm, independent of the wrapped communicator.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import final

from torch import Tensor

from magmath.comm.barrier_memory import Flags
from magmath.comm.communicator import Communicator


@final
class CountingCommunicator(Communicator):
    """Wraps any communicator.

    calls      Counter: calls by name of the method
    messages   messages to other ranks
    bytes      bytes in them; an allreduce of n bytes over P ranks counts 2 (P - 1) / P · n
    """

    def __init__(self, inner: Communicator) -> None:
        super().__init__(
            inner.rank, inner.size, inner.shares_memory, inner.ranks_on_host, inner.processors
        )
        self._inner = inner
        self.reset()

    def reset(self) -> None:
        """Set all counters to zero."""
        self.calls: Counter[str] = Counter()
        self.messages = 0
        self.bytes = 0

    @property
    def flags(self) -> Flags:
        return self._inner.flags

    def barrier(self) -> None:
        self._count("barrier")
        self._inner.barrier()

    def shared_window(self, nbytes: int) -> list[Tensor]:
        self._count("window")
        return self._inner.shared_window(nbytes)

    def allreduce_max(self, value: int) -> int:
        self._count("allreduce_max")
        return self._inner.allreduce_max(value)

    def duplicate(self) -> Communicator | None:
        self._count("duplicate")
        return self._inner.duplicate()

    def probe(self) -> int:
        return self._inner.probe()

    def abort(self) -> None:
        self._inner.abort()

    def close(self) -> None:
        self._inner.close()

    def _count(self, name: str, messages: int = 0, nbytes: int = 0) -> None:
        self.calls[name] += 1
        self.messages += messages
        self.bytes += nbytes

    def _exchange(
        self, sends: Sequence[tuple[int, Tensor]], receives: Sequence[tuple[int, Tensor]]
    ) -> None:
        others = [tensor.nbytes for peer, tensor in sends if peer != self.rank]
        self._count("exchange", len(others), sum(others))
        self._inner._exchange(sends, receives)

    def _allreduce(self, tensor: Tensor, op: str) -> None:
        peers = self.size - 1
        self._count("allreduce", 2 * peers, 2 * tensor.nbytes * peers // self.size)
        self._inner._allreduce(tensor, op)

    def _allgather(self, out: Tensor, tensor: Tensor) -> None:
        self._count("allgather", self.size - 1, (self.size - 1) * tensor.nbytes)
        self._inner._allgather(out, tensor)

    def _reduce_scatter(self, out: Tensor, tensor: Tensor, op: str) -> None:
        self._count("reduce_scatter", self.size - 1, (self.size - 1) * out.nbytes)
        self._inner._reduce_scatter(out, tensor, op)

    def _all_to_all(self, out: Tensor, tensor: Tensor) -> None:
        peers = self.size - 1
        self._count("all_to_all", peers, tensor.nbytes // self.size * peers)
        self._inner._all_to_all(out, tensor)
