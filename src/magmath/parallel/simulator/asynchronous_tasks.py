"""The tasks of asynchronous steps for the simulator: each worker copies, computes and updates.

Which worker copies and updates when depends on the times of all. The order follows from the rules
that the workers themselves obey (`core/update_rules.py`), from the locks of the servers, and from
the seconds of the tasks without competition. The tasks then have this order as dependencies, so
that the simulator can run them on shared processors and ports.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from magmath.core.update_rules import COUNTERS, Denied, UpdateRules
from magmath.cost import Level
from magmath.parallel.simulator.events import SimulatedTask


@final
@dataclass(frozen=True)
class StepParts:
    """The tasks of a worker's step, in order: the copy of each server, the computation, the
    messages to servers of other workers, and the update of each server."""

    copies: Sequence[SimulatedTask]
    compute: SimulatedTask
    messages: Sequence[SimulatedTask]
    updates: Sequence[SimulatedTask]


def asynchronous_tasks(
    parts: Sequence[StepParts],
    staleness: int,
    steps: int,
    levels: Sequence[Level],
    slowdown: Mapping[int, float] | None = None,
) -> tuple[list[SimulatedTask], list[int]]:
    """Return the tasks of some steps, and the number of the last task of each update.

    parts      by worker
    staleness  the number of updates that a copy may lack when it is used
    slowdown   worker → factor by which its computations take longer
    """
    order = _Order(parts, staleness, steps, levels, slowdown or {})
    order.run()
    return order.tasks, order.updates


Condition = Callable[[], bool]
Course = Generator[float | Condition, None, None]
"""The course of a worker: yields the seconds until it continues, or the condition that it waits
for, which is true once."""


@final
class _Order:
    """The workers, each with its course, in the order of their times."""

    def __init__(
        self,
        parts: Sequence[StepParts],
        staleness: int,
        steps: int,
        levels: Sequence[Level],
        slowdown: Mapping[int, float],
    ) -> None:
        self.tasks: list[SimulatedTask] = []
        self.updates: list[int] = []
        self._parts, self._steps, self._levels, self._slowdown = parts, steps, levels, slowdown
        counters = np.zeros(COUNTERS + len(parts), dtype=np.uint64)
        self._rules = UpdateRules(counters, staleness)
        servers = range(len(parts[0].updates))
        self._versions = [0 for _ in servers]  # numbers of applied updates
        self._queues: list[deque[int]] = [deque() for _ in servers]  # for the locks
        self._last_of_server: list[int | None] = [None for _ in servers]
        self._last: dict[int, int] = {}  # the last task of each worker
        self._released_by: dict[int, int] = {}  # the task at whose end a worker stopped waiting
        self._courses = [self._course(worker) for worker in range(len(parts))]
        self._waiting: dict[int, Condition] = {}
        self._timers: list[tuple[float, int, int]] = []
        self._now = 0.0

    def run(self) -> None:
        """Let all workers take their steps."""
        for worker in range(len(self._courses)):
            self._continue(worker)
        while self._timers:
            self._now, _, worker = heapq.heappop(self._timers)
            ended = self._last[worker]
            self._continue(worker)
            self._release(ended)

    def _continue(self, worker: int) -> None:
        """Follow the course of a worker until it waits."""
        for request in self._courses[worker]:
            if isinstance(request, float):
                heapq.heappush(self._timers, (self._now + request, len(self.tasks), worker))
                return
            if not request():
                self._waiting[worker] = request
                return

    def _release(self, ended: int) -> None:
        """Let the workers continue that have waited for the end of a task."""
        released = True
        while released:
            released = False
            for other, condition in list(self._waiting.items()):
                if condition():
                    del self._waiting[other]
                    self._released_by[other] = ended
                    self._continue(other)
                    released = True

    # the course of a worker -------------------------------------------------------------------

    def _course(self, worker: int) -> Course:
        parts, rules = self._parts[worker], self._rules
        while True:
            number = yield from self._wait_for_number(lambda: rules.take(worker, self._steps))
            if number is None:
                return
            for server, copy in enumerate(parts.copies):
                yield from self._run_locked(worker, server, copy)
            yield self._add(worker, parts.compute)
            number = yield from self._wait_for_number(lambda: rules.begin(worker))
            for message in parts.messages:
                yield self._add(worker, message)
            for server, update in enumerate(parts.updates):
                yield self._turn(server, number)
                yield from self._run_locked(worker, server, update)
                self._versions[server] += 1
            rules.complete()
            self.updates.append(self._last[worker])

    def _wait_for_number(
        self, ask: Callable[[], int | Denied]
    ) -> Generator[Condition, None, int | None]:
        """Wait for a number from the rules; return None if none is left."""
        answers: list[int | Denied] = []

        def is_answered() -> bool:
            answer = ask()
            if answer is not Denied.NOT_YET:
                answers.append(answer)
            return bool(answers)

        yield is_answered
        (number,) = answers
        return None if isinstance(number, Denied) else number

    def _turn(self, server: int, number: int | None) -> Condition:
        """Return the condition that a server has all updates before one."""
        return lambda: self._versions[server] == number

    def _run_locked(self, worker: int, server: int, task: SimulatedTask) -> Course:
        """Execute a task with the lock of a server, which workers get in the order in which they
        ask for it."""
        queue = self._queues[server]
        queue.append(worker)
        yield lambda: queue[0] == worker
        yield self._add(worker, task, self._last_of_server[server])
        self._last_of_server[server] = self._last[worker]
        queue.popleft()

    def _add(self, worker: int, task: SimulatedTask, *others: int | None) -> float:
        """Add a task of a worker; return its seconds without competition."""
        before = {self._last.get(worker), self._released_by.pop(worker, None), *others}
        after = tuple(sorted([number for number in before if number is not None]))
        self._last[worker] = len(self.tasks)
        self.tasks.append(replace(task, workers=(worker,), after=after))
        return task.seconds * self._slowdown.get(worker, 1.0) + self._message_seconds(task)

    def _message_seconds(self, task: SimulatedTask) -> float:
        seconds = 0.0
        for stage in task.stages:
            passes = [load / self._levels[level].bandwidth for (level, _), load in stage.loads]
            seconds += stage.latency + max(passes, default=0.0)
        return seconds
