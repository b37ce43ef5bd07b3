"""Runs of many steps: in chunks, each by the fastest executor so far.

A selector belongs to the arrays of a run; all selectors of a program share its compiled code, and
one team of threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, final

from magmath.core.bounded_memo import RecentlyUsed
from magmath.core.type_aliases import Poll
from magmath.executor.bind import Binding
from magmath.executor.bindings import KEPT_BINDINGS, ArrayBlocks
from magmath.executor.context import Context
from magmath.executor.fastest_selector import COMPILE_AFTER_SECONDS, writing_factor
from magmath.executor.native_forms import NativeForms
from magmath.executor.step_executors import Executor, ExecutorSelector, Replay, native_executors
from magmath.program.instructions import Program

if TYPE_CHECKING:
    from magmath.executor.thread_team import Lanes

CHUNK_SECONDS = 0.05  # between polls for interrupts and reports of progress


@final
class StepLoop:
    """Executes many steps of a program on one worker.

    is_running  True during a run, in which callbacks of the user may run other programs
    """

    def __init__(self, program: Program, context: Context) -> None:
        self.is_running = False
        self._program, self._context = program, context
        self._selectors: RecentlyUsed[ArrayBlocks, ExecutorSelector] = RecentlyUsed(KEPT_BINDINGS)
        self._chunk = 1
        self._compile_after = COMPILE_AFTER_SECONDS * writing_factor(len(program.instructions))
        self._forms = NativeForms(exact=context.deterministic)
        self._lanes: Lanes | None = None

    def run(self, binding: Binding, steps: int, poll: Poll | None) -> list[float]:
        """Run many steps; return the scalars that they emit."""
        self.is_running = True
        try:
            return self._run(self._selector(binding), steps, poll)
        finally:
            self.is_running = False

    def _run(self, selector: ExecutorSelector, steps: int, poll: Poll | None) -> list[float]:
        """Run the steps in chunks whose length all workers agree on."""
        values: list[float] = []
        completed = 0
        comm, failures = self._context.comm, self._context.failures
        selector.start()
        if comm.allreduce_max(int(selector.is_undecided and not self._compile_after)):
            self._chunk = 1  # after it, compiled code that was timed on other arrays continues
        while completed < steps:
            chunk = min(self._chunk, steps - completed)
            start = time.perf_counter()
            emitted = selector.run(chunk)
            seconds = time.perf_counter() - start
            values += emitted
            completed += chunk
            failures.read()
            stop = poll is not None and poll(completed, emitted)
            if comm.allreduce_max(int(stop or bool(failures.errors))):
                break
            fitting = int(CHUNK_SECONDS * chunk / max(seconds, 1e-7))
            self._chunk = comm.allreduce_max(max(1, min(4 * chunk, fitting)))
            selector.add_measurement(seconds, chunk)
            # Runs on other arrays, each with a selector of its own, are worth one compilation too.
            self._compile_after = max(0.0, self._compile_after - seconds)
        return values

    def prepare_steps(self, binding: Binding) -> Callable[[], list[float]]:
        """Return a call that runs one step of a run of many. Only for programs of one worker."""
        selector, failures = self._selector(binding), self._context.failures
        selector.start()

        def step() -> list[float]:
            start = time.perf_counter()
            values = selector.run(1)
            selector.add_measurement(time.perf_counter() - start, 1)
            failures.raise_first()
            return values

        return step

    def _selector(self, binding: Binding) -> ExecutorSelector:
        """Return the selector of the executors of a binding's steps, with their measured speed."""
        selector = self._selectors.find(binding.blocks)
        if selector is None:

            def others() -> list[Executor]:
                self._compile_after = 0.0  # compiled code is available now
                executors = native_executors(binding, self._context, self._forms)
                if executors and self._program.team is not None:
                    executors += self._team(self._program.team, binding)
                return executors

            former = self._selectors.newest
            first = _first_executor(binding, self._context)
            selector = ExecutorSelector(
                self._context.comm, first, others, self._compile_after, former
            )
            self._selectors.store(binding.blocks, selector)
        return selector

    def _team(self, program: Program, binding: Binding) -> list[Executor]:
        from magmath.executor.thread_team import Lanes, Team

        if self._lanes is None:
            self._lanes = Lanes(program, self._context)
        if self._lanes.block is None:
            return []
        numbers = [binding.tensors.scalars[slot] for slot in self._program.scalars]
        scalars = dict(zip(program.scalars, numbers, strict=True))
        return [Team(self._lanes, binding.inputs, binding.outputs, scalars)]

    def forget(self, blocks: ArrayBlocks) -> None:
        """Forget the selector of a binding that is dropped."""
        if blocks in self._selectors:
            self._selectors.pop(blocks).close()

    def free_memory(self) -> None:
        """Free the temporaries of the team."""
        if self._lanes is not None:
            self._lanes.close()
            self._lanes = None

    def close(self) -> None:
        """Stop compiling, and free all memory; no binding must exist."""
        self._forms.close()
        self.free_memory()


def _first_executor(binding: Binding, context: Context) -> Executor:
    """Return the executor of many steps that needs no compiler."""
    if context.should_record_graphs:
        from magmath.executor.cuda_graphs import RecordedSteps

        return RecordedSteps(binding)
    return Replay(binding)
