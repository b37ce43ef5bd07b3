"""Two sums of each channel in one pass: against NumPy in float64, for any threads and orders."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from magmath.kernels import channel_sums

# (N, channels, …): one element, channels that fill no vector or several, many parts
SHAPES = [
    (1, 1),
    (3, 5),
    (2, 17, 3),
    (4, 64, 9, 7),
    (7, 83, 5, 5),
    (130, 130, 4, 4),
    (300, 8, 1, 9),
]


@contextmanager
def threads(count: int) -> Iterator[None]:
    former = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(former)


def _random(shape: tuple[int, ...], dtype: torch.dtype, *, last: bool, seed: int) -> torch.Tensor:
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    if last:
        numbers = numbers.movedim(1, -1).contiguous().movedim(-1, 1)
    return numbers


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
def test_sums_are_those_of_float64_and_independent_of_threads(
    dtype: torch.dtype, last: bool
) -> None:
    for shape in SHAPES:
        x, g = (_random(shape, dtype, last=last, seed=seed) for seed in (1, 2))
        ones = (1,) * (len(shape) - 2)
        means = torch.randn(1, shape[1], *ones, dtype=dtype)
        axis = tuple(d for d in range(len(shape)) if d != 1)
        wide_x, wide_g, wide_m = (v.double().numpy() for v in (x, g, means))
        for operands, terms in (
            ((x, None, None), (wide_x, wide_x**2)),
            ((x, g, means), (wide_g, wide_g * (wide_x - wide_m))),
        ):
            assert channel_sums.can_compute(*operands)
            actual = []
            for count in (1, 2, 3):
                out = torch.full((2, shape[1], *ones), torch.nan, dtype=torch.float64)
                with threads(count):
                    channel_sums.bind(*operands, out)()
                actual.append(out.numpy())
            expected = np.stack([np.sum(t, axis=axis) for t in terms]).reshape(actual[0].shape)
            size = np.stack([np.sum(np.abs(t), axis=axis) for t in terms]).reshape(expected.shape)
            assert np.all(np.abs(actual[0] - expected) <= 1e-14 * size)
            for other in actual[1:]:
                assert other.tobytes() == actual[0].tobytes()


def test_a_result_in_a_part_of_an_array_is_stored_there_alone() -> None:
    x = _random((5, 6, 3, 3), torch.float32, last=True, seed=3)
    whole = torch.full((2, 10, 1, 1), -1.0, dtype=torch.float64)
    channel_sums.bind(x, None, None, whole[:, 2:8])()
    assert torch.equal(whole[:, :2], torch.full((2, 2, 1, 1), -1.0, dtype=torch.float64))
    assert torch.equal(whole[:, 8:], torch.full((2, 2, 1, 1), -1.0, dtype=torch.float64))
    np.testing.assert_allclose(whole[0, 2:8, 0, 0], x.double().sum((0, 2, 3)), rtol=1e-13)


def test_a_nan_stays_in_its_channel() -> None:
    x = _random((4, 20, 5, 5), torch.float32, last=False, seed=4)
    x[2, 7, 1, 3] = torch.nan
    out = torch.zeros((2, 20, 1, 1), dtype=torch.float64)
    channel_sums.bind(x, None, None, out)()
    assert [c for c in range(20) if out[:, c].isnan().all()] == [7]
    assert int(out.isnan().sum()) == 2


def test_other_arrays_are_not_taken() -> None:
    x = torch.zeros(4, 6, 3, 3)
    assert channel_sums.can_compute(x, None, None)
    assert not channel_sums.can_compute(x[:, ::2], None, None)
    assert not channel_sums.can_compute(x.half(), None, None)
    assert not channel_sums.can_compute(x[:0], None, None)
    assert not channel_sums.can_compute(
        x, x.to(memory_format=torch.channels_last), x[:1, :, :1, :1]
    )
