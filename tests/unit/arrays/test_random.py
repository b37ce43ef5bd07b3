"""Random numbers: equal on every pool, from independent streams, with the right distributions."""

from __future__ import annotations

import gc
from collections.abc import Callable
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
            for actual, known in zip(drawn(), expected, strict=True):
                np.testing.assert_array_equal(actual, known)


def test_every_draw_has_a_stream_of_its_own() -> None:
    x, y = mm.random.uniform(shape=100), mm.random.uniform(shape=100)
    assert not np.array_equal(x.numpy(), y.numpy())
    np.testing.assert_array_equal(x.numpy(), x.numpy())
    assert len(np.unique(np.concatenate([x.numpy(), y.numpy()]))) > 190


def test_pools_of_one_seed_draw_the_same() -> None:
    result = []
    for seed in (4, 4, 5):
        pool = start("inline", 1)
        pool.seed = seed
        session.set_current_pool(pool)
        result.append(mm.random.uniform(shape=9).numpy())
        pool.close()
        del pool
        gc.collect()
    np.testing.assert_array_equal(result[0], result[1])
    assert not np.array_equal(result[0], result[2])


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
    result = mm.Array(scaled(words, mm.asarray(last).node)).numpy().view("uint64")
    assert result.tolist() == [((h << 63) + x) * (n + 1) >> 126 for h, x, n in cases]


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


@pytest.mark.parametrize("number", [int, np.int64])
@pytest.mark.parametrize(
    ("low", "high"), [(0, 10), (-3, 2), (0, 2**32), (0, 2**32 + 1), (5, 2**62)]
)
def test_bounds_may_be_arguments_of_compiled_functions(low: int, high: int, number: Any) -> None:
    """They draw the same numbers as uncompiled, and leave the generator at the same stream."""
    mm.init(workers=0, seed=4)

    def draw(low: Any, high: Any) -> Any:
        return mm.random.integers(low, high, 7), mm.random.uniform(size=3)

    rows = []
    for function in (draw, mm.compile(draw)):
        mm.random.seed(0)
        rows.append(
            [x.numpy() for x in (*function(number(low), number(high)), mm.random.uniform())]
        )
    for plain, compiled in zip(*rows, strict=True):
        np.testing.assert_array_equal(plain, compiled)


def test_bounds_may_be_counters_of_loops() -> None:
    mm.init(workers=0, seed=4)
    wanted = mm.stack([mm.random.integers(0, i + 1, 5) for i in range(6)])
    mm.random.seed(4)
    rows = mm.expand_dims(mm.arange(6), axis=1)
    actual = mm.fori_loop(
        0, 6, lambda i, x: mm.where(rows == i, mm.random.integers(0, i + 1, 5), x),
        mm.zeros((6, 5), dtype=mm.int64),
    )  # fmt: skip
    np.testing.assert_array_equal(actual.numpy(), wanted.numpy())


@pytest.mark.parametrize("name", ["permutation", "choice"])
def test_numbers_of_entries_may_be_arguments_of_compiled_functions(name: str) -> None:
    mm.init(workers=0, seed=4)
    draw = getattr(mm.random, name)
    rows = []
    for function in (draw, mm.compile(lambda n: draw(n))):
        mm.random.seed(0)
        rows.append([np.asarray(function(n)) for n in (5, np.int64(6), 7)])
    for plain, compiled in zip(*rows, strict=True):
        np.testing.assert_array_equal(plain, compiled)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("of_arrays", [False, True])
def test_uniform_numbers_are_below_the_upper_bound(dtype: str, of_arrays: bool) -> None:
    mm.init(workers=0, seed=4)
    low, high = 1.0, 1.5 if dtype == "float32" else 2.0
    bounds = (mm.asarray(low), mm.asarray(high)) if of_arrays else (low, high)
    drawn = mm.random.uniform(*bounds, 50_000, dtype=dtype)
    assert float(mm.min(drawn)) >= low
    assert float(mm.max(drawn)) < high
    assert float(mm.random.uniform(2.0, 2.0, dtype=dtype)) == 2.0


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_probabilities_of_narrow_types_leave_no_entry_out(dtype: str) -> None:
    mm.init(workers=0, seed=4)
    count = 4096
    drawn = mm.random.choice(count, 200_000, p=np.full(count, 1 / count, dtype))
    assert len(np.unique(drawn.numpy())) == count


def test_whole_numbers_are_limited_to_int64() -> None:
    mm.init(workers=0, seed=4)
    assert int(mm.min(mm.random.geometric(1e-20, 20))) > 2**60
    assert int(mm.sum(mm.random.multinomial(2.5, [0.5, 0.5]))) == 2


@pytest.mark.parametrize(
    ("colors", "sample"), [([2, 2], 10), ([3], -5), ([-1, 5], 2), (np.array([3]), 4)]
)
def test_no_more_items_are_drawn_than_there_are(colors: Any, sample: int) -> None:
    mm.init(workers=0, seed=4)
    with pytest.raises(OptionError):
        mm.random.multivariate_hypergeometric(colors, sample)


@pytest.mark.parametrize(
    "seeded",
    [
        mm.random.seed,
        mm.random.Generator,
        lambda seed: mm.init(workers=0, seed=seed),
        mm.nn.RngState,
        lambda seed: mm.nn.Dropout(seed=seed)(mm.ones(3)),
    ],
)
def test_seeds_have_63_bits(seeded: Callable[[int], Any]) -> None:
    mm.init(workers=0)
    with pytest.raises(OptionError, match=r"less than 2\^63"):
        seeded(2**63)
    mm.random.seed(2**63 - 1)
    mm.random.uniform()
    assert mm.random.default_rng(2**127).uniform() < 1  # as NumPy's, of any size
