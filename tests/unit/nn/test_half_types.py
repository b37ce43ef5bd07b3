"""Functions of half types have the values of float32, rounded: no sum overflows, no share is
coarse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import current
from magmath import nn

F = nn.functional
HALF = ["float16", "bfloat16"]


def rounded(x: Any, dtype: str) -> np.ndarray:
    """Numbers as an array of a half type, in float32."""
    return mm.astype(mm.asarray(x, dtype="float32"), dtype).astype("float32").numpy()


@given(
    st.sampled_from(HALF),
    st.integers(3, 40),
    st.integers(2, 40),
    st.sampled_from(["avg_pool", "adaptive_avg_pool", "global_avg_pool"]),
    st.sampled_from([1.0, 100.0, 30_000.0]),
    st.booleans(),
    st.integers(0, 1 << 16),
)
@settings(max_examples=60, deadline=None)
def test_averages_of_pooled_windows_are_those_of_float32(
    dtype: str, extent: int, kernel: int, name: str, size: float, padded: bool, seed: int
) -> None:
    x = rounded(np.random.default_rng(seed).uniform(0.5, 1.0, (2, 3, extent, extent)) * size, dtype)
    kernel = min(kernel, extent)

    def pooled(x: mm.Array) -> mm.Array:
        if name == "avg_pool":
            padding = kernel // 2 if padded else 0
            return F.avg_pool(x, kernel, 1, padding, count_include_pad=False)
        return F.adaptive_avg_pool(x, 2) if name == "adaptive_avg_pool" else F.global_avg_pool(x)

    with current("inline", 1):
        actual = pooled(mm.asarray(x, dtype=dtype))
        assert str(actual.dtype) == dtype
        expected = pooled(mm.asarray(x)).numpy()
        step = 2.0**-8 if dtype == "bfloat16" else 2.0**-11
        np.testing.assert_allclose(actual.astype("float32").numpy(), expected, rtol=1.1 * step)


@pytest.mark.parametrize("dtype", ["float32", *HALF])
@pytest.mark.parametrize("rate", [0.001, 0.03, 0.1, 0.999])
def test_the_share_of_dropped_elements_is_the_rate(dtype: str, rate: float) -> None:
    count = 400_000
    with current("inline", 1):
        mm.random.seed(3)
        result = F.dropout(mm.ones(count, dtype=dtype), rate)
        assert str(result.dtype) == dtype
        dropped = float((result.astype("float32").numpy() == 0).mean())
    assert abs(dropped - rate) < 5 * np.sqrt(rate * (1 - rate) / count)


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize(
    "options", [{"ignore_index": 1}, {"weight": [0.5, 1.0, 2.0]}, {"label_smoothing": 0.1}, {}]
)
def test_means_of_many_losses_are_those_of_float32(dtype: str, options: dict[str, Any]) -> None:
    draw = np.random.default_rng(0)
    scores = rounded(draw.normal(size=(90_000, 3)), dtype)
    labels = draw.integers(0, 3, 90_000)
    with current("inline", 1):
        actual = nn.cross_entropy(mm.asarray(scores, dtype=dtype), mm.asarray(labels), **options)
        expected = float(nn.cross_entropy(mm.asarray(scores), mm.asarray(labels), **options))
        assert str(actual.dtype) == dtype
        assert float(actual) == pytest.approx(expected, rel=1e-2)
        shares = np.full((90_000, 2), 0.5, np.float32)
        logs = mm.asarray(shares * -8, dtype=dtype)
        divergence = nn.kl_divergence(logs, mm.asarray(shares, dtype=dtype), reduction="batchmean")
        assert float(divergence) == pytest.approx(4 + np.log(0.5), rel=1e-2)
