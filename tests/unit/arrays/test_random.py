"""Random numbers: equal on every pool, from independent streams, with the right distributions."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import magmath as mm
from arrays import GRID, KINDS
from engines import current, start
from magmath.api.random_integers import scaled
from magmath.engine import session
from magmath.errors import (
    DTypeError,
    OptionError,
    RangeError,
    ShapeError,
)


def drawn() -> list[Any]:
    mm.random.seed(11)
    return [
        mm.random.uniform(-1, 2, (5, 7)).numpy(),
        mm.random.normal(3, 0.5, (40,), dtype="float64").numpy(),
        mm.random.integers(-3, 9, (3, 4)).numpy(),
        mm.random.permutation(13).numpy(),
        mm.random.permutation(mm.asarray(GRID), axis=1).numpy(),
    ]


def test_random_numbers_are_the_same_on_every_pool() -> None:
    expected = drawn()
    for kind, workers in [*KINDS, ("shared", 4), ("exact", 3)]:
        with current(kind, workers):
            for found, known in zip(drawn(), expected, strict=True):
                np.testing.assert_array_equal(found, known)


def test_every_draw_has_a_stream_of_its_own() -> None:
    x, y = mm.random.uniform(shape=100), mm.random.uniform(shape=100)
    assert not np.array_equal(x.numpy(), y.numpy())
    np.testing.assert_array_equal(x.numpy(), x.numpy())
    assert len(np.unique(np.concatenate([x.numpy(), y.numpy()]))) > 190


def test_pools_of_one_seed_draw_the_same() -> None:
    found = []
    for seed in (4, 4, 5):
        pool = start("inline", 1)
        pool.seed = seed
        session.set_current_pool(pool)
        found.append(mm.random.uniform(shape=9).numpy())
        pool.close()
        del pool
        gc.collect()
    np.testing.assert_array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])


def test_random_numbers_are_spread_as_they_should_be() -> None:
    u = mm.random.uniform(2, 5, 20000).numpy()
    assert u.min() >= 2
    assert u.max() < 5
    assert abs(u.mean() - 3.5) < 0.03
    n = mm.random.normal(1, 2, 20000).numpy()
    assert abs(n.mean() - 1) < 0.06
    assert abs(n.std() - 2) < 0.06
    i = mm.random.integers(7, shape=7000).numpy()
    assert set(i) == set(range(7))
    assert np.bincount(i).min() > 850
    p = mm.random.permutation(1000).numpy()
    assert sorted(p) == list(range(1000))
    with pytest.raises(ShapeError, match="needs low < high, was given 3 and 3"):
        mm.random.integers(3, 3)
    with pytest.raises(DTypeError, match="draws floating point numbers.*int64"):
        mm.random.uniform(dtype="int64")


@pytest.mark.parametrize(
    ("bounds", "dtype"),
    [((0, 257), "uint8"), ((-1, 5), "uint32"), ((0, 2**31 + 1), "int32"), ((0, 2**64), None),
     ((-(2**63), 2**64), None)],
)  # fmt: skip
def test_integers_are_in_the_range_of_their_type(bounds: tuple[int, int], dtype: Any) -> None:
    """A refused call draws nothing."""
    mm.random.seed(5)
    with pytest.raises(RangeError):
        mm.random.integers(*bounds, size=3, dtype=dtype)
    first = mm.random.uniform(size=3).numpy()
    mm.random.seed(5)
    np.testing.assert_array_equal(mm.random.uniform(size=3), first)


@pytest.mark.parametrize("name", ["uniform", "normal", "integers"])
def test_shape_and_size_are_one_argument(name: str) -> None:
    def drawn(**options: Any) -> Any:
        return getattr(mm.random.Generator(1), name)(2, 5, **options).numpy()

    np.testing.assert_array_equal(drawn(shape=(2, 3)), drawn(size=(2, 3)))
    for shape, size in [((2, 3), (2, 3)), ((2, 3), ()), (0, 3)]:
        with pytest.raises(OptionError, match=f"^random.{name}: shape and size are two names"):
            drawn(shape=shape, size=size)


def test_whole_ranges_of_types() -> None:
    x = mm.random.integers(0, 256, size=4000, dtype="uint8").numpy()
    assert x.dtype == np.uint8
    assert {int(x.min()), int(x.max())} == {0, 255}
    y = mm.random.integers(0, 2**64, size=100, dtype="uint64").numpy()
    w = mm.random.integers(-(2**63), 2**63, size=100).numpy()
    assert 20 < (y >= 2**63).sum() < 80
    assert 20 < (w < 0).sum() < 80
    z = mm.random.integers(1, 2**63, size=100).numpy()
    assert (z > 0).all()
    assert mm.random.integers(0, 2, size=5, dtype=bool).dtype is mm.bool


WIDE = [(2**63, 2**64, "uint64"), (0, 3 * 2**61, None), (-(2**63), 2**63, None),
        (0, 2**64, "uint64"), (10**18, 10**19, "uint64"), (-5, 2**40, None)]  # fmt: skip


@pytest.mark.parametrize("of_arrays", [False, True])
@pytest.mark.parametrize(("low", "high", "dtype"), WIDE)
def test_integers_of_wide_ranges_are_even(low: int, high: int, dtype: Any, of_arrays: bool) -> None:
    mm.random.seed(11)
    count = 30000
    if of_arrays:
        bounds = [np.array([x], dtype=dtype or "int64") for x in (low, high - 1)]
        drawn = mm.random.integers(*bounds, size=count, dtype=dtype, endpoint=True)
    else:
        drawn = mm.random.integers(low, high, size=count, dtype=dtype)
    assert drawn.dtype == (dtype or "int64")
    values = [int(x) for x in drawn.numpy()]
    assert low <= min(values) <= max(values) < high
    for parts in ([(x - low) * 6 // (high - low) for x in values], [x % 7 for x in values]):
        shares = np.bincount(parts) / count
        assert abs(shares - 1 / len(shares)).max() < 5 * (6 / 49 / count) ** 0.5


@given(
    st.lists(
        st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1), st.integers(0, 2**64 - 1)),
        min_size=1,
        max_size=20,
    )
)
def test_scaled_bits_are_those_of_exact_arithmetic(cases: list[tuple[int, int, int]]) -> None:
    high, low, last = (np.array(x, dtype="uint64").view("int64") for x in zip(*cases, strict=True))
    words = mm.asarray(high).node, mm.asarray(low).node
    found = mm.Array(scaled(words, mm.asarray(last).node)).numpy().view("uint64")
    assert found.tolist() == [((h << 63) + x) * (n + 1) >> 126 for h, x, n in cases]


@pytest.mark.parametrize(
    ("bounds", "dtype", "error"),
    [
        (([2**63 + 1],), None, RangeError), (([0, -1], [3, 3]), "uint64", RangeError),
        (([0, 3], [5, 2]), None, ShapeError), ((np.array([4]), 4), None, ShapeError),
        ((0, 3), bool, RangeError), ((2**63, 2**64), "float32", RangeError),
    ],
)  # fmt: skip
def test_bounds_that_are_known_are_checked(bounds: Any, dtype: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"random\.integers: .*; .*pass"):
        mm.random.integers(*bounds, dtype=dtype)


def test_entries_of_probability_zero_are_never_drawn() -> None:
    p = [0.5, 0.0, 0.5, 0.0]
    for replace, size in ((False, 2), (True, 50)):
        assert set(mm.random.choice(4, size, replace, p).tolist()) <= {0, 2}
    with pytest.raises(ShapeError, match="only 2 have a probability above 0"):
        mm.random.choice(4, 3, False, p)
    with pytest.raises(OptionError, match="pvals must be at least 0"):
        mm.random.multinomial(10, [0.6, -0.2, 0.6])
