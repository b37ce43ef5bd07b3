"""Reductions of operands that are never stored equal reductions of stored operands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import NOTHING_IS_SMALL, current
from layouts import layouts
from magmath.core.index_set import IndexSet
from magmath.engine import session
from magmath.ops import block_reduction
from magmath.program.instructions import Call, Program
from magmath.runtime import Pool

POOLS = [("inline", 1), ("shared", 2), ("shared", 4), ("messages", 3), ("exact", 3)]
BOUND = 1 << 10  # so that what takes more than 128 bytes of a worker is not stored
some = settings(max_examples=8, suppress_health_check=list(HealthCheck))


@contextmanager
def tight(kind: str, workers: int, bound: int = BOUND) -> Iterator[Pool]:
    """A pool whose planner believes that a worker has so little memory."""
    with current(kind, workers) as pool:
        engine = session.engine()
        engine.environment = replace(engine.environment, memory_bound=bound)
        engine.small_sizes = NOTHING_IS_SMALL
        yield pool


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many blocks, of odd sizes."""
    monkeypatch.setattr(block_reduction, "BLOCK", 97)


def operations(array: mm.Array) -> list[str]:
    """The operations of the program that would compute an array."""
    program: Program = session.engine().compile(_graph(array)).program
    return [i.operation for i in program.instructions if isinstance(i, Call)]


def _graph(array: mm.Array) -> Any:
    from magmath.graph import Graph

    return session.engine().pending_graph(Graph((array.node,)))


def draw_operand(data: st.DataObject, shape: tuple[int, ...]) -> Callable[[], mm.Array]:
    """Makes, as often as it is called, an array of float64 of created and of stored arrays."""
    seed = data.draw(st.integers(0, 1000))
    stored = np.random.default_rng(seed).standard_normal(shape)
    random = mm.random.normal(shape=shape, dtype="float64")
    rule = data.draw(
        st.sampled_from([mm.Layout.replicated(), mm.Layout.split(0), mm.Layout.cyclic(-1)])
    )
    makers: list[Callable[[], mm.Array]] = [
        lambda: mm.full(shape, 1.5, dtype="float64"),
        lambda: mm.broadcast_to(mm.arange(shape[-1], dtype="float64"), shape),
        lambda: random,
        lambda: mm.asarray(stored, layout=rule),
        lambda: mm.ones(shape, dtype="float64").redistribute(rule),
    ]
    chosen = data.draw(st.lists(st.sampled_from(makers), min_size=1, max_size=3))
    squared = data.draw(st.booleans())

    def make() -> mm.Array:
        total = chosen[0]()
        for maker in chosen[1:]:
            total = total * 0.5 + maker()
        return mm.square(total) if squared else total

    return make


@pytest.mark.parametrize(("kind", "workers"), POOLS)
@given(data=st.data())
@some
def test_any_reduction_is_that_of_the_stored_operand(
    kind: str, workers: int, data: st.DataObject
) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 13), min_size=1, max_size=3)))
    axis = tuple(data.draw(st.sets(st.sampled_from(range(len(shape))), min_size=1)))
    name = data.draw(st.sampled_from(["sum", "prod", "max", "min", "mean"]))
    keepdims = data.draw(st.booleans())
    with tight(kind, workers):
        make = draw_operand(data, shape)
        result = getattr(mm, name)(make(), axis=axis, keepdims=keepdims).numpy()
        whole = make().numpy()
    if name == "prod":
        # Workers multiply their parts first, so a part may overflow where NumPy has met a zero
        # before; without overflow and underflow in any order the products are equal.
        exponents = np.log2(np.abs(np.where(whole == 0, 1.0, whole)))
        assume(np.abs(exponents).sum(axis).max() < 1000)
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(whole, axis=axis, keepdims=keepdims)
    np.testing.assert_allclose(result, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(("kind", "workers"), POOLS)
def test_the_operand_has_no_memory(kind: str, workers: int) -> None:
    with tight(kind, workers) as pool:
        result = mm.sum(mm.square(mm.random.normal(shape=(700, 90))), axis=0)
        assert operations(result)[:1] == ["reduce_blocks"]
        before = max(int(counters["peak"]) for counters in pool.stats())
        assert result.numpy().shape == (90,)
        taken = max(int(counters["peak"]) for counters in pool.stats()) - before
        assert taken < 700 * 90 * 4 // workers // 2


@pytest.mark.parametrize(("kind", "workers"), POOLS)
def test_closed_forms(kind: str, workers: int) -> None:
    n = 10_007
    with tight(kind, workers):
        assert int(mm.sum(mm.arange(n))) == n * (n - 1) // 2
        assert int(mm.sum(mm.arange(n) % 7)) == int(np.sum(np.arange(n) % 7))
        assert float(mm.sum(mm.ones((211, 307)))) == 211 * 307
        assert bool(mm.any(mm.arange(n) == n - 1))
        assert not bool(mm.all(mm.arange(n) < n - 1))
        assert int(mm.max(mm.arange(n) * -1)) == 0
        assert complex(mm.sum(mm.ones(n, dtype="complex64") * 1j)) == n * 1j


@pytest.mark.parametrize(("kind", "workers"), POOLS)
def test_a_variance_computes_its_operand_twice(kind: str, workers: int) -> None:
    with tight(kind, workers):
        variance = mm.var(mm.random.uniform(shape=(500, 200)))
        assert operations(variance).count("reduce_blocks") == 2
        assert abs(float(variance) - 1 / 12) < 1e-3


def test_operands_with_other_readers_are_stored() -> None:
    with tight("shared", 2):
        x = mm.arange(10_000) * 2
        y, total = x + 1, mm.sum(x)
        mm.evaluate(y, total)
        assert int(total) == 10_000 * 9_999
        assert y.numpy()[-1] == 2 * 9_999 + 1


@pytest.mark.parametrize(("kind", "workers"), POOLS)
def test_operands_that_fit_are_planned_without_blocks(kind: str, workers: int) -> None:
    with tight(kind, workers, bound=1 << 30):
        assert "reduce_blocks" not in operations(mm.sum(mm.square(mm.ones((700, 90)))))


def test_deterministic_results_do_not_depend_on_the_workers() -> None:
    result = []
    for workers in (1, 2, 3, 4):
        with tight("exact", workers):
            x = mm.random.normal(shape=(240, 77), dtype="float32")
            result.append([mm.sum(mm.exp(x), axis=axis).numpy() for axis in (0, 1, (0, 1))])
    for other in result[1:]:
        for one, same in zip(result[0], other, strict=True):
            assert np.array_equal(one, same)


@given(data=st.data())
@some
def test_a_portion_of_an_index_set(data: st.DataObject) -> None:
    layout = data.draw(layouts((29,)))
    for tile in layout.tiles(data.draw(st.sampled_from(layout.mesh.workers))):
        index: IndexSet = tile[0]
        first, last = sorted(data.draw(st.tuples(*[st.integers(0, index.size)] * 2)))
        assert index.select(first, last).indices().tolist() == index.indices()[first:last].tolist()
