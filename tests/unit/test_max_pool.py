"""Pooling of channels-last images: maxima and their gradient against PyTorch."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from magmath.kernels.conv import channels_last, max_pool

pools = st.tuples(
    st.sampled_from([(1, 1), (2, 3), (3, 33), (2, 300)]),  # images, channels
    st.tuples(st.integers(4, 9), st.integers(4, 9)),  # rows, columns
    st.tuples(st.integers(1, 3), st.integers(1, 3)),  # kernel
    st.tuples(st.integers(1, 3), st.integers(1, 3)),  # stride
    st.integers(1, 2),  # dilation
    st.sampled_from([torch.float32, torch.float64]),
    st.integers(0, 1 << 16),
)


@given(pools)
@settings(max_examples=40, deadline=None)
def test_maxima_and_gradients_are_those_of_torch(drawn: tuple) -> None:  # type: ignore[type-arg]
    (images, channels), extents, kernel, stride, dilation, dtype, seed = drawn
    if any(dilation * (k - 1) + 1 > n for k, n in zip(kernel, extents, strict=True)):
        return
    padding = [k // 2 for k in kernel]
    random = torch.Generator().manual_seed(seed)
    # few different numbers, so that maxima are attained several times, infinities and NaN
    x = torch.randint(0, 4, (images, channels, *extents), generator=random).to(dtype)
    x[torch.rand(x.shape, generator=random) < 0.05] = -torch.inf
    x[torch.rand(x.shape, generator=random) < 0.1] = torch.nan
    x = x.to(memory_format=torch.channels_last).requires_grad_()
    expected = torch.nn.functional.max_pool2d(x, kernel, stride, padding, dilation)
    g = torch.randn(expected.shape, generator=random, dtype=dtype)
    (slope,) = torch.autograd.grad(expected, x, g)
    windows = channels_last.Windows(kernel, stride, (dilation,) * 2, [-n for n in padding])
    x, expected = x.detach(), expected.detach()
    actual, found_slope = (torch.full_like(v, 7.0) for v in (expected, x))
    g = g.contiguous(memory_format=torch.channels_last)
    if not channels_last.can_compute(x, actual, g, found_slope):
        assert channels == 1 or 1 in extents or 1 in expected.shape
        return
    max_pool.bind_scatter(g, x, windows, found_slope)()
    torch.testing.assert_close(found_slope, slope, rtol=1e-5, atol=1e-6)
    max_pool.bind_maxima(x, windows, actual)()
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("kind", ["rows", "half", "empty", "three dimensions"])
def test_other_arrays_are_not_taken(kind: str) -> None:
    x = torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert channels_last.can_compute(x)
    others = {"rows": x.contiguous(), "half": x.half(), "empty": x[:0], "three dimensions": x[0]}
    assert not channels_last.can_compute(others[kind])
