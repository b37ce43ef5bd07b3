"""Asynchronous steps in the simulator: by hand, and by the bound on delays and the locks of servers."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magmath.cost import Level
from magmath.parallel.simulator import SimulatedTask, simulate
from magmath.parallel.simulator.asynchronous_tasks import StepParts, asynchronous_tasks
from magmath.parallel.simulator.events import COMPUTE, Host, Timeline

LEVELS = (Level("host", 0, 100.0, 0.5),)


def task(name: str, seconds: float) -> SimulatedTask:
    return SimulatedTask(name, (0,), (COMPUTE,), seconds)


def parts_of(copy: float, compute: float, update: float, servers: int = 1) -> StepParts:
    return StepParts(
        [task(f"copy {i}", copy) for i in range(servers)],
        task("compute", compute),
        [],
        [task(f"update {i}", update) for i in range(servers)],
    )


def simulated(
    parts: list[StepParts], staleness: int, steps: int, slowdown: Any = None, host: Any = None
) -> tuple[Timeline, list[int]]:
    tasks, updates = asynchronous_tasks(parts, staleness, steps, LEVELS, slowdown)
    return simulate(tasks, LEVELS, slowdown, host), updates


def seconds_between(timeline: Timeline, updates: list[int]) -> float:
    ends = sorted(timeline.spans[i].end for i in updates)
    first = len(ends) // 3
    return (ends[-first] - ends[first]) / (len(ends) - 2 * first)


@pytest.mark.parametrize(
    ("parts", "staleness", "expected"),
    [
        (parts_of(0.25, 1.0, 0.25), 4, 0.75),  # two workers, of which none waits
        (parts_of(0.5, 0.25, 0.5), 4, 1.0),  # the server is busy all the time
        (parts_of(0.5, 0.25, 0.5, servers=2), 4, 1.125),  # two servers are not
        (parts_of(0.25, 1.0, 0.25), 0, 1.5),  # one worker after the other
    ],
)
def test_updates_come_as_computed_by_hand(
    parts: StepParts, staleness: int, expected: float
) -> None:
    timeline, updates = simulated([parts] * 2, staleness, 60)
    assert len(updates) == 60
    assert seconds_between(timeline, updates) == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize(("staleness", "share"), [(8, 3.0), (1, 1.0)])
def test_a_slow_worker_holds_others_up_only_at_the_bound(staleness: int, share: float) -> None:
    timeline, updates = simulated([parts_of(0.01, 1.0, 0.01)] * 2, staleness, 80, {1: 3.0})
    fast, slow = (sum(timeline.tasks[i].workers == (w,) for i in updates) for w in (0, 1))
    assert fast / slow == pytest.approx(share, rel=0.1)


def test_workers_share_processors() -> None:
    parts = [parts_of(0.0, 1.0, 0.0)] * 4
    timeline, updates = simulated(parts, 8, 60, host=Host(2))
    assert seconds_between(timeline, updates) == pytest.approx(0.5, rel=0.05)


SECONDS = st.sampled_from([0.0, 0.1, 0.25, 1.0, 2.5])


@given(
    st.lists(st.tuples(SECONDS, SECONDS, SECONDS), min_size=1, max_size=4),
    st.integers(1, 3),
    st.integers(0, 5),
    st.sampled_from([None, Host(1), Host(2)]),
)
def test_delays_have_their_bound_and_servers_do_one_thing_at_a_time(
    seconds: list[tuple[float, float, float]], servers: int, staleness: int, host: Host | None
) -> None:
    parts = [parts_of(*one, servers=servers) for one in seconds]
    timeline, updates = simulated(parts, staleness, 20, host=host)
    assert len(updates) == 20
    for server in range(servers):
        names = f"copy {server}", f"update {server}"
        spans = [x for x in timeline.spans if timeline.tasks[x.task].name in names]
        order = sorted(spans, key=lambda x: (x.start, x.end, x.task))
        assert all(one.end <= following.start + 1e-9 for one, following in pairwise(order))
        version, copied = 0, dict[int, int]()
        for span in sorted(spans, key=lambda x: x.task):  # the order of the lock
            (worker,) = timeline.tasks[span.task].workers
            if timeline.tasks[span.task].name == names[0]:
                copied[worker] = version
            else:
                assert version - copied[worker] <= staleness
                version += 1
