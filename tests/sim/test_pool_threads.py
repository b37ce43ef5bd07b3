"""Pools without further processes: the inline worker, and workers that are threads."""

from __future__ import annotations

import gc
import logging
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from layouts import layouts, meshes, shapes
from magmath.core.dtypes import DTYPES
from magmath.errors import (
    DTypeError,
    LayoutError,
    MagmathError,
    OptionError,
    ShapeError,
    WorkerError,
    WorkerLost,
)
from magmath.layout import Layout, Mesh
from magmath.memory.torch_dtypes import to_torch
from magmath.runtime import Pool, PoolOptions, command_queue, start_pool
from magmath.runtime.messages import decode_reply
from magmath.runtime.transport.inline import InlineTransport
from magmath.runtime.transport.threads import ThreadTransport
from magmath.runtime.transport_interface import WorkerOptions
from magmath.runtime.worker import Worker
from pool_fakes import FakeExecutable, fake_program


def open_pool(workers: int) -> Pool:
    """A pool of thread workers, or for 0 the one in this process, that runs fake programs."""
    options = WorkerOptions(device="cpu")
    if workers == 0:
        return Pool(InlineTransport(options, FakeExecutable))
    return Pool(ThreadTransport(workers, options, FakeExecutable))


@pytest.fixture(params=[0, 1, 3], ids=["inline", "1 thread", "3 threads"])
def pool(request: pytest.FixtureRequest) -> Iterator[Pool]:
    pool = open_pool(request.param)
    yield pool
    pool.close()


@pytest.fixture
def threads() -> Iterator[Pool]:
    pool = open_pool(3)
    yield pool
    pool.close()


def put_ones(pool: Pool, shape: tuple[int, ...] = (6,)) -> int:
    return pool.put(torch.ones(shape), Layout.even(shape, pool.mesh, 0))


def live_arrays(pool: Pool) -> list[object]:
    return [counters["arrays"] for counters in pool.stats()]


# Data in and out.


@given(data=st.data())
def test_any_array_in_any_layout_comes_back(data: st.DataObject, pools: dict[int, Pool]) -> None:
    pool = pools[data.draw(st.sampled_from(sorted(pools)))]
    shape = data.draw(shapes)
    mesh = data.draw(meshes(pool.workers))
    layout = data.draw(layouts(shape, mesh).filter(lambda layout: not layout.is_partial))
    dtype = to_torch(DTYPES[data.draw(st.sampled_from(sorted(DTYPES)))])
    tensor = torch.randint(0, 2, shape).to(dtype)
    if len(shape) == 2 and data.draw(st.booleans()):
        tensor = tensor.T.contiguous().T
    array = pool.put(tensor, layout)
    back = pool.get(array)
    assert back.dtype == dtype
    assert torch.equal(back, tensor)
    pool.release(array)
    assert set(live_arrays(pool)) == {0}


@pytest.fixture(scope="module")
def pools() -> Iterator[dict[int, Pool]]:
    pools = {workers: open_pool(workers) for workers in (0, 1, 2, 4, 7)}
    yield {pool.workers if n else 0: pool for n, pool in pools.items()}
    for pool in pools.values():
        pool.close()


def test_get_is_a_copy_and_put_too(pool: Pool) -> None:
    tensor = torch.ones(6)
    array = pool.put(tensor, Layout.even((6,), pool.mesh, 0))
    tensor.zero_()
    pool.get(array).fill_(5)
    assert torch.equal(pool.get(array), torch.ones(6))


def test_conjugate_and_negative_views_are_sent_as_values(pool: Pool) -> None:
    tensor = torch.tensor([1 + 2j, 3 - 4j]).conj()
    array = pool.put(tensor, Layout.replicated_on((2,), pool.mesh))
    assert torch.equal(pool.get(array), tensor.resolve_conj())


def test_only_the_tiles_that_are_needed_travel() -> None:
    pool = open_pool(4)
    before = pool.traffic.bytes
    pool.put(torch.zeros(1 << 16), Layout.even((1 << 16,), pool.mesh, 0))
    assert 4 << 16 <= pool.traffic.bytes - before < (4 << 16) + 2000
    array = pool.put(torch.zeros(8), Layout.replicated_on((8,), pool.mesh))
    before = pool.traffic.bytes
    pool.get(array)
    assert pool.traffic.bytes - before < 60, "one worker is asked for a replicated array"
    pool.close()


def test_put_that_does_not_fit_says_what_to_do(pool: Pool) -> None:
    with pytest.raises(ShapeError, match=r"shape \(5,\).*shape \(6,\)"):
        pool.put(torch.ones(6), Layout.replicated_on((5,), pool.mesh))
    far = Mesh((1,), None, [pool.workers])
    with pytest.raises(LayoutError, match=f"needs worker {pool.workers}"):
        pool.put(torch.ones(6), Layout.replicated_on((6,), far))
    with pytest.raises(DTypeError, match="convert"):
        pool.put(torch.empty(6, dtype=torch.float8_e5m2), Layout.replicated_on((6,), pool.mesh))
    pending = Layout((6,), pool.mesh, (None,), ("sum",))
    with pytest.raises(LayoutError, match="pending reduction"):
        pool.put(torch.ones(6), pending)


@pytest.mark.parametrize("writer", [0, 1, 2])
def test_a_shared_array_is_not_written_into_what_slower_workers_use(writer: int) -> None:
    pool = open_pool(3)
    slow = pool.define(
        fake_program("sleep", 3, seconds=0.05, ranks=[r for r in range(3) if r != writer])
    )
    run = pool.run(slow, [put_ones(pool)])
    pool.release(run.outputs[0])  # while the slow workers still write it
    others = [writer, *(r for r in range(3) if r != writer)]
    layout = Layout.replicated_on((6,), Mesh((3,), workers=tuple(others)), shared=True)
    shared = pool.put(torch.full((6,), 7.0), layout)
    assert torch.equal(pool.get(shared), torch.full((6,), 7.0))
    pool.close()


def test_released_arrays_are_freed_with_the_next_command(pool: Pool) -> None:
    arrays = [put_ones(pool) for _ in range(5)]
    used = pool.stats()[0]["in_use"]
    for array in arrays:
        pool.release(array)
        pool.release(array)  # twice does no harm
    assert set(live_arrays(pool)) == {0}
    assert pool.stats()[0]["in_use"] == 0 != used
    with pytest.raises(WorkerError, match="was released"):
        pool.get(arrays[0])


def test_memory_limit_is_an_error_and_the_pool_goes_on() -> None:
    pool = Pool(
        ThreadTransport(2, WorkerOptions(device="cpu", memory_limit=1 << 20), FakeExecutable)
    )
    with pytest.raises(MemoryError, match="largest holders"):
        pool.get(pool.put(torch.zeros(1 << 20), Layout.even((1 << 20,), pool.mesh, 0)))
    assert torch.equal(pool.get(put_ones(pool)), torch.ones(6))
    pool.close()


# Programs.


def test_runs_are_not_waited_for_and_values_are(pool: Pool) -> None:
    program = pool.define(fake_program("sleep", pool.workers, seconds=0.05))
    array, runs = put_ones(pool), []
    for _ in range(3):
        runs.append(pool.run(program, [array], steps=2))
        array = runs[-1].outputs[0]
    assert [run.values() for run in runs] == [[1.0, 2.0]] * 3
    assert torch.equal(pool.get(array), torch.full((6,), 7.0))


def test_a_second_run_sends_an_identifier_and_no_more() -> None:
    pool = open_pool(1)
    program = pool.define(fake_program("count", 1))
    array = put_ones(pool)
    pool.run(program, [array]).values()
    before = (pool.traffic.messages, pool.traffic.bytes)
    pool.run(program, [array], [0.5, 3, True, 1 + 2j]).values()
    assert pool.traffic.messages - before[0] == 1
    assert pool.traffic.bytes - before[1] < 150
    pool.close()


def test_parameters_arrive_as_python_numbers(pool: Pool) -> None:
    class Echo(FakeExecutable):
        def run(self, inputs, outputs, parameters, steps, poll):  # type: ignore[no-untyped-def]
            seen.append(list(parameters))
            return []

    seen: list[list[object]] = []
    workers = 0 if pool.workers == 1 else 2
    options = WorkerOptions(device="cpu")
    echo = Pool(
        ThreadTransport(workers, options, Echo) if workers else InlineTransport(options, Echo)
    )
    program = echo.define(fake_program("count", echo.workers))
    echo.run(program, [put_ones(echo)], [True, 2, 0.5, 1 - 2j], wait=True)
    assert [[(type(n), n) for n in numbers] for numbers in seen] == [
        [(bool, True), (int, 2), (float, 0.5), (complex, 1 - 2j)]
    ] * echo.workers
    echo.close()


def test_a_donated_input_lives_on_as_the_output(pool: Pool) -> None:
    program = pool.define(fake_program("count", pool.workers, donate=True))
    array = put_ones(pool)
    used = pool.stats()[0]["in_use"]
    output = pool.run(program, [array]).outputs[0]
    assert torch.equal(pool.get(output), torch.full((6,), 2.0))
    assert pool.stats()[0]["in_use"] == used
    with pytest.raises(WorkerError, match="donated to a run"):
        pool.get(array)
    pool.release(array)
    pool.release(output)
    assert set(live_arrays(pool)) == {0}


def test_progress_is_reported_step_by_step(pool: Pool) -> None:
    program = pool.define(fake_program("count", pool.workers))
    seen: list[tuple[int, list[float]]] = []
    run = pool.run(
        program,
        [put_ones(pool)],
        steps=3,
        progress=lambda steps, values: seen.append((steps, values)),
    )
    assert run.values() == [1.0, 2.0, 3.0]
    assert run.steps == 3
    assert seen == [(1, [1.0]), (2, [2.0]), (3, [3.0])]


def test_an_exception_in_progress_stops_the_run_and_is_raised(pool: Pool) -> None:
    def complain(steps: int, values: list[float]) -> None:
        raise ArithmeticError(f"at step {steps}")

    program = pool.define(fake_program("sleep", pool.workers, seconds=0.01))
    run = pool.run(program, [put_ones(pool)], steps=100_000, progress=complain)
    with pytest.raises(ArithmeticError, match="at step 1"):
        run.values()
    assert run.steps < 100_000
    assert torch.equal(pool.get(run.outputs[0]), torch.full((6,), 1.0 + run.steps))


def test_many_runs_without_waiting_are_held_back() -> None:
    pool = open_pool(2)
    program = pool.define(fake_program("count", 2, donate=True))
    array = put_ones(pool)
    for _ in range(600):
        array = pool.run(program, [array]).outputs[0]
        assert len(pool._queue._pending) <= 256
    assert torch.equal(pool.get(array), torch.full((6,), 601.0))
    pool.close()


def test_any_thread_may_call(pool: Pool) -> None:
    program = pool.define(fake_program("count", pool.workers))
    results: list[torch.Tensor] = []

    def work() -> None:
        for _ in range(10):
            array = put_ones(pool)
            run = pool.run(program, [array])
            assert run.values() == [1.0]
            results.append(pool.get(run.outputs[0]))
            pool.release(array)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(results) == 40
    assert all(torch.equal(result, torch.full((6,), 2.0)) for result in results)


# Failures.


def test_an_exception_arrives_as_itself_with_rank_host_and_line(threads: Pool) -> None:
    program = threads.define(fake_program("fail", 3))
    run = threads.run(program, [put_ones(threads)])
    with pytest.raises(
        ValueError, match=r"this operation fails \[worker 0 on \S+, script.py:7\]"
    ) as e:
        run.values()
    assert "Traceback" in e.value.__notes__[0]
    assert "_misbehave" in e.value.__notes__[0]
    assert torch.equal(threads.get(put_ones(threads)), torch.ones(6)), "the pool goes on"


def test_within_the_process_an_exception_comes_at_once() -> None:
    pool = open_pool(0)
    program = pool.define(fake_program("fail", 1, donate=True))
    array = put_ones(pool)
    with pytest.raises(ValueError, match="this operation fails") as caught:
        pool.run(program, [array])
    assert "script.py:7" in caught.value.__notes__[0]
    assert live_arrays(pool) == [1], "the memory that it would have reused is released"
    pool.release(array)
    assert live_arrays(pool) == [0]
    with pytest.raises(LookupError, match="no such operation"):
        pool.define(fake_program("undefined", 1))
    pool.close()


@pytest.mark.parametrize("timed", [False, True])
def test_a_failed_run_within_the_process_gives_its_donated_inputs_back(timed: bool) -> None:
    pool = open_pool(0)
    program = pool.define(fake_program("fail", 1, donate=True))
    array = put_ones(pool)
    with pytest.raises(ValueError, match="this operation fails"):
        pool.run(program, [array], timed=timed)
    assert torch.equal(pool.get(array), torch.ones(6))
    assert live_arrays(pool) == [1]
    pool.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_pool_whose_workers_cannot_be_stopped_is_closed(
    workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = open_pool(workers)
    array = put_ones(pool)
    stop = pool._transport.close

    def stopped_with_an_error(*, force: bool) -> None:
        stop(force=force)
        raise OSError("the directory of the pool cannot be removed")

    monkeypatch.setattr(pool._transport, "close", stopped_with_an_error)
    with pytest.raises(OSError, match="cannot be removed"):
        pool.close()
    assert pool.closed
    with pytest.raises(WorkerLost, match="has been closed"):
        pool.get(array)
    pool.close()


def test_the_error_of_an_asynchronous_run_is_raised_by_the_next_wait(threads: Pool) -> None:
    bad = threads.define(fake_program("fail", 3, donate=True))
    good = threads.define(fake_program("count", 3))
    array, other = put_ones(threads), put_ones(threads)
    failed = threads.run(bad, [array])
    after = threads.run(good, failed.outputs)
    other_run = threads.run(good, [other])
    with pytest.raises(ValueError, match="this operation fails"):
        threads.get(other)
    assert torch.equal(threads.get(other), torch.ones(6))
    for run in (failed, after, other_run):
        with pytest.raises(ValueError, match="this operation fails"):
            threads.get(run.outputs[0])
        threads.release(run.outputs[0])
    assert threads.run(good, [other]).values() == [1.0]
    assert set(live_arrays(threads)) == {2}


def test_a_program_that_cannot_be_bound_fails_where_it_is_used(threads: Pool) -> None:
    program = threads.define(fake_program("undefined", 3))
    array = put_ones(threads)
    for _ in range(2):
        with pytest.raises(LookupError, match="no such operation"):
            threads.run(program, [array], wait=True)
    assert torch.equal(threads.get(array), torch.ones(6))
    assert set(live_arrays(threads)) == {1}


@pytest.mark.parametrize("operation", ["fail", "fail_and_wait"])
def test_when_one_worker_fails_alone_the_pool_is_closed(threads: Pool, operation: str) -> None:
    program = threads.define(fake_program(operation, 3, ranks=[1]))
    array = put_ones(threads)
    workers = [t for t in threading.enumerate() if t.name.startswith("magmath-worker")][-3:]
    with pytest.raises(ValueError, match=r"\[worker 1 on") as caught:
        threads.run(program, [array], wait=True)
    assert "the pool is closed" in caught.value.__notes__[-1]
    assert threads.closed
    with pytest.raises(WorkerLost, match="because a worker failed"):
        threads.get(array)
    assert len(workers) == 3
    assert not any(worker.is_alive() for worker in workers)
    again = open_pool(3)
    assert torch.equal(again.get(put_ones(again)), torch.ones(6))
    again.close()


def test_workers_that_were_stopped_with_the_controller_may_fail_later(
    threads: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine is suspended for a minute between the failures of its workers."""
    program = threads.define(fake_program("fail", 3))
    array = put_ones(threads)
    threads.finish()
    transport, clock = threads._transport, [0.0]
    assert isinstance(transport, ThreadTransport)
    monkeypatch.setattr("magmath.runtime.command_queue.time.monotonic", lambda: clock[0])
    deliver, late = transport._handle_reply, list[tuple[Any, ...]]()

    def pump(seconds: float) -> None:
        if late:
            while late:
                deliver(*late.pop())
            return
        while len(late) < 3:
            rank, frames = transport._outbox.get()
            late.append((rank, decode_reply(frames[0]), None))
        deliver(*late.pop())
        clock[0] += 60.0

    monkeypatch.setattr(transport, "pump", pump)
    with pytest.raises(ValueError, match="this operation fails"):
        threads.run(program, [array], wait=True)
    monkeypatch.undo()
    assert not threads.closed
    assert torch.equal(threads.get(array), torch.ones(6))


def test_a_dead_worker_thread_is_a_lost_worker(
    threads: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reply_to = Worker.reply_to

    def vanish(worker: Worker, *message: Any) -> Any:
        if threading.current_thread() in threads._transport._threads:  # not of other tests' pools
            raise SystemError("gone")
        return reply_to(worker, *message)

    monkeypatch.setattr(Worker, "reply_to", vanish)
    with pytest.raises(WorkerLost, match=r"worker \d failed: gone"):
        threads.get(put_ones(threads))
    assert threads.closed


def test_a_program_for_another_pool_is_refused(pool: Pool) -> None:
    with pytest.raises(LayoutError, match=r"planned for 5 workers"):
        pool.define(fake_program("count", 5))
    with pytest.raises(WorkerError, match="not defined"):
        pool.run(99, [])


def test_a_run_that_never_ended_says_so(threads: Pool) -> None:
    program = threads.define(fake_program("sleep", 3, seconds=0.01))
    run = threads.run(program, [put_ones(threads)], steps=100_000)
    threads.close()
    with pytest.raises(WorkerLost, match="closed"):
        run.values()


def test_a_closed_pool_says_so(pool: Pool) -> None:
    array = put_ones(pool)
    pool.close()
    pool.close()
    assert pool.closed
    for call in (lambda: pool.stats(), lambda: put_ones(pool)):
        with pytest.raises(WorkerLost, match="closed; start a new one"):
            call()
    pool.release(array)


# Ctrl-C.


def interrupt_after(seconds: float, times: int = 1) -> threading.Thread:
    def press() -> None:
        for _ in range(times):
            time.sleep(seconds)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    return thread


def test_ctrl_c_stops_a_long_run_at_a_common_step(pool: Pool) -> None:
    program = pool.define(fake_program("sleep", pool.workers, seconds=0.01))
    array = put_ones(pool)
    key = interrupt_after(0.3)
    run = pool.run(program, [array], steps=100_000)  # hands the run out, and raises in `values`
    with pytest.raises(KeyboardInterrupt):
        run.values()
    key.join()
    assert 0 < run.steps < 100_000
    assert torch.equal(pool.get(run.outputs[0]), torch.full((6,), 1.0 + run.steps))


def test_ctrl_c_stops_every_run_that_waits(threads: Pool) -> None:
    program = threads.define(fake_program("sleep", 3, seconds=0.01))
    array = put_ones(threads)
    runs = [threads.run(program, [array], steps=100_000) for _ in range(3)]
    key = interrupt_after(0.2)
    with pytest.raises(KeyboardInterrupt):
        threads.get(runs[-1].outputs[0])
    key.join()
    assert all(0 < run.steps < 100_000 for run in runs)
    assert threads.run(program, [array], steps=2).values() == [1.0, 2.0]


def test_a_second_ctrl_c_ends_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = open_pool(2)
    program = pool.define(fake_program("sleep", 2, seconds=1.0))
    run = pool.run(program, [put_ones(pool)], steps=100)
    monkeypatch.setattr(command_queue, "REPEATED_INTERRUPT_SECONDS", 0.1)
    key = interrupt_after(0.2, times=2)
    with pytest.raises(KeyboardInterrupt):
        run.values()
    key.join()
    assert pool.closed


def test_ctrl_c_that_is_held_down_counts_once(threads: Pool) -> None:
    program = threads.define(fake_program("sleep", 3, seconds=1.5))  # longer than all presses
    run = threads.run(program, [put_ones(threads)], steps=100)
    key = interrupt_after(0.05, times=3)
    with pytest.raises(KeyboardInterrupt):
        run.values()
    key.join()
    assert threads.run(program, [put_ones(threads)]).values() == [1.0]


def test_a_handler_of_ones_own_is_called_and_decides() -> None:
    pool = open_pool(2)
    program = pool.define(fake_program("sleep", 2, seconds=0.02))
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: pressed.append(number))
    try:
        key = interrupt_after(0.1)
        assert len(pool.run(program, [put_ones(pool)], steps=30).values()) == 30
        key.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert pressed == [signal.SIGINT]
    pool.close()


# Starting.


def test_start_pool_within_the_process_and_as_threads() -> None:
    with pytest.raises(MagmathError, match="workers must be an integer of at least 0"):
        start_pool(PoolOptions(-1))
    for workers, launcher in ((0, "mpiexec"), (2, "threads")):
        pool = start_pool(PoolOptions(workers, device="cpu", launcher=launcher, seed=3))
        assert pool.workers == pool.mesh.size == max(1, workers)
        assert pool.topology.hosts == (0,) * pool.workers
        assert (pool.topology.device, pool.seed, pool.deterministic) == ("cpu", 3, False)
        pool.close()


def test_a_device_that_is_not_there_is_refused_at_the_start() -> None:
    for workers in (0, 2):
        with pytest.raises(RuntimeError, match="device must be"):
            start_pool(PoolOptions(workers, device="abacus", launcher="threads"))


def test_messages_that_nothing_waits_for_are_dropped(
    threads: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    from magmath.runtime.messages import Done

    with caplog.at_level(logging.WARNING):
        assert threads._queue._handle_reply(0, Done(10**6), None) is False
    assert "nothing waits for it" in caplog.text
    gc.collect()
    assert torch.equal(threads.get(put_ones(threads)), torch.ones(6))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("launcher", ["thread", "mpiexec -n 2", ["mpiexec"], "", 7])
def test_every_pool_checks_its_launcher(workers: int, launcher: Any) -> None:
    with pytest.raises(OptionError, match='^init: launcher must be .*"threads"'):
        start_pool(PoolOptions(workers=workers, launcher=launcher))
