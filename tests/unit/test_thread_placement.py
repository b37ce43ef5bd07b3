"""Threads of libraries on processors of their own after a pause, with a clock that the test sets."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from magmath.core.thread_placement import (
    BOUND_SECONDS,
    PAUSE_SECONDS,
    ThreadPlacement,
    library_threads,
)

PROCESSORS = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
pytestmark = pytest.mark.skipif(
    not 2 <= len(PROCESSORS) <= 16, reason="needs Linux and 2 to 16 processors"
)


class Machine:
    """Two threads of a library, a clock, and the processor of the thread that calls them."""

    def __init__(self) -> None:
        self.now, self.caller, self.count = 100.0, PROCESSORS[0], len(PROCESSORS)
        self._end = threading.Event()
        threads = [threading.Thread(target=self._end.wait) for _ in range(2)]
        for thread in threads:
            thread.start()
        self.threads = [thread.native_id for thread in threads if thread.native_id is not None]
        self.placement = ThreadPlacement(
            lambda: self.now, lambda: self.caller, lambda: self.threads
        )

    def run(self, seconds: float = 0.0) -> list[set[int]]:
        """Run kernels for a while; return the processors of the threads meanwhile."""
        self.placement.begin_run(self.count)
        processors = [os.sched_getaffinity(thread) for thread in self.threads]
        self.now += seconds
        self.placement.end_run()
        return processors

    def close(self) -> None:
        self.placement.release()
        self._end.set()


@pytest.fixture
def machine() -> Iterator[Machine]:
    machine = Machine()
    yield machine
    machine.close()


def test_threads_are_bound_to_other_processors_than_the_caller(machine: Machine) -> None:
    assert all(processors <= set(PROCESSORS[1:]) for processors in machine.run())
    assert os.sched_getaffinity(0) == set(PROCESSORS)


def test_nothing_is_bound_while_processors_remain_free(machine: Machine) -> None:
    machine.count = len(PROCESSORS) - 1
    assert machine.run() == [set(PROCESSORS)] * 2
    placement = ThreadPlacement()
    placement.begin_worker_run(0, len(PROCESSORS) - 1)
    assert os.sched_getaffinity(0) == set(PROCESSORS)


def test_threads_follow_the_caller(machine: Machine) -> None:
    for caller in (*PROCESSORS, PROCESSORS[0]):
        machine.caller = caller
        first, second = machine.run()
        assert caller not in first | second
        assert len(first) == len(second) == 1
        assert len(PROCESSORS) == 2 or first != second


def test_threads_are_released_after_some_time(machine: Machine) -> None:
    for _ in range(2):
        machine.run()
        for _ in range(10):
            machine.run(BOUND_SECONDS / 5)
        assert machine.run() == [set(PROCESSORS)] * 2
        machine.now += 2 * PAUSE_SECONDS


def test_threads_have_the_processors_from_before_again(machine: Machine) -> None:
    os.sched_setaffinity(machine.threads[0], {PROCESSORS[0]})
    machine.run()
    machine.placement.release()
    first, second = (os.sched_getaffinity(thread) for thread in machine.threads)
    assert (first, second) == ({PROCESSORS[0]}, set(PROCESSORS))


def test_threads_that_have_ended_are_ignored(machine: Machine) -> None:
    machine.threads.append(2**22 + 1)  # more than any thread's number
    machine.placement.begin_run(machine.count)
    machine.placement.release()


def test_threads_that_the_user_has_bound_meanwhile_stay_bound(machine: Machine) -> None:
    first, second = machine.threads
    machine.run()
    (processor,) = os.sched_getaffinity(first)
    (other,) = PROCESSORS[:1] if processor != PROCESSORS[0] else PROCESSORS[1:2]
    os.sched_setaffinity(first, {other})
    machine.placement.release()
    assert os.sched_getaffinity(first) == {other}
    assert os.sched_getaffinity(second) == set(PROCESSORS)


@pytest.mark.parametrize("begin", ["begin_run", "begin_unplaced_run"])
def test_nothing_is_bound_while_another_thread_computes(machine: Machine, begin: str) -> None:
    machine.run()
    has_begun, may_end = threading.Event(), threading.Event()

    def compute() -> None:
        getattr(machine.placement, begin)(*[machine.count] * (begin == "begin_run"))
        has_begun.set()
        may_end.wait()
        machine.placement.end_run()

    other = threading.Thread(target=compute)
    other.start()
    has_begun.wait()
    machine.now += 2 * PAUSE_SECONDS
    assert machine.run() == [set(PROCESSORS)] * 2
    may_end.set()
    other.join()
    machine.now += 2 * PAUSE_SECONDS
    assert all(len(processors) == 1 for processors in machine.run())


def test_a_run_within_a_run_of_the_same_thread(machine: Machine) -> None:
    machine.placement.begin_run(machine.count)
    assert all(len(processors) == 1 for processors in machine.run())
    machine.placement.end_run()
    machine.now += 2 * PAUSE_SECONDS
    assert all(len(processors) == 1 for processors in machine.run())


def test_threads_that_cannot_be_listed_are_not_bound() -> None:
    """As when too many files are open."""

    def fail() -> list[int]:
        raise OSError("too many open files")

    placement = ThreadPlacement(processor=lambda: PROCESSORS[0], find_threads=fail)
    placement.begin_run(len(PROCESSORS))
    placement.end_run()


def test_the_thread_of_a_worker_is_bound_and_released() -> None:
    now = 100.0
    placement = ThreadPlacement(lambda: now)
    try:
        for release in (placement.release_caller, placement.release):
            placement.begin_worker_run(1, len(PROCESSORS))
            assert os.sched_getaffinity(0) == {PROCESSORS[1]}
            release()
            assert os.sched_getaffinity(0) == set(PROCESSORS)
            placement.end_run()
        placement.begin_worker_run(1, len(PROCESSORS))
        now += BOUND_SECONDS
        placement.end_run()
        placement.begin_worker_run(1, len(PROCESSORS))
        assert os.sched_getaffinity(0) == set(PROCESSORS)
    finally:
        placement.release()


def test_threads_of_python_are_not_those_of_libraries() -> None:
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    assert not {thread.native_id, threading.get_native_id()} & {*(library_threads() or [])}
    end.set()


SCRIPT = """\
import os, time
import numpy as np
import magmath as mm
from magmath.core.thread_placement import library_threads

def affinities(pid):
    return [os.sched_getaffinity(int(t)) for t in os.listdir(f"/proc/{pid}/task")]

def check(pids):
    for pid in pids:
        for affinity in affinities(pid):
            assert affinity == allowed, (pid, affinity)

def children(pid):
    text = "".join(open(f"/proc/{pid}/task/{t}/children").read()
                   for t in os.listdir(f"/proc/{pid}/task"))
    return [int(child) for child in text.split()]

allowed = os.sched_getaffinity(0)
engine = mm.init(WORKERS, device="cpu")
x = mm.asarray(np.random.default_rng(0).standard_normal((600, 600)))
for _ in range(3):
    for _ in range(40):
        y = mm.tanh(x @ x) + mm.sum(x * 2, axis=0)
        np.asarray(y)
        assert os.sched_getaffinity(0) == allowed
    np.linalg.inv(np.asarray(y))
    for child in children(os.getpid()):  # a process that compiles, or the launcher of workers
        assert os.sched_getaffinity(child) == allowed
    time.sleep(0.05)
if WORKERS:
    for wait in (True, False, False):
        split = x * np.random.random()
        mm.evaluate(split)
        split.replicate(wait=wait)
        time.sleep(0.05)
workers = {int(counters["pid"]) for counters in engine.pool.stats()} - {os.getpid()}
check(workers)  # the command has released them
check(child for worker in workers for child in children(worker))
assert library_threads()
mm.shutdown()
check([os.getpid()])
"""


@pytest.mark.skipif(
    any(name in os.environ for name in ("OMP_PROC_BIND", "GOMP_CPU_AFFINITY")),
    reason="the environment binds threads",
)
@pytest.mark.parametrize("workers", [0, 2])
def test_programs_leave_no_thread_bound(workers: int) -> None:
    """Nor a process that a program has started."""
    script = SCRIPT.replace("WORKERS", str(workers))
    subprocess.run([sys.executable, "-c", script], check=True, timeout=300)
