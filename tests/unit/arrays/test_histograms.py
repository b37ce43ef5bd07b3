"""Histograms of elements that lie on edges, or next to them, are those of NumPy."""

from __future__ import annotations

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
        counts, found = mm.histogram(mm.asarray(values), bins, limits)
        np.testing.assert_allclose(found.numpy(), edges, rtol=1e-5, atol=1e-6)
        if dtype == "float64":
            np.testing.assert_array_equal(counts.numpy(), expected)
        first, *_, last = found.numpy()
        own = np.histogram(values.astype(found.numpy().dtype), found.numpy())[0]
        np.testing.assert_array_equal(counts.numpy(), own)
        assert int(mm.sum(counts)) == ((values >= first) & (values <= last)).sum()


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
    found = mm.histogram_bin_edges(mm.asarray(x), rule, limits).numpy()
    np.testing.assert_allclose(found, edges, rtol=1e-5, atol=1e-5)
