"""The parts of an asynchronous step as tasks for the simulator, from the program and the times of
its calls on one worker.

Workers that share memory copy and update the arrays of all servers themselves. Otherwise server s
belongs to worker s modulo the number of workers (`executor/message_servers.py`): copies are
messages to the worker, and what updates read are messages to the server. The computation of an
update is counted for the worker that waits for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import final

from magmath.diagnostics.explain import explain_program
from magmath.executor.call_times import CallTimes
from magmath.parallel.simulator.asynchronous_tasks import StepParts
from magmath.parallel.simulator.events import (
    COMMUNICATE,
    COMPUTE,
    PortStage,
    SimulatedTask,
)
from magmath.parallel.simulator.program_tasks import (
    COPY,
    KERNEL,
    MESSAGE,
    WorkerNetwork,
    program_tasks,
)
from magmath.passes.environment import Environment
from magmath.program.instructions import AsynchronousStep, Program, Slot, WorkerProgram

STEP_CALLS = 20
"""The time of taking a step and an update by the rules and of storing what the step emits, in times
of one kernel call."""

LOCK_CALLS = 2
"""The time of a server's lock, in times of one kernel call."""

TimesOf = Callable[[Program, Environment, list[float]], CallTimes]
"""Returns the times of the calls of a program for one worker, given the predicted seconds of its
instructions."""


def step_parts(
    program: Program, environment: Environment, network: WorkerNetwork, times_of: TimesOf
) -> list[StepParts]:
    """Return the parts of the step of each worker of a program with an asynchronous step."""
    step = program.asynchronous
    assert step is not None
    writer = _PartWriter(program, step, environment, network, times_of)
    compute = writer.kernel("step", step.compute)
    advance = writer.kernel("numbers", step.advance)  # each worker computes those of all steps
    workers = range(program.workers)
    rules = STEP_CALLS * environment.machine.call_seconds
    compute = replace(
        compute,
        seconds=compute.seconds + program.workers * advance.seconds + rules,
        nbytes=compute.nbytes + program.workers * advance.nbytes,
    )
    updates = [writer.update(i, part) for i, part in enumerate(step.updates)]
    return [
        StepParts(writer.copies(worker), compute, writer.messages(worker), updates)
        for worker in workers
    ]


@final
class _PartWriter:
    def __init__(
        self,
        program: Program,
        step: AsynchronousStep,
        environment: Environment,
        network: WorkerNetwork,
        times_of: TimesOf,
    ) -> None:
        self._program, self._step, self._environment = program, step, environment
        self._network, self._times_of = network, times_of

    def kernel(self, name: str, part: WorkerProgram) -> SimulatedTask:
        """Return all calls of a part as one task."""
        alone = self._environment.of_one_worker()
        estimates = [x.seconds for x in explain_program(part.program, alone).instructions]
        network = replace(self._network, shares_memory=False)
        call_times = [self._times_of(part.program, alone, estimates)]
        tasks, _ = program_tasks(part.program, call_times, network, estimates)
        seconds, nbytes = sum(x.seconds for x in tasks), sum(x.nbytes for x in tasks)
        return SimulatedTask(f"{name} ({KERNEL})", (0,), (COMPUTE,), float(seconds), nbytes=nbytes)

    def update(self, server: int, part: WorkerProgram) -> SimulatedTask:
        """Return the update of a server, with its lock."""
        task = self.kernel(f"update {server}", part)
        return replace(task, seconds=task.seconds + self._calls(LOCK_CALLS))

    def _calls(self, number: int) -> float:
        return number * self._environment.machine.call_seconds

    def copies(self, worker: int) -> list[SimulatedTask]:
        """Return the copy of each server's arrays by a worker."""
        return [
            self._transfer(f"copy of server {server}", worker, server, [x for x, _ in pairs])
            for server, pairs in enumerate(self._step.copies)
        ]

    def messages(self, worker: int) -> list[SimulatedTask]:
        """Return the messages to the servers of other workers; none in shared memory."""
        return [
            self._transfer(f"update of server {server}", worker, server, self._sent(part))
            for server, part in enumerate(self._step.updates)
            if not self._is_local(worker, server)
        ]

    def _sent(self, part: WorkerProgram) -> list[int]:
        """Return the slots that a worker sends for an update: its private ones, without counts."""
        counts = [private for _, private in self._step.updates_counted]
        return [i for i in part.inputs if self._slot(i).kind == "temporary" and i not in counts]

    def _is_local(self, worker: int, server: int) -> bool:
        return self._network.shares_memory or worker == server % self._program.workers

    def _transfer(self, name: str, worker: int, server: int, slots: list[int]) -> SimulatedTask:
        """Return the copy of slots between a worker and a server, or their message."""
        nbytes = float(sum(_nbytes(self._slot(i)) for i in slots))
        if self._is_local(worker, server):
            seconds = nbytes / self._environment.bandwidth + self._calls(LOCK_CALLS + len(slots))
            moved = 2 * nbytes if 2 * nbytes > self._network.cache else 0.0
            return SimulatedTask(f"{name} ({COPY})", (0,), (COMPUTE,), seconds, nbytes=moved)
        stage = self._message(worker, server % self._program.workers, nbytes)
        return SimulatedTask(f"{name} ({MESSAGE})", (0,), (COMMUNICATE,), stages=(stage,))

    def _message(self, worker: int, owner: int, nbytes: float) -> PortStage:
        """Return a message of `nbytes` on the ports between two workers, and one without content
        in the other direction."""
        ports = self._network.ports(worker, owner)
        latency = self._network.levels[ports[0][0]].latency
        return PortStage(2 * latency, tuple([(port, nbytes) for port in ports]))

    def _slot(self, slot: int) -> Slot:
        return self._program.slots[slot]


def _nbytes(slot: Slot) -> int:
    return slot.layout.size * slot.dtype.itemsize
