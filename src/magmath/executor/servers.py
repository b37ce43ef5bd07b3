"""The servers of asynchronous updates, as a worker uses them: an interface, and shared memory.

A server is a group of arrays that workers copy, and update one after the other.
`executor/message_servers.py` implements it for workers that exchange messages.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Protocol, final

from magmath.comm.update_clock import UpdateClock
from magmath.core.type_aliases import Number
from magmath.errors import WorkerLost
from magmath.executor.context import Context
from magmath.executor.step_values import StepValues
from magmath.memory.local_array import LocalArray
from magmath.program.instructions import Program, WorkerProgram

ServerStep = Callable[[], list[float]]
Arrays = Mapping[int, LocalArray]


class StepExecutable(Protocol):
    """A bound program of one worker."""

    def prepare_steps(
        self,
        inputs: Sequence[LocalArray],
        outputs: Sequence[LocalArray],
        scalars: Sequence[Number],
    ) -> ServerStep:
        """Return a call that runs one step."""

    def close(self) -> None:
        """Release the resources of the binding."""


Bind = Callable[[Program, Context], StepExecutable]


@final
@dataclass(frozen=True)
class ServerRun:
    """A run of steps: the arrays of all slots, the scalars, the values of the counts before the
    run, and the number of steps."""

    arrays: Arrays
    scalars: Sequence[Number]
    counts: Mapping[int, int]
    steps: int

    def prepare(self, part: WorkerProgram, executable: StepExecutable) -> ServerStep:
        """Return a call that runs a part once."""
        inputs, outputs = ([self.arrays[i] for i in x] for x in (part.inputs, part.outputs))
        return executable.prepare_steps(inputs, outputs, [self.scalars[i] for i in part.scalars])

    def count(self, counted: Sequence[tuple[int, int]], number: int) -> None:
        """Write the counts after `number` steps or updates into their private slots."""
        for slot, private_slot in counted:
            self.arrays[private_slot].tensor.fill_(self.counts[slot] + number)


def allocate_slots(
    program: Program, slots: Iterable[int], context: Context, resources: ExitStack
) -> dict[int, LocalArray]:
    """Return memory of this worker for slots of a program, which `resources` frees."""
    arrays: dict[int, LocalArray] = {}
    for index in slots:
        slot = program.slots[index]
        stored = LocalArray.allocate(context.heap, slot.layout, slot.dtype, context.rank)
        resources.callback(stored.free, context.heap)
        arrays[index] = stored
    return arrays


class Servers(ABC):
    """The servers, and the numbers of steps and updates."""

    values: StepValues
    """The values that the steps have emitted; complete on worker 0."""

    @abstractmethod
    def start(self, run: ServerRun) -> None:
        """Begin a run. Collective."""

    @abstractmethod
    def take(self) -> int | None:
        """Return the number of the next step; None if there is none. Waits while a copy that is
        made now could become too old."""

    @abstractmethod
    def copy(self) -> list[int]:
        """Copy the arrays of all servers into this worker's slots; return the number of updates
        that the arrays of each server have."""

    @abstractmethod
    def begin(self) -> int:
        """Return the number of this worker's update. Waits while the copies of other workers would
        become too old if these workers updated next, the oldest copy first."""

    @abstractmethod
    def apply(self, number: int) -> bool:
        """Apply this worker's update to all servers, also after a failure; return True if it was
        applied to all of them."""

    @abstractmethod
    def set_values(self, step: int, values: Sequence[float]) -> None:
        """Store what a step has emitted."""

    @abstractmethod
    def stop(self) -> None:
        """Let no worker take another step; this worker drops its copy."""

    @abstractmethod
    def finish(self) -> int:
        """End a run; return the number of steps that were taken. Collective.

        Afterwards every worker reads the updated arrays.
        """

    @abstractmethod
    def raise_failure(self) -> None:
        """Raise the exception of an update that failed on this worker."""

    @abstractmethod
    def close(self) -> None:
        """Release memory and communicators. Collective."""


@final
class SharedServers(Servers):
    """The servers of workers that share memory: each worker updates the arrays itself.

    `context` is that of the worker, `alone` that of programs for one worker, `width` the numbers
    that a step emits.
    """

    def __init__(
        self, program: Program, context: Context, alone: Context, bind: Bind, width: int
    ) -> None:
        step = program.asynchronous
        assert step is not None
        self._step, self._comm = step, context.comm
        with ExitStack() as resources:
            self._executables = [
                resources.enter_context(closing(bind(part.program, alone))) for part in step.updates
            ]
            self._clock = UpdateClock(context.comm, len(step.updates), step.staleness)
            self._resources = resources.pop_all()
        self.values = StepValues(width, lambda nbytes: context.comm.shared_window(nbytes)[0])
        self._error: Exception | None = None

    def start(self, run: ServerRun) -> None:
        self._run, self._error = run, None
        self.values.start(run.steps)
        if self._comm.rank == 0:
            self.values.clear()
        self._clock.start()  # all workers have read the counts
        self._updates: list[ServerStep] = []
        try:
            pairs = zip(self._step.updates, self._executables, strict=True)
            self._updates = [run.prepare(*pair) for pair in pairs]
        except Exception as failure:
            self._error = failure

    def take(self) -> int | None:
        return self._clock.take(self._run.steps)

    def copy(self) -> list[int]:
        return [self._copy(server) for server in range(len(self._executables))]

    def _copy(self, server: int) -> int:
        arrays = self._run.arrays
        with self._clock.copying(server) as version:
            for shared, private in self._step.copies[server]:
                arrays[private].tensor.copy_(arrays[shared].tensor)
        return version

    def begin(self) -> int:
        return self._clock.begin()

    def apply(self, number: int) -> bool:
        self._run.count(self._step.updates_counted, number)
        for server in range(len(self._executables)):
            try:
                with self._clock.updating(server, number):
                    if self._error is None:
                        self._updates[server]()
            except WorkerLost:
                raise
            except Exception as failure:
                self._error = failure
        self._clock.complete()
        return self._error is None

    def set_values(self, step: int, values: Sequence[float]) -> None:
        self.values.set(step, values)

    def stop(self) -> None:
        self._clock.stop()

    def finish(self) -> int:
        self._comm.barrier()
        return self._clock.steps_taken

    def raise_failure(self) -> None:
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        self._resources.close()
