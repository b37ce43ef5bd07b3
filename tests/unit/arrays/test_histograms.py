"""Histograms of elements that lie on edges, or next to them, are those of NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import magmath as mm
from engines import current


@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 3)])
@given(
    numerators=st.lists(st.integers(-40, 40), min_size=1, max_size=60),
    denominator=st.integers(1, 12),
    bins=st.integers(1, 48),
    limits=st.sampled_from([None, (-1.0, 1.0), (-0.7, 1.3), (0.0, 1e6)]),
    dtype=st.sampled_from(["float64", "float32", "int32"]),
)
def test_counts_are_those_of_numpy(
    kind: str,
    workers: int,
    numerators: list[int],
    denominator: int,
    bins: int,
    limits: tuple[float, float] | None,
    dtype: str,
) -> None:
    values = (np.array(numerators) / denominator).astype(dtype)
    if dtype == "float32":  # edges of float32 are rounded differently
        values = values + np.float32(1e-3)
    expected, edges = np.histogram(values, bins, limits)
    with current(kind, workers):
        counts, actual = mm.histogram(mm.asarray(values), bins, limits)
        np.testing.assert_allclose(actual.numpy(), edges, rtol=1e-5, atol=1e-6)
        if dtype == "float64":
            np.testing.assert_array_equal(counts.numpy(), expected)
        first, *_, last = actual.numpy()
        own = np.histogram(values.astype(actual.numpy().dtype), actual.numpy())[0]
        np.testing.assert_array_equal(counts.numpy(), own)
        assert int(mm.sum(counts)) == ((values >= first) & (values <= last)).sum()


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("is_traced", [False, True])
@given(
    edges=st.lists(st.integers(-5, 5), min_size=1, max_size=6).map(sorted),
    values=st.lists(st.integers(-7, 7), max_size=9),
    falls=st.booleans(),
)
def test_bins_between_rising_and_falling_edges(
    right: bool, is_traced: bool, edges: list[int], values: list[int], falls: bool
) -> None:
    x, bins = np.array(values, dtype=float), np.array(edges[::-1] if falls else edges) / 2
    digitize = mm.compile(_digitize) if is_traced else _digitize
    with current("inline"):
        result = digitize(mm.asarray(x), mm.asarray(bins), right)
        np.testing.assert_array_equal(result.numpy(), np.digitize(x, bins, right))


def _digitize(x: mm.Array, bins: mm.Array, right: bool) -> mm.Array:
    return mm.digitize(x, bins, right)


def test_edges_of_traced_functions() -> None:
    x = mm.asarray([0.5, 2.5, 1.5, 3.0])
    counted = mm.compile(lambda x, edges: mm.histogram(x, edges)[0])
    assert counted(x, mm.asarray([1.0, 2.0, 3.0])).tolist() == [1, 2]
    rows = mm.vmap(lambda edges: mm.digitize(x, edges))(mm.asarray([[1.0, 2.0], [2.0, 1.0]]))
    assert rows.tolist() == [[0, 2, 1, 2], [2, 0, 1, 0]]
    with pytest.raises(ValueError, match="bins must rise or fall throughout"):
        mm.compile(lambda x: mm.digitize(x, [1.0, 3.0, 2.0]))(x)
    with pytest.raises(ValueError, match="edges must rise"):
        mm.compile(lambda x: mm.histogram(x, [1.0, 3.0, 2.0]))(x)


@pytest.mark.parametrize("weights", [[2, 3], [0.5, 2.0], np.array([2, 3], "int8"), [True, True]])
def test_sums_of_weights_have_their_type(weights: Any) -> None:
    x = np.array([0.25, 0.75])
    expected, _ = np.histogram(x, 2, weights=weights)
    counts, _ = mm.histogram(mm.asarray(x), 2, weights=weights)
    assert (counts.dtype, counts.tolist()) == (expected.dtype, expected.tolist())


@given(
    seed=st.integers(0, 1000),
    size=st.sampled_from([1, 2, 5, 16, 200]),
    rule=st.sampled_from(["auto", "fd", "doane", "scott", "rice", "sturges", "sqrt"]),
    limits=st.sampled_from([None, (-1.0, 1.0), (0, 30), (2, 2), (-100, 0.5)]),
    dtype=st.sampled_from(["float64", "float32", "int32", "int8"]),
    spread=st.sampled_from([0.0, 0.5, 3.0, 40.0]),
)
def test_rules_for_the_number_of_bins_are_those_of_numpy(
    seed: int, size: int, rule: str, limits: tuple[float, float] | None, dtype: str, spread: float
) -> None:
    values = (np.random.default_rng(seed).standard_normal(size) * spread).clip(-128, 127)
    x = values.astype(dtype)
    edges = np.histogram_bin_edges(x, rule, limits)
    result = mm.histogram_bin_edges(mm.asarray(x), rule, limits).numpy()
    np.testing.assert_allclose(result, edges, rtol=1e-5, atol=1e-5)


@given(data=st.data())
def test_the_order_of_integer_edges(data: st.DataObject) -> None:
    """Also of edges whose differences their own type cannot hold."""
    dtype = np.dtype(data.draw(st.sampled_from(["int8", "uint8", "int64", "uint64"])))
    info: Any = np.iinfo(dtype.name)
    numbers = st.integers(int(info.min), int(info.max)) | st.sampled_from([info.min, 0, info.max])
    edges = np.array(data.draw(st.lists(numbers, min_size=2, max_size=4)), dtype)
    if data.draw(st.booleans()):
        edges.sort()
    x = np.array([0, 3, 100], dtype)
    for ours, theirs in ((mm.digitize, np.digitize), (_counts_of_ours, _counts_of_numpy)):
        try:
            expected = theirs(x, edges)
        except ValueError:
            with pytest.raises(ValueError, match="must"):
                ours(mm.asarray(x), edges)
        else:
            np.testing.assert_array_equal(ours(mm.asarray(x), edges).numpy(), expected)


def _counts_of_ours(x: mm.Array, edges: Any) -> mm.Array:
    return mm.histogram(x, edges)[0]


def _counts_of_numpy(x: Any, edges: Any) -> Any:
    return np.histogram(x, edges)[0]


@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 3)])
@given(
    numbers=st.lists(st.integers(-20, 20), min_size=1, max_size=50),
    dtype=st.sampled_from(["bool", "int8", "uint8", "int64", "float16", "float32", "complex64"]),
)
def test_weights_are_added_as_numpy_adds_them(
    kind: str, workers: int, numbers: list[int], dtype: str
) -> None:
    weights = np.resize(np.array(numbers), 3000).astype(dtype)
    points = np.tile([-0.5, 0.5, 0.5], 1000)
    expected = np.histogram(points, 2, (-1, 1), weights=weights)[0]
    with current(kind, workers):
        x, w = mm.asarray(points), mm.asarray(weights)
        sums = mm.histogram(x, 2, (-1, 1), weights=w)[0]
        np.testing.assert_array_equal(sums.numpy(), expected)
        assert sums.dtype is w.dtype
        if dtype != "complex64":
            in_grid = mm.histogramdd(x, 2, [(-1, 1)], weights=w)[0].numpy()
            others = np.histogramdd(points, 2, [(-1, 1)], weights=weights)[0]
            np.testing.assert_array_equal(in_grid, others, strict=True)


@pytest.mark.parametrize("workers", [1, 3])
def test_sums_of_many_weights_do_not_stay_at_a_power_of_two(workers: int) -> None:
    with current("shared" if workers > 1 else "inline", workers):
        weights = mm.ones(3000, dtype=mm.bfloat16)
        sums = mm.histogram(mm.zeros(3000), 1, (-1, 1), weights=weights)[0]
        assert sums.tolist() == [3008]  # 3000, rounded to bfloat16
        # from 2**24 on, float32 drops a one
        weights = mm.asarray([2.0**24, *[1.0] * 64], dtype=mm.float32)
        sums = mm.histogram(mm.zeros(65), 1, (-1, 1), weights=weights)[0]
        assert sums.tolist() == [2.0**24 + 64]


@pytest.mark.parametrize("kind", [list, tuple])
@given(numbers=st.lists(st.integers(-5, 5), max_size=9))
def test_grid_of_plain_numbers_has_one_dimension(kind: type, numbers: list[int]) -> None:
    expected, [edges] = np.histogramdd(numbers, bins=2)
    with current("inline"):
        for sample in (kind(numbers), kind(map(mm.asarray, numbers))):
            counts, [actual] = mm.histogramdd(sample, bins=2)
            np.testing.assert_array_equal(counts.numpy(), expected)
            np.testing.assert_array_equal(actual.numpy(), edges)
