"""Extrema of truth values, as NumPy has them, and vectors with nan in convolutions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import magmath as mm
from engines import current

POOLS = [("inline", 1), ("planned", 1), ("shared", 3)]


@pytest.mark.parametrize(("kind", "workers"), POOLS)
@pytest.mark.parametrize("shape", [(5,), (3, 4), (300, 40)])
def test_extrema_of_truth_values(kind: str, workers: int, shape: tuple[int, ...]) -> None:
    draw = np.random.default_rng(len(shape))
    a, b, numbers = draw.random(shape) < 0.5, draw.random(shape) < 0.5, draw.integers(-3, 3, shape)
    with current(kind, workers):
        x, y, z = map(mm.asarray, (a, b, numbers))
        for name in ("max", "min", "argmax", "argmin"):
            for axis in (None, 0, -1):
                check(getattr(mm, name)(x, axis=axis), getattr(np, name)(a, axis=axis))
        for name in ("maximum", "minimum"):
            check(getattr(mm, name)(x, y), getattr(np, name)(a, b))
            check(getattr(mm, name)(x, z), getattr(np, name)(a, numbers))
            check(getattr(mm, name).reduce(x), getattr(np, name).reduce(a))
        check(mm.max(x, initial=False, where=y), np.max(a, initial=False, where=b))
        check(mm.min(x, axis=0, initial=True), np.min(a, axis=0, initial=True))


@pytest.mark.parametrize(("kind", "workers"), POOLS)
def test_membership(kind: str, workers: int) -> None:
    with current(kind, workers):
        x = mm.asarray(np.array([[1, 2, 3], [4, 5, 6]]))
        assert (3 in x, 7 in x, 2.5 in x, np.int64(6) in x) == (True, False, False, True)
        assert [4, 5, 6] in x
        assert 0 not in mm.asarray(np.empty((0, 3)))


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("name", ["convolve", "correlate"])
def test_nan_stays_within_the_shorter_vector(name: str, mode: str) -> None:
    """In either order of the two vectors."""
    kernel, signal = np.array([0.5, 1.0, 0.25]), np.arange(9.0)
    signal[4] = np.nan
    with current("inline"):
        for x, y in ((kernel, signal), (signal, kernel)):
            found = getattr(mm, name)(mm.asarray(x), mm.asarray(y), mode)
            np.testing.assert_array_equal(found.numpy(), getattr(np, name)(x, y, mode))


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
def test_correlation_of_complex_vectors(mode: str) -> None:
    draw = np.random.default_rng(3)
    short, long = (draw.normal(size=n) + 1j * draw.normal(size=n) for n in (4, 7))
    with current("inline"):
        for x, y in ((short, long), (long, short)):
            found = mm.correlate(mm.asarray(x), mm.asarray(y), mode)
            np.testing.assert_allclose(found.numpy(), np.correlate(x, y, mode), rtol=1e-12)


def check(found: mm.Array, expected: Any) -> None:
    np.testing.assert_array_equal(found.numpy(), expected)
    assert found.numpy().dtype == np.asarray(expected).dtype
