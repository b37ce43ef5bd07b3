"""The memory that pending expressions reference: at most a few times that of their values."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import magmath as mm
from engines import current
from magmath.engine.lifetimes import expression_bounds, pending_memory
from magmath.graph.provenance import recent_array_cache
from magmath.memory import Heap, PrivateSource
from magmath.memory.temporaries import Temporaries


@pytest.mark.parametrize("kind", [("inline", 1), ("shared", 2)], ids=lambda kind: kind[0])
def test_a_sum_that_no_step_reads_keeps_none_of_its_terms(
    kind: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the solution in a loop of conjugate gradients, of which each step reads only the
    residual.

    With higher limits than the other tests: with theirs, searches alone would keep the memory below
    the bound, and the test could not fail.
    """
    monkeypatch.setattr(pending_memory, "MIN_BYTES", 32 << 20)
    monkeypatch.setattr(recent_array_cache, "MAX_BYTES", 16 << 20)
    steps, n = 40, 1 << 18
    with current(*kind) as pool:
        x, p = mm.zeros(n, dtype=mm.float64), mm.ones(n, dtype=mm.float64)
        expected = np.zeros(n)
        mm.evaluate(x, p, wait=True)
        before, most = pool.array_bytes, 0
        for step in range(steps):
            x += 0.5 * p
            expected += 0.5 * (1 + step / 2)
            p = p + 0.5
            mm.evaluate(p)
            most = max(most, pool.array_bytes - before)
        assert most <= 8 * n * x.dtype.itemsize
        np.testing.assert_array_equal(np.asarray(x), expected)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pending arrays are searched as soon as all arrays have 8 MB, and records keep 4 MB."""
    monkeypatch.setattr(pending_memory, "MIN_BYTES", 8 << 20)
    monkeypatch.setattr(recent_array_cache, "MAX_BYTES", 4 << 20)


KINDS = pytest.mark.parametrize("kind", [("inline", 1), ("shared", 2)], ids=lambda kind: kind[0])


@KINDS
@pytest.mark.parametrize("reads", [1, 100])
def test_rows_of_an_array_updated_in_place_keep_none_of_its_values(
    kind: tuple[str, int], reads: int
) -> None:
    """`v` is small, and each of its terms is read from another value of the large array."""
    n = 200
    with current(*kind) as pool:
        x, y = np.ones((n, n)), np.ones(n)
        a, v = mm.asarray(x), mm.asarray(y)
        before, most = pool.array_bytes, 0
        for t in range(400):
            a *= 0.999
            a[t % n] = 1.0
            v = v * 0.9 + a[0]
            x *= 0.999
            x[t % n] = 1.0
            y = y * 0.9 + x[0]
            if t % reads == 0:
                np.testing.assert_allclose(float(mm.sum(a[:10])), x[:10].sum(), rtol=1e-12)
            most = max(most, pool.array_bytes - before)
        assert most <= 3 * pending_memory.MIN_BYTES
        np.testing.assert_allclose(np.asarray(v), y, rtol=1e-12)


@KINDS
@pytest.mark.parametrize("compiled", [False, True])
def test_a_list_of_norms_does_not_keep_the_arrays(kind: tuple[str, int], compiled: bool) -> None:
    with current(*kind) as pool:
        step: Callable[[mm.Array], mm.Array] = (
            (lambda x: x * 0.99) if not compiled else mm.compile(lambda x: x * 0.99)
        )
        x, norms = mm.ones(1 << 18), []
        for _ in range(60):
            x = step(x)
            mm.evaluate(x)
            norms.append(mm.sum(x * x))
        gc.collect()
        assert pool.array_bytes <= 3 * pending_memory.MIN_BYTES
        expected = [2.0**18 * 0.99 ** (2 * i + 2) for i in range(60)]
        np.testing.assert_allclose([float(x) for x in norms], expected, rtol=1e-3)


@KINDS
def test_uploads_count_too(kind: tuple[str, int]) -> None:
    with current(*kind) as pool:
        held = []
        for i in range(30):
            held.append(mm.sum(mm.asarray(np.full(1 << 18, float(i)))))
        assert pool.array_bytes <= 3 * pending_memory.MIN_BYTES
        assert [float(x) for x in held] == [i * 2.0**18 for i in range(30)]


def test_a_search_stores_no_intermediate_values() -> None:
    with current("inline") as pool:
        norms = []
        for _ in range(30):
            x = mm.asarray(np.ones(1 << 17))
            mm.evaluate(x)
            norms.append(mm.sum(mm.square(x) + x) * 2)
            del x
        gc.collect()
        assert pool.array_bytes <= 3 * pending_memory.MIN_BYTES
        assert all(float(x) == 4.0 * 2**17 for x in norms)


@KINDS
def test_callbacks_that_compute_do_not_disturb_a_run(kind: tuple[str, int]) -> None:
    """Between the steps of an epoch they run larger programs."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((512, 64)).astype(np.float32)
    y = rng.integers(0, 4, 512)
    losses = []
    with current(*kind):
        held_out = mm.asarray(rng.standard_normal((700, 64)).astype(np.float32))

        class Monitor(mm.train.Callback):
            def on_step_end(self, trainer: Any, step: int, loss: float, speed: float) -> None:
                float(mm.mean(mm.exp(held_out @ held_out.T * 1e-2) * held_out[:, :1]))

        for callbacks in ([], [Monitor()]):
            net = mm.nn.Sequential(mm.nn.Dense(256, activation="relu"), mm.nn.Dense(4))
            trainer = mm.train.Trainer(net, "cross_entropy", mm.optim.GradientDescent(0.01), seed=4)
            losses.append(trainer.fit(x, y, batch_size=64, epochs=3, callbacks=callbacks).loss)
    assert losses[0] == losses[1]


@KINDS
def test_a_failing_expression_is_not_computed_before_it_is_read(kind: tuple[str, int]) -> None:
    with current(*kind):
        held = []
        for _ in range(200):
            x = mm.zeros((300, 300))
            mm.evaluate(x)
            held.append(mm.sum(mm.linalg.cholesky(x)))
        assert not any(x.is_computed for x in held)
        with pytest.raises(mm.linalg.LinAlgError):
            float(held[0])


@KINDS
def test_programs_share_the_memory_of_temporaries(kind: tuple[str, int]) -> None:
    """Compiled functions that ran before a larger program still compute the right values."""
    rng = np.random.default_rng(0)
    with current(*kind) as pool:
        before = max(int(s["in_use"]) for s in pool.stats())
        sums = [mm.compile(lambda x, k=k: mm.sum(x @ x * k)) for k in range(1, 4)]
        arrays = [rng.standard_normal((n, n)) for n in (100, 150, 90, 300, 200, 301)]
        for _ in range(2):
            for x in arrays:
                for k, f in enumerate(sums, start=1):
                    given = mm.asarray(x)
                    for _ in range(3):
                        np.testing.assert_allclose(float(f(given)), (x @ x * k).sum(), rtol=1e-9)
        largest = arrays[-1].nbytes
        mm.evaluate(mm.zeros(3), wait=True)
        # The last results of the three functions keep their arguments, for gradients.
        assert max(int(s["in_use"]) for s in pool.stats()) - before < 11 * largest


def test_terms_that_the_user_holds_wait_for_one_program() -> None:
    """A filter by shifted slices is one expression, which can become one loop."""
    with current("inline"):
        image = mm.asarray(np.arange(2.0**16).reshape(256, 256))
        mm.evaluate(image)
        blurred = mm.zeros_like(image)[2:, 2:]
        for i in range(3):
            for j in range(3):
                blurred += image[i : i + 254, j : j + 254]
        assert not blurred.is_computed
        x = np.asarray(image)
        expected = sum(x[i : i + 254, j : j + 254] for i in range(3) for j in range(3))
        np.testing.assert_array_equal(np.asarray(blurred), expected)


@pytest.mark.parametrize("compiled", [False, True])
def test_loops_of_updates_leave_few_objects_to_the_garbage_collector(compiled: bool) -> None:
    """Records of former values are not traversed by collections, each of which would take as long
    as thousands of updates."""
    with current("inline"):
        x, y = mm.zeros(64), mm.ones(64)
        update = mm.compile(lambda x, y: x + 2 * y)

        def steps(count: int) -> int:
            nonlocal x
            for i in range(count):
                if compiled:
                    x = update(x, y)
                else:
                    x += i * y
            gc.collect()
            return len(gc.get_objects())

        before = steps(300)
        assert steps(3000) - before < 3 * 3000
        assert np.isfinite(float(x[0]))


def test_a_write_of_a_shared_expression_is_examined_once() -> None:
    """Each addition has one operand twice: as a tree it would have 2^60 nodes."""
    with current("inline"):
        a, v = mm.zeros(4), mm.ones(4)
        for _ in range(60):
            v = v + v
        a[:2] = v[:2]
        assert a.tolist() == [2.0**60, 2.0**60, 0.0, 0.0]


def test_a_compiled_function_does_not_keep_the_arguments_of_its_last_call() -> None:
    with current("inline") as pool:
        gc.collect()
        before = pool.array_bytes
        f = mm.compile(lambda x, y: x + y)
        x, y = mm.ones(1 << 20), mm.ones(1 << 20)
        for _ in range(5):
            x = f(x, y)
        mm.evaluate(x)
        del x, y
        gc.collect()
        assert pool.array_bytes == before


def test_a_search_leaves_arrays_of_other_threads_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be updating them."""
    monkeypatch.setattr(pending_memory, "MIN_BYTES", 1000)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    wrong: list[float] = []

    def work(scale: float) -> None:
        for _ in range(60):
            x, actual = mm.asarray(np.full((60, 60), scale)), []
            for _ in range(10):
                x = x * 1.0
                mm.evaluate(x)
                s = mm.sum(x)
                for _ in range(3):
                    s += 1
                    s *= 2
                actual.append(s)
            expected = 8 * 3600 * scale + 14
            wrong.extend(float(s) - expected for s in actual if float(s) != expected)
        finished.append(scale)

    finished: list[float] = []
    try:
        with current("inline"):
            threads = [threading.Thread(target=work, args=(1.0 + i,)) for i in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(before)
    assert len(finished) == 3
    assert not wrong


class Owner:
    """A program that always runs."""

    def free_idle_memory(self) -> None: ...


def test_a_small_program_of_many_steps_does_not_take_over_a_large_block() -> None:
    heap = Heap(PrivateSource(torch.device("cpu")))
    temporaries = Temporaries(heap)
    temporaries.reserve(1 << 20)
    large = temporaries.block
    own = temporaries.take(1 << 10, Owner())
    assert own.nbytes == 1 << 10
    assert temporaries.block is large
    assert temporaries.take(1 << 20, Owner()) is large
    assert heap.in_use == (1 << 20) + (1 << 10)
    temporaries.reserve(1 << 12)
    assert temporaries.block.nbytes == 1 << 12


def test_a_reservation_over_the_limit_keeps_the_size() -> None:
    heap = Heap(PrivateSource(torch.device("cpu")), limit=1 << 20, chunk_bytes=1 << 16)
    temporaries = Temporaries(heap)
    temporaries.reserve(1 << 17)
    with pytest.raises(mm.errors.MemoryLimitError, match="the temporaries of programs"):
        temporaries.reserve(1 << 21)
    assert temporaries.block.nbytes == 1 << 17
    assert heap.in_use == 1 << 17


def test_loops_of_updates_through_views_need_no_more_memory() -> None:
    with current("inline") as pool:
        x = mm.asarray(np.ones(20_000))
        for i in range(600):
            x += 0.1
            y = x[1:]
            y *= 0.999
            if i % 50 == 0:
                assert np.isfinite(float(mm.sum(x)))
            if i == 100:
                before = pool.stats()[0]["arrays"]
        assert int(pool.stats()[0]["arrays"]) <= int(before) + 2


def test_long_functions_are_traced_without_walks_along_all_operations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each would take as long as the function, so that the time of a trace would grow with its
    square. Nothing is computed in a trace anyway."""

    def walk(*nodes: object, **options: object) -> None:
        raise AssertionError("a walk along the expression")

    def grown(x: mm.Array) -> mm.Array:
        with monkeypatch.context() as patch:
            patch.setattr(expression_bounds, "topological", walk)
            patch.setattr(expression_bounds, "update_depth", walk)
            for _ in range(2 * expression_bounds.MAX_PENDING):
                x = x * 0.999
                x += 1e-3
        return x

    values = np.linspace(0, 2, 1 << 18)
    with current("planned", 1):
        actual = mm.compile(grown)(mm.asarray(values)).numpy()
    known = values
    for _ in range(2 * expression_bounds.MAX_PENDING):
        known = known * 0.999 + 1e-3
    np.testing.assert_allclose(actual, known, rtol=1e-9)
