"""Too large programs are rejected before they run, and errors name a worker that was killed for
memory."""

from __future__ import annotations

import os
import signal
import socket
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import magmath as mm
from magmath.core import resources
from magmath.engine import session
from magmath.errors import MemoryLimitError, WorkerLost
from magmath.runtime import Pool
from magmath.runtime.out_of_memory import OutOfMemoryWatch, is_sigkill

N = 1_000_000  # an array of N² elements fits no machine


@pytest.fixture(
    scope="module",
    params=[(0, "mpiexec"), (2, "mpiexec"), (4, "threads")],
    ids=lambda pool: f"{pool[0]}-{pool[1]}",
)
def pool(request: pytest.FixtureRequest) -> Iterator[Pool]:
    workers, launcher = request.param
    with warnings.catch_warnings():  # more workers than processors
        warnings.simplefilter("ignore", RuntimeWarning)
        started = mm.init(workers, device="cpu", launcher=launcher)
    yield started.pool
    mm.shutdown()


def test_a_default_limit_is_the_worker_s_share(pool: Pool) -> None:
    assert pool.memory_limit is None
    assert pool.memory_bound == pytest.approx(resources.memory_share(pool.workers), rel=0.01)


def test_refused_at_the_user_s_line_and_nothing_is_lost(pool: Pool) -> None:
    kept = mm.arange(1000) * 2
    mm.evaluate(kept)
    for wrong in (lambda: mm.ones((N, N)) + 1, lambda: mm.random.uniform(shape=(N, N))):
        line = wrong.__code__.co_firstlineno
        with pytest.raises(MemoryLimitError, match="the limit is .*memory_limit") as caught:
            _computed(wrong)
        said = str(caught.value) + "".join(getattr(caught.value, "__notes__", ()))
        assert f"test_memory_bounds.py:{line}" in said
        assert int(mm.sum(kept)) == 999_000
    assert float(mm.sum(mm.ones((30, 30)) @ mm.ones((30, 30)))) == 27_000


def test_a_given_limit_replaces_the_share() -> None:
    with mm.init(memory_limit=1 << 22) as pool:
        assert (pool.memory_limit, pool.memory_bound) == (1 << 22, 1 << 22)


def _computed(make: Callable[[], mm.Array]) -> None:
    """Compute an array, and wait for it."""
    mm.evaluate(make())
    session.engine().runs.wait()


# OOM kills.


def counters(root: Path, group: int, machine: int, log: str = "") -> None:
    """Write files as the kernel does, below this root."""
    files = {
        "proc/self/cgroup": "0::/\n",
        "proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
        "proc/vmstat": f"pgfault 1\noom_kill {machine}\n",
        "sys/fs/cgroup/memory.events": f"oom 1\noom_kill {group}\n",
        "dev/kmsg": log,
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_evidence_of_an_oom_kill(tmp_path: Path) -> None:
    counters(
        tmp_path, group=3, machine=5, log="6,1,1,-;Out of memory: Killed process 77 (python)\n"
    )
    watch = OutOfMemoryWatch(tmp_path)
    assert watch.evidence([77]) is None, "what was there before is no evidence"
    counters(tmp_path, group=3, machine=6)
    assert "the machine ran out of memory" in (watch.evidence([77]) or "")
    counters(tmp_path, group=4, machine=6)
    assert "its control group ran out of memory" in (watch.evidence([77]) or "")
    counters(tmp_path, 4, 6, "6,1,2,-;Memory cgroup out of memory: Killed process 78 (python)\n")
    assert "killed process 78" in (watch.evidence([77, 78]) or "")
    assert "killed a process" in (watch.evidence([77]) or "")


def test_no_evidence_without_counters(tmp_path: Path) -> None:
    assert OutOfMemoryWatch(tmp_path).evidence([1]) is None


def test_messages_of_launchers_after_a_kill() -> None:
    for cause in ("Killed (signal 9)", "exited on signal 9 (Killed)", "error: task 1: Killed"):
        assert is_sigkill(cause)
    assert not is_sigkill("Segmentation fault (signal 11)")


@pytest.mark.parametrize("for_memory", [True, False])
def test_a_worker_that_was_killed_for_memory_is_named_as_that(
    monkeypatch: pytest.MonkeyPatch, for_memory: bool
) -> None:
    """The kill is real; the kernel's report of it is simulated."""
    if for_memory:
        monkeypatch.setattr(
            OutOfMemoryWatch, "evidence", lambda self, pids: f"no memory for {sorted(pids)}"
        )
    pool = mm.init(2, device="cpu", threads=1).pool
    x = mm.ones((1000, 1000)) + 1
    mm.evaluate(x)
    pids = [int(counters["pid"]) for counters in pool.stats()]
    os.kill(pids[1], signal.SIGKILL)
    with pytest.raises(WorkerLost) as caught:
        pool.stats()
    said = str(caught.value)
    assert f"worker 1 on {socket.gethostname()} (process {pids[1]})" in said
    for part in (
        f"no memory for {sorted(pids)}",
        "its arrays took 2 MB",
        "MB allowed",
        "memory_limit",
    ):
        assert (part in said) == for_memory, said
    mm.shutdown()
