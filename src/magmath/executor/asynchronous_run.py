"""Runs of steps that each worker executes on its own, on arrays of servers.

A worker takes the number of a step, copies the arrays of the servers, computes, and updates them
(`executor/servers.py`). Worker 0 reports what the steps emit, in the order of the steps.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import final

import torch

from magmath.comm.local_group import LocalGroup
from magmath.core.type_aliases import Number, Poll
from magmath.errors import WorkerLost
from magmath.executor.context import Context
from magmath.executor.error_context import set_in_step
from magmath.executor.message_servers import MessageServers
from magmath.executor.servers import (
    Bind,
    ServerRun,
    Servers,
    SharedServers,
    StepExecutable,
    allocate_slots,
)
from magmath.memory.heap import Block, Heap
from magmath.memory.local_array import LocalArray
from magmath.program.instructions import AsynchronousStep, Emit, Program

REPORT_SECONDS = 0.05  # between polls of worker 0 for interrupts and reports of progress


@final
@dataclass(frozen=True)
class OneWorkerMemory:
    """The memory of blocks as a program of one worker sees it: shared arrays are those of all
    workers, other blocks are private."""

    heap: Heap
    shared: set[Block]

    def peer(self, block: Block, rank: int) -> torch.Tensor:
        """Return a block's memory."""
        in_shared = block in self.shared
        return self.heap.shared_memory_of(block) if in_shared else self.heap.local(block)

    def shared_memory_of(self, block: Block) -> torch.Tensor:
        """Return a block's memory."""
        return self.peer(block, 0)


@final
class AsynchronousRun:
    """Executes a program with an asynchronous step on one worker.

    `bind` binds a program for one worker.
    """

    def __init__(self, program: Program, context: Context, bind: Bind) -> None:
        step = program.asynchronous
        assert step is not None
        self._program, self._step, self._context = program, step, context
        self._memory = OneWorkerMemory(context.heap, set())
        alone = replace(
            context, comm=LocalGroup(1).communicator(0), lanes=self._memory, temporaries=None
        )
        width = 1 + sum(isinstance(x, Emit) for x in step.compute.program.instructions)
        shared = context.comm.size == 1 or context.comm.shares_memory
        kind = SharedServers if shared else MessageServers
        with ExitStack() as resources:  # closes them if one does not fit into the memory
            temporaries = [i for i, slot in enumerate(program.slots) if slot.kind == "temporary"]
            self._private = allocate_slots(program, temporaries, context, resources)
            compute, advance = step.compute.program, step.advance.program
            self._compute = resources.enter_context(closing(bind(compute, alone)))
            self._advance = resources.enter_context(closing(bind(advance, alone)))
            self._servers: Servers = kind(program, context, alone, bind, width)
            resources.callback(self._servers.close)
            self._resources = resources.pop_all()

    def run(
        self,
        inputs: Sequence[LocalArray],
        scalars: Sequence[Number],
        steps: int,
        poll: Poll | None,
    ) -> list[float]:
        """Take part in `steps` steps; return what they emit, each followed by the number of
        updates that its copies lacked."""
        arrays = self._private | dict(zip(self._program.inputs, inputs, strict=True))
        self._memory.shared.clear()
        self._memory.shared.update([x.block for x in inputs if x.layout.shared])
        counted = [*self._step.steps_counted, *self._step.updates_counted]
        counts = {slot: int(arrays[slot].tensor) for slot, _ in counted}
        run, servers = ServerRun(arrays, scalars, counts, steps), self._servers
        states = _StepStates(run, self._step, self._advance)
        servers.start(run)
        failure: Exception | None = None
        try:
            self._take_steps(run, states, poll)
        except WorkerLost:
            raise
        except Exception as error:  # the other workers finish the steps that they have taken
            servers.stop()
            failure = error
        steps_taken = servers.finish()
        for slot in counts.keys() & set(self._program.outputs):
            arrays[slot].tensor.fill_(counts[slot] + steps_taken)
        states.store(steps_taken)
        self._context.comm.barrier()
        self._raise_failure(failure)
        if self._context.rank:
            return []
        unreported = servers.values.take_unreported(steps_taken)
        if poll is not None and unreported:
            poll(steps_taken, unreported)
        return servers.values.before(steps_taken)

    def _raise_failure(self, failure: Exception | None) -> None:
        """Raise the failure of a step, or of an update, of this worker."""
        try:
            if failure is not None:
                raise failure
            self._servers.raise_failure()
        except Exception as error:
            set_in_step(error)
            raise

    def _take_steps(self, run: ServerRun, states: _StepStates, poll: Poll | None) -> None:
        """Compute steps and apply their updates until no step is left."""
        servers, step = self._servers, self._step
        compute = run.prepare(step.compute, self._compute)
        reports, last = self._context.rank == 0, time.perf_counter()
        while (number := servers.take()) is not None:
            versions = servers.copy()
            run.count(step.steps_counted, number)
            states.advance(number)
            emitted = compute()
            update = servers.begin()
            if not servers.apply(update):
                servers.stop()
                return
            servers.set_values(number, [*emitted, float(update - min(versions))])
            if poll is not None and reports and time.perf_counter() - last > REPORT_SECONDS:
                last = time.perf_counter()
                if poll(*servers.values.prefix()):
                    servers.stop()

    def close(self) -> None:
        """Free the programs and the private memory."""
        self._resources.close()


@final
class _StepStates:
    """The arrays that depend on the number of steps alone: this worker's copies of their values.

    Make it before the run begins, as long as no worker stores them.
    """

    def __init__(self, run: ServerRun, step: AsynchronousStep, advance: StepExecutable) -> None:
        self._pairs = [(run.arrays[x].tensor, run.arrays[y].tensor) for x, y in step.advanced]
        for stored, private in self._pairs:
            private.copy_(stored)
        self._advance = run.prepare(step.advance, advance)
        self._steps = 0

    def advance(self, steps: int) -> None:
        """Compute the values before the step with this number."""
        for _ in range(steps - self._steps if self._pairs else 0):
            self._advance()
        self._steps = steps

    def store(self, steps: int) -> None:
        """Store the values after this number of steps, as all workers do."""
        self.advance(steps)
        for stored, private in self._pairs:
            stored.copy_(private)
