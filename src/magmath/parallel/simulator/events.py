"""The simulator: runs tasks event by event on workers with streams, and on shared ports.

A worker has streams that run their tasks in the order of the program, one at a time: one for
computation, one for communication. A collective occupies a stream of all its workers, and passes
stages: its messages take their latency, then its bytes pass the ports of the network, which
concurrent collectives share equally. Workers may be slower than others. Workers of a host may share
its processors and the bandwidth of its memory; otherwise each has a device of its own.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, final

from magmath.cost.collective_costs import CollectiveStage, Level
from magmath.errors import OptionError

COMPUTE: Final = "compute"
COMMUNICATE: Final = "communicate"
Port = tuple[int, int]
"""A level of the network, and the number of a unit at this level."""


@final
class PortStage(NamedTuple):
    """A stage of a collective: the seconds of its messages, then the bytes through each port."""

    latency: float
    loads: tuple[tuple[Port, float], ...]


@final
@dataclass(frozen=True)
class SimulatedTask:
    """A computation or a communication of some workers.

    streams  the streams that it occupies, of each of its workers
    seconds  the time of a computation on a worker of full speed
    stages   the stages of a collective
    after    the numbers of the tasks that must end before
    nbytes   bytes that a computation reads from and writes to the memory of its host
    """

    name: str
    workers: tuple[int, ...]
    streams: tuple[str, ...]
    seconds: float = 0.0
    stages: tuple[PortStage, ...] = ()
    after: tuple[int, ...] = ()
    nbytes: float = 0.0


@final
@dataclass(frozen=True)
class Host:
    """What the computations of the workers of a host share.

    processors  computations that run concurrently; if there are more, all take turns
    bandwidth   bytes of memory per second
    crowding    factor of the time of a computation while all processors compute
    """

    processors: int
    bandwidth: float = float("inf")
    crowding: float = 1.0

    def rates(self, tasks: Sequence[SimulatedTask], slowdown: Mapping[int, float]) -> list[float]:
        """Return the share of each concurrent computation that is done per second.

        Processors are shared equally. A computation that needs less of the memory's bandwidth than
        its equal share leaves the rest to the others (max-min fairness).
        """
        running = len(tasks)
        busy = (min(running, self.processors) - 1) / max(self.processors - 1, 1)
        share = min(1.0, self.processors / running) / (1.0 + (self.crowding - 1.0) * busy)
        rates = [share / (task.seconds * _slowest(task, slowdown)) for task in tasks]
        demands = [rate * task.nbytes for rate, task in zip(rates, tasks, strict=True)]
        bandwidth, remaining = self.bandwidth, running
        for i in sorted(range(running), key=demands.__getitem__):
            granted = min(demands[i], bandwidth / remaining)
            if granted < demands[i]:
                rates[i] *= granted / demands[i]
            bandwidth, remaining = bandwidth - granted, remaining - 1
        return rates


def _slowest(task: SimulatedTask, slowdown: Mapping[int, float]) -> float:
    return max([slowdown.get(worker, 1.0) for worker in task.workers])


@final
class Span(NamedTuple):
    """The time of a task: its number, start and end in seconds."""

    task: int
    start: float
    end: float


@final
@dataclass(frozen=True, repr=False)
class Timeline:
    """The result of a simulation: the spans, in the order of the tasks."""

    tasks: tuple[SimulatedTask, ...]
    spans: tuple[Span, ...]

    def __repr__(self) -> str:
        return f"Timeline({len(self.tasks)} tasks, {self.seconds:.4g} s)"

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

    def working_seconds(self, worker: int, stream: str) -> float:
        """Return the seconds that computations and messages occupy a stream of a worker, without
        barriers and other waits."""
        return sum(
            span.end - span.start
            for task, span in zip(self.tasks, self.spans, strict=True)
            if worker in task.workers
            and stream in task.streams
            and (task.seconds or any(stage.loads for stage in task.stages))
        )


def in_order(timelines: Sequence[Timeline]) -> Timeline:
    """Return the timeline of simulations that run one after the other."""
    tasks: list[SimulatedTask] = []
    spans: list[Span] = []
    start = 0.0
    for timeline in timelines:
        first = len(tasks)
        tasks += [replace(x, after=tuple([first + i for i in x.after])) for x in timeline.tasks]
        spans += [Span(first + x.task, start + x.start, start + x.end) for x in timeline.spans]
        start += timeline.seconds
    return Timeline(tuple(tasks), tuple(spans))


def simulate(
    tasks: Sequence[SimulatedTask],
    levels: Sequence[Level],
    slowdown: Mapping[int, float] | None = None,
    host: Host | None = None,
    hosts: Sequence[int] = (),
) -> Timeline:
    """Run the tasks and return their times.

    slowdown   worker → factor by which its computations take longer
    host       what the workers of a host share; None if each has a device of its own
    hosts      the host of each worker, by number; by default all are on one

    Raises OptionError if tasks wait for each other.
    """
    return _Simulation(tasks, levels, slowdown or {}, host, hosts).run()


COMPUTATION: Final = -1
"""The stage of a computation."""


@final
@dataclass
class _Flow:
    """A task in progress that shares something with others: the stage of a collective, or
    COMPUTATION, and the share of its bytes or of its work that remains."""

    stage: int
    remaining: float = 1.0
    rate: float = 0.0


@final
class _Simulation:
    def __init__(
        self,
        tasks: Sequence[SimulatedTask],
        levels: Sequence[Level],
        slowdown: Mapping[int, float],
        host: Host | None,
        hosts: Sequence[int],
    ) -> None:
        self._tasks = tasks
        self._levels = levels
        self._slowdown = slowdown
        self._host = host
        self._host_of = dict(enumerate(hosts))
        self._now = 0.0
        self._starts: dict[int, float] = {}
        self._ends: dict[int, float] = {}
        self._pending = [len(set(task.after)) for task in tasks]
        self._users: dict[int, list[int]] = defaultdict(list)
        self._queues: dict[tuple[int, str], deque[int]] = defaultdict(deque)
        self._missing_heads = [len(task.workers) * len(task.streams) for task in tasks]
        """The streams of each task in which it is not the first one."""
        self._timers: list[tuple[float, int, int]] = []
        self._flows: dict[int, _Flow] = {}
        for number, task in enumerate(tasks):
            for other in set(task.after):
                self._users[other].append(number)
            for stream in self._streams(task):
                self._queues[stream].append(number)

    @staticmethod
    def _streams(task: SimulatedTask) -> list[tuple[int, str]]:
        return [(worker, stream) for worker in task.workers for stream in task.streams]

    def run(self) -> Timeline:
        """Return the times of all tasks."""
        for queue in self._queues.values():
            self._count_head(queue[0])
        while self._timers or self._flows:
            self._advance()
        if len(self._ends) < len(self._tasks):
            stuck = next(i for i in range(len(self._tasks)) if i not in self._ends)
            raise OptionError(
                f"simulate: the task {self._tasks[stuck].name!r} never starts, because tasks wait "
                f"for each other; issue them in one order on all workers"
            )
        spans = [Span(i, self._starts[i], self._ends[i]) for i in range(len(self._tasks))]
        return Timeline(tuple(self._tasks), tuple(spans))

    def _count_head(self, number: int) -> None:
        """Count a task as the first in one of its streams, and start it if it is ready."""
        self._missing_heads[number] -= 1
        self._start_if_ready(number)

    def _start_if_ready(self, number: int) -> None:
        """Start a task if all tasks before it have ended and its streams are free."""
        task = self._tasks[number]
        if self._pending[number] or self._missing_heads[number] or number in self._starts:
            return
        self._starts[number] = self._now
        if task.stages:
            self._set_timer(task.stages[0].latency, number, 0)
        elif self._host is None or not task.seconds:
            self._set_timer(task.seconds * _slowest(task, self._slowdown), number, COMPUTATION)
        else:
            self._flows[number] = _Flow(COMPUTATION)
            self._set_rates()

    def _set_timer(self, seconds: float, number: int, stage: int) -> None:
        """Add an event after some seconds: the end of the latency of stage `stage`, or of a
        COMPUTATION."""
        heapq.heappush(self._timers, (self._now + seconds, number, stage))

    def _advance(self) -> None:
        """Go to the next event: the end of a timer or of a flow."""
        timer = self._timers[0][0] if self._timers else float("inf")
        first, flow_end = None, float("inf")
        for number, flow in self._flows.items():
            end = self._now + flow.remaining / flow.rate
            if end < flow_end:
                first, flow_end = number, end
        self._move_flows(min(timer, flow_end) - self._now)
        self._now = min(timer, flow_end)
        if first is not None and flow_end <= timer:
            self._end_stage(first, self._flows.pop(first).stage)
        else:
            _, number, stage = heapq.heappop(self._timers)
            if stage == COMPUTATION:
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
        if 0 <= stage < len(stages) - 1:
            self._set_timer(stages[stage + 1].latency, number, stage + 1)
        else:
            self._end(number)
        self._set_rates()

    def _set_rates(self) -> None:
        """Share each port equally between the flows that pass it, and each host between its
        computations."""
        transfers = []
        computations: dict[int, list[tuple[SimulatedTask, _Flow]]] = defaultdict(list)
        users: dict[Port, int] = defaultdict(int)
        for number, flow in self._flows.items():
            task = self._tasks[number]
            if flow.stage == COMPUTATION:
                computations[self._host_of.get(task.workers[0], 0)].append((task, flow))
                continue
            loads = task.stages[flow.stage].loads
            transfers.append((loads, flow))
            for port, _ in loads:
                users[port] += 1
        for loads, flow in transfers:
            flow.rate = min([
                self._levels[port[0]].bandwidth / (users[port] * load)
                for port, load in loads
                if load > 0
            ])  # fmt: skip
        for running in computations.values():
            assert self._host is not None  # otherwise computations are timers
            rates = self._host.rates([task for task, _ in running], self._slowdown)
            for (_, flow), rate in zip(running, rates, strict=True):
                flow.rate = rate

    def _end(self, number: int) -> None:
        """End a task, and start those that wait for it or for its streams."""
        task = self._tasks[number]
        self._ends[number] = self._now
        for user in self._users[number]:
            self._pending[user] -= 1
            self._start_if_ready(user)
        for stream in self._streams(task):
            queue = self._queues[stream]
            queue.popleft()
            if queue:
                self._count_head(queue[0])


def on_ports(
    stages: Sequence[CollectiveStage],
    ports: Mapping[int, Sequence[int]],
    sharing: Mapping[int, float],
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
