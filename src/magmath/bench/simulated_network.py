"""A simulated network between workers of one host: messages take the time of a link of a given
bandwidth, without using the processor.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Final, final

from torch import Tensor

from magmath.comm import Communicator
from magmath.comm.barrier_memory import Flags

LATENCY: Final = 2e-5  # seconds of a message


@final
class SimulatedNetwork(Communicator):
    """Delays messages of `inner` as a full-duplex link of `bandwidth` bytes per second."""

    def __init__(self, inner: Communicator, bandwidth: float) -> None:
        super().__init__(
            inner.rank, inner.size, inner.shares_memory, inner.ranks_on_host, inner.processors
        )
        self._inner = inner
        self._bandwidth = bandwidth

    @property
    def flags(self) -> Flags:
        return self._inner.flags

    def barrier(self) -> None:
        self._inner.barrier()

    def shared_window(self, nbytes: int) -> list[Tensor]:
        return self._inner.shared_window(nbytes)

    def allreduce_max(self, value: int) -> int:
        return self._inner.allreduce_max(value)

    def duplicate(self) -> Communicator | None:
        inner = self._inner.duplicate()
        return None if inner is None else SimulatedNetwork(inner, self._bandwidth)

    def probe(self) -> int:
        return self._inner.probe()

    def abort(self) -> None:
        self._inner.abort()

    def close(self) -> None:
        self._inner.close()

    def _exchange(
        self, sends: Sequence[tuple[int, Tensor]], receives: Sequence[tuple[int, Tensor]]
    ) -> None:
        sent = sum(tensor.nbytes for peer, tensor in sends if peer != self.rank)
        received = sum(tensor.nbytes for peer, tensor in receives if peer != self.rank)
        end = time.perf_counter() + LATENCY + max(sent, received) / self._bandwidth
        self._inner._exchange(sends, receives)
        time.sleep(max(0.0, end - time.perf_counter()))

    # Without shared memory, programs only exchange messages.

    def _allreduce(self, tensor: Tensor, op: str) -> None:
        self._inner._allreduce(tensor, op)

    def _allgather(self, out: Tensor, tensor: Tensor) -> None:
        self._inner._allgather(out, tensor)

    def _reduce_scatter(self, out: Tensor, tensor: Tensor, op: str) -> None:
        self._inner._reduce_scatter(out, tensor, op)

    def _all_to_all(self, out: Tensor, tensor: Tensor) -> None:
        self._inner._all_to_all(out, tensor)


def main() -> int:
    """Run a worker on a simulated network; the first argument is its bandwidth, or "host" for
    messages without a simulated network."""
    from magmath.comm.mpi import world_communicator
    from magmath.runtime import process

    def join() -> Communicator:
        messages = world_communicator(shares_memory=False)
        return messages if sys.argv[1] == "host" else SimulatedNetwork(messages, float(sys.argv[1]))

    return process.main(sys.argv[2:], join=join)


if __name__ == "__main__":
    sys.exit(main())
