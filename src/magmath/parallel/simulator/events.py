"""The simulator: runs tasks event by event on workers with streams, and on shared ports.

A worker has streams that run their tasks in the order of the program, one at a time: one for
computation, one for communication. A collective occupies a stream of all its workers, and passes
stages: its messages take their latency, then its bytes pass the ports of the network, which
concurrent collectives share equally. Workers may be slower than others.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from magmath.cost.collectives import Level, Stage
from magmath.errors import MagmathError

COMPUTE: Final = "compute"
COMMUNICATE: Final = "communicate"
Port = tuple[int, int]
"""A level of the network, and the number of a unit at this level."""


class PortStage(NamedTuple):
    """A stage of a collective: the seconds of its messages, then the bytes through each port."""

    latency: float
    loads: tuple[tuple[Port, float], ...]


@dataclass(frozen=True)
class Task:
    """A computation or a communication of some workers.

    streams  the streams that it occupies, of each of its workers
    seconds  the time of a computation on a worker of full speed
    stages   the stages of a collective
    after    the numbers of the tasks that must end before
    """

    name: str
    workers: tuple[int, ...]
    streams: tuple[str, ...]
    seconds: float = 0.0
    stages: tuple[PortStage, ...] = ()
    after: tuple[int, ...] = ()


class Span(NamedTuple):
    """The time of a task: its number, start and end in seconds."""

    task: int
    start: float
    end: float


@dataclass(frozen=True)
class Timeline:
    """The result of a simulation: the spans, in the order of the tasks."""

    tasks: tuple[Task, ...]
    spans: tuple[Span, ...]

    @property
    def seconds(self) -> float:
        """The end of the last task."""
        return max([span.end for span in self.spans], default=0.0)

    def busy_seconds(self, worker: int, stream: str) -> float:
        """Return the seconds that tasks occupy a stream of a worker."""
        return sum(
            span.end - span.start
            for task, span in zip(self.tasks, self.spans, strict=True)
            if worker in task.workers and stream in task.streams
        )


def simulate(
    tasks: Sequence[Task], levels: Sequence[Level], slowdown: Mapping[int, float] | None = None
) -> Timeline:
    """Run the tasks and return their times.

    slowdown   worker → factor by which its computations take longer

    Raises MagmathError if tasks wait for each other.
    """
    return _Simulation(tasks, levels, slowdown or {}).run()


@dataclass
class _Flow:
    """A collective in progress: its stage, and the share of the stage's bytes that remains."""

    stage: int
    remaining: float = 1.0
    rate: float = 0.0


class _Simulation:
    def __init__(
        self, tasks: Sequence[Task], levels: Sequence[Level], slowdown: Mapping[int, float]
    ) -> None:
        self._tasks = tasks
        self._levels = levels
        self._slowdown = slowdown
        self._now = 0.0
        self._starts: dict[int, float] = {}
        self._ends: dict[int, float] = {}
        self._pending = [len(set(task.after)) for task in tasks]
        self._users: dict[int, list[int]] = defaultdict(list)
        self._queues: dict[tuple[int, str], deque[int]] = defaultdict(deque)
        self._heads = [0] * len(tasks)
        self._timers: list[tuple[float, int, int]] = []
        self._flows: dict[int, _Flow] = {}
        for number, task in enumerate(tasks):
            for other in set(task.after):
                self._users[other].append(number)
            for stream in self._streams(task):
                self._queues[stream].append(number)

    @staticmethod
    def _streams(task: Task) -> list[tuple[int, str]]:
        return [(worker, stream) for worker in task.workers for stream in task.streams]

    def run(self) -> Timeline:
        """Return the times of all tasks."""
        for queue in self._queues.values():
            self._note_head(queue[0])
        while self._timers or self._flows:
            self._advance()
        if len(self._ends) < len(self._tasks):
            stuck = next(i for i in range(len(self._tasks)) if i not in self._ends)
            raise MagmathError(
                f"simulate: the task {self._tasks[stuck].name!r} never starts, because tasks wait "
                f"for each other; issue them in one order on all workers"
            )
        spans = [Span(i, self._starts[i], self._ends[i]) for i in range(len(self._tasks))]
        return Timeline(tuple(self._tasks), tuple(spans))

    def _note_head(self, number: int) -> None:
        """Note that a task is the first in one of its streams."""
        self._heads[number] += 1
        self._start_if_ready(number)

    def _start_if_ready(self, number: int) -> None:
        task = self._tasks[number]
        waits = self._pending[number] or self._heads[number] < len(self._streams(task))
        if waits or number in self._starts:
            return
        self._starts[number] = self._now
        if task.stages:
            self._set_timer(task.stages[0].latency, number, 0)
        else:
            slow = max(self._slowdown.get(worker, 1.0) for worker in task.workers)
            self._set_timer(task.seconds * slow, number, -1)

    def _set_timer(self, seconds: float, number: int, stage: int) -> None:
        """Add an event after some seconds: the end of the latency of stage `stage`, or, for -1, of
        a computation."""
        heapq.heappush(self._timers, (self._now + seconds, number, stage))

    def _advance(self) -> None:
        """Go to the next event: the end of a timer or of a flow."""
        timer = self._timers[0][0] if self._timers else float("inf")
        ends = {n: self._now + f.remaining / f.rate for n, f in self._flows.items()}
        first = min(ends, key=ends.__getitem__, default=None)
        flow_end = float("inf") if first is None else ends[first]
        self._move_flows(min(timer, flow_end) - self._now)
        self._now = min(timer, flow_end)
        if first is not None and flow_end <= timer:
            self._end_stage(first, self._flows.pop(first).stage)
        else:
            _, number, stage = heapq.heappop(self._timers)
            if stage < 0:
                self._end(number)
            else:
                self._begin_flow(number, stage)

    def _move_flows(self, seconds: float) -> None:
        for flow in self._flows.values():
            flow.remaining = max(0.0, flow.remaining - flow.rate * seconds)

    def _begin_flow(self, number: int, stage: int) -> None:
        if any(load for _, load in self._tasks[number].stages[stage].loads):
            self._flows[number] = _Flow(stage)
            self._set_rates()
        else:
            self._end_stage(number, stage)

    def _end_stage(self, number: int, stage: int) -> None:
        stages = self._tasks[number].stages
        if stage + 1 < len(stages):
            self._set_timer(stages[stage + 1].latency, number, stage + 1)
        else:
            self._end(number)
        self._set_rates()

    def _set_rates(self) -> None:
        """Share each port equally between the flows that pass it."""
        users: dict[Port, int] = defaultdict(int)
        for number, flow in self._flows.items():
            for port, _ in self._tasks[number].stages[flow.stage].loads:
                users[port] += 1
        for number, flow in self._flows.items():
            loads = self._tasks[number].stages[flow.stage].loads
            flow.rate = min(
                self._levels[port[0]].bandwidth / (users[port] * load)
                for port, load in loads
                if load > 0
            )

    def _end(self, number: int) -> None:
        task = self._tasks[number]
        self._ends[number] = self._now
        for user in self._users[number]:
            self._pending[user] -= 1
            self._start_if_ready(user)
        for stream in self._streams(task):
            queue = self._queues[stream]
            queue.popleft()
            if queue:
                self._note_head(queue[0])


def on_ports(
    stages: Sequence[Stage], ports: Mapping[int, Sequence[int]], sharing: Mapping[int, float]
) -> tuple[PortStage, ...]:
    """Return stages on the ports of units.

    ports    level → the units of the collective's workers
    sharing  level → factor of the bytes, for collectives that represent several equal ones
    """
    return tuple(
        PortStage(
            stage.latency,
            tuple(
                ((level, unit), load * sharing.get(level, 1.0))
                for level, load in stage.loads
                for unit in ports[level]
            ),
        )
        for stage in stages
    )
