"""Asynchronous transfers: concurrent work, and the protection of the transferred arrays.

The progress thread is held at a gate, so that nothing depends on which of two threads is faster.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

import magmath as mm
from engines import current, engine_of
from magmath.arrays.array import Array
from magmath.comm.progress_thread import Task
from magmath.core.dtypes import float32
from magmath.engine import session
from magmath.errors import MagmathError, WorkerLost
from magmath.graph import Graph, Node
from magmath.layout import Layout
from magmath.ops.elementwise import call
from magmath.ops.leaves import input_leaf
from magmath.ops.product.contraction import matmul
from magmath.ops.redistribute import REDISTRIBUTE, redistribute
from magmath.passes.place import place
from magmath.passes.schedule import schedule
from magmath.program.instructions import Call, Redistribute
from magmath.runtime import Pool, PoolOptions, start_pool
from magmath.runtime.async_transfers import MAX_TRANSFERS

POOLS = [("shared", 2), ("shared", 3), ("messages", 2), ("messages", 3)]
every_pool = pytest.mark.parametrize(("kind", "workers"), POOLS)
SIDE = 96


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """No task runs before it opens."""
    event = threading.Event()
    execute = Task.execute

    def held(task: Task) -> bool:
        event.wait()
        return execute(task)

    monkeypatch.setattr(Task, "execute", held)
    yield event
    event.set()


def rows(seed: int = 0, side: int = SIDE) -> Array:
    random = np.random.default_rng(seed)
    return mm.asarray(random.random((side, side), dtype=np.float32), layout=Layout.split(0))


def counted(pool: Pool, name: str) -> list[int]:
    return [int(counters.get(name, 0)) for counters in pool.stats()]


@every_pool
def test_other_work_is_done_between_start_and_end(
    kind: str, workers: int, gate: threading.Event
) -> None:
    """With the transfer held up, what does not need it is computed and read; then it is used."""
    with current(kind, workers) as pool:
        x, y = rows(1), rows(2)
        mm.evaluate(x, y)
        begun, meanwhile = counted(pool, "transfers"), counted(pool, "overlapped_runs")
        whole = x.replicate(wait=False)
        product = (y @ y.T).numpy()
        total = float(mm.sum(x))
        assert np.array_equal(counted(pool, "transfers"), np.add(begun, 1))
        assert np.all(np.subtract(counted(pool, "overlapped_runs"), meanwhile) >= 2)
        gate.set()
        np.testing.assert_allclose(product, y.numpy() @ y.numpy().T, rtol=1e-5)
        np.testing.assert_allclose(total, x.numpy().sum(), rtol=1e-5)
        np.testing.assert_array_equal(whole.numpy(), x.numpy())
        np.testing.assert_array_equal((whole * 2).numpy(), x.numpy() * 2)


@every_pool
def test_memory_of_what_is_read_and_written_is_not_used_again(
    kind: str, workers: int, gate: threading.Event
) -> None:
    with current(kind, workers):
        x = rows(3)
        expected = x.numpy()
        whole = x.replicate(wait=False)
        del x
        forgotten = rows(4)
        forgotten.replicate(wait=False)  # its copy is never used
        del forgotten
        others = [mm.asarray(rows(seed)) + 1 for seed in range(12)]
        mm.evaluate(*others)
        kept = [other.numpy() for other in others]
        gate.set()
        np.testing.assert_array_equal(whole.numpy(), expected)
        mm.evaluate(*[other * 1 for other in others])
        for other, value in zip(others, kept, strict=True):
            np.testing.assert_array_equal(other.numpy(), value)


@every_pool
def test_what_is_read_is_not_overwritten(kind: str, workers: int, gate: threading.Event) -> None:
    """An update in place waits for the transfer."""
    with current(kind, workers):
        x = rows(5)
        expected = x.numpy()
        whole = x.replicate(wait=False)
        threading.Timer(0.05, gate.set).start()
        for _ in range(3):
            x += 1
            mm.evaluate(x)
        x[3:7] = 0.0
        np.testing.assert_array_equal(whole.numpy(), expected)
        np.testing.assert_array_equal(x.numpy()[0], expected[0] + 3)


@every_pool
def test_no_more_than_a_few_wait(kind: str, workers: int, gate: threading.Event) -> None:
    """Transfers whose results are not read do not accumulate."""
    with current(kind, workers) as pool:
        arrays = [rows(seed) for seed in range(MAX_TRANSFERS + 2)]
        expected = [array.numpy() for array in arrays]
        wholes = [array.replicate(wait=False) for array in arrays[:MAX_TRANSFERS]]
        assert float(mm.sum(arrays[0])) > 0  # none of them is waited for
        threading.Timer(0.05, gate.set).start()
        wholes += [array.replicate(wait=False) for array in arrays[MAX_TRANSFERS:]]
        for whole, value in zip(wholes, expected, strict=True):
            np.testing.assert_array_equal(whole.numpy(), value)
        del wholes, whole, arrays
        mm.evaluate(rows(1) + 1)
        held = counted(pool, "in_use")
        for seed in range(20):
            rows(seed).replicate(wait=False)
        mm.evaluate(rows(1) + 1)
        most = (MAX_TRANSFERS + 1) * 2 * 4 * SIDE * SIDE + (1 << 16)
        assert np.all(np.subtract(counted(pool, "in_use"), held) <= most)


@every_pool
def test_any_order_of_work_gives_the_same(kind: str, workers: int) -> None:
    """Random work concurrent with transfers that take random times."""
    execute = Task.execute
    random = np.random.default_rng(workers)

    def slow(task: Task) -> bool:
        time.sleep(float(random.random()) * 3e-3)
        return execute(task)

    with current(kind, workers), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Task, "execute", slow)
        held = [(x, x.numpy()) for x in (rows(seed, 40) for seed in range(4))]
        for _ in range(60):
            array, value = held[random.integers(len(held))]
            other, second = held[random.integers(len(held))]
            match random.integers(6):
                case 0 | 1:
                    held.append((array.replicate(wait=False), value))
                case 2:
                    held.append(((array @ other) / 40, (value @ second) / 40))
                case 3:
                    held[0] = (held[0][0] * 0.5 + other * 0.5, held[0][1] * 0.5 + second * 0.5)
                    mm.evaluate(held[0][0])
                case 4 if len(held) > 4:
                    del held[random.integers(len(held))]
                case _:
                    np.testing.assert_allclose(array.numpy(), value, rtol=1e-4)
        for array, value in held:
            np.testing.assert_allclose(array.numpy(), value, rtol=1e-4)


@pytest.mark.parametrize("kind", ["shared", "messages"])
def test_errors_of_transfers_are_raised_at_first_use(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with current(kind, 2) as pool:
        x = rows(6)
        mm.evaluate(x)
        execute = Task.execute

        def failing(task: Task) -> bool:
            if threading.current_thread().name == "magmath-progress-1":
                task._action = lambda: 1 // 0
            return execute(task)

        monkeypatch.setattr(Task, "execute", failing)
        whole = x.replicate(wait=False)
        with pytest.raises((ZeroDivisionError, WorkerLost)):
            (whole + 1).numpy()
        with pytest.raises((MagmathError, ZeroDivisionError)):
            (x + 1).numpy()
        assert pool.closed


@pytest.mark.parametrize("kind", ["shared", "messages"])
def test_a_pool_may_end_while_data_are_under_way(kind: str) -> None:
    pool = start_pool(PoolOptions(2, launcher="threads", device="cpu"))
    session.set_current_pool(pool)
    for seed in range(3):
        rows(seed, 512).replicate(wait=False)
    pool.close()
    with pytest.raises(WorkerLost):
        pool.stats()


def test_a_memory_limit_counts_what_is_under_way(gate: threading.Event) -> None:
    """Released memory is wanted at once where it is short."""
    limit = 3 << 20
    with mm.init(2, launcher="threads", device="cpu", memory_limit=limit):
        gate.set()
        for seed in range(12):
            whole = rows(seed, 400).replicate(wait=False)
        assert whole.shape == (400, 400)


def test_explain_shows_concurrent_copies(gate: threading.Event) -> None:
    gate.set()
    with current("messages", 2):
        x = rows(7)
        whole = x.replicate(wait=False)
        assert "copied concurrently" in str(whole.explain())
        waited = rows(8).replicate()
        assert "concurrently" not in str(waited.explain())
        with mm.profile() as profile:
            measured = rows(9).replicate(wait=False)
        assert profile.total.measured > 0
        assert measured.explain().total.measured is not None


# within a program
# ----------------------------------------------------------------------------------------


def two_products(kind: str) -> tuple[Graph, list[np.ndarray]]:
    """A product that is brought into another layout, and further products that do not need it."""
    engine = engine_of(kind, 2)
    x, y = rows(10), rows(11)
    mm.evaluate(x, y)
    first, second = x.evaluated_leaf(), y.evaluated_leaf()
    columns = Layout.even((SIDE, SIDE), engine.pool.mesh, 1)
    moved = redistribute(call("square", first), columns)
    other = second
    for _ in range(3):
        other = call("tanh", matmul(call("square", other), second))
    a, b = x.numpy(), y.numpy()
    expected = b
    for _ in range(3):
        expected = np.tanh(np.square(expected) @ b)
    return Graph((call("negative", moved), other)), [-np.square(a), expected]


def test_moves_begin_early_and_are_waited_for_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """A move is sent when its source is there. No task runs before its rank waits."""
    wait, execute = Task.wait, Task.execute
    waits = [threading.Event(), threading.Event()]

    def here() -> threading.Event:
        return waits[int(threading.current_thread().name[-1])]

    def held(task: Task) -> bool:
        here().wait()
        return execute(task)

    def noted(task: Task) -> None:
        here().set()
        wait(task)

    monkeypatch.setattr(Task, "execute", held)
    monkeypatch.setattr(Task, "wait", noted)
    with current("overlapped", 2):
        engine = engine_of("overlapped", 2)
        graph, expected = two_products("overlapped")
        compiled = engine.compile(engine.pending_graph(graph))
        listing = compiled.program.instructions
        moves = [i for i, x in enumerate(listing) if isinstance(x, Redistribute) and x.overlapped]
        assert moves, compiled.program
        longest = max(moves, key=lambda i: listing[i].overlapped)  # type: ignore[union-attr]
        move = listing[longest]
        assert isinstance(move, Redistribute)
        following = listing[longest + 1 : longest + 1 + move.overlapped]
        assert sum(isinstance(x, Call) for x in following) >= 2
        assert f"concurrently with the next {move.overlapped}" in str(compiled.program)
        outputs, _ = engine.runs.run(compiled, graph.leaves)
        for data, value in zip(outputs, expected, strict=True):
            actual = engine.pool.get(data.array_id).numpy()
            np.testing.assert_allclose(actual, value, rtol=1e-4)
        assert all(event.is_set() for event in waits)


def test_little_is_fetched_before_it_is_needed() -> None:
    """Transfers come early only as far as the workspace reaches; the order stays a right one."""
    engine = engine_of("messages", 2)
    mesh = engine.pool.mesh
    leaves = [
        input_leaf((64, 64), float32, Layout.even((64, 64), mesh, 0), object()) for _ in range(6)
    ]
    columns = Layout.even((64, 64), mesh, 1)
    total: Node = call("square", redistribute(leaves[0], columns))
    for leaf in leaves[1:]:
        total = call("tanh", call("add", total, redistribute(call("square", leaf), columns)))
    graph = place(Graph((total,)), engine.environment)
    nbytes = 64 * 64 * 4 // 2
    for room in (nbytes, 2 * nbytes, 100 * nbytes):
        order = schedule(graph, room).order
        assert sorted(map(id, order)) == sorted(map(id, schedule(graph).order))
        place_of = {node: i for i, node in enumerate(order)}
        assert all(place_of[x] < place_of[node] for node in order for x in node.inputs)
        most = 0
        users = {x: place_of[node] for node in reversed(order) for x in node.inputs}
        for node in order:
            under_way = [
                other
                for other in order[: place_of[node]]
                if other.operation is REDISTRIBUTE and users[other] > place_of[node]
            ]
            most = max(most, nbytes * len(under_way))
        assert min(room, nbytes * 4) <= most <= room + nbytes


def test_without_workers_nothing_changes() -> None:
    with current("inline"):
        x = mm.asarray(np.arange(6.0))
        np.testing.assert_array_equal(x.replicate(wait=False).numpy(), np.arange(6.0))
