"""Execution of a program on one worker: it is bound once to this worker's tensors, then replayed.

Binding converts each instruction to a bound call, a function without arguments on tensors at fixed
addresses. The bindings of the last few sets of inputs and outputs are cached, so that a training
step, or a compiled function called in a loop, is bound once and then replayed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, final

from magmath.core.bounded_memo import RecentlyUsed
from magmath.core.type_aliases import Number, Poll
from magmath.executor.arena_memory import ArenaMemory
from magmath.executor.asynchronous_run import AsynchronousRun
from magmath.executor.bind import Binding
from magmath.executor.context import Context, no_progress_thread
from magmath.executor.error_context import set_in_step
from magmath.executor.fastest_selector import COMPILE_AFTER_SECONDS
from magmath.executor.fault import found_by
from magmath.executor.native_forms import NativeForms
from magmath.executor.numpy_fast_path import silent_context, without_fp_warnings
from magmath.executor.rebinding import Rebinding
from magmath.executor.scalars import Scalars
from magmath.executor.step_executors import (
    Executor,
    ExecutorSelector,
    Replay,
    native_executors,
)
from magmath.executor.tiers import Tiers
from magmath.memory.heap import Block
from magmath.memory.local_array import LocalArray
from magmath.program.instructions import Program

if TYPE_CHECKING:
    from magmath.comm.progress_thread import ProgressThread, Task
    from magmath.executor.cuda_graphs import RecordedRuns
    from magmath.executor.thread_team import Lanes

KEPT_BINDINGS = 64
"""Bindings of a program that are cached: a loop in Python that replaces arrays in each step uses
the same blocks of memory in turn, which takes some tens of sets."""
CHUNK_SECONDS = 0.05  # between polls for interrupts and reports of progress


@final
class Executable:
    """A program on this worker, with the arena and the bindings that its runs reuse."""

    def __init__(self, program: Program, context: Context) -> None:
        # Invalid data must be found before variables are overwritten, unless they are restored.
        if context.device.type != "cpu" and (program.checks_late or not program.donated):
            context = replace(context, faults={})
        self.program = program
        self.context = context
        self._memory = ArenaMemory(program, context)
        self._synchronizes = program.reads_peers
        self._is_running = False  # many steps
        self._scalars = Scalars(program, context.device)
        self._bindings: RecentlyUsed[Hashable, Binding] = RecentlyUsed(KEPT_BINDINGS)
        self._rebinding = Rebinding(program, context)
        self._selectors: RecentlyUsed[Hashable, ExecutorSelector] = RecentlyUsed(KEPT_BINDINGS)
        self._has_unread_faults = False
        self._chunk = 1
        self._compile_after = COMPILE_AFTER_SECONDS
        self._on_progress_thread: Executable | None = None
        self._lanes: Lanes | None = None
        self._forms = NativeForms(exact=context.deterministic)
        self._tiers = _tiers(context)
        self._asynchronous = self._asynchronous_run()

    def _asynchronous_run(self) -> AsynchronousRun | None:
        """Return the executor of an asynchronous step; None if the program has none."""
        if self.program.asynchronous is None:
            return None
        try:
            return AsynchronousRun(self.program, self.context, Executable)
        except BaseException:
            self._memory.close(self)
            raise

    def free_idle_memory(self) -> None:
        """Use the memory that programs share again, instead of a block of its own, unless the
        program is running."""
        if self._is_running or not self._memory.can_move:
            return
        self._forget_bindings()
        self._close_lanes()
        self._memory.share_again(self)

    def run(
        self,
        inputs: Sequence[LocalArray],
        outputs: Sequence[LocalArray],
        scalars: Sequence[Number],
        steps: int,
        poll: Poll | None,
    ) -> list[float]:
        """Run the program `steps` times; return the scalars emitted in every step."""
        with self._denormals():
            return self._run(inputs, outputs, scalars, steps, poll)

    def _denormals(self) -> AbstractContextManager[object]:
        """Return a context in which denormal numbers count as 0 if they do so in this program."""
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
        if steps > 1 and self._memory.is_shared:
            self._memory.take_own(self)
            self._forget_bindings()
        key = _blocks_of(inputs, outputs)
        binding = self._begin(key, inputs, outputs, scalars)
        self._synchronize()
        if steps == 1:
            values = without_fp_warnings(self._tiers.run, binding)
        else:
            self._is_running = True
            try:
                values = self._loop(self._selector(key, binding, inputs, outputs), steps, poll)
            finally:
                self._is_running = False
        self._synchronize()
        self._raise_failures()
        return values

    def _synchronize(self) -> None:
        """Synchronize workers that read one another's memory, before and after a run."""
        if self._synchronizes:
            self.context.comm.barrier()

    def start(
        self,
        inputs: Sequence[LocalArray],
        outputs: Sequence[LocalArray],
        progress_thread: ProgressThread,
    ) -> Task:
        """Let the progress thread run the program once, concurrently with this worker's own work.

        This is for programs that only move data: kernels do not support two threads. The arrays
        must not change until the task is done.
        """
        if self._on_progress_thread is None:
            context = replace(
                self.context,
                comm=progress_thread.comm,
                progress_thread=no_progress_thread,
                temporaries=None,
            )
            self._on_progress_thread = Executable(self.program, context)
        binding = self._on_progress_thread._begin(_blocks_of(inputs, outputs), inputs, outputs, ())
        binding.prepare()
        return progress_thread.submit(partial(self._on_progress_thread._replay, binding))

    def _replay(self, binding: Binding) -> None:
        self._synchronize()
        without_fp_warnings(binding.run_once, binding.step)
        self._synchronize()

    def _raise_failures(self) -> None:
        """Raise the first recorded failure of a completed run on this worker."""
        self._read_faults()
        self._has_unread_faults = False
        if self.context.failures:
            first = self.context.failures[0]
            self.context.failures.clear()
            set_in_step(first)
            raise first

    def _read_faults(self) -> None:
        """Record the failures that kernels of a GPU have noted."""
        if self.context.faults:
            self.context.failures += found_by(self.context.faults.values())

    def _drop_unread_faults(self) -> None:
        """Before a run, clear what an earlier run that has failed otherwise has noted."""
        if self._has_unread_faults:
            for fault in (self.context.faults or {}).values():
                fault.record.zero_()
        self._has_unread_faults = bool(self.context.faults)

    def prepare_replay(
        self, inputs: Sequence[LocalArray], outputs: Sequence[LocalArray]
    ) -> Callable[[Sequence[Number]], object]:
        """Return a call that runs the program once on these arrays, with given numbers.

        Only for a worker without peers, and programs that emit nothing. One thread may make the
        call at a time.
        """
        key = _blocks_of(inputs, outputs)
        fixed = None if self._memory.can_move else self._bound(key, inputs, outputs)
        run, heap, within = self._tiers.run, self.context.heap, silent_context()
        current = self._scalars
        input_blocks = {stored.block for stored in inputs}
        new_blocks = (
            [stored.block for stored in outputs if stored.block not in input_blocks]
            if heap.fills
            else []
        )

        def replay(scalars: Sequence[Number]) -> None:
            self._drop_unread_faults()
            if scalars is not current.numbers:
                current.write(scalars)
            for block in new_blocks:
                heap.fill(block)
            within.run(run, fixed or self._bound(key, inputs, outputs))
            if self.context.faults:
                self._raise_failures()

        return replay

    def prepare_steps(
        self,
        inputs: Sequence[LocalArray],
        outputs: Sequence[LocalArray],
        scalars: Sequence[Number],
    ) -> Callable[[], list[float]]:
        """Return a call that runs one step of a run of many, on these arrays, with given numbers.

        Only for programs of one worker.
        """
        key = _blocks_of(inputs, outputs)
        selector = self._selector(key, self._begin(key, inputs, outputs, scalars), inputs, outputs)
        selector.start()

        def step() -> list[float]:
            start = time.perf_counter()
            values = selector.replay(1)
            selector.note(time.perf_counter() - start, 1)
            self._raise_failures()
            return values

        return step

    def run_timed(
        self,
        inputs: Sequence[LocalArray],
        outputs: Sequence[LocalArray],
        scalars: Sequence[Number],
        steps: int,
    ) -> tuple[list[float], list[float]]:
        """Replay `steps` times; return the emitted scalars and the total seconds of each
        instruction."""
        if self._asynchronous is not None:  # has no common instructions
            return self._asynchronous.run(inputs, scalars, steps, None), []
        binding = self._begin(_blocks_of(inputs, outputs), inputs, outputs, scalars)
        seconds = [0.0] * len(self.program.instructions)
        binding.prepare()
        self.context.comm.barrier()  # so that no first instruction includes a wait
        with self._denormals():
            values = binding.run_timed(steps, seconds)
        self.context.comm.barrier()
        self._raise_failures()
        return values, seconds

    @property
    def nbytes(self) -> int:
        """The bytes of the arena."""
        return self._memory.nbytes

    def _begin(
        self,
        key: tuple[Block, ...],
        inputs: Sequence[LocalArray],
        outputs: Sequence[LocalArray],
        scalars: Sequence[Number],
    ) -> Binding:
        """Return the binding to these arrays, with these numbers set."""
        self.context.failures.clear()
        self._drop_unread_faults()
        self._scalars.write(scalars)
        return self._bound(key, inputs, outputs)

    def _bound(
        self, key: tuple[Block, ...], inputs: Sequence[LocalArray], outputs: Sequence[LocalArray]
    ) -> Binding:
        """Return the binding to these arrays, a cached or a new one."""
        if self._memory.is_outdated():
            self._forget_bindings()
            self._memory.update()
        binding = self._bindings.find(key)
        if binding is None:
            binding = self._rebinding.binding(
                inputs,
                outputs,
                self._scalars.tensors,
                self._memory.block,
                self._memory.offsets,
            )
            oldest = self._bindings.store(key, binding)
            if oldest in self._selectors:
                self._selectors.pop(oldest).close()
        return binding

    def _loop(self, selector: ExecutorSelector, steps: int, poll: Poll | None) -> list[float]:
        """Run many steps, in chunks whose length all workers agree on."""
        values: list[float] = []
        completed = 0
        comm = self.context.comm
        selector.start()
        if comm.allreduce_max(int(selector.is_undecided and not self._compile_after)):
            self._chunk = 1  # after it, compiled code that was timed on other arrays continues
        while completed < steps:
            chunk = min(self._chunk, steps - completed)
            start = time.perf_counter()
            emitted = selector.replay(chunk)
            seconds = time.perf_counter() - start
            values += emitted
            completed += chunk
            self._read_faults()
            stop = poll is not None and poll(completed, emitted)
            if comm.allreduce_max(int(stop or bool(self.context.failures))):
                break
            fitting = int(CHUNK_SECONDS * chunk / max(seconds, 1e-7))
            self._chunk = comm.allreduce_max(max(1, min(4 * chunk, fitting)))
            selector.note(seconds, chunk)
            # Runs on other arrays, each with a selector of its own, are worth one compilation too.
            self._compile_after = max(0.0, self._compile_after - seconds)
        return values

    def _selector(
        self,
        key: Hashable,
        binding: Binding,
        inputs: Sequence[LocalArray],
        outputs: Sequence[LocalArray],
    ) -> ExecutorSelector:
        """Return the selector of the executors of a binding's steps, with their measured speed."""
        selector = self._selectors.find(key)
        if selector is None:

            def others() -> list[Executor]:
                self._compile_after = 0.0  # compiled code is available now
                executors = native_executors(binding, self.context, self._forms)
                if executors and self.program.team is not None:
                    executors += self._team(self.program.team, inputs, outputs)
                return executors

            former = self._selectors.newest
            first = _first_executor(binding, self.context)
            selector = ExecutorSelector(
                self.context.comm, first, others, self._compile_after, former
            )
            self._selectors.store(key, selector)
        return selector

    def _team(
        self, program: Program, inputs: Sequence[LocalArray], outputs: Sequence[LocalArray]
    ) -> list[Executor]:
        from magmath.executor.thread_team import Lanes, Team

        if self._lanes is None:
            self._lanes = Lanes(program, self.context)
        if self._lanes.block is None:
            return []
        scalars = dict(zip(program.scalars, self._scalars.tensors.values(), strict=True))
        return [Team(self._lanes, inputs, outputs, scalars)]

    def close(self) -> None:
        """Free the arena; the program must not run afterwards."""
        self._forget_bindings()
        self._tiers.close()
        self._forms.close()
        self._close_lanes()
        if self._on_progress_thread is not None:
            self._on_progress_thread.close()
            self._on_progress_thread = None
        if self._asynchronous is not None:
            self._asynchronous.close()
        self._memory.close(self)

    def _close_lanes(self) -> None:
        if self._lanes is not None:
            self._lanes.close()
            self._lanes = None

    def _forget_bindings(self) -> None:
        self._bindings.clear()
        self._rebinding.forget()
        for selector in self._selectors.values():
            selector.close()
        self._selectors.clear()


def _first_executor(binding: Binding, context: Context) -> Executor:
    """Return the executor of many steps that needs no compiler."""
    if context.should_record_graphs:
        from magmath.executor.cuda_graphs import RecordedSteps

        return RecordedSteps(binding)
    return Replay(binding)


def _tiers(context: Context) -> Tiers | RecordedRuns:
    """Return the executor of runs of one step."""
    if context.should_record_graphs:
        from magmath.executor.cuda_graphs import RecordedRuns

        return RecordedRuns()
    enabled = context.native and context.device.type == "cpu"
    return Tiers(enabled=enabled, deterministic=context.deterministic)


def _blocks_of(inputs: Sequence[LocalArray], outputs: Sequence[LocalArray]) -> tuple[Block, ...]:
    """Return the blocks of arrays, on which a binding depends."""
    return tuple([stored.block for stored in (*inputs, *outputs)])
