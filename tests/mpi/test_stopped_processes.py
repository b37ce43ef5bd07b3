"""Workers that a signal or a debugger stops temporarily: they are lost, or the pool waits."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import zmq

from magmath.errors import OptionError, WorkerLost
from magmath.layout import Layout
from magmath.runtime import Pool, PoolOptions, health, start_pool
from magmath.runtime.health import ProcessWatch
from magmath.runtime.transport.processes import ProcessTransport
from magmath.runtime.transport_interface import WorkerOptions
from pool_fakes import fake_program
from processes import eventually, is_gone

FAKE_WORKER = [sys.executable, str(Path(__file__).with_name("fake_worker.py"))]


MARK = "magmath-pool-of-this-test"


def start_sleeper() -> subprocess.Popen[bytes]:
    """Start a process whose command line has MARK."""
    command = [sys.executable, "-c", "import time; time.sleep(600)", MARK]
    sleeper = subprocess.Popen(command)
    assert eventually(lambda: MARK in Path(f"/proc/{sleeper.pid}/cmdline").read_text())
    return sleeper


def open_pool(workers: int, heartbeat_timeout: float | None, **options: Any) -> Pool:
    """A pool of worker processes that run fake programs."""
    options |= {"worker_command": FAKE_WORKER, "heartbeat_timeout": heartbeat_timeout}
    return Pool(ProcessTransport(workers, WorkerOptions("cpu", 1), **options))


def pids_of(pool: Pool) -> list[int]:
    return [int(counters["pid"]) for counters in pool.stats()]


def go_on_later(pids: Sequence[int], seconds: float) -> threading.Timer:
    """Stop processes, and continue them after this time."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    timer = threading.Timer(seconds, lambda: [os.kill(pid, signal.SIGCONT) for pid in pids])
    timer.start()
    return timer


@pytest.mark.parametrize("endpoint", ["ipc", "tcp://127.0.0.1"])
def test_a_stopped_worker_is_lost(no_leftovers: None, endpoint: str) -> None:
    pool = open_pool(2, 0.8, endpoint=endpoint)
    pids = pids_of(pool)
    os.kill(pids[1], signal.SIGSTOP)
    said = "stopped, by a signal or a debugger" if endpoint == "ipc" else "stopped|did not answer"
    with pytest.raises(WorkerLost, match=rf"worker 1 on .+({said})"):
        pool.stats()
    assert all(is_gone(pid) for pid in pids)


@pytest.mark.parametrize(("timeout", "endpoint"), [(60.0, "tcp://127.0.0.1"), (None, "ipc")])
def test_a_stopped_worker_is_waited_for_if_the_user_says_so(
    no_leftovers: None, timeout: float | None, endpoint: str
) -> None:
    pool = open_pool(2, timeout, endpoint=endpoint)
    program = pool.define(fake_program("sleep", 2, seconds=0.01))
    array = pool.put(torch.ones(6), Layout.even((6,), pool.mesh, 0))
    pids = pids_of(pool)
    for stopped in ([pids[1]], pids):
        timer = go_on_later(stopped, 1.0)
        assert pool.run(program, [array], steps=5).values() == [1.0, 2.0, 3.0, 4.0, 5.0]
        timer.join()
    pool.close()


def test_a_worker_that_waits_in_compiled_code_for_a_stopped_one_is_not_stuck(
    no_leftovers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There it sleeps almost without use of the processor."""
    monkeypatch.setenv("STUCK_SECONDS", "1")
    pool = open_pool(2, 60.0)
    array = pool.put(torch.ones(6), Layout.even((6,), pool.mesh, 0))
    for wait in ("wait", "wait_for_counter", "wait_in_duplicate"):
        program = pool.define(fake_program(wait, 2))
        timer = go_on_later(pids_of(pool)[1:], 3.0)
        assert pool.run(program, [array], steps=3).values() == [1.0, 2.0, 3.0], wait
        timer.join()
    pool.close()


def test_a_worker_that_waits_for_a_disk_is_not_stuck(
    no_leftovers: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nor is one whose memory is read from a slow file system, or was swapped out."""
    monkeypatch.setenv("STUCK_SECONDS", "1")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    pool = open_pool(1, 60.0)
    array = pool.put(torch.ones(6), Layout.even((6,), pool.mesh, 0))
    timer = threading.Timer(2.5, lambda: pipe.open("w").close())
    timer.start()
    assert pool.run(pool.define(fake_program("stall", 1, pipe=str(pipe))), [array]).values() == [
        1.0
    ]
    timer.join()
    pool.close()


SCRIPT = """\
import sys, time
import magmath as mm
pool = mm.init(2, device="cpu", heartbeat_timeout=1.0).pool
print(*[counters["pid"] for counters in pool.stats()], flush=True)
for line in sys.stdin:
    begun = time.monotonic()
    while time.monotonic() < begun + float(line):
        pool.stats()
    print("done", flush=True)
"""


def test_a_controller_stopped_with_its_workers_continues(no_leftovers: None) -> None:
    """The time for which the controller itself was stopped does not count for its workers."""
    script = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert script.stdin is not None
    assert script.stdout is not None
    pids = [int(pid) for pid in script.stdout.readline().split()]
    for order in ([*pids, script.pid], [script.pid, *pids]):
        script.stdin.write("2.0\n")
        script.stdin.flush()
        time.sleep(0.5)
        timer = go_on_later(order, 2.5)
        assert script.stdout.readline() == "done\n"
        timer.join()
    script.communicate(timeout=60)
    assert script.returncode == 0
    assert eventually(lambda: all(is_gone(pid) for pid in pids))


def test_a_stopped_time_is_counted_while_it_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("magmath.runtime.health.time.monotonic", lambda: clock[0])
    sleeper = start_sleeper()
    os.kill(sleeper.pid, signal.SIGSTOP)
    watched = ProcessWatch(5.0)
    watched.add(3, sleeper.pid, MARK)

    def looks(*times: float) -> list[int | None]:
        result = []
        for clock[0] in times:
            result.append(watched.stopped())
        return result

    assert eventually(lambda: " T " in Path(f"/proc/{sleeper.pid}/stat").read_text())
    assert looks(0.5, 1.0, 2.0) == [None] * 3
    assert looks(1000.0) == [None], "this process was stopped too"
    assert looks(1001.0) == [3]
    os.kill(sleeper.pid, signal.SIGCONT)
    assert eventually(lambda: " T " not in Path(f"/proc/{sleeper.pid}/stat").read_text())
    assert looks(1002.0, 1003.0) == [None, None]
    sleeper.kill()
    sleeper.wait()
    watched.end()


def test_a_process_is_watched_by_a_large_number_of_its_file() -> None:
    """As that of a process with many open files."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 2048), limits[1]))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    sleeper = start_sleeper()
    try:
        watched = ProcessWatch(5.0)
        watched.add(0, sleeper.pid, MARK)
        watched.end()
        assert sleeper.wait(timeout=10) == -signal.SIGKILL
    finally:
        sleeper.kill()
        sleeper.wait()
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_process_of_the_same_number_is_not_taken_for_a_worker() -> None:
    """A worker in a container counts processes of its own, so its number is here another's."""
    sleeper = start_sleeper()
    files = len(os.listdir("/proc/self/fd"))
    watched = ProcessWatch(5.0)
    try:
        watched.add(0, sleeper.pid, "magmath-pool-of-another-test")
        watched.end()
        assert sleeper.poll() is None
        assert not watched.pids
        assert len(os.listdir("/proc/self/fd")) == files
    finally:
        sleeper.kill()
        sleeper.wait()


def test_a_process_that_the_kernel_does_not_end_is_left(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As one that waits for a file system whose server is gone."""
    monkeypatch.setattr(health, "_END_SECONDS", 0.05)
    monkeypatch.setattr(health, "_KILL_SECONDS", 0.05)
    monkeypatch.setattr("signal.pidfd_send_signal", lambda *arguments: None)
    sleeper = start_sleeper()
    watched = ProcessWatch(5.0)
    try:
        watched.add(0, sleeper.pid, MARK)
        watched.end()
        assert "1 of 1 workers of this host were killed and have not ended" in caplog.text
    finally:
        sleeper.kill()
        sleeper.wait()


@pytest.mark.parametrize("timeout", [1e-6, 0.001, 0.8, 5.0])
def test_heartbeats_are_sent_for_any_timeout(timeout: float) -> None:
    context = zmq.Context()
    with context.socket(zmq.ROUTER) as endpoint:
        health.expect_heartbeats(endpoint, timeout)
        assert endpoint.getsockopt(zmq.HEARTBEAT_IVL) != 0, "none are sent"
        assert endpoint.getsockopt(zmq.HEARTBEAT_TIMEOUT) != 0
    context.term()


@pytest.mark.parametrize("timeout", [0, -1.0, float("inf"), float("nan"), "5", True])
def test_a_timeout_is_a_positive_number_or_none(timeout: Any) -> None:
    with pytest.raises(OptionError, match="heartbeat_timeout must be a positive number"):
        start_pool(PoolOptions(0, heartbeat_timeout=timeout))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("limit", [0, -5, 1.5e9, "1GB"])
def test_a_memory_limit_is_a_positive_number_of_bytes(workers: int, limit: Any) -> None:
    with pytest.raises(OptionError, match="memory_limit, in bytes, must be an integer of at least"):
        start_pool(PoolOptions(workers, memory_limit=limit))
