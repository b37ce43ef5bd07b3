"""Sums of windows of channels-last images, their gradient, and sums of neighbouring channels."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from magmath.kernels.conv import channels_last, sum_pool

pools = st.tuples(
    st.sampled_from([(1, 2), (2, 3), (3, 33), (2, 300)]),  # images, channels
    st.tuples(st.integers(4, 9), st.integers(4, 9)),  # rows, columns
    st.tuples(st.integers(1, 3), st.integers(1, 3)),  # kernel
    st.tuples(st.integers(1, 3), st.integers(1, 3)),  # stride
    st.sampled_from([torch.float32, torch.float64]),
    st.integers(0, 1 << 16),
)


@given(pools)
@settings(max_examples=40, deadline=None)
def test_sums_and_gradients_are_those_of_torch(drawn: tuple) -> None:  # type: ignore[type-arg]
    (images, channels), extents, kernel, stride, dtype, seed = drawn
    padding = [k // 2 for k in kernel]
    random = torch.Generator().manual_seed(seed)
    x = torch.randn((images, channels, *extents), generator=random, dtype=dtype)
    x = x.to(memory_format=torch.channels_last).requires_grad_()
    expected = torch.nn.functional.avg_pool2d(x, kernel, stride, padding, divisor_override=1)
    g = torch.randn(expected.shape, generator=random, dtype=dtype)
    g = g.contiguous(memory_format=torch.channels_last)
    (slope,) = torch.autograd.grad(expected, x, g)
    windows = channels_last.Windows(kernel, stride, (1, 1), [-n for n in padding])
    x, expected = x.detach(), expected.detach()
    actual, found_slope = (torch.full_like(v, 7.0) for v in (expected, x))
    if not channels_last.can_compute(x, actual, g, found_slope):
        assert 1 in extents or 1 in expected.shape
        return
    sum_pool.bind_sums(x, windows, actual)()
    sum_pool.bind_spread(g, windows, found_slope)()
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found_slope, slope, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("channels", [1, 3, 64, 100])
@pytest.mark.parametrize(
    ("window", "first"), [(1, 0), (5, -2), (4, -2), (4, -1), (7, 1), (200, -90)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sums_of_neighbouring_channels(
    channels: int, window: int, first: int, dtype: torch.dtype
) -> None:
    x = torch.randn(3, channels, 5, 7, dtype=dtype).to(memory_format=torch.channels_last)
    out = torch.full_like(x, 7.0)
    sum_pool.bind_lines(x, window, first, out)()
    for c in range(channels):
        low, high = max(0, c + first), max(0, min(channels, c + first + window))
        torch.testing.assert_close(out[:, c], x[:, low:high].sum(1), rtol=1e-5, atol=1e-5)
