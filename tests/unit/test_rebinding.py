"""Programs that run on other arrays than before share the bound calls of the first run."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import MEMORY_LIMIT, NOTHING_IS_SMALL, current, start
from executors import Compiled, NativeWherePossible
from graphs import held_variable, leaf_of
from magmath.core.dtypes import float64
from magmath.engine.engine import Engine
from magmath.engine.remote_array import remote_array_of
from magmath.executor import native_build, step_loop, tiers
from magmath.executor.call_list import CallList
from magmath.graph import Graph, apply
from magmath.layout import Layout
from magmath.ops import OPERATIONS
from magmath.ops.leaves import scalar

POOLS = [
    ("planned", 1), ("shared", 2), ("shared", 3), ("messages", 2), ("overlapped", 2), ("exact", 2),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "workers"), POOLS)
@settings(max_examples=4, deadline=None)
@given(st.randoms(use_true_random=False))
def test_steps_agree_with_numpy_whichever_arrays_are_kept(
    kind: str, workers: int, choice: random.Random
) -> None:
    """Batches and results are kept, dropped and given again at random."""
    draw = np.random.default_rng(choice.randrange(1000))
    rows, width = choice.choice([4, 7, 300]), choice.choice([3, 130])
    with current(kind, workers):
        expected = draw.normal(size=(width, 2))
        weights = mm.variable("weights", mm.asarray(expected))

        @mm.compile
        def step(x: Any, y: Any, rate: Any) -> Any:
            error = x @ weights - y
            loss = mm.mean(error * error)
            weights.assign(weights - rate * mm.grad(loss, weights))
            return loss, mm.maximum(error, 0.0), mm.sum(x, axis=0)

        batches: list[Any] = []
        kept: list[Any] = []
        for _ in range(12):
            if not batches or choice.random() < 0.5:
                x, y = draw.normal(size=(rows, width)), draw.normal(size=(rows, 2))
                batches.append((x, y, mm.asarray(x), mm.asarray(y)))
            if len(batches) > 3:
                del batches[choice.randrange(len(batches))]
            x, y, own_x, own_y = choice.choice(batches)
            rate = choice.choice([0.1, 0.01])
            actual = step(own_x, own_y, rate)
            error = x @ expected - y
            kept.append((actual, [(error**2).mean(), np.maximum(error, 0), x.sum(axis=0)]))
            expected = expected - rate * x.T @ error / rows
            if choice.random() < 0.5:
                del kept[choice.randrange(len(kept))]
        for actual, wanted in kept:
            for one, value in zip(actual, wanted, strict=True):
                np.testing.assert_allclose(one.numpy(), value, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(weights.numpy(), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", ["planned", "shared"])
def test_a_new_array_for_a_loss_rebinds_only_what_writes_it(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kept losses are new arrays in each step; the products of the step are not bound again."""
    bound = []
    rebound = CallList.rebound

    def counted(self: CallList, positions: Any, *others: Any) -> Any:
        result = rebound(self, positions, *others)
        bound.append((len(set(positions)), len(self._bound), result is not None))
        return result

    monkeypatch.setattr(CallList, "rebound", counted)
    with current(kind, 1 if kind == "planned" else 2):
        weights = mm.variable("weights", mm.ones((3, 2)))
        x, y = mm.ones((5, 3)), mm.zeros((5, 2))
        mm.evaluate(x, y)

        @mm.compile
        def step(x: Any, y: Any) -> Any:
            loss = mm.mean((mm.tanh(x @ weights) - y) ** 2)
            weights.assign(weights - 0.1 * mm.grad(loss, weights))
            return loss

        losses = [step(x, y) for _ in range(5)]
        values = [float(loss) for loss in losses]
    assert values == sorted(values, reverse=True)
    assert len(set(values)) == 5
    step_calls = [one for one in bound if one[1] > 2]
    assert step_calls
    for positions, ready, shared in step_calls:
        assert shared
        assert positions < ready / 2


@pytest.mark.parametrize("workers", [1, 2])
def test_a_block_of_a_new_chunk_is_not_that_of_a_returned_one(workers: int) -> None:
    unit = MEMORY_LIMIT // 8 // 8 * workers
    double = mm.compile(lambda x: x * 2.0)
    with current("limited", workers):
        for value in (1.0, 5.0):
            x = mm.asarray(np.full(unit, value))
            np.testing.assert_array_equal(double(x).numpy(), np.full(unit, 2 * value))
            del x
            mm.evaluate(mm.asarray(np.zeros(7 * unit)))  # needs the memory of both chunks


@pytest.mark.parametrize("workers", [1, 2, 3])
@settings(max_examples=7, deadline=None)
@given(st.randoms(use_true_random=False))
def test_steps_agree_with_numpy_when_chunks_of_memory_are_returned(
    workers: int, choice: random.Random
) -> None:
    """Arrays of a few sizes are kept and dropped at random, between large ones for which the heap
    must return what is free: later arrays are at equal offsets of other chunks."""
    unit = MEMORY_LIMIT // 24 // 8  # elements of float64 for each worker: 1/24 of the limit
    draw = np.random.default_rng(choice.randrange(1000))
    with current("limited", workers) as pool:
        weight = mm.variable("weight", mm.asarray(np.ones(1)))
        factor = 1.0

        @mm.compile
        def scaled(x: Any) -> Any:
            return x * weight

        @mm.compile
        def step(x: Any) -> Any:
            weight.assign(weight + mm.max(x))
            return mm.exp(x - mm.max(x)) + weight

        @mm.compile
        def steps(x: Any) -> Any:
            return mm.fori_loop(0, 3, lambda i, v: v * 0.5 + x, x)

        kept: list[tuple[np.ndarray[Any, Any], Any]] = []
        for _ in range(20):
            while len(kept) > 2 or (kept and choice.random() < 0.4):
                del kept[choice.randrange(len(kept))]
            if choice.random() < 0.4:
                large = mm.asarray(np.zeros(choice.choice([5, 9]) * unit * workers))
                mm.evaluate(large)
                del large
            x = draw.normal(size=choice.choice([1, 2]) * unit * workers)
            kept.append((x, mm.asarray(x)))
            x, own_x = choice.choice(kept)
            np.testing.assert_allclose(scaled(own_x).numpy(), x * factor, rtol=1e-12)
            factor += x.max()
            np.testing.assert_allclose(step(own_x).numpy(), np.exp(x - x.max()) + factor, rtol=1e-9)
            np.testing.assert_allclose(steps(own_x).numpy(), 1.875 * x, rtol=1e-9)
            np.testing.assert_array_equal(own_x.numpy(), x)
        assert max(worker["reserved"] for worker in pool.stats()) <= MEMORY_LIMIT


@pytest.mark.parametrize("seed", range(3))
def test_runs_of_one_and_of_many_steps_share_no_segments(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of one step has a segment up to the exponential function, whose bits differ; a run of
    many steps has it in the segment. Batches and numbers of steps alternate."""
    monkeypatch.setattr(native_build, "NativeBuild", Compiled)
    monkeypatch.setattr(step_loop, "ExecutorSelector", NativeWherePossible)
    for name in ("COMPILE_AFTER_SECONDS", "SAMPLE_SECONDS", "SHORT_SECONDS"):
        monkeypatch.setattr(tiers, name, 0.0)
    choice, draw = random.Random(seed), np.random.default_rng(seed)
    engine = Engine(start("planned", 1))
    engine.small_sizes = NOTHING_IS_SMALL
    layout = Layout.replicated().bind((50,), engine.pool.mesh)
    batches = [draw.uniform(size=50) for _ in range(3)]
    leaves = [leaf_of(engine, batch, layout) for batch in batches]
    expected = draw.normal(size=50)
    weights = held_variable(engine, expected, layout)

    updated = weights.leaf - scalar(0.125, float64) * (leaves[0] * weights.leaf)
    exponential = apply(OPERATIONS["exp"], updated)
    ordered = apply(OPERATIONS["sort"], exponential, axis=0, descending=False)  # stays a call
    total = apply(OPERATIONS["sum"], ordered, axis=(0,), keepdims=False)
    graph = engine.pending_graph(Graph((updated,), (weights.leaf,), (total,)))
    compiled = engine.compile(graph)
    for i in range(30):
        batch = 0 if i < 10 else choice.randrange(3)
        steps = 1 if i < 10 else choice.choice([1, 3])
        given = [leaves[batch] if leaf is leaves[0] else leaf for leaf in graph.leaves]
        (stored,), run = engine.runs.run(compiled, given, steps=steps)
        weights.leaf.value().set_value(stored)
        totals = []
        for _ in range(steps):
            expected = expected - 0.125 * (batches[batch] * expected)
            totals.append(np.exp(expected).sum())
        np.testing.assert_allclose(run.values(), totals, rtol=1e-12)
        actual = engine.pool.get(remote_array_of(weights.leaf).array_id).numpy()
        np.testing.assert_allclose(actual, expected, rtol=1e-12)
    engine.pool.close()
