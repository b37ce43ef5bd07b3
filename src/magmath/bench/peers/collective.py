"""The contestant of collectives, for any library."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, final

from magmath.bench.peers.service import Contestant

ITEM_BYTES = 4


@final
class CollectiveContestant(Contestant):
    """Repeats one collective operation on float32 arrays.

    An operation gets (out, array); `allreduce` works in place on `out`. The size of a case is the
    larger of the two: `out` for an allgather, the array for a reduce-scatter.
    """

    def __init__(
        self,
        versions: dict[str, str],
        rank: int,
        size: int,
        zeros: Callable[[int], Any],
        operations: dict[str, Callable[[Any, Any], object]],
        barrier: Callable[[], object],
    ) -> None:
        self._versions = versions
        self._rank, self._size = rank, size
        self._zeros = zeros
        self._operations = operations
        self._barrier = barrier
        self._operate: Callable[[Any, Any], object]
        self._repeats = 0
        self._out: Any = None
        self._array: Any = None

    def versions(self) -> dict[str, str]:
        return self._versions

    def prepare(self, case: dict[str, Any]) -> dict[str, Any]:
        count, part = case["nbytes"] // ITEM_BYTES, case["nbytes"] // ITEM_BYTES // self._size
        self._repeats = case["repeats"]
        self._operate = self._operations[case["operation"]]
        self._out = self._zeros(part if case["operation"] == "reduce_scatter" else count)
        self._array = self._zeros(part if case["operation"] == "allgather" else count)
        start = time.perf_counter()
        self.round()
        return {"first_seconds": time.perf_counter() - start}

    def round(self) -> float:
        self._barrier()
        start = time.perf_counter()
        for _ in range(self._repeats):
            self._operate(self._out, self._array)
        return time.perf_counter() - start

    def finish(self) -> dict[str, Any]:
        """Return the mean of this rank's result if rank r contributes the constant r + 1."""
        self._out[:] = self._array[:] = self._rank + 1
        self._operate(self._out, self._array)
        return {"check": float(self._out.mean())}
