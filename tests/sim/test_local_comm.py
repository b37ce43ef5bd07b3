"""Communicators whose ranks are threads, with and without shared memory."""

from __future__ import annotations

import ctypes
import os
import resource
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import numpy as np
import pytest
import torch

import comm_bodies
from comm_bodies import Body
from magmath.codegen.aot_cache import AotModule
from magmath.comm import Communicator, LocalGroup, LocalHosts, futex_wait
from magmath.comm.barrier import SpinBarrier
from magmath.comm.barrier_memory import LINE, flags_length, prepare_flags
from magmath.comm.progress_thread import ProgressThread
from magmath.errors import ShapeError, WorkerLost

SIZES = (1, 2, 3, 7)


def on_ranks(size: int, body: Callable[[int], None]) -> None:
    """Run `body(rank)` in a thread for each rank; raises what the first of them raised."""
    with ThreadPoolExecutor(size) as threads:
        futures = [threads.submit(body, rank) for rank in range(size)]
    errors = [error for future in futures if (error := future.exception())]
    # A rank that aborted because another failed is not the one to report.
    for error in sorted(errors, key=lambda error: isinstance(error, WorkerLost)):
        raise error


def run(group: LocalGroup | LocalHosts, body: Body) -> None:
    def rank_body(rank: int) -> None:
        try:
            body(group.communicator(rank))
        except BaseException:
            group.abort()
            raise

    on_ranks(group.size, rank_body)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("shares_memory", "body"),
    [(shares, body) for shares in (True, False) for body in comm_bodies.bodies(shares)],
    ids=lambda value: value.__name__ if callable(value) else "shared" if value else "messages",
)
def test_communicator_body_on_threads(body: Body, shares_memory: bool, size: int) -> None:
    run(LocalGroup(size, shares_memory), body)


HOSTS = ((0, 1, 0, 1, 1), (0, 0, 1, 1, 2))


@pytest.mark.parametrize("hosts", HOSTS, ids=str)
@pytest.mark.parametrize("body", comm_bodies.bodies(False), ids=lambda body: body.__name__)
def test_body_on_several_hosts(body: Body, hosts: tuple[int, ...]) -> None:
    run(LocalHosts(hosts), body)


@pytest.mark.parametrize("waking", [comm_bodies.abort_wakes, comm_bodies.failed_errand_wakes])
def test_abort_wakes_every_host(
    waking: Callable[[Callable[[], Communicator]], None],
) -> None:
    wakes(waking, lambda: LocalHosts((0, 0, 1, 1)))


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("shares_memory", [True, False])
@pytest.mark.parametrize("waking", [comm_bodies.abort_wakes, comm_bodies.failed_errand_wakes])
def test_abort_wakes_every_rank(
    waking: Callable[[Callable[[], Communicator]], None], size: int, shares_memory: bool
) -> None:
    wakes(waking, lambda: LocalGroup(size, shares_memory))


def wakes(
    waking: Callable[[Callable[[], Communicator]], None],
    make: Callable[[], LocalGroup | LocalHosts],
) -> None:
    """Run the body on every rank, with the communicators of as many new groups as it asks for."""
    groups: list[LocalGroup | LocalHosts] = []
    lock = threading.Lock()

    def body(rank: int) -> None:
        calls = count()

        def fresh() -> Communicator:
            number = next(calls)
            with lock:
                if number == len(groups):
                    groups.append(make())
            return groups[number].communicator(rank)

        waking(fresh)

    on_ranks(make().size, body)
    assert groups


def test_different_window_sizes_are_refused() -> None:
    group = LocalGroup(2)
    assert group.communicator(0).shared_window(10)[1].nbytes == 10
    with pytest.raises(ShapeError, match="10"):
        group.communicator(1).shared_window(20)


def test_message_of_another_size_is_refused() -> None:
    def body(comm: Communicator) -> None:
        if comm.rank == 0:
            with pytest.raises(WorkerLost):
                comm.exchange([(1, torch.ones(1 << 13))], [])  # too large for a copy
        else:
            with pytest.raises(ShapeError, match="sends 32768 bytes to rank 1, which expects 16"):
                comm.exchange([], [(0, torch.ones(4))])
            comm.abort()

    run(LocalGroup(2), body)


@pytest.mark.skipif(sys.platform != "linux", reason="counts switches of Linux")
@pytest.mark.parametrize("cores", [1, 3])
def test_waiting_ranks_sleep_and_do_not_yield(cores: int) -> None:
    """Two ranks on one processor wait for a third: a rank that yields is switched each time."""
    memory = np.zeros(flags_length(3) + LINE, np.uint64)
    flags = memory[-memory.ctypes.data % (LINE * 8) // 8 :]
    prepare_flags(flags, 3, cores)
    one = {min(os.sched_getaffinity(0))}

    def body(rank: int) -> None:
        os.sched_setaffinity(0, one)  # of this thread
        barrier = SpinBarrier(flags, rank, 3)
        if rank == 2:
            time.sleep(0.2)
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw
        barrier.wait()
        assert resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw - before < 15

    on_ranks(3, body)


def test_a_group_has_ranks() -> None:
    with pytest.raises(ShapeError, match="1 or more"):
        LocalGroup(0)


def test_one_rank_needs_no_compiler() -> None:
    """The pool of one worker in the user's own process must start at once."""
    import subprocess
    import sys

    code = (
        "import sys; from magmath.comm import LocalGroup; c = LocalGroup(1).communicator(0);"
        "c.barrier(); c.allreduce_max(1); c.shared_window(8); sys.exit('llvmlite' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.skipif(sys.platform != "linux", reason="moves threads of Linux")
def test_a_rank_leaves_the_processor_of_a_sleeping_rank() -> None:
    """And may run on all its processors again; if it has only one, it stays."""
    code = AotModule(
        futex_wait.WAIT_SOURCE + "def leave(processor: int64):\n    leave_processor(processor)\n",
        ("leave",),
        constants=futex_wait.CONSTANTS,
    )
    leave = code.function("leave")
    processor = ctypes.CDLL(None).sched_getcpu

    def body(rank: int) -> None:
        allowed = os.sched_getaffinity(0)
        if len(allowed) > 1:
            moved = False
            for _ in range(20):  # the system may move it back at once
                before = processor()
                leave(before)
                moved |= processor() != before
            assert moved
        assert os.sched_getaffinity(0) == allowed
        one = {min(allowed)}
        os.sched_setaffinity(0, one)
        leave(min(allowed))
        assert os.sched_getaffinity(0) == one

    on_ranks(1, body)


def test_an_exit_within_a_task_is_raised_by_its_wait() -> None:
    thread = ProgressThread(LocalGroup(1).communicator(0))
    task = thread.submit(sys.exit)
    with pytest.raises(SystemExit):
        task.wait()
    assert task.is_done
    thread.close()
