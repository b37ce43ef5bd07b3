"""Extrema and arithmetic of truth values, as NumPy has them, and other arguments that programs for
NumPy use: axes of numbers, vectors with nan in convolutions."""

from __future__ import annotations

from decimal import Decimal
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
        assert [y in x for y in ({}, None, "a", Decimal(9), object())] == [False] * 5


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("name", ["convolve", "correlate"])
def test_nan_stays_within_the_shorter_vector(name: str, mode: str) -> None:
    """In either order of the two vectors."""
    kernel, signal = np.array([0.5, 1.0, 0.25]), np.arange(9.0)
    signal[4] = np.nan
    with current("inline"):
        for x, y in ((kernel, signal), (signal, kernel)):
            result = getattr(mm, name)(mm.asarray(x), mm.asarray(y), mode)
            np.testing.assert_array_equal(result.numpy(), getattr(np, name)(x, y, mode))


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
def test_correlation_of_complex_vectors(mode: str) -> None:
    draw = np.random.default_rng(3)
    short, long = (draw.normal(size=n) + 1j * draw.normal(size=n) for n in (4, 7))
    with current("inline"):
        for x, y in ((short, long), (long, short)):
            result = mm.correlate(mm.asarray(x), mm.asarray(y), mode)
            np.testing.assert_allclose(result.numpy(), np.correlate(x, y, mode), rtol=1e-12)


def check(actual: mm.Array, expected: Any) -> None:
    np.testing.assert_array_equal(actual.numpy(), expected)
    assert actual.numpy().dtype == np.asarray(expected).dtype


ARITHMETIC = """m + m; m * m; m // m[:1]; m % m[:1]; m ** m; m << m; m >> m; m / m[:1]; 1 + m; m + 1; m * 2.5; True * m
m - 1; abs(m); np.isnan(m); np.isinf(m); np.isfinite(m); np.square(m); np.floor(m); np.conj(m); np.real(m); np.diff(m)
np.power(m, 2); m.dot(m); m @ m; np.add.reduce(m); np.average(m); np.trapezoid(m); np.maximum(m, m); np.minimum(m, 1)
m & (m + m); np.outer(m, m); np.signbit(m)"""


@pytest.mark.parametrize("text", [x.strip() for x in ARITHMETIC.replace("\n", ";").split(";")])
def test_arithmetic_of_truth_values(text: str) -> None:
    values = np.array([True, False, True])
    expected = eval(text, {"np": np, "m": values})
    actual = eval(text, {"np": mm, "m": mm.asarray(values)})
    np.testing.assert_allclose(actual, expected, rtol=1e-6)
    assert actual.dtype.name == expected.dtype.name or expected.dtype.kind == "f"


def test_truth_values_are_not_subtracted() -> None:
    m = mm.asarray([True, False])
    for wrong in (lambda: m - m, lambda: -m):
        with pytest.raises(TypeError, match="takes numeric types, was given bool"):
            wrong()


def test_numbers_written_into_truth_values() -> None:
    visited = mm.zeros(4, dtype=mm.bool)
    visited[1], visited[2] = 1, 0.0
    visited += mm.asarray([True, False, False, False])
    assert visited.tolist() == [True, True, False, False]


REDUCTIONS = """np.sum(x, axis=-1); np.sum(x, axis=0); np.max(x, axis=0); np.argmax(x, axis=0); np.any(x, axis=0)
np.cumsum(x); np.cumsum(x, axis=0); np.cumprod(x, axis=-1); np.count_nonzero(x, axis=0); np.ptp(x, axis=0)"""


@pytest.mark.parametrize("text", [x.strip() for x in REDUCTIONS.replace("\n", ";").split(";")])
def test_a_number_has_one_element_along_its_axis(text: str) -> None:
    expected = eval(text, {"np": np, "x": np.array(3.0)})
    actual = eval(text, {"np": mm, "x": mm.asarray(3.0)})
    np.testing.assert_array_equal(actual, expected)
    assert actual.shape == expected.shape


OTHERS = """np.triu(np.arange(3)); np.tril(np.arange(3), 1); np.full((2, 2), [1, 2]); np.full(3, np.asarray([1.5, 2, 3]))
np.gradient(np.arange(5.0), np.asarray(2.0)); np.roll(np.arange(4), np.asarray(1)); bool(np.asarray([1]))
bool(np.asarray([[0.0]]))"""


@pytest.mark.parametrize("text", [x.strip() for x in OTHERS.replace("\n", ";").split(";")])
def test_arrays_where_numbers_are_usual(text: str) -> None:
    np.testing.assert_array_equal(eval(text, {"np": mm}), eval(text, {"np": np}))
