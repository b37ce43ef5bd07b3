"""Runs of steps that each worker executes on its own, on arrays that all workers share.

A worker takes the number of a step, copies the shared arrays, computes, and updates the arrays of
one server after the other. The clock (`comm/update_clock.py`) numbers the updates and bounds the
age of the copies. The values that steps emit are collected in shared memory, from which worker 0
reports them in the order of the steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, final

import torch

from magmath.comm.communicator import Communicator
from magmath.comm.local_group import LocalGroup
from magmath.comm.update_clock import UpdateClock
from magmath.errors import WorkerLost
from magmath.executor.context import Context
from magmath.memory.heap import Block, Heap
from magmath.memory.local_array import LocalArray
from magmath.program.instructions import Emit, Part, Program

Poll = Callable[[int, list[float]], bool]
Number = bool | int | float | complex
Step = Callable[[], list[float]]
REPORT_SECONDS = 0.05  # between polls of worker 0 for interrupts and reports of progress


class StepExecutable(Protocol):
    """A bound program of one worker."""

    def prepare_steps(
        self,
        inputs: Sequence[LocalArray],
        outputs: Sequence[LocalArray],
        parameters: Sequence[Number],
    ) -> Step:
        """Return a call that runs one step."""

    def close(self) -> None:
        """Release the resources of the binding."""


@dataclass(frozen=True)
class OneWorkerMemory:
    """The memory of blocks as a program of one worker sees it: shared arrays are those of all
    workers, other blocks are private."""

    heap: Heap
    shared: set[Block]

    def peer(self, block: Block, rank: int) -> torch.Tensor:
        """Return a block's memory."""
        return self.heap.leader(block) if block in self.shared else self.heap.local(block)

    def leader(self, block: Block) -> torch.Tensor:
        """Return a block's memory."""
        return self.peer(block, 0)


@final
class IndependentRun:
    """Executes a program with an independent step on one worker.

    `bind` binds a program for one worker.
    """

    def __init__(
        self, program: Program, context: Context, bind: Callable[[Program, Context], StepExecutable]
    ) -> None:
        step = program.independent
        assert step is not None
        self._program, self._step, self._context = program, step, context
        self._memory = OneWorkerMemory(context.heap, set())
        alone = replace(context, comm=LocalGroup(1).communicator(0), lanes=self._memory)
        self._private = {
            i: LocalArray.allocate(context.heap, slot.layout, slot.dtype, context.rank)
            for i, slot in enumerate(program.slots)
            if slot.kind == "temporary"
        }
        self._compute = bind(step.compute.program, alone)
        self._updates = [bind(part.program, alone) for part in step.updates]
        self._clock = UpdateClock(context.comm, len(step.updates), step.staleness)
        emits = sum(isinstance(x, Emit) for x in step.compute.program.instructions)
        self._values = _StepValues(context.comm, emits + 1)

    def run(
        self,
        inputs: Sequence[LocalArray],
        parameters: Sequence[Number],
        steps: int,
        poll: Poll | None,
    ) -> list[float]:
        """Take part in `steps` steps; return what they emit, each followed by the number of
        updates that its copies lacked."""
        arrays = self._private | dict(zip(self._program.inputs, inputs, strict=True))
        self._memory.shared.clear()
        self._memory.shared.update([x.block for x in inputs if x.layout.shared])
        counts = {slot: int(arrays[slot].tensor) for slot, _ in self._counted}
        self._values.start(steps)
        self._clock.start()  # all workers have read the counts
        error = None
        try:
            self._take_steps(arrays, parameters, counts, steps, poll)
        except WorkerLost:
            raise
        except Exception as failure:  # the other workers finish the steps that they have taken
            self._clock.stop()
            error = failure
        self._context.comm.barrier()
        done = self._clock.taken
        for slot in counts.keys() & set(self._program.outputs):
            arrays[slot].tensor.fill_(counts[slot] + done)
        self._context.comm.barrier()
        if error is not None:
            error.in_step = True  # type: ignore[attr-defined]
            raise error
        if poll is not None and done < steps and self._context.rank == 0:
            poll(done, self._values.news(done))
        return self._values.of(done)

    @property
    def _counted(self) -> list[tuple[int, int]]:
        return [*self._step.steps_counted, *self._step.updates_counted]

    def _take_steps(
        self,
        arrays: dict[int, LocalArray],
        parameters: Sequence[Number],
        counts: dict[int, int],
        steps: int,
        poll: Poll | None,
    ) -> None:
        """Compute steps and apply their updates until no step is left."""
        clock, step = self._clock, self._step

        def prepared(part: Part, executable: StepExecutable) -> Step:
            inputs, outputs = ([arrays[i] for i in slots] for slots in (part.inputs, part.outputs))
            return executable.prepare_steps(
                inputs, outputs, [parameters[i] for i in part.parameters]
            )

        compute = prepared(step.compute, self._compute)
        updates = [prepared(*pair) for pair in zip(step.updates, self._updates, strict=True)]
        reports, last = self._context.rank == 0, time.perf_counter()
        while (number := clock.take(steps)) is not None:
            versions = [self._copy(arrays, server) for server in range(len(updates))]
            for slot, own in step.steps_counted:
                arrays[own].tensor.fill_(counts[slot] + number)
            emitted = compute()
            update = clock.begin()
            for slot, own in step.updates_counted:
                arrays[own].tensor.fill_(counts[slot] + update)
            self._apply(updates, update)
            self._values.set(number, [*emitted, float(update - min(versions))])
            if poll is not None and reports and time.perf_counter() - last > REPORT_SECONDS:
                last = time.perf_counter()
                if poll(*self._values.prefix()):
                    clock.stop()

    def _copy(self, arrays: dict[int, LocalArray], server: int) -> int:
        """Copy the arrays of a server; return the number of updates that they have."""
        with self._clock.copying(server) as version:
            for shared, private in self._step.copies[server]:
                arrays[private].tensor.copy_(arrays[shared].tensor)
        return version

    def _apply(self, updates: Sequence[Step], number: int) -> None:
        """Apply an update to all servers, also after a failure, which it raises then."""
        error = None
        for server, apply in enumerate(updates):
            try:
                with self._clock.updating(server, number):
                    if error is None:
                        apply()
            except WorkerLost:
                raise
            except Exception as failure:
                error = failure
        self._clock.complete()
        if error is not None:
            raise error

    def close(self) -> None:
        """Free the programs and the private memory."""
        for executable in (self._compute, *self._updates):
            executable.close()
        for stored in self._private.values():
            stored.free(self._context.heap)


@final
class _StepValues:
    """What the steps of a run emit, in memory that all workers share: a row for each step.

    width   the numbers of a step; the last one is at least 0
    """

    def __init__(self, comm: Communicator, width: int) -> None:
        self._comm, self._width = comm, width
        self._rows = torch.empty((0, width), dtype=torch.float64)
        self._reported = 0

    def start(self, steps: int) -> None:
        """Begin a run. Collective; the workers must synchronise before they set values."""
        if len(self._rows) < steps:
            nbytes = 8 * self._width * steps
            memory = self._comm.window(nbytes)[0][:nbytes]
            self._rows = memory.view(torch.float64).view(steps, self._width)
        if self._comm.rank == 0:
            self._rows[:, -1] = -1.0
        self._reported = 0

    def set(self, step: int, values: Sequence[float]) -> None:
        """Store the values of a step."""
        self._rows[step, :-1] = torch.tensor(values[:-1], dtype=torch.float64)
        self._rows[step, -1] = values[-1]

    def prefix(self) -> tuple[int, list[float]]:
        """Return the number of steps before the first unfinished one, and their values that were
        not reported yet."""
        done = self._reported
        while done < len(self._rows) and self._rows[done, -1] >= 0:
            done += 1
        return done, self.news(done)

    def news(self, done: int) -> list[float]:
        """Return the values of the steps before step `done` that were not reported yet."""
        first, self._reported = self._reported, done
        return self._rows[first:done].reshape(-1).tolist()

    def of(self, done: int) -> list[float]:
        """Return the values of the steps before step `done`."""
        return self._rows[:done].reshape(-1).tolist()
