"""The replay cache: it runs small programs again into the memory of unreferenced results.

A compiled function that is called in a loop makes the same small arrays repeatedly; to number,
allocate and release them takes longer than to compute them. The cache therefore keeps the last few
results. If Python's reference counts show no other references to a result, the program runs into
its memory again, by a call that was prepared for these operands and results.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, final

from magmath.core.bounded_memo import store_bounded
from magmath.engine.donation import are_unreferenced
from magmath.engine.engine import EAGER_BYTES, Engine
from magmath.engine.program_build import Compiled
from magmath.engine.remote_array import RemoteArray, leaf_of
from magmath.engine.run_numbers import forget_taken

if TYPE_CHECKING:
    from magmath.runtime.messages import Number
    from magmath.runtime.run_handle import RunHandle

MAX_RESULTS = 4
MAX_CALLS = 16  # prepared calls per result buffer, for different operands


@final
class ResultBuffers:
    """The results of a run, and the calls that recompute them, by the handles of the operands."""

    __slots__ = ("calls", "data", "leaves")

    def __init__(self, data: list[RemoteArray]) -> None:
        self.data = data
        self.leaves = [leaf_of(one) for one in data]
        self.calls: dict[tuple[int, ...], Callable[[Sequence[Number]], object]] = {}


@final
class ReplayCache:
    """A program without targets that runs repeatedly.

    last    the last run through the engine, or None
    keeps   True if runs may write into the memory of former results
    """

    def __init__(self, engine: Engine, compiled: Compiled) -> None:
        self._engine = engine
        self.compiled = compiled
        self._results: deque[ResultBuffers] = deque()  # oldest first
        sizes = [prod(shape) * dtype.itemsize for shape, dtype, _ in compiled.results]
        pool = engine.pool
        small = bool(sizes) and max(sizes) <= EAGER_BYTES
        self.keeps = small and pool.is_inline and pool.memory_limit is None
        self.last: RunHandle | None = None

    def run(self, given: Sequence[RemoteArray], numbers: Sequence[Number]) -> ResultBuffers:
        """Return the results for these operands; the caller references their leaves, then calls
        `keep`.

        Raises as `Engine.start`.
        """
        engine = self._engine
        results = self._free() if self.keeps and engine.recorder is None else None
        if results is None:
            data, self.last = engine.start(self.compiled, given, numbers)
            results = ResultBuffers(data)
        else:
            operands = tuple([x.handle for x in given])
            call = results.calls.get(operands) or self._ready(results, given)
            engine.pool.replay(call, operands, numbers)
        forget_taken()
        return results

    def keep(self, results: ResultBuffers) -> None:
        """Cache results for reuse once they have no other references, if `keeps` is true."""
        if self.keeps:
            self._results.append(results)

    def _free(self) -> ResultBuffers | None:
        """Remove cached results without other references from the cache and return them; None if
        there are none."""
        kept = self._results
        try:
            for _ in range(len(kept)):
                results = kept.popleft()
                if are_unreferenced(results.leaves, results.data):
                    return results
                kept.append(results)
            if len(kept) >= MAX_RESULTS:
                kept.popleft()
        except IndexError:  # another thread has removed them
            pass
        return None

    def _ready(
        self, results: ResultBuffers, given: Sequence[RemoteArray]
    ) -> Callable[[Sequence[Number]], object]:
        operands, outputs = self._engine.handles(given), self._engine.handles(results.data)
        call = self._engine.pool.prepare_replay(self.compiled.identifier, operands, outputs)
        return store_bounded(results.calls, tuple(operands), call, MAX_CALLS)
