"""Copies of arrays in other layouts are cached: the second use sends nothing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import magmath as mm
from magmath.arrays.array import Array
from magmath.engine import session
from magmath.engine.remote_array import remote_array_of
from magmath.layout import Layout
from magmath.runtime import Pool

SIDE = 256
NBYTES = 4 * SIDE * SIDE


@pytest.fixture
def pool() -> Iterator[Pool]:
    with mm.init(2, launcher="threads", device="cpu", threads=1) as started:
        yield started


def rows(seed: int = 0) -> Array:
    values = np.random.default_rng(seed).random((SIDE, SIDE), dtype=np.float32)
    return mm.asarray(values, layout=Layout.split(0))


def copies(x: Array) -> int:
    return len(remote_array_of(x.evaluated_leaf()).copies)


def test_the_second_redistribution_sends_nothing(pool: Pool) -> None:
    x = rows()
    first = x.redistribute(Layout.split(1))
    mm.evaluate(first)
    messages = pool.traffic.messages
    second = x.redistribute(Layout.split(1))
    mm.evaluate(second)
    assert pool.traffic.messages == messages
    assert second.layout == first.layout
    np.testing.assert_array_equal(np.asarray(second), np.asarray(x))


def test_what_an_operation_has_moved_is_not_moved_again(pool: Pool) -> None:
    """Running sums of a column need all its rows: the array is redistributed to columns once."""
    x = rows()

    def running() -> Array:
        return mm.cumulative_sum(x, axis=0)

    assert running().explain().total.nbytes == NBYTES // 2
    mm.evaluate(running())
    again = mm.cumulative_sum(x, axis=0) * 2
    assert again.explain().total.nbytes == 0
    np.testing.assert_allclose(np.asarray(again), 2 * np.cumsum(np.asarray(x), axis=0), rtol=1e-4)


def test_small_arrays_and_arrays_with_other_uses_are_left_alone(pool: Pool) -> None:
    small = mm.asarray(np.ones((8, 8), np.float32), layout=Layout.split(0))
    mm.evaluate(mm.cumulative_sum(small, axis=0))
    x = rows()
    mm.evaluate(mm.cumulative_sum(x, axis=0), x + 1)
    assert copies(small) == copies(x) == 0


def test_copies_go_with_their_array(pool: Pool) -> None:
    x = rows()
    mm.evaluate(x.redistribute(Layout.split(1)))
    held = pool.array_bytes
    assert copies(x) == 1
    del x
    assert pool.array_bytes == held - NBYTES  # of each half a part on a worker


def test_the_least_recently_used_copy_is_evicted(pool: Pool) -> None:
    session.engine().redistribution_cache.budget = (
        NBYTES  # two copies of half the array on a worker
    )
    x, y, z = rows(1), rows(2), rows(3)
    mm.evaluate(x.redistribute(Layout.split(1)))
    mm.evaluate(y.redistribute(Layout.split(1)))
    mm.evaluate(x.redistribute(Layout.split(1)))
    mm.evaluate(z.redistribute(Layout.split(1)))
    assert (copies(x), copies(y), copies(z)) == (1, 0, 1)


def test_copies_are_found_after_a_repeated_run_has_renumbered_their_array(pool: Pool) -> None:
    x, repeated = rows(), rows()
    mm.evaluate(x.redistribute(Layout.split(1)))
    remote_array_of(x.evaluated_leaf()).swap(remote_array_of(repeated.evaluated_leaf()))
    messages = pool.traffic.messages
    mm.evaluate(x.redistribute(Layout.split(1)))
    assert pool.traffic.messages == messages
    assert copies(x) == 1


def test_nothing_is_kept_where_memory_is_short() -> None:
    with mm.init(2, launcher="threads", device="cpu", memory_limit=16 * NBYTES):
        x = rows()
        mm.evaluate(x.redistribute(Layout.split(1)))
        assert copies(x) == 1
        others = [rows(seed) for seed in range(18)]  # half an array each: over half of the limit
        mm.evaluate(others[0] + 1)
        assert copies(x) == 0
        mm.evaluate(x.redistribute(Layout.split(1)))
        assert copies(x) == 0


def test_a_copy_larger_than_the_budget_is_not_kept(pool: Pool) -> None:
    session.engine().redistribution_cache.budget = NBYTES // 4
    x = rows()
    mm.evaluate(x.redistribute(Layout.split(1)))
    assert copies(x) == 0


def test_replication_is_not_waited_for_until_it_is_used(pool: Pool) -> None:
    """Every operation that needs the whole array uses the copy."""
    x = rows()
    x.replicate(wait=False)
    gathered = x @ mm.asarray(np.eye(SIDE, dtype=np.float32), layout=Layout.split(1))
    assert gathered.explain().total.nbytes == 0
    np.testing.assert_allclose(np.asarray(gathered), np.asarray(x), rtol=1e-5)
