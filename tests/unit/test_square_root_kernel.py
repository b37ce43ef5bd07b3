"""Square roots: the bits of IEEE 754 for any size, memory order and number of threads."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

import magmath as mm
from engines import current
from magmath.kernels import square_root

SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, -1.0, 1e-40, 5e-324, 1e-310, 1.0, 4.0]


@pytest.fixture(scope="module", autouse=True)
def compiled() -> Iterator[None]:
    square_root.CODE.compile()
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def numbers(dtype: str, count: int) -> np.ndarray[tuple[int], np.dtype[np.floating]]:
    x = np.abs(np.random.default_rng(0).standard_normal(count)) * 10.0
    x[: len(SPECIAL)] = SPECIAL[:count]
    return x.astype(dtype)


def bits(x: np.ndarray) -> bytes:
    return np.where(np.isnan(x), np.asarray(np.nan, x.dtype), x).tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("count", [1, 7, 33, 40_000, 100_003])
def test_bits_are_those_of_the_standard(dtype: str, count: int) -> None:
    x = numbers(dtype, count)
    with np.errstate(invalid="ignore"):
        expected = np.sqrt(x)
    for given in (torch.from_numpy(x.copy()), torch.from_numpy(np.repeat(x, 2))[::2]):
        other = torch.empty_like(given, memory_format=torch.contiguous_format)
        for source, out in ((given, other), (given, given)):
            with np.errstate(invalid="ignore"):
                square_root.bind(source, out)()
            assert bits(out.numpy()) == bits(expected)


@pytest.mark.parametrize("kind", [("inline", 1), ("planned", 1), ("shared", 2), ("messages", 3)])
def test_arrays_have_them_too(kind: tuple[str, int]) -> None:
    """Eagerly, in programs, and in the loops that are compiled after some runs."""
    x = numbers("float32", 50_000)
    with np.errstate(invalid="ignore"):
        expected = np.sqrt(x)
    with current(*kind):
        f = mm.compile(lambda x: mm.sqrt(x) * 1.0)
        given = mm.asarray(x)
        for _ in range(5):
            assert bits(np.asarray(f(given))) == bits(expected)
            assert bits(np.asarray(mm.sqrt(given))) == bits(expected)
