"""A communicator wrapper that sleeps for random times before and after each call.

The order of events between workers then differs from that of an idle machine, and tests find races
and deadlocks that are rare otherwise (`core/debugging.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

from torch import Tensor

from magmath.comm.barrier_memory import Flags
from magmath.comm.communicator import Communicator
from magmath.core.debugging import Delays


@final
class DelayedCommunicator(Communicator):
    """Wraps any communicator."""

    def __init__(self, inner: Communicator, level: int = 0) -> None:
        super().__init__(
            inner.rank,
            inner.size,
            inner.shares_memory,
            inner.ranks_on_host,
            inner.processors,
            inner.hosts,
        )
        self._inner = inner
        self._level = level
        self._delays = Delays("communicator", level, inner.rank)

    @property
    def is_hierarchical(self) -> bool:
        return self._inner.is_hierarchical

    @property
    def is_waiting(self) -> bool:
        return self._inner.is_waiting

    @property
    def flags(self) -> Flags:
        return self._inner.flags

    def barrier(self) -> None:
        self._delayed(self._inner.barrier)

    def shared_window(self, nbytes: int) -> list[Tensor]:
        tensors: list[Tensor] = self._delayed(self._inner.shared_window, nbytes)
        return tensors

    def allreduce_max(self, value: int) -> int:
        maximum: int = self._delayed(self._inner.allreduce_max, value)
        return maximum

    def duplicate(self) -> Communicator | None:
        inner = self._delayed(self._inner.duplicate)
        return None if inner is None else DelayedCommunicator(inner, self._level + 1)

    def probe(self) -> int:
        sender: int = self._delayed(self._inner.probe)
        return sender

    def abort(self) -> None:
        self._inner.abort()

    def close(self) -> None:
        self._delayed(self._inner.close)

    def _delayed(self, call: Callable[..., Any], *arguments: Any) -> Any:
        self._delays.sleep()
        result = call(*arguments)
        self._delays.sleep()
        return result

    def _exchange(
        self, sends: Sequence[tuple[int, Tensor]], receives: Sequence[tuple[int, Tensor]]
    ) -> None:
        self._delayed(self._inner._exchange, sends, receives)

    def _allreduce(self, tensor: Tensor, reduction: str) -> None:
        self._delayed(self._inner._allreduce, tensor, reduction)

    def _allgather(self, out: Tensor, tensor: Tensor) -> None:
        self._delayed(self._inner._allgather, out, tensor)

    def _reduce_scatter(self, out: Tensor, tensor: Tensor, reduction: str) -> None:
        self._delayed(self._inner._reduce_scatter, out, tensor, reduction)

    def _all_to_all(self, out: Tensor, tensor: Tensor) -> None:
        self._delayed(self._inner._all_to_all, out, tensor)
