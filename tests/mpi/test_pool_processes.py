"""Pools of processes under mpiexec: start, work, failure, and that nothing remains."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import zmq
from hypothesis import given, settings
from hypothesis import strategies as st

import magmath as mm
from layouts import layouts, meshes, shapes
from magmath.core.dtypes import DTYPES
from magmath.errors import DeviceError, WorkerLost
from magmath.layout import Layout
from magmath.memory.torch_dtypes import to_torch
from magmath.runtime import Pool, PoolOptions, start_pool
from magmath.runtime.launch import worker_environment
from magmath.runtime.messages import Done, encode
from magmath.runtime.transport.processes import ProcessTransport
from magmath.runtime.transport_interface import WorkerOptions
from pool_fakes import fake_program
from processes import eventually, is_gone, parent_of

HERE = Path(__file__).parent
FAKE_WORKER = [sys.executable, str(HERE / "fake_worker.py")]


def open_pool(workers: int, **options: Any) -> Pool:
    """A pool of worker processes that run fake programs."""
    options.setdefault("worker_command", FAKE_WORKER)
    return Pool(ProcessTransport(workers, WorkerOptions("cpu", 1), **options))


@pytest.fixture
def pool() -> Iterator[Pool]:
    pool = open_pool(2)
    yield pool
    pool.close()


@pytest.fixture(scope="module")
def kept_pool() -> Iterator[Pool]:
    """A pool for the tests that leave it whole."""
    pool = open_pool(3)
    yield pool
    pool.close()


def put_ones(pool: Pool) -> int:
    return pool.put(torch.ones(6), Layout.even((6,), pool.mesh, 0))


def pids_of(pool: Pool) -> list[int]:
    return [int(counters["pid"]) for counters in pool.stats()]


def check_works(pool: Pool) -> None:
    program = pool.define(fake_program("count", pool.workers))
    run = pool.run(program, [put_ones(pool)], steps=2)
    assert run.values() == [1.0, 2.0]
    assert torch.equal(pool.get(run.outputs[0]), torch.full((6,), 3.0))


# Work.


def test_a_pool_starts_works_and_ends(no_leftovers: None) -> None:
    pool = open_pool(2)
    assert (pool.workers, pool.mesh.size, pool.closed) == (2, 2, False)
    assert pool.topology.hosts == (0, 0)
    assert pool.topology.shares_memory
    assert (pool.topology.threads, pool.topology.device) == (1, "cpu")
    pids = pids_of(pool)
    check_works(pool)
    pool.close()
    assert pool.closed
    assert all(is_gone(pid) for pid in pids)
    with pytest.raises(WorkerLost, match="closed"):
        pool.stats()


@settings(max_examples=50)
@given(data=st.data())
def test_any_array_in_any_layout_comes_back(data: st.DataObject, kept_pool: Pool) -> None:
    shape = data.draw(shapes)
    mesh = data.draw(meshes(kept_pool.workers))
    layout = data.draw(layouts(shape, mesh).filter(lambda layout: not layout.is_partial))
    dtype = to_torch(DTYPES[data.draw(st.sampled_from(sorted(DTYPES)))])
    tensor = torch.randint(0, 2, shape).to(dtype)
    array = kept_pool.put(tensor, layout)
    assert torch.equal(kept_pool.get(array), tensor)
    kept_pool.release(array)
    assert {counters["arrays"] for counters in kept_pool.stats()} == {0}


def test_large_arrays_come_back(kept_pool: Pool) -> None:
    tensor = torch.arange(10**7, dtype=torch.int32).view(1000, -1)
    for layout in (
        Layout.even(tensor.shape, kept_pool.mesh, 0),
        Layout.even(tensor.shape, kept_pool.mesh, 1),
        Layout.replicated_on(tensor.shape, kept_pool.mesh, shared=True),
    ):
        array = kept_pool.put(tensor, layout)
        assert torch.equal(kept_pool.get(array), tensor)
        kept_pool.release(array)


def test_runs_are_sent_ahead_and_waited_for_once(kept_pool: Pool) -> None:
    program = kept_pool.define(fake_program("count", 3, donate=True))
    array = put_ones(kept_pool)
    sent = kept_pool.traffic.messages
    for _ in range(600):
        array = kept_pool.run(program, [array]).outputs[0]
    assert kept_pool.traffic.messages - sent == 600
    assert torch.equal(kept_pool.get(array), torch.full((6,), 601.0))


def test_progress_arrives_while_the_run_goes_on(kept_pool: Pool) -> None:
    program = kept_pool.define(fake_program("count", 3))
    seen: list[int] = []
    run = kept_pool.run(
        program, [put_ones(kept_pool)], steps=5, progress=lambda steps, values: seen.append(steps)
    )
    run.values()
    assert seen == [1, 2, 3, 4, 5]


def test_an_exception_arrives_as_itself_and_the_pool_goes_on(kept_pool: Pool) -> None:
    program = kept_pool.define(fake_program("fail", 3))
    with pytest.raises(ValueError, match=r"this operation fails \[worker 0 on .+, script.py:7\]"):
        kept_pool.run(program, [put_ones(kept_pool)], wait=True)
    check_works(kept_pool)


# Workers that fail.


def test_one_worker_that_fails_alone_closes_the_pool(pool: Pool, no_leftovers: None) -> None:
    pids = pids_of(pool)
    program = pool.define(fake_program("fail_and_wait", 2, ranks=[1]))
    with pytest.raises(ValueError, match=r"this operation fails \[worker 1 on") as caught:
        pool.run(program, [put_ones(pool)], wait=True)
    assert "the pool is closed" in caught.value.__notes__[-1]
    assert pool.closed
    assert all(is_gone(pid) for pid in pids)


@pytest.mark.parametrize(("workers", "rank", "busy"), [(2, 0, True), (3, 1, False)])
def test_a_killed_worker_is_lost_within_seconds(
    no_leftovers: None, workers: int, rank: int, busy: bool
) -> None:
    pool = open_pool(workers)
    array, pids = put_ones(pool), pids_of(pool)
    program = pool.define(fake_program("sleep", workers, seconds=0.01))
    run = pool.run(program, [array], steps=10**6) if busy else None
    os.kill(pids[rank], signal.SIGKILL)
    start = time.monotonic()
    said = rf"worker {rank} on .+ \(process {pids[rank]}\).+Killed"
    with pytest.raises(WorkerLost, match=said) as caught:
        run.values() if run else pool.get(array)
    assert not hasattr(caught.value, "__notes__"), "the workers have said nothing"
    assert time.monotonic() - start < 30
    assert pool.closed
    assert all(is_gone(pid) for pid in pids)
    with pytest.raises(WorkerLost, match="start a new one"):
        pool.get(array)


def test_a_worker_that_computes_is_not_taken_for_lost() -> None:
    pool = open_pool(2, heartbeat_timeout=0.5, endpoint="tcp://127.0.0.1")
    program = pool.define(fake_program("sleep", 2, seconds=2.0))
    assert pool.run(program, [put_ones(pool)]).values() == [1.0]
    pool.close()


def test_a_worker_that_is_stuck_in_a_run_is_lost(
    monkeypatch: pytest.MonkeyPatch, no_leftovers: None
) -> None:
    monkeypatch.setenv("STUCK_SECONDS", "2")
    pool = open_pool(2)
    pids = pids_of(pool)
    program = pool.define(fake_program("sleep", 2, seconds=600.0, ranks=[1]))
    run = pool.run(program, [put_ones(pool)], steps=2)  # worker 0 waits for worker 1
    with pytest.raises(WorkerLost, match=r"worker 1 on .+ no processor time for 2 s") as caught:
        run.values()
    assert "in _misbehave" in caught.value.__notes__[0]
    assert all(is_gone(pid) for pid in pids)


def poll_until_lost(pool: Pool) -> None:
    for _ in range(500):
        pool.stats()
        time.sleep(0.02)


def test_a_launcher_that_ends_is_a_lost_pool(no_leftovers: None) -> None:
    pool = open_pool(2)
    pids = pids_of(pool)
    os.kill(parent_of(parent_of(pids[0])), signal.SIGTERM)  # between them is MPICH's proxy
    with pytest.raises(WorkerLost):
        poll_until_lost(pool)
    assert all(is_gone(pid) for pid in pids)


# Ctrl-C, and scripts that die.


def test_ctrl_c_stops_a_long_run_and_the_pool_goes_on(kept_pool: Pool) -> None:
    pool = kept_pool
    program = pool.define(fake_program("sleep", pool.workers, seconds=0.01))
    run = pool.run(program, [put_ones(pool)], steps=10**6)
    key = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    key.start()
    with pytest.raises(KeyboardInterrupt):
        run.values()
    key.join()
    assert 0 < run.steps < 10**6
    assert torch.equal(pool.get(run.outputs[0]), torch.full((6,), 1.0 + run.steps))
    check_works(pool)


@pytest.mark.parametrize("what", ["idle", "busy"])
def test_a_killed_controller_leaves_nothing_behind(no_leftovers: None, what: str) -> None:
    script = start_script(what)
    directory, pids = script_pool(script)
    launchers = [parent_of(pid) for pid in pids]
    time.sleep(0.2)
    script.kill()
    script.communicate()
    assert eventually(lambda: all(is_gone(pid) for pid in pids + launchers))
    assert not Path(directory).exists()


@pytest.mark.parametrize(
    ("what", "code", "said"), [("raise", 1, "the user's mistake"), ("end", 0, "")]
)
def test_a_script_that_ends_takes_its_workers_with_it(
    no_leftovers: None, what: str, code: int, said: str
) -> None:
    script = start_script(what)
    directory, pids = script_pool(script)
    _, errors = script.communicate(timeout=60)
    assert script.returncode == code
    assert said in errors
    assert eventually(lambda: all(is_gone(pid) for pid in pids), 1.0)
    assert not Path(directory).exists()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_of_the_script_leaves_the_workers_alone(kept_pool: Pool) -> None:
    """It cannot reach them, raises an error at once, and ends as without a pool."""
    held = put_ones(kept_pool)
    pid = os.fork()
    if pid == 0:
        try:
            with pytest.raises(WorkerLost, match="this process is a fork"):
                kept_pool.get(held)
            kept_pool.finish()
            kept_pool.close()
            os._exit(0)
        finally:
            os._exit(1)
    assert eventually(lambda: os.waitpid(pid, os.WNOHANG) == (pid, 0))
    check_works(kept_pool)


def test_ctrl_c_in_the_terminal_reaches_the_script_only(no_leftovers: None) -> None:
    script = start_script("busy")
    directory, pids = script_pool(script)
    time.sleep(0.2)
    os.killpg(script.pid, signal.SIGINT)
    _, errors = script.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors
    assert "WorkerLost" not in errors
    assert eventually(lambda: all(is_gone(pid) for pid in pids), 1.0)
    assert not Path(directory).exists()


def start_script(what: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(HERE / "controller_script.py"), what],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def script_pool(script: subprocess.Popen[str]) -> tuple[str, list[int]]:
    """The directory and the processes of the script's pool."""
    assert script.stdout is not None
    directory, *pids = script.stdout.readline().split()
    assert Path(directory).stat().st_mode & 0o777 == 0o700
    return directory, [int(pid) for pid in pids]


# Strangers.


def test_messages_of_strangers_are_dropped(
    kept_pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    pool = kept_pool
    assert isinstance(pool._transport, ProcessTransport)
    context = zmq.Context()
    stranger = context.socket(zmq.DEALER)
    stranger.connect(f"ipc://{pool._transport.directory}/controller")
    for frames in ([b"x"], [os.urandom(1000)] * 5, [encode(Done(10**6))], [b""], [b"", b""]):
        stranger.send_multipart(frames)
    with caplog.at_level(logging.WARNING):
        assert eventually(lambda: len(pool.stats()) == pool.workers and len(caplog.records) >= 5)
    assert all("not from a worker of this pool" in record.message for record in caplog.records)
    check_works(pool)
    stranger.close(linger=0)
    context.term()


def test_tcp_is_encrypted_and_admits_the_pools_workers_only(
    no_leftovers: None, caplog: pytest.LogCaptureFixture
) -> None:
    pool = open_pool(2, endpoint="tcp://127.0.0.1")
    check_works(pool)
    assert isinstance(pool._transport, ProcessTransport)
    address = pool._transport.address
    assert address.startswith("tcp://127.0.0.1:")
    environment = Path(f"/proc/{pids_of(pool)[0]}/environ").read_bytes().split(b"\0")
    (secret,) = [entry for entry in environment if entry.startswith(b"MAGMATH_POOL_SECRET=")]
    server = secret.split()[1]  # a client with the controller's key needs the workers' keys too
    context = zmq.Context()
    strangers = [context.socket(zmq.DEALER) for _ in range(2)]
    for stranger, keys in zip(strangers, (None, zmq.curve_keypair()), strict=True):
        if keys is not None:
            stranger.curve_serverkey = server
            stranger.curve_publickey, stranger.curve_secretkey = keys
        stranger.connect(address)
        stranger.send(b"x")
    with caplog.at_level(logging.WARNING, "magmath"):
        time.sleep(0.5)
        check_works(pool)
    assert not [record for record in caplog.records if "dropped" in record.message]
    pids = pids_of(pool)
    os.kill(pids[1], signal.SIGKILL)
    with pytest.raises(WorkerLost, match="worker 1"):
        pool.stats()
    for stranger in strangers:
        stranger.close(linger=0)
    context.term()


# Starting.


def test_workers_have_the_threads_that_they_are_given_and_wait_as_the_controller_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")
    environment = worker_environment(4, {}, on_this_host=True)
    assert (environment["OMP_NUM_THREADS"], environment["GOMP_SPINCOUNT"]) == ("4", "7")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert "OMP_NUM_THREADS" not in worker_environment(None, {}, on_this_host=True)


def test_workers_of_the_real_program_start_by_default(no_leftovers: None) -> None:
    pool = start_pool(
        PoolOptions(1, device="cpu", deterministic=True, memory_limit=1 << 20, seed=5)
    )
    assert (pool.deterministic, pool.seed) == (True, 5)
    assert torch.equal(pool.get(put_ones(pool)), torch.ones(6))
    with pytest.raises(MemoryError):
        pool.get(pool.put(torch.zeros(1 << 19), Layout.replicated_on((1 << 19,), pool.mesh)))
    pool.close()


def test_transfers_concurrent_with_other_work(no_leftovers: None) -> None:
    """Between processes too: much is done while a copy is under way, and a pool that ends meanwhile
    leaves nothing."""
    with mm.init(2, device="cpu", threads=1) as pool:
        y = mm.asarray(np.ones((64, 64), np.float32), layout=mm.Layout.split(0))
        mm.evaluate(y @ y)
        for seed in range(40):  # how much is done meanwhile is the machine's affair
            x = mm.asarray(np.full((1 << 22,), seed, np.float32), layout=mm.Layout.split(0))
            whole = x.replicate(wait=False)
            for step in range(3):
                mm.evaluate(y @ y + step)
            assert float(whole[seed]) == seed
            if seed and all(counters["overlapped_runs"] for counters in pool.stats()):
                break
        assert all(counters["transfers"] == seed + 1 for counters in pool.stats())
        assert all(counters["overlapped_runs"] for counters in pool.stats())
        whole = (x + 1).replicate(wait=False)
    with pytest.raises(WorkerLost):
        pool.stats()


def test_more_workers_than_processors_are_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0})
    with pytest.warns(RuntimeWarning, match="init: 2 workers share 1 processors") as caught:
        pool = mm.init(2, device="cpu").pool
    assert [warning.filename for warning in caught] == [__file__]
    assert pool.topology.threads == 1
    assert torch.equal(pool.get(put_ones(pool)), torch.ones(6))
    mm.shutdown()


def test_errors_of_starting_workers_keep_their_class(no_leftovers: None) -> None:
    with pytest.raises(DeviceError, match="device must be"):
        Pool(ProcessTransport(2, WorkerOptions("abacus", 1)))
