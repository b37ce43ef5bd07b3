"""The types of the results of NumPy's functions for every type of elements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import current

INTEGERS = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
SELECTING = ["lower", "higher", "nearest", "inverted_cdf", "closest_observation"]
FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "reciprocal": lambda np, x: np.reciprocal(x),
    "square": lambda np, x: x**2,
    "power": lambda np, x: np.power(x, 2),
    **{f"quantile {m}": lambda np, x, m=m: np.quantile(x, [0.2, 0.5], method=m) for m in SELECTING},
    **{f"percentile {m}": lambda np, x, m=m: np.nanpercentile(x, 70, 0, method=m)
       for m in SELECTING},
}  # fmt: skip


@pytest.fixture(autouse=True)
def pool() -> Iterator[None]:
    with current("inline"):
        mm.set_default_dtype(mm.float64)
        yield
        mm.set_default_dtype(mm.float32)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_integers_stay_integers(name: str, dtype: str) -> None:
    values = numpy.asarray([[1, 2, 1], [7, 5, 3]]).astype(dtype)
    expected = FUNCTIONS[name](numpy, values)
    actual = FUNCTIONS[name](mm, mm.asarray(values))
    assert actual.dtype == expected.dtype
    numpy.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(("dtype", "value"), [("uint8", 200), ("uint32", 2**20), ("uint64", 2**40)])
def test_powers_of_integers_do_not_wrap(dtype: str, value: int) -> None:
    values = numpy.asarray([3, value], dtype=dtype)
    result = mm.vander(mm.asarray(values), 4)
    assert result.dtype == (mm.float64 if dtype == "uint64" else mm.int64)
    numpy.testing.assert_array_equal(result, numpy.vander(values, 4))


def test_truth_values_are_rounded() -> None:
    x = mm.asarray([True, False])
    assert mm.round(x).tolist() == mm.round(x, 1).tolist() == [1.0, 0.0]
    assert x.round().dtype == mm.float64


@st.composite
def weighted_arrays(draw: st.DrawFn) -> tuple[Any, Any, int | None]:
    """Draw an array, weights, and an axis along which no line has the sum 0."""
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    axis = draw(st.none() | st.integers(-len(shape), len(shape) - 1))
    random = numpy.random.default_rng(draw(st.integers(0, 1000)))
    x = random.integers(0, 5, shape).astype(draw(st.sampled_from(["int32", "float64"])))
    if draw(st.booleans()) and x.dtype.kind == "f":
        x[random.random(shape) < 0.2] = numpy.nan
    alone = axis is not None and draw(st.booleans())
    weights = random.integers(0, 3, shape[axis] if alone and axis is not None else shape) * 1.0
    if not numpy.all(weights.sum(None if alone else axis)):
        weights += 1
    return x, weights, axis


@settings(max_examples=60, deadline=None)
@given(case=weighted_arrays(), q=st.lists(st.sampled_from([0, 0.2, 0.5, 0.7, 1]), min_size=1))
def test_weighted_quantiles(case: tuple[Any, Any, int | None], q: list[float]) -> None:
    x, weights, axis = case
    options: Any = {"axis": axis, "method": "inverted_cdf"}
    expected = numpy.quantile(x, q, weights=weights, **options)
    actual = mm.quantile(mm.asarray(x), q, weights=mm.asarray(weights), **options)
    assert actual.dtype == expected.dtype
    numpy.testing.assert_array_equal(actual, expected)
    known = mm.nanpercentile(mm.asarray(x), 40, weights=mm.asarray(weights), **options)
    whole = numpy.where(numpy.isnan(x), 0, numpy.broadcast_to(_spread(weights, x, axis), x.shape))
    if numpy.all(whole.sum(axis)):
        wanted = numpy.nanpercentile(numpy.nan_to_num(x), 40, weights=whole, **options)
        numpy.testing.assert_array_equal(known, wanted)


def _spread(weights: Any, x: Any, axis: int | None) -> Any:
    if weights.shape == x.shape or axis is None:
        return weights
    return numpy.moveaxis(numpy.broadcast_to(weights, numpy.moveaxis(x, axis, -1).shape), -1, axis)


def test_weights_need_their_method() -> None:
    x = mm.asarray([1.0, 2.0])
    with pytest.raises(mm.errors.OptionError, match=r"weights need method=.inverted_cdf"):
        mm.quantile(x, 0.5, weights=[1, 2])
    with pytest.raises(TypeError, match="need an axis"):
        mm.quantile(x, 0.5, weights=[1, 2, 3], method="inverted_cdf")
    with pytest.raises(mm.errors.ShapeError, match="needs weights of shape"):
        mm.quantile(x, 0.5, axis=0, weights=[1, 2, 3], method="inverted_cdf")
