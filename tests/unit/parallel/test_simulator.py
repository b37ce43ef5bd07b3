"""The simulator: streams, dependencies, shared ports, slow workers."""

import json

import pytest

from magmath.cost import Level
from magmath.errors import MagmathError
from magmath.parallel.simulator import Task, perfetto, simulate, timeline_svg
from magmath.parallel.simulator.events import COMMUNICATE, COMPUTE, PortStage

LEVELS = (Level("host", 0, 10.0, 0.5),)


def _compute(name, worker, seconds, after=()):
    return Task(f"{name} (forward)", (worker,), (COMPUTE,), seconds, (), after)


def _send(name, workers, nbytes, after=(), streams=(COMMUNICATE,), port=0):
    stage = PortStage(0.5, (((0, port), nbytes),))
    return Task(f"{name} (gradient)", workers, streams, 0.0, (stage,), after)


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
