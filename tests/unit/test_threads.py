"""Several threads of user code."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import current
from magmath import runtime
from magmath.arrays import lazy_array
from magmath.graph import Node, collecting_new_nodes, operation
from magmath.ops.elementwise.node_functions import negative
from magmath.runtime import Pool, PoolOptions


def test_the_first_operations_of_several_threads_start_one_pool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prepare, started = runtime.prepare_pool, []

    def slowly(options: PoolOptions) -> Callable[[], Pool]:
        def start() -> Pool:
            time.sleep(0.05)
            started.append(prepare(options)())
            return started[-1]

        return start

    mm.shutdown()
    monkeypatch.setattr(runtime, "prepare_pool", slowly)
    made: list[mm.Array] = []

    def work() -> None:
        made.append(mm.ones(3) + 1)
        mm.evaluate(made[-1])

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(started) == 1
    assert [x.tolist() for x in made] == [[2.0] * 3] * 8


def test_a_thread_differentiates_what_others_compute() -> None:
    """Expressions of one chain; each operation of the others changes nodes that it follows."""
    n, depth, switch_interval = 20_000, 40, sys.getswitchinterval()
    start = np.linspace(0.1, 1, n)
    value, slope = start.copy(), np.ones(n)
    for _ in range(depth):
        slope, value = slope * np.cos(value) * 1.01, np.sin(value) * 1.01
    sys.setswitchinterval(1e-5)
    try:
        for _ in range(10):
            x = mm.asarray(start)
            chain = [mm.sin(x) * 1.01]
            while len(chain) < depth:
                chain.append(mm.sin(chain[-1]) * 1.01)
            with ThreadPoolExecutor(3) as threads:
                total = mm.sum(chain[-1])
                future = threads.submit(lambda y=total, x=x: mm.grad(y, x).numpy())
                others = [
                    threads.submit(lambda own=chain[first::7]: [y.numpy() for y in own])
                    for first in (3, 5)
                ]
                for other in others:
                    other.result()
                np.testing.assert_allclose(future.result(), slope, rtol=1e-9)
    finally:
        sys.setswitchinterval(switch_interval)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["begin", "end", "make"]))))
def test_each_thread_collects_the_nodes_that_it_makes(steps: list[tuple[int, str]]) -> None:
    """In whatever order the blocks of several threads begin and end."""
    x = mm.asarray([1.0, 2.0])
    blocks: list[list[tuple[Any, set[Node], set[Node]]]] = [[], [], []]

    def take(number: int, step: str) -> None:
        if step == "begin":
            block = collecting_new_nodes()
            blocks[number].append((block, block.__enter__(), set()))
        elif step == "make":
            node = negative(x.node)
            for _, _, expected in blocks[number]:
                expected.add(node)
        elif blocks[number]:
            block, new_nodes, expected = blocks[number].pop()
            block.__exit__(None, None, None)
            assert new_nodes == expected

    threads = [ThreadPoolExecutor(1) for _ in blocks]
    for number, step in steps:
        threads[number].submit(take, number, step).result()
    for number, open_blocks in enumerate(blocks):
        while open_blocks:
            threads[number].submit(take, number, "end").result()
        threads[number].shutdown()
    assert operation.new_node is Node, "without a block, no node is kept"


def _by_items(x: mm.Array, row: int, step: int) -> None:
    x[row] = step


def _by_sums(x: mm.Array, row: int, step: int) -> None:
    x[row] += 1.0


def _by_columns(x: mm.Array, row: int, step: int) -> None:
    x[row, 1::2] = step
    x[row, ::2] += 1.0


def _at_positions(x: mm.Array, row: int, step: int) -> None:
    mm.add.at(x, [row, row], 0.5)


def _by_views(x: mm.Array, row: int, step: int) -> None:
    x[row][...] = step


def _by_output(x: mm.Array, row: int, step: int) -> None:
    mm.add(x[row], 1.0, out=x[row])


@pytest.mark.parametrize(
    "write", [_by_items, _by_sums, _by_columns, _at_positions, _by_views, _by_output]
)
@pytest.mark.parametrize("columns", [10, 3000, 40_000])
@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("eager", 2)])
def test_threads_write_their_rows(
    kind: str, workers: int, columns: int, write: Callable[[mm.Array, int, int], None]
) -> None:
    """No write is lost."""
    steps, rows, switch_interval = 6, 3, sys.getswitchinterval()
    with current(kind, workers):
        sys.setswitchinterval(1e-5)
        try:
            for _ in range(3):
                x = mm.zeros((rows, columns))

                def fill(row: int, x: mm.Array = x) -> None:
                    for step in range(1, steps + 1):
                        write(x, row, step)

                with ThreadPoolExecutor(rows) as pool:
                    for done in [pool.submit(fill, row) for row in range(rows)]:
                        done.result()
                assert np.array_equal(x.numpy(), np.full((rows, columns), float(steps)))
        finally:
            sys.setswitchinterval(switch_interval)


@pytest.mark.parametrize("columns", [10, 3000, 40_000])
def test_a_view_has_what_other_threads_write(columns: int) -> None:
    """It is made while they do."""
    switch_interval = sys.getswitchinterval()
    with current("inline"):
        sys.setswitchinterval(1e-5)
        try:
            for _ in range(5):
                x, views = mm.zeros((3, columns)), []

                def write(x: mm.Array = x) -> None:
                    for step in range(20):
                        x[1] = float(step + 1)

                def look(x: mm.Array = x, views: list[mm.Array] = views) -> None:
                    views += [x[1] for _ in range(20)]

                threads = [threading.Thread(target=target) for target in (write, look)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                assert all((view.numpy() == 20.0).all() for view in views)
        finally:
            sys.setswitchinterval(switch_interval)


@pytest.mark.parametrize("columns", [10, 60_000])
@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 2)])
def test_threads_that_read_lose_no_writes_of_another_one(
    kind: str, workers: int, columns: int
) -> None:
    """They compute the array, and its rows, while it gets other values."""
    switch_interval = sys.getswitchinterval()
    with current(kind, workers):
        sys.setswitchinterval(1e-5)
        try:
            x, expected = mm.zeros((4, columns)), np.zeros((4, columns))
            rows, is_done = list(x), threading.Event()

            def look(read: Callable[[], Any]) -> None:
                least = np.zeros(4)
                while not is_done.is_set():
                    seen = read()
                    assert (seen >= least).all()
                    least = seen

            readers: list[Callable[[], Any]] = [
                lambda: x.numpy()[:, 0],
                lambda: np.array([float(row[0]) for row in rows]),
            ]
            with ThreadPoolExecutor(2) as pool:
                looking = [pool.submit(look, read) for read in readers]
                try:
                    for step in range(24):
                        for one in (x, expected):
                            if step % 3 == 0:
                                one += 1
                            elif step % 3 == 1 or one is expected:
                                one[step % 4] += 1
                            else:
                                rows[step % 4] += 1
                finally:
                    is_done.set()
                for one in looking:
                    one.result()
            assert np.array_equal(x.numpy(), expected)
            assert all(
                np.array_equal(row.numpy(), y) for row, y in zip(rows, expected, strict=True)
            )
        finally:
            sys.setswitchinterval(switch_interval)


def test_an_update_while_a_thread_stores_the_computed_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reading thread pauses after the check that the array has not been updated."""
    stores, is_updated, main = threading.Event(), threading.Event(), threading.get_ident()
    keep_expression = lazy_array.keep_expression

    def paused(node: Node) -> None:
        keep_expression(node)
        if threading.get_ident() != main:
            stores.set()
            is_updated.wait(0.5)

    with current("inline"):
        x = mm.asarray(np.zeros(300_000))
        x += 1
        monkeypatch.setattr(lazy_array, "keep_expression", paused)
        reader = threading.Thread(target=x.numpy)
        reader.start()
        assert stores.wait(30)
        x += 10
        is_updated.set()
        reader.join()
        assert (x.numpy() == 11).all()


CHANGES: dict[str, Callable[[Any, Any], object]] = {
    "update": lambda x, module: x.__iadd__(1.0),
    "write": lambda x, module: x.__setitem__(slice(1, None), 7.0),
    "evaluation": lambda x, module: x.numpy(),
    "evaluation and update": lambda x, module: (x.numpy(), x.__iadd__(1.0)),
    "state": lambda x, module: module.eval(),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("size", [4, 300_000])
@pytest.mark.parametrize("has_loop", [False, True])
def test_what_other_threads_change_during_a_trace_is_seen_afterwards(
    change: str, size: int, has_loop: bool
) -> None:
    is_tracing, is_changed = threading.Event(), threading.Event()

    def read(y: Any) -> Any:
        if has_loop:
            y = y + mm.while_loop(lambda k: k < 2, lambda k: k + 1, mm.asarray(0)) * 0
        result = y + x + module(mm.zeros(size) + 1.0) * 0.0
        result = result + (1000.0 if module.training else 0.0)
        is_tracing.set()
        assert is_changed.wait(20)
        return result

    with current("inline"):
        x, zeros = mm.asarray(np.zeros(size)) * 2, mm.asarray(np.zeros(size))
        module = mm.nn.Dropout(0.5).train()
        f = mm.compile(read)
        tracing = threading.Thread(target=f, args=(zeros,))
        tracing.start()
        assert is_tracing.wait(20)
        CHANGES[change](x, module)
        is_changed.set()
        tracing.join()
        for _ in range(2):
            expected = x.numpy() + (1000.0 if module.training else 0.0)
            np.testing.assert_array_equal(f(zeros).numpy(), expected)
            x += 1
