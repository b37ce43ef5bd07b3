"""Repeated runs of one program: small ones run again into the memory of unreferenced results.

A compiled function that is called in a loop makes the same small arrays repeatedly; to number,
allocate and release them takes longer than to compute them. So the last few results are kept. If
Python's reference counts show no other references to a result, the program runs into its memory
again, by a call that was prepared for these operands and results.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import cached_property
from math import prod
from operator import attrgetter
from typing import TYPE_CHECKING, final

from magmath.core.bounded_memo import store_bounded
from magmath.engine.array_sizes import MAX_BYTES_INLINE
from magmath.engine.eager.eager_computation import MAX_READ
from magmath.engine.engine import Engine
from magmath.engine.lifetimes.live_references import are_unreferenced
from magmath.engine.programs.program_build import CompiledProgram, ResultSpec
from magmath.engine.remote_array import RemoteArray, leaf_of
from magmath.engine.run_numbers import commit_reservations
from magmath.graph import Graph
from magmath.runtime.failures import add_user_line

if TYPE_CHECKING:
    from magmath.core.type_aliases import Number
    from magmath.executor.eager_program import EagerProgram
    from magmath.runtime.run_handle import RunHandle

_ARRAY_ID = attrgetter("_array_id")
MAX_RESULTS = 4
"""Results of a program that are kept for reuse."""
BOUND_TIME = 16
"""The time of a run that is bound to its memory, in prepared calls."""
MAX_EXCESS = 8 * BOUND_TIME
"""The excess from which eager runs take the place of bound ones."""
MAX_CALLS = 16
"""Prepared calls per result buffer, for different operands."""


@final
class ResultBuffers:
    """The results of a run, and the calls that recompute them, by the ids of the operands."""

    __slots__ = ("calls", "data", "leaves")

    def __init__(self, data: list[RemoteArray]) -> None:
        self.data = data
        self.leaves = [leaf_of(array) for array in data]
        self.calls: dict[tuple[int, ...], Callable[[Sequence[Number]], object]] = {}


@final
class RepeatedRuns:
    """The runs of one program without targets, one for each call of a compiled function.

    `compiled` is the program, and `graph` its graph; with `draws`, runs take numbers from counters
    (`run_numbers`). `repeated_calls` has the provenance of such calls.

    last           the last run through the engine, or None
    reuses_memory  True if runs may write into the memory of former results

    If all arrays are small, the results are computed in this process (`EagerProgram`), as far as it
    stores the operands: with workers in other threads or processes at once, with the inline worker
    after runs have seldom found the memory for which a call was prepared.
    """

    def __init__(
        self, engine: Engine, compiled: CompiledProgram, graph: Graph, *, draws: bool = True
    ) -> None:
        self._engine = engine
        self._draws = draws
        self.compiled = compiled
        self._graph = graph
        self._results: deque[ResultBuffers] = deque()  # oldest first
        sizes = [prod(shape) * dtype.itemsize for shape, dtype, _ in compiled.results]
        pool = engine.pool
        small = bool(sizes) and max(sizes) <= MAX_BYTES_INLINE
        self.reuses_memory = small and pool.is_inline and pool.memory_limit is None
        self.last: RunHandle | None = None
        self._excess = 0
        """The time of bound runs, in prepared calls, less the prepared calls since."""
        self._is_eager = bool(sizes) and not pool.is_inline and self._eager is not None

    def run(self, arrays: Sequence[RemoteArray], numbers: Sequence[Number]) -> ResultBuffers:
        """Return the results for these operands; the caller references their leaves, then calls
        `offer_for_reuse`.

        Raises as `ProgramRuns.start`.
        """
        engine = self._engine
        if self._is_eager and engine.runs.profiler is None:
            computed = self._computed_here(arrays, numbers)
            if computed is not None:
                return computed
        results: ResultBuffers | None = None
        if self.reuses_memory and engine.runs.profiler is None:
            results = self._take_unreferenced()
        if results is None:
            new_data, self.last = engine.runs.start(self.compiled, arrays, numbers)
            results = ResultBuffers(new_data)
            self._count_bound_run()
        else:
            operands = tuple(map(_ARRAY_ID, arrays))  # properties take time
            if None in operands:
                operands = tuple([x.array_id for x in arrays])
            call = results.calls.get(operands)
            if call is None:
                call = self._prepare_call(results, arrays)
                self._count_bound_run()
            elif self._excess:
                self._excess -= 1
            for data in results.data:
                data.mark_reused()
            engine.pool.run_prepared(call, operands, numbers)
        if self._draws:
            commit_reservations()
        return results

    @cached_property
    def _eager(self) -> EagerProgram | None:
        """The program that computes the results in this process; None if they are not small."""
        engine, leaves = self._engine, self._graph.leaves
        if engine.eager_computation.max_eager_bytes <= 0:
            return None
        arrays = [leaves[i] for i in self.compiled.inputs]
        numbers = [leaves[i] for i in self.compiled.scalars]
        former = self._graph  # some of its nodes of numbers alone may read leaves now
        graph = Graph(former.outputs, former.targets, former.emitted)
        return engine.eager_computation.program(graph, arrays, numbers)

    def _count_bound_run(self) -> None:
        """Count a run that was bound to its memory; choose eager runs if this happens often."""
        self._excess += BOUND_TIME
        if self.reuses_memory and self._excess > MAX_EXCESS:
            self._is_eager = self._eager is not None
            self._excess = 0
            self._results.clear()

    def _computed_here(
        self, arrays: Sequence[RemoteArray], numbers: Sequence[Number]
    ) -> ResultBuffers | None:
        """Return the results of an eager run, or None if this process does not store the
        operands, or they are large."""
        pool, values = self._engine.pool, []
        if pool.closed:
            return None
        for data in arrays:
            if data.pool is not pool:
                return None
            value = data.host_array
            if value is None:
                value = data.local_array()
            if value is None or value.nbytes > MAX_READ:
                return None
            values.append(value)
        assert self._eager is not None
        try:
            computed = self._eager.run(values, numbers)
        except Exception as error:
            add_user_line(error)
            raise
        if self._draws:
            commit_reservations()
        return ResultBuffers(
            [
                RemoteArray(pool, None, shape, dtype, layout, None, value)
                for (shape, dtype, layout), value in zip(self._whole_results, computed, strict=True)
            ]
        )

    @cached_property
    def _whole_results(self) -> list[ResultSpec]:
        """The specifications of the results of an eager run."""
        replicated = self._engine.environment.replicated
        return [x._replace(layout=replicated(x.shape, shared=True)) for x in self.compiled.results]

    def offer_for_reuse(self, results: ResultBuffers) -> None:
        """Keep results, whose memory a later run may reuse once they have no other references; do
        nothing if runs reuse no memory."""
        if self.reuses_memory and not self._is_eager:
            self._results.append(results)

    def _take_unreferenced(self) -> ResultBuffers | None:
        """Remove kept results without other references from the list and return them; None if there
        are none."""
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

    def _prepare_call(
        self, results: ResultBuffers, arrays: Sequence[RemoteArray]
    ) -> Callable[[Sequence[Number]], object]:
        """Return a call that computes these results from these operands, and store it."""
        runs = self._engine.runs
        operands, outputs = runs.array_ids_of(arrays), runs.array_ids_of(results.data)
        call = self._engine.pool.prepare_run(self.compiled.program_id, operands, outputs)
        return store_bounded(results.calls, tuple(operands), call, MAX_CALLS)
