"""The tasks of a program for the simulator: the instructions that the workers of a pool run.

Each worker has a task for each of its calls. A barrier is a task of all workers, so it ends when
the slowest one has arrived. Workers that share memory copy from one another in their calls; others
exchange messages, which pass the ports of the network and may run concurrently with computation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, final

from magmath.cost import Level, Link, Machine
from magmath.cost.link import OF_HOSTS, OF_WORKERS, LevelStage, message_stages
from magmath.executor.call_times import CallTime, CallTimes
from magmath.layout import Layout, plan_redistribution
from magmath.layout.redistribution import Stage
from magmath.ops import OPERATIONS
from magmath.parallel.simulator.events import (
    COMMUNICATE,
    COMPUTE,
    Port,
    PortStage,
    SimulatedTask,
)
from magmath.program.instructions import (
    Barrier,
    Call,
    Emit,
    Instruction,
    Program,
    Redistribute,
    Slot,
)

KERNEL: Final = "kernel"
COPY: Final = "copy"
MESSAGE: Final = "message"
WAIT: Final = "wait"


@final
@dataclass(frozen=True)
class WorkerNetwork:
    """The connection of the workers of a program.

    shares_memory  True if workers copy from one another's memory
    barrier        seconds of a barrier after the last worker has arrived
    bandwidth      bytes per second that a worker copies from others' memory
    link           the link that messages pass
    cache          bytes of arrays that a computation finds in a cache, not in memory
    """

    shares_memory: bool
    barrier: float
    bandwidth: float
    link: Link
    cache: float = 0.0

    @property
    def levels(self) -> tuple[Level, ...]:
        """The levels of the network."""
        return self.link.levels

    @property
    def hosts(self) -> tuple[int, ...]:
        """The host of each worker, by number; empty if all are on one."""
        return () if self.link.network is None else self.link.network.hosts

    def ports(self, source: int, target: int) -> tuple[Port, Port]:
        """Return the ports that a message between two workers passes: those of their hosts, or
        within a host those of the workers."""
        hosts = self.hosts
        if hosts and hosts[source] != hosts[target]:
            return (OF_HOSTS, hosts[source]), (OF_HOSTS, hosts[target])
        return (OF_WORKERS, source), (OF_WORKERS, target)

    @staticmethod
    def of(
        machine: Machine, workers: int, processors: int, link: Link, *, shares_memory: bool
    ) -> WorkerNetwork:
        """Return the connection of some workers of a machine, or of the threads of one."""
        crowded = shares_memory and workers > processors
        barrier = machine.crowded_barrier if crowded else link.barrier
        cache = machine.cache / link.workers_per_host(workers)
        return WorkerNetwork(shares_memory, barrier, machine.shared.bandwidth, link, cache)


@final
@dataclass
class _TaskWriter:
    """The state of writing out a program: tasks, and what the next tasks of workers wait for."""

    program: Program
    network: WorkerNetwork
    estimates: Sequence[float]
    tasks: list[SimulatedTask] = field(default_factory=list)
    due: list[tuple[int, int]] = field(default_factory=list)
    """Positions after which all workers wait for a task, and its number."""
    last: dict[int, int] = field(default_factory=dict)
    """The last computation of each worker."""

    @property
    def workers(self) -> tuple[int, ...]:
        return tuple(range(self.program.workers))

    def step(self, call_times: Sequence[CallTimes]) -> None:
        """Append one step."""
        by_end: list[dict[int, CallTime]]
        by_end = [{call.positions[-1]: call for call in calls} for calls in call_times]
        first = self.program.prologue
        for position in range(first, len(self.program.instructions)):
            self._instruction(position, [calls.get(position) for calls in by_end])
            for end, number in [x for x in self.due if x[0] <= position]:
                self._compute_wait(number)
                self.due.remove((end, number))
        for _, number in self.due:
            self._compute_wait(number)
        self.due.clear()

    def _instruction(self, position: int, times: Sequence[CallTime | None]) -> None:
        """Append the tasks of an instruction; `times` are those of the calls that end there, by
        worker."""
        instruction = self.program.instructions[position]
        match instruction:
            case Barrier():
                self._barrier()
            case Call() if instruction.workspace is not None:
                seconds = self.estimates[position]
                self._add(SimulatedTask(_name(instruction), self.workers, (COMPUTE,), seconds))
                self._barrier()
            case Call() | Redistribute():
                self._computations(position, times)
                if isinstance(instruction, Redistribute):
                    self._messages(position, instruction)
                elif _is_alone(self.program, instruction):
                    self._barrier()
            case Emit():
                pass

    def _computations(self, position: int, times: Sequence[CallTime | None]) -> None:
        """Append the computation of each worker that has a call."""
        for worker, call in enumerate(times):
            if call is None or not call.seconds:
                continue
            members = [self.program.instructions[i] for i in call.positions]
            nbytes = sum(self._bytes(worker, member) for member in members)
            seconds = max(call.seconds, self._read_seconds(worker, members))
            name = _name(members[0]) if len(members) == 1 else f"{len(members)} calls ({KERNEL})"
            task = SimulatedTask(name, (worker,), (COMPUTE,), seconds, nbytes=nbytes)
            self.last[worker] = self._add(task)

    def _read_seconds(self, worker: int, members: Sequence[Instruction]) -> float:
        """Return the least seconds of reading what other workers have written."""
        if not self.network.shares_memory:
            return 0.0
        moves = [member for member in members if isinstance(member, Redistribute)]
        return sum([self._received(worker, member) for member in moves]) / self.network.bandwidth

    def _received(self, worker: int, move: Redistribute) -> float:
        """Return the bytes that a worker reads of other workers' tiles."""
        itemsize = self.program.slots[move.source].dtype.itemsize
        traffics = [stage.traffic.get(worker) for stage in self._stages(move)]
        return float(
            sum([traffic.received * itemsize for traffic in traffics if traffic is not None])
        )

    def _bytes(self, worker: int, instruction: Instruction) -> float:
        """Return the bytes that a worker reads and writes and that no cache holds."""
        match instruction:
            case Call():
                nbytes = self._bytes_of_call(worker, instruction)
            case Redistribute():
                nbytes = self._bytes_of_move(worker, instruction)
            case _:
                return 0.0
        return nbytes if nbytes > self.network.cache else 0.0

    def _bytes_of_call(self, worker: int, call: Call) -> float:
        """Return the bytes that a kernel reads and writes on a worker; none for a view."""
        slots, operation = self.program.slots, OPERATIONS[call.operation]
        root = self.program.root
        if operation.is_view and root(call.out) in set(map(root, call.inputs)):
            return 0.0
        written = _local_bytes(slots[call.out], worker)
        read = {i: _local_bytes(slots[i], worker) for i in call.inputs}
        if operation.reads_subset:
            read[call.inputs[0]] = min(read[call.inputs[0]], written)
        return written + sum([nbytes for slot, nbytes in read.items() if slot != call.out])

    def _bytes_of_move(self, worker: int, move: Redistribute) -> float:
        have, want = self.program.slots[move.source], self.program.slots[move.target]
        stored_once = want.layout.shared and not have.layout.shared  # each worker writes its part
        written = _local_bytes(have if stored_once else want, worker)
        return written + max(written, self._received(worker, move))

    def _barrier(self) -> None:
        if len(self.workers) > 1:
            stage = PortStage(self.network.barrier, ())
            self._add(SimulatedTask(f"barrier ({WAIT})", self.workers, (COMPUTE,), 0.0, (stage,)))

    def _messages(self, position: int, move: Redistribute) -> None:
        """Append the messages of a move between workers that share no memory."""
        if self.network.shares_memory or len(self.workers) == 1:
            return
        itemsize = self.program.slots[move.source].dtype.itemsize
        stages = tuple(
            [
                _port_stage(messages)
                for stage in self._stages(move)
                for messages in message_stages(stage, itemsize, self.network.link)
            ]
        )
        if not stages:
            return
        kind = plan_redistribution(*self._layouts(move)).kind
        streams = (COMMUNICATE,) if move.overlapped else (COMPUTE, COMMUNICATE)
        after = tuple(self.last.values()) if move.overlapped else ()
        task = SimulatedTask(f"{kind} ({MESSAGE})", self.workers, streams, 0.0, stages, after)
        number = self._add(task)
        if move.overlapped:
            self.due.append((position + move.overlapped, number))

    def _compute_wait(self, number: int) -> None:
        """Make the computations of all workers wait for a task of the other stream."""
        for worker in self.workers:
            self._add(SimulatedTask(f"wait ({WAIT})", (worker,), (COMPUTE,), after=(number,)))

    def _layouts(self, move: Redistribute) -> tuple[Layout, Layout]:
        slots = self.program.slots
        return slots[move.source].layout, slots[move.target].layout

    def _stages(self, move: Redistribute) -> tuple[Stage, ...]:
        return tuple(plan_redistribution(*self._layouts(move)).stages)

    def _add(self, task: SimulatedTask) -> int:
        self.tasks.append(task)
        return len(self.tasks) - 1


def program_tasks(
    program: Program,
    call_times: Sequence[CallTimes],
    network: WorkerNetwork,
    estimates: Sequence[float],
    steps: int = 1,
) -> tuple[list[SimulatedTask], list[int]]:
    """Return the tasks of some steps of a program, and the number of tasks up to the end of each.

    call_times  the times of each worker's calls
    estimates   predicted seconds of each instruction, for collective kernels, which no worker can
                execute alone
    """
    writer, ends = _TaskWriter(program, network, estimates), []
    for _ in range(steps):
        writer.step(call_times)
        ends.append(len(writer.tasks))
    return writer.tasks, ends


def _is_alone(program: Program, call: Call) -> bool:
    """Return True if one worker computes with the threads of all, which wait."""
    is_on_one_worker = program.slots[call.out].layout.mesh.size == 1
    uses_lapack = OPERATIONS[call.operation].uses_lapack
    return uses_lapack and is_on_one_worker and program.workers > 1


def _local_bytes(slot: Slot, worker: int) -> float:
    size = slot.layout.local_size(worker) if slot.layout.tiles(worker) else 0
    return float(size * slot.dtype.itemsize)


def _name(instruction: Instruction) -> str:
    return (
        f"{instruction.operation} ({KERNEL})" if isinstance(instruction, Call) else f"copy ({COPY})"
    )


def _port_stage(messages: LevelStage) -> PortStage:
    """Return the messages at one level on the ports of its units."""
    ports = [((messages.level, unit), load) for unit, load in messages.loads.items()]
    return PortStage(messages.latency, tuple(ports))
