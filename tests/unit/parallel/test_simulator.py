"""The simulator: streams, dependencies, shared ports, slow workers."""

import json
import math

import numpy as np
import pytest

from magmath.cost import Group, Level
from magmath.cost.collective_costs import fastest
from magmath.errors import MagmathError, OptionError
from magmath.parallel.simulator import SimulatedTask, perfetto, simulate, timeline_svg
from magmath.parallel.simulator.events import COMMUNICATE, COMPUTE, PortStage, on_ports
from magmath.parallel.simulator.slowdown import checked_slowdown

LEVELS = (Level("host", 0, 10.0, 0.5),)


def _compute(name, worker, seconds, after=()):
    return SimulatedTask(f"{name} (forward)", (worker,), (COMPUTE,), seconds, (), after)


def _send(name, workers, nbytes, after=(), streams=(COMMUNICATE,), port=0):
    stage = PortStage(0.5, (((0, port), nbytes),))
    return SimulatedTask(f"{name} (gradient)", workers, streams, 0.0, (stage,), after)


def _ends(tasks, **options):
    return [span.end for span in simulate(tasks, LEVELS, **options).spans]


def test_a_stream_runs_one_task_at_a_time_and_streams_overlap():
    tasks = [_compute("a", 0, 2.0), _send("s", (0,), 10.0, (0,)), _compute("b", 0, 3.0)]
    assert _ends(tasks) == pytest.approx([2.0, 3.5, 5.0])
    blocking = [tasks[0], _send("s", (0,), 10.0, (0,), (COMMUNICATE, COMPUTE)), tasks[2]]
    assert _ends(blocking) == pytest.approx([2.0, 3.5, 6.5])


def test_concurrent_transfers_share_a_port_equally():
    tasks = [_send("a", (0,), 10.0), _send("b", (1,), 20.0)]
    # Together until 2.5: each has moved 10 bytes. Then the second alone moves the other 10.
    assert _ends(tasks) == pytest.approx([2.5, 3.5])
    apart = [_send("a", (0,), 10.0), _send("b", (1,), 20.0, port=1)]
    assert _ends(apart) == pytest.approx([1.5, 2.5])


def test_a_collective_waits_for_its_slowest_worker():
    tasks = [_compute("a", 0, 1.0), _compute("b", 1, 1.0), _send("all", (0, 1), 10.0, (0, 1))]
    assert _ends(tasks)[-1] == pytest.approx(2.5)
    assert _ends(tasks, slowdown={1: 3.0})[-1] == pytest.approx(4.5)


class _Counted(tuple):
    """A tuple that counts how often it is read from its beginning."""

    reads = 0

    def __iter__(self):
        self.reads += 1
        return super().__iter__()


def test_the_work_for_a_collective_is_linear_in_its_workers():
    def reads(workers):
        members = _Counted(range(workers))
        ended = [_compute("a", worker, 1.0 + worker) for worker in members]
        members.reads = 0
        both = (COMMUNICATE, COMPUTE)
        _ends([*ended, _send("all", members, 1.0, streams=both)])
        return members.reads

    assert reads(64) == reads(4)


def test_tasks_that_wait_for_each_other_are_an_error():
    tasks = [_compute("a", 0, 1.0, (1,)), _compute("b", 0, 1.0)]
    with pytest.raises(MagmathError, match="'a .forward.' never starts"):
        simulate(tasks, LEVELS)


def test_timelines_as_files():
    tasks = [_compute("a", 0, 2.0), _send("s", (0, 1), 10.0, (0,))]
    timeline = simulate(tasks, LEVELS)
    events = json.loads(perfetto(timeline))["traceEvents"]
    spans = [e for e in events if e["ph"] == "X"]
    assert [(e["pid"], e["tid"], e["ts"], e["dur"]) for e in spans] == [
        (0, 0, 0.0, 2e6), (0, 1, 2e6, 1.5e6), (1, 1, 2e6, 1.5e6),
    ]  # fmt: skip
    assert {e["cat"] for e in spans} == {"forward", "gradient"}
    svg = timeline_svg(timeline)
    assert svg.count("<title>") == 3
    assert timeline.busy_seconds(1, COMMUNICATE) == pytest.approx(1.5)


HOSTS = (Level("host", 4, 100.0, 0.1), Level("switch", 0, 10.0, 1.0))
"""Hosts of four workers: a worker's link passes 100 bytes/s, that of a host 10 bytes/s."""


def _collective(kind, group, workers, nbytes, after=(), streams=(COMMUNICATE,)):
    """Return a collective of some workers as a task on the ports of their units."""
    cost = fastest(HOSTS, kind, nbytes, group)
    ports = {0: list(workers), 1: sorted({worker // 4 for worker in workers})}
    stages = on_ports(cost.algorithm.stages_for(nbytes), ports, {})
    task = SimulatedTask(f"{kind} (gradient)", tuple(workers), streams, 0.0, stages, after)
    return task, cost.seconds(nbytes)


@pytest.mark.parametrize(
    ("kind", "seconds"),
    [
        # Half of the bytes enters a host, 50 / 10 s after 1 s; then three quarters pass the link of
        # a worker, 75 / 100 s after two steps of 0.1 s. A ring takes 7 · 1 + 87.5 / 10 s.
        ("allgather", 1 + 5 + 0.2 + 0.75),
        ("allreduce", 2 * (1 + 5 + 0.2 + 0.75)),
    ],
)
def test_a_collective_passes_the_levels_one_after_the_other(kind, seconds):
    task, predicted = _collective(kind, Group(8, 1, 8), range(8), 100.0)
    assert predicted == pytest.approx(seconds)
    assert simulate([task], HOSTS).seconds == pytest.approx(seconds)


def test_concurrent_groups_share_the_ports_of_their_hosts():
    group = Group(2, 4, 8)  # workers 0 and 4, 1 and 5, 2 and 6, 3 and 7
    made = [_collective("allgather", group, (w, w + 4), 100.0) for w in range(4)]
    # Each moves 50 bytes through ports of 10 bytes/s, which the four share.
    assert {predicted for _, predicted in made} == {21.0}
    assert _ends_of([task for task, _ in made]) == pytest.approx([21.0] * 4)
    assert _ends_of([made[0][0]]) == pytest.approx([6.0])  # alone


def _ends_of(tasks):
    return [span.end for span in simulate(tasks, HOSTS).spans]


def test_computation_hides_a_collective_except_its_rest():
    reduction, seconds = _collective("allreduce", Group(8, 1, 8), range(8), 100.0)
    backward = [SimulatedTask("b (backward)", (w,), (COMPUTE,), 10.0) for w in range(8)]
    assert simulate([reduction, *backward], HOSTS).seconds == pytest.approx(seconds)
    waits, _ = _collective(
        "allreduce", Group(8, 1, 8), range(8), 100.0, streams=(COMPUTE, COMMUNICATE)
    )
    assert simulate([waits, *backward], HOSTS).seconds == pytest.approx(seconds + 10.0)


@pytest.mark.parametrize("worker", [-1, 3, 7, 1.5, True, "1", None])
def test_slow_workers_must_exist(worker):
    with pytest.raises(OptionError, match=r"slowdown names workers from 0 to 2, was given"):
        checked_slowdown({worker: 3.0}, 3)


@pytest.mark.parametrize("factor", [0, -3, -1e-9, math.nan, math.inf, "3", None])
def test_factors_must_be_positive_numbers(factor):
    with pytest.raises(OptionError, match="slowdown of worker 1 must be a positive number"):
        checked_slowdown({1: factor}, 3)
    assert checked_slowdown({0: 1, 2: np.float32(0.5)}, 3) == {0: 1.0, 2: 0.5}
    assert checked_slowdown(None, 3) == {}
