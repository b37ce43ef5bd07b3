"""The number of threads on a machine that others use, with a clock and waits that the test sets."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import count, pairwise
from typing import Any

import pytest
import torch

import magmath as mm
from engines import current
from magmath.executor.bind import Binding
from magmath.kernels import free_processors
from magmath.kernels.free_processors import RETRY_SECONDS, FreeProcessors, Waits, waited_seconds
from magmath.kernels.thread_count import limit_running


class Machine:
    """A machine with some processors, of which other processes use some.

    `threads` is the setting of torch, `used` the number of threads of the last run.
    """

    def __init__(self, threads: int) -> None:
        self.now = self.waited = 0.0
        self.threads = self.used = self.free = threads
        self.tried: list[float] = []
        self.processors = FreeProcessors(
            lambda: self.waited, lambda: self.now, lambda: self.threads, self.limit, self.set_count
        )

    def limit(self, count: int) -> None:
        if count > self.threads:
            self.tried.append(self.now)
        self.threads = count

    def set_count(self, count: int) -> None:
        self.threads = count

    def compute(self, seconds: float) -> None:
        """Compute for a while; threads beyond the free processors wait. After each run the setting
        is that of the user."""
        for _ in range(round(seconds / 0.01)):
            setting = self.threads
            self.processors.begin_run()
            self.now += 0.01
            self.waited += 0.01 * max(0, self.threads - self.free)
            self.processors.adapt()
            self.used = self.threads
            self.processors.end_run()
            assert self.threads == setting


@pytest.fixture(autouse=True)
def checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_processors, "CHECK_SECONDS", 0.05)


def test_a_quiet_machine_is_used_whole() -> None:
    machine = Machine(4)
    machine.compute(20)
    assert machine.used == 4
    assert machine.tried == []


@pytest.mark.parametrize(("threads", "free"), [(2, 1), (2, 0), (8, 7), (8, 3)])
def test_as_many_threads_as_processors_are_free(threads: int, free: int) -> None:
    machine = Machine(threads)
    machine.free = free
    machine.compute(0.2)
    assert machine.used == max(free, 1)


@pytest.mark.parametrize(("threads", "share", "fewer"), [(2, 0.25, 0), (2, 0.4, 1), (16, 0.25, 1)])
def test_a_thread_is_given_up_if_it_costs_less_than_the_waits(
    threads: int, share: float, fewer: int
) -> None:
    """Two threads of one process that wait for each other a quarter of the time are faster than
    one."""
    machine = Machine(threads)
    for _ in range(8):
        machine.now += 0.01
        machine.waited += 0.01 * share
        machine.processors.adapt()
    assert machine.threads == threads - fewer


def test_all_threads_are_tried_ever_more_seldom() -> None:
    machine = Machine(2)
    machine.free = 1
    machine.compute(100)
    gaps = [b - a for a, b in pairwise(machine.tried)]
    assert all(later > earlier - 0.1 for earlier, later in pairwise(gaps))
    assert gaps[-1] == pytest.approx(RETRY_SECONDS[1], abs=0.3)
    assert len(machine.tried) < 20


def test_a_machine_that_is_free_again_is_used_whole() -> None:
    machine = Machine(2)
    machine.free = 1
    machine.compute(30)
    machine.free = 2
    machine.compute(RETRY_SECONDS[1] + 1)
    assert machine.used == 2
    machine.free = 1
    machine.compute(1)
    assert machine.used == 1


def test_a_number_that_the_user_sets_is_kept() -> None:
    machine = Machine(4)
    machine.compute(1)
    machine.threads = 1
    machine.compute(20)
    assert machine.threads == 1
    machine.threads = 3
    machine.compute(20)
    assert machine.threads == machine.used == 3


def test_a_number_that_the_user_sets_while_fewer_threads_compute() -> None:
    machine = Machine(4)
    machine.free = 1
    machine.compute(1)
    machine.threads = 3
    machine.compute(1)
    assert machine.used == 1
    machine.free = 4
    machine.compute(30)
    assert machine.threads == machine.used == 3


def test_waits_are_counted_and_never_decrease() -> None:
    before = waited_seconds()
    sum(range(100_000))
    assert waited_seconds() >= before >= 0


def test_computations_leave_torch_its_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """While fewer threads compute, torch has the user's number before and after each call."""
    former = torch.get_num_threads()
    monkeypatch.setattr(free_processors, "CHECK_SECONDS", 0.0)
    monkeypatch.setattr(free_processors, "has_limited", False)
    computing = []
    record = Binding.run_once

    def run_once(binding: Any, calls: Any) -> Any:
        computing.append(torch.get_num_threads())
        return record(binding, calls)

    monkeypatch.setattr(Binding, "run_once", run_once)
    with current("inline"):
        x = mm.ones((500, 500))
        step = mm.compile(lambda x: mm.sum(mm.tanh(x @ x)))
        try:
            torch.set_num_threads(2)
            waits = count(step=1000.0)
            adapter = FreeProcessors(lambda: next(waits))
            monkeypatch.setattr(free_processors._of_thread, "adapter", adapter, raising=False)
            for _ in range(8):
                step(x).numpy()
                assert torch.get_num_threads() == 2
            assert computing[-1] == 1
        finally:
            limit_running(former)


REDUCED = """
from itertools import count
import magmath as mm
from threadpoolctl import threadpool_info
from magmath.kernels import free_processors
from magmath.kernels.free_processors import FreeProcessors
from magmath.kernels.scipy_openblas import load_blas_of_scipy

def numbers():
    libraries = sorted((x["filepath"], x["num_threads"]) for x in threadpool_info())
    return [count for path, count in libraries if "openblas" in path]

load_blas_of_scipy()
before = numbers()
waits = count(step=1000.0)
free_processors.CHECK_SECONDS = 0.0
for _ in range(2):
    mm.init(device="cpu")
    free_processors._of_thread.adapter = FreeProcessors(lambda: next(waits), count=lambda: 2)
    x = mm.ones((500, 500))
    for _ in range(4):
        mm.evaluate(mm.sum(mm.tanh(x @ x)))
    assert set(numbers()) == {1}
    with mm.init(2, device="cpu", launcher="threads", threads=1):
        pass
    mm.shutdown()
    assert numbers() == before, (numbers(), before)
print("as before")
"""


def test_the_end_of_a_pool_restores_the_threads_of_every_blas() -> None:
    done = subprocess.run(
        [sys.executable, "-c", REDUCED], env=os.environ | {"OPENBLAS_NUM_THREADS": "3"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == "as before", done.stderr


@pytest.mark.parametrize(("waited", "many"), [(0.0, False), (2.0, False), (4.0, True)])
def test_waits_are_many_if_threads_wait_for_a_third_of_the_time(
    monkeypatch: pytest.MonkeyPatch, waited: float, many: bool
) -> None:
    clock = {"now": 5.0, "waited": 7.0}
    monkeypatch.setattr(free_processors, "CHECK_SECONDS", 0.05)
    monkeypatch.setattr(free_processors, "monotonic", lambda: clock["now"])
    monkeypatch.setattr(free_processors, "waited_seconds", lambda: clock["waited"])
    waits = Waits()
    clock["now"] += 10.0
    clock["waited"] += waited
    assert waits.has_contention(2) is many
