"""Repeated calls of compiled functions: results are computed into released memory."""

from __future__ import annotations

import gc
import random
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import current
from magmath.engine.array_sizes import MAX_BYTES_INLINE
from magmath.errors import MagmathError
from magmath.runtime import Pool

Pair = tuple[mm.Array, np.ndarray[Any, Any]]


@pytest.fixture(autouse=True)
def pool() -> Iterator[Pool]:
    """A fresh engine on the worker of this process."""
    with current("inline") as pool:
        yield pool


def counter(pool: Pool, name: str) -> int:
    return int(pool.stats()[0][name])


def _written(x: Any, k: float) -> Any:
    x[1] = k
    return x


FUNCTIONS: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (lambda x, y, k: (x - k * y,), lambda x, y, k: (x - np.float32(k) * y,)),
    (
        lambda x, y, k: [mm.maximum(x, y), mm.sum(x) * k + y],
        lambda x, y, k: [np.maximum(x, y), x.sum() * np.float32(k) + y],
    ),
    (lambda x, y, k: (x, y[::-1], x), lambda x, y, k: (x, y[::-1], x)),
    (lambda x, y, k: (_written(x + y, k), y), lambda x, y, k: (_written(x + y, k), y)),
    (lambda x, y, k: (mm.grad(mm.sum(x * x * k), x),), lambda x, y, k: (2 * x * np.float32(k),)),
]


@settings(max_examples=25, deadline=None)
@given(st.randoms(use_true_random=False))
def test_a_referenced_result_keeps_its_values(choice: random.Random) -> None:
    with current("inline"):
        values = np.random.default_rng(choice.randrange(1000))
        compiled = [(mm.compile(own), numpy) for own, numpy in FUNCTIONS]
        held: list[Pair] = []
        for _ in range(60):
            while len(held) < 2:
                fresh = values.uniform(-1, 1, 6).astype(np.float32)
                held.append((mm.asarray(fresh), fresh))
            (x, a), (y, b) = choice.choice(held), choice.choice(held)
            k = choice.choice([0.0, -0.0, 0.5, 1, 2.0])
            step = choice.randrange(10)
            if step < 6:
                own, numpy = choice.choice(compiled)
                held += zip(own(x, y, k), numpy(a, b, k), strict=True)
            elif step == 6:
                held.append((x - y * k, a - b * np.float32(k)))  # not computed yet
            elif step == 7:
                changed = a.copy()
                changed[2] = k
                held[:] = [(z, c) for z, c in held if z is not x]
                x[2] = k
                held.append((x, changed))
            elif step == 8:
                mm.evaluate(*[z for z, _ in held])
            del x, y
            for _ in range(choice.randrange(4)):
                if held:
                    held.pop(choice.randrange(len(held)))
            for z, c in held if step == 9 else held[-1:]:
                np.testing.assert_allclose(z.numpy(), c, rtol=1e-4, atol=1e-6)
        for z, c in held:
            np.testing.assert_allclose(z.numpy(), c, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "held_by",
    [
        lambda r: r,
        lambda r: r + 0,
        lambda r: r[:],
        lambda r: mm.where(r > -1, r, r),
        lambda r: mm.grad(mm.sum(r * r / 2), r),
        lambda r: mm.variable("v", r),
        lambda r: mm.variable("v", mm.zeros(3)).__iadd__(r),
    ],
)
def test_all_holders_count(held_by: Callable[[mm.Array], mm.Array]) -> None:
    f = mm.compile(lambda x: x + 1)
    x = mm.zeros(3)
    f(x)
    held = [held_by(f(x + float(i))) for i in range(6)]
    for _ in range(6):
        f(mm.ones(3))
    assert [h.tolist() for h in held] == [[i + 1.0] * 3 for i in range(6)]


def test_what_was_made_of_a_former_result_is_not_made_of_the_next() -> None:
    f = mm.compile(lambda x: x + 1)
    x = mm.zeros(3)
    for _ in range(3):
        f(x)
    held = f(x) * 2
    mm.evaluate(held)
    for _ in range(8):
        result = f(x)
        assert mm.grad(mm.sum(held * result), result).tolist() == [2.0] * 3
        made_of = result * 3
        mm.evaluate(made_of)
        assert mm.grad(mm.sum(made_of), result).tolist() == [3.0] * 3
        assert mm.grad(mm.sum(made_of), x).tolist() == [3.0] * 3


def test_a_loop_asks_for_no_memory(pool: Pool) -> None:
    f = mm.compile(lambda x, y, k: {"x": x + k * y, "s": mm.sum(x)})
    x, y = mm.zeros(100), mm.ones(100)
    for i in range(4):
        x = f(x, y, 1.0 * i)["x"]
    allocated = counter(pool, "allocations")
    for i in range(4, 100):
        x = f(x, y, 1.0 * i)["x"]
    assert counter(pool, "allocations") == allocated
    np.testing.assert_array_equal(x.numpy(), np.full(100, 99 * 50.0, np.float32))


@pytest.mark.parametrize("extent", [MAX_BYTES_INLINE // 4, MAX_BYTES_INLINE // 4 + 1])
def test_memory_of_small_results_alone_is_kept(pool: Pool, extent: int) -> None:
    f = mm.compile(lambda x: x + 1)
    x = mm.asarray(np.ones(extent, np.float32))
    f(x)
    gc.collect()
    held = counter(pool, "in_use")
    y = f(x)
    z = f(x)
    del y, z
    gc.collect()
    assert (counter(pool, "in_use") > held) == (extent * 4 <= MAX_BYTES_INLINE)


def test_nothing_is_kept_under_a_memory_limit() -> None:
    with mm.init(memory_limit=64 << 20) as pool:
        f = mm.compile(lambda x: x + 1)
        x = mm.ones(1000)
        f(x)
        held = counter(pool, "in_use")
        for _ in range(3):
            f(x)
        assert counter(pool, "in_use") == held


def test_a_call_that_fails_names_the_users_line_and_harms_nothing() -> None:
    f = mm.compile(lambda x, i: mm.take(x * 2, i))  # the line
    x, good, bad = mm.asarray([1.0, 2.0]), mm.asarray([1, 0]), mm.asarray([0, 7])
    results = [f(x, good) for _ in range(3)]
    for _ in range(3):
        with pytest.raises(IndexError) as caught:
            f(x, bad)
        note = "".join(traceback.format_exception_only(caught.value))
        line = f.__wrapped__.__code__.co_firstlineno  # type: ignore[attr-defined]
        assert f"in the operation built at {__file__}:{line}" in note
        results.append(f(x, good))
    for result in results:
        assert result.tolist() == [4.0, 2.0]


def test_arrays_of_another_pool_are_refused() -> None:
    f = mm.compile(lambda x: x + 1)
    x = mm.ones(3)
    for _ in range(3):
        f(x)
    with mm.init():
        for _ in range(3):
            assert f(mm.ones(3)).tolist() == [2.0] * 3
        with pytest.raises(MagmathError, match="belongs to another pool"):
            f(x)


def test_variables_are_read_as_they_are() -> None:
    v = mm.variable("v", [1.0, 2.0])
    f = mm.compile(lambda x: (v * x, v + 0))
    x, seen = mm.ones(2), []
    for i in range(6):
        seen.append(f(x)[1])
        v += x
        v[0] = 1.0 * i
    assert [s.tolist() for s in seen] == [[1.0, 2.0], *[[1.0 * i, 3.0 + i] for i in range(5)]]


def test_any_thread_may_call() -> None:
    f = mm.compile(lambda x, k: mm.sqrt(x * x) + k)
    wrong: list[object] = []

    def work(seed: int) -> None:
        x, a = mm.asarray(np.full(50, seed, np.float32)), float(seed)
        for i in range(100):
            x, a = f(x, 1.0 * i), a + i
            y = f(x, 0.5)
            if not (y.numpy() == a + 0.5).all():
                wrong.append((seed, i))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_other_threads_compute_while_one_traces() -> None:
    is_tracing, is_done = threading.Event(), threading.Event()
    weight = mm.variable("weight", [1.0, 2.0])
    doubled = mm.compile(lambda x: x * weight + mm.random.uniform(shape=(2,)) * 0)
    doubled(mm.ones(2))
    result: list[object] = []

    def work() -> None:
        is_tracing.wait()
        x = mm.asarray([3.0, 4.0])
        result.append((doubled(x) + weight).tolist())
        result.append(mm.grad(mm.sum(weight * x), weight).tolist())
        weight.assign([5.0, 6.0])
        is_done.set()

    @mm.compile
    def traced(x: mm.Array) -> mm.Array:
        is_tracing.set()
        assert is_done.wait(20)
        return x * weight

    other = threading.Thread(target=work)
    other.start()
    assert traced(mm.asarray([1.0, 1.0])).tolist() == [5.0, 6.0]
    other.join()
    assert result == [[4.0, 10.0], [3.0, 4.0]]
