"""The runs of programs on one pool: they are started, waited for, and repeated if abandoned.

`run` does not wait for the workers: the arrays of the outputs exist at once, and later runs may
read them. The workers do all runs in order, so what waits for all of them waits for the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, final

from magmath.engine.lifetimes.pending_memory import PendingMemory
from magmath.engine.lifetimes.redistribution_cache import RedistributionCache
from magmath.engine.programs.abandoned_run import AbandonedRun
from magmath.engine.programs.program_build import CompiledProgram
from magmath.engine.remote_array import RemoteArray, lost_array_error, remote_array_of
from magmath.graph import Node

if TYPE_CHECKING:
    from magmath.runtime.messages import Number
    from magmath.runtime.pool import Pool
    from magmath.runtime.run_handle import ProgressCallback, RunHandle


@final
class ProgramRuns:
    """The runs on one pool.

    profiler        receives each run after its end; None: no run is measured
    pending_memory  is told the bytes of new arrays
    """

    def __init__(
        self, pool: Pool, redistribution_cache: RedistributionCache, pending_memory: PendingMemory
    ) -> None:
        self.pool = pool
        self.pending_memory = pending_memory
        self.profiler: Callable[[RunHandle], object] | None = None
        self._redistribution_cache = redistribution_cache
        self._last: RunHandle | None = None
        self._last_fallible: RunHandle | None = None  # the last run that can fail for some data

    def run(
        self,
        compiled: CompiledProgram,
        leaves: Sequence[Node],
        *,
        steps: int = 1,
        progress: ProgressCallback | None = None,
        concurrent: bool = False,
    ) -> tuple[list[RemoteArray], RunHandle]:
        """Run a program on the data of `leaves`; return the data of the outputs and the run.

        The caller must give variables among the targets their new data. Raises WorkerLost for
        data of another pool.
        """
        operands = [remote_array_of(leaves[i]) for i in compiled.inputs]
        scalars = [leaves[i].value for i in compiled.scalars]
        return self.start(
            compiled, operands, scalars, steps=steps, progress=progress, concurrent=concurrent
        )

    def start(
        self,
        compiled: CompiledProgram,
        operands: Sequence[RemoteArray],
        scalars: Sequence[Number],
        *,
        steps: int = 1,
        progress: ProgressCallback | None = None,
        concurrent: bool = False,
    ) -> tuple[list[RemoteArray], RunHandle]:
        """Run a program on its input arrays and scalars, in order; return the data of the outputs
        and the run, as `run`."""
        if compiled.number_checks is not None:
            compiled.number_checks.check(scalars)
        if self.pool.memory_limit is not None:
            self._redistribution_cache.make_room(self.pool.array_bytes, compiled.new_bytes)
        timed = self.profiler is not None
        run = self.pool.run(
            compiled.program_id,
            self.array_ids_of(operands),
            scalars,
            steps=steps,
            progress=progress,
            timed=timed,
            concurrent=concurrent,
        )
        self._last = run
        if not self.pool.is_inline and compiled.can_fail(scalars):
            self._last_fallible = run
        if self.profiler is not None:
            run.values()
            self.profiler(run)
        outputs = []
        for array_id, (shape, dtype, layout) in zip(run.outputs, compiled.results, strict=True):
            outputs.append(RemoteArray(self.pool, array_id, shape, dtype, layout, run))
        self.pending_memory.count_bytes(compiled.result_bytes)
        if run.can_be_abandoned and self.pool.memory_limit is None:
            run.recovery = AbandonedRun(compiled, tuple(operands), tuple(scalars), outputs)
        if self.pool.interrupts.count:
            self.pool.interrupt_point()
        return outputs, run

    def restore(self, operands: Sequence[RemoteArray]) -> None:
        """Recompute those of the arrays whose run was interrupted and abandoned."""
        for data in operands:
            run = data.origin
            if (
                run is not None
                and run.recovery is not None
                and self.pool.has_been_abandoned(data.array_id)
            ):
                run.recovery.rerun(self.start)

    def wait_for_fallible_run(self) -> None:
        """Wait for the last run that can fail for its data; raise its failure. This precedes what
        would replace values by results of such runs, or of runs that read them."""
        run = self._last_fallible
        if run is not None:
            if run.is_pending:
                run.wait()
            self._last_fallible = None
        if self.pool.has_failures:
            self.drain()

    @property
    def has_fallible_runs(self) -> bool:
        """True if a run that can fail for its data may be pending, or has failed."""
        return self._last_fallible is not None or self.pool.has_failures

    def has_succeeded(self, data: RemoteArray) -> bool:
        """Wait for the run that computes an array; return False if it has failed. Failures are not
        raised."""
        if data.pool is not self.pool or self.pool.is_inline:
            return True
        if self.pool.has_failures:
            self.restore([data])
        if data.origin is not None:
            data.origin.wait_ignoring_failures()
        return not data.has_failed

    def wait_for(self, leaves: Sequence[Node]) -> None:
        """Wait until all started runs are done, also on GPUs. Raises their failures, and those of
        the leaves."""
        self.wait()
        if not self.pool.is_on_cpu:
            self.pool.stats()
        if self.pool.has_failures:
            data = [remote_array_of(x) for x in leaves]
            self.restore(data)
            for x in data:
                if x.has_failed:
                    self.pool.raise_failure(x.array_id)

    def drain(self) -> None:
        """Wait until all started runs are done. Failures are not raised."""
        if self._last is not None and not self.pool.is_inline:
            self._last.wait_ignoring_failures()
            self._last = self._last_fallible = None

    def wait(self) -> None:
        """Wait until all started runs are done. Raises their failures, once."""
        run = self._last
        if run is not None and run.is_pending:
            run.values()
        elif run is not None:  # its failure may have been raised
            self.pool.finish()

    def array_ids_of(self, operands: Sequence[RemoteArray]) -> list[int]:
        """Return the ids of arrays. Raises WorkerLost for data of another pool."""
        if self.pool.has_failures:
            self.restore(operands)
        pool = self.pool
        return [x.array_id if x.pool is pool else self.checked(x).array_id for x in operands]

    def content_ids_of(self, operands: Sequence[RemoteArray]) -> list[int]:
        """Return the content ids of arrays, after interrupted runs were repeated. Raises WorkerLost
        for data of another pool."""
        self.array_ids_of(operands)
        return [x.content_id for x in operands]

    def checked(self, data: RemoteArray) -> RemoteArray:
        """Return the data. Raises WorkerLost for data of another pool."""
        if data.pool is not self.pool:
            raise lost_array_error(data)
        return data
