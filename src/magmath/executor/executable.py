"""Execution of a program on one worker: it is bound once to this worker's tensors, then replayed.

Binding converts each instruction to a bound call, a function without arguments on tensors at fixed
addresses. The bindings of the last few sets of inputs and outputs are cached
(`executor/bindings.py`). Runs of one step, of many steps, on the progress thread and of
asynchronous steps have an executor each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, final

import torch

from magmath.core import thread_placement
from magmath.core.type_aliases import Number, Poll
from magmath.executor.asynchronous_run import AsynchronousRun
from magmath.executor.bind import Binding, blocks_of
from magmath.executor.bindings import Bindings
from magmath.executor.bound_calls import synchronization
from magmath.executor.concurrent_run import ConcurrentRun
from magmath.executor.context import Context
from magmath.executor.numpy_fast_path import context_without_fp_warnings, without_fp_warnings
from magmath.executor.run_failures import RunFailures
from magmath.executor.step_loop import StepLoop
from magmath.executor.tiers import Tiers
from magmath.memory.local_array import LocalArray
from magmath.program.instructions import Program

if TYPE_CHECKING:
    from magmath.comm.progress_thread import ProgressThread, Task
    from magmath.executor.cuda_graphs import RecordedRuns


@final
class Executable:
    """A program on this worker: its bindings, and the executors of its runs.

    A run of one step is executed by `_tiers`, of many steps by `_loop`.
    """

    def __init__(self, program: Program, context: Context) -> None:
        # Invalid data must be found before variables are overwritten, unless they are restored.
        on_gpu = context.device.type != "cpu"
        reports_late = on_gpu and (program.reports_late or not program.donated)
        failures = RunFailures(context.device if reports_late else None)
        self.program = program
        self.context = context = replace(context, failures=failures)
        self._synchronize = synchronization(program, context)
        self._tiers = _tiers(program, context)
        self._loop = StepLoop(program, context)
        self._bindings = Bindings(program, context, self._loop.forget)
        self._concurrent: ConcurrentRun | None = None
        self._asynchronous = self._asynchronous_run()

    def _asynchronous_run(self) -> AsynchronousRun | None:
        """Return the executor of an asynchronous step; None if the program has none."""
        if self.program.asynchronous is None:
            return None
        try:
            return AsynchronousRun(self.program, self.context, Executable)
        except BaseException:
            self._bindings.close()
            raise

    def free_idle_memory(self) -> None:
        """Use the memory that programs share again, instead of a block of its own, unless the
        program is running."""
        if self._loop.is_running or not self._bindings.memory.can_move:
            return
        self._bindings.forget()
        self._loop.free_memory()
        self._bindings.memory.share_again()

    def run(
        self,
        inputs: Sequence[LocalArray],
        outputs: Sequence[LocalArray],
        scalars: Sequence[Number],
        steps: int,
        poll: Poll | None,
    ) -> list[float]:
        """Run the program `steps` times; return the scalars emitted in every step."""
        is_short = steps == 1 and self._asynchronous is None
        # During a long run others may need the processors; and it may start threads.
        placement = nullcontext() if is_short else thread_placement.unplaced()
        with self._flushing_denormals(), placement:
            return self._run(inputs, outputs, scalars, steps, poll)

    def _flushing_denormals(self) -> AbstractContextManager[object]:
        """Return a context manager within which denormal numbers count as 0, if they do so in this
        program."""
        on_cpu = self.context.device.type == "cpu"
        if not (on_cpu and self.program.flushes_denormals and self.context.flush_denormals):
            return nullcontext()
        from magmath.kernels.denormals import flushed

        return flushed()

    def _run(
        self,
        inputs: Sequence[LocalArray],
        outputs: Sequence[LocalArray],
        scalars: Sequence[Number],
        steps: int,
        poll: Poll | None,
    ) -> list[float]:
        if self._asynchronous is not None:
            return self._asynchronous.run(inputs, scalars, steps, poll)
        if steps > 1:
            self._bindings.take_own_memory(self)
        binding = self._begin(inputs, outputs, scalars)
        self._synchronize()
        if steps == 1:
            values = without_fp_warnings(self._tiers.run, binding)
        else:
            values = self._loop.run(binding, steps, poll)
        self._synchronize()
        self.context.failures.raise_first()
        return values

    def _begin(
        self,
        inputs: Sequence[LocalArray],
        outputs: Sequence[LocalArray],
        scalars: Sequence[Number],
    ) -> Binding:
        """Begin a run; return the binding to these arrays, with these numbers set."""
        self.context.failures.begin()
        self._bindings.scalars.write(scalars)
        return self._bindings.find(blocks_of(inputs, outputs), inputs, outputs)

    def start(
        self,
        inputs: Sequence[LocalArray],
        outputs: Sequence[LocalArray],
        progress_thread: ProgressThread,
    ) -> Task:
        """Let the progress thread run the program once, concurrently with this worker's own work.

        This is for programs that only move data. The arrays must not change until the task is done.
        """
        if self._concurrent is None:
            self._concurrent = ConcurrentRun(self.program, self.context, progress_thread)
        return self._concurrent.start(inputs, outputs)

    def prepare_run(
        self, inputs: Sequence[LocalArray], outputs: Sequence[LocalArray]
    ) -> Callable[[Sequence[Number]], object]:
        """Return a call that runs the program once on these arrays, with given numbers.

        Only for a worker without peers, and programs that emit nothing. One thread may make the
        call at a time.
        """
        blocks = blocks_of(inputs, outputs)
        find, failures = self._bindings.find, self.context.failures
        fixed = None if self._bindings.memory.can_move else find(blocks, inputs, outputs)
        run, heap = self._tiers.run, self.context.heap
        without_warnings = context_without_fp_warnings()
        scalars_of_program = self._bindings.scalars
        reports_late = failures.device is not None
        input_blocks = {stored.block for stored in inputs}
        new_blocks = (
            [stored.block for stored in outputs if stored.block not in input_blocks]
            if heap.should_fill
            else []
        )

        def run_once(scalars: Sequence[Number]) -> None:
            if reports_late:
                failures.begin()
            if scalars is not scalars_of_program.numbers:  # the same list has the same numbers
                scalars_of_program.write(scalars)
            for block in new_blocks:
                heap.fill(block)
            without_warnings.run(run, fixed or find(blocks, inputs, outputs))
            if reports_late:
                failures.raise_first()

        return run_once

    def prepare_steps(
        self,
        inputs: Sequence[LocalArray],
        outputs: Sequence[LocalArray],
        scalars: Sequence[Number],
    ) -> Callable[[], list[float]]:
        """Return a call that runs one step of a run of many, on these arrays, with given numbers.

        Only for programs of one worker.
        """
        thread_placement.release_threads()
        return self._loop.prepare_steps(self._begin(inputs, outputs, scalars))

    def run_timed(
        self,
        inputs: Sequence[LocalArray],
        outputs: Sequence[LocalArray],
        scalars: Sequence[Number],
        steps: int,
    ) -> tuple[list[float], list[float]]:
        """Run `steps` times, by bound calls; return the emitted scalars and the total seconds of
        each instruction."""
        if self._asynchronous is not None:  # has no common instructions
            with thread_placement.unplaced():
                return self._asynchronous.run(inputs, scalars, steps, None), []
        binding = self._begin(inputs, outputs, scalars)
        seconds = [0.0] * len(self.program.instructions)
        binding.prepare()
        self.context.comm.barrier()  # so that no first instruction includes a wait
        with self._flushing_denormals(), thread_placement.unplaced():
            values = binding.run_timed(steps, seconds)
        self.context.comm.barrier()
        self.context.failures.raise_first()
        return values, seconds

    @property
    def nbytes(self) -> int:
        """The bytes of the arena."""
        return self._bindings.memory.nbytes

    def close(self) -> None:
        """Free the arena; the program must not run afterwards."""
        self._bindings.forget()
        self._tiers.close()
        self._loop.close()
        if self._concurrent is not None:
            self._concurrent.close()
            self._concurrent = None
        if self._asynchronous is not None:
            self._asynchronous.close()
        self._bindings.close()


def _tiers(program: Program, context: Context) -> Tiers | RecordedRuns:
    """Return the executor of runs of one step."""
    if context.should_record_graphs:
        from magmath.executor.cuda_graphs import RecordedRuns

        return RecordedRuns()
    return Tiers(
        instructions=len(program.instructions),
        enabled=context.native and context.device.type == "cpu",
        deterministic=context.deterministic,
        place_threads=_placement(context),
    )


def _placement(context: Context) -> Callable[[], None]:
    """Return the function that places the threads of this worker before a run."""
    comm = context.comm
    if comm.size == 1 and context.device.type == "cpu":
        return _place_library_threads
    is_process = comm.shares_memory and current_thread() is main_thread()
    if is_process and context.device.type == "cpu" and torch.get_num_threads() == 1:
        return partial(thread_placement.begin_worker_run, comm.rank, comm.size)
    return thread_placement.begin_unplaced_run


def _place_library_threads() -> None:
    thread_placement.begin_run(torch.get_num_threads())
