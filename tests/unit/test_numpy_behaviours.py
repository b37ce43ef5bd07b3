"""Results, warnings and exceptions of unusual operands, which are NumPy's."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import current

RANDOM = np.random.default_rng(5)


@pytest.fixture(autouse=True)
def _numpys_default_type() -> Iterator[None]:
    mm.set_default_dtype(mm.float64)
    yield
    mm.set_default_dtype(mm.float32)


# statistics of nothing ----------------------------------------------------------------------------

STATISTICS = ["mean", "median", "std", "var", "nanmean", "nanmedian", "nanstd", "nanvar"]
SHAPES: list[tuple[tuple[int, ...], Any]] = [
    ((0,), None), ((2, 0), 1), ((0, 2), 0), ((0, 2), 1), ((3, 0, 2), (0, 1)), ((0, 0), None),
]  # fmt: skip


def told(call: Callable[[], Any]) -> tuple[Any, bool]:
    """A result, and whether there was a RuntimeWarning."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = call()
    assert all(issubclass(w.category, RuntimeWarning) for w in caught)
    if caught:
        assert caught[0].filename == __file__ or "numpy" in caught[0].filename
    return result, bool(caught)


@pytest.mark.parametrize("name", STATISTICS)
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
@pytest.mark.parametrize("dtype", ["float64", "int64"])
def test_statistics_of_no_elements(name: str, shape: Any, axis: Any, dtype: str) -> None:
    x = np.empty(shape, dtype)
    expected, warned = told(lambda: getattr(np, name)(x, axis=axis))
    actual, also = told(lambda: getattr(mm, name)(mm.asarray(x), axis=axis))
    np.testing.assert_array_equal(actual.numpy(), expected)
    assert actual.shape == np.shape(expected)
    assert also or not warned or not actual.size


@pytest.mark.parametrize("name", ["quantile", "percentile", "nanquantile", "nanpercentile"])
def test_quantiles_of_no_elements_are_nan(name: str) -> None:
    for shape, axis in SHAPES:
        with (
            pytest.warns(RuntimeWarning, match=f"{name}: no elements")
            if (shape != (0, 2) or axis != 1)
            else warnings.catch_warnings()
        ):
            actual = getattr(mm, name)(mm.ones(shape), [0.1, 0.5], axis=axis, keepdims=True)
        expected = np.sum(np.ones(shape), axis=axis, keepdims=True).shape
        assert actual.shape == (2, *expected)
        assert np.isnan(actual.numpy()).all()


def _quantile_of(values: np.ndarray[Any, Any], part: float) -> float:
    """The quantile by its definition: the weighted mean of the neighbours that have a weight."""
    if not len(values) or np.isnan(values).any():
        return np.nan
    position = part * (len(values) - 1)
    below, share = int(np.floor(position)), position % 1
    low, high = np.sort(values)[[below, min(below + 1, len(values) - 1)]]
    return low if share == 0 or low == high else low * (1 - share) + high * share


@given(st.lists(st.sampled_from([-np.inf, -1.0, 3.0, np.inf, np.nan]), min_size=1, max_size=6),
       st.sampled_from([0.0, 0.25, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0]))  # fmt: skip
def test_quantiles_of_infinities(values: list[float], part: float) -> None:
    x = np.array(values)
    number = x[~np.isnan(x)]
    a = mm.asarray(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for counts, result, middle in [
            (x, mm.quantile(a, part), mm.median(a)),
            (number, mm.nanquantile(a, part), mm.nanmedian(a)),
        ]:
            np.testing.assert_allclose(float(result), _quantile_of(counts, part), rtol=1e-12)
            np.testing.assert_allclose(float(middle), _quantile_of(counts, 0.5), rtol=1e-12)
        np.testing.assert_array_equal(float(mm.median(a)), np.median(x))
        np.testing.assert_array_equal(float(mm.nanmedian(a)), np.nanmedian(x))


@pytest.mark.parametrize("name", ["percentile", "nanpercentile"])
def test_percentiles_at_the_positions_of_elements_are_elements(name: str) -> None:
    for n in range(1, 201):
        q = [k for k in range(101) if (n - 1) * k % 100 == 0]
        expected = np.percentile(np.arange(float(n)), q)
        actual = getattr(mm, name)(mm.arange(float(n)), q)
        is_element = expected % 1 == 0  # NumPy's positions are rounded too
        np.testing.assert_array_equal(actual.numpy()[is_element], expected[is_element])
    assert float(mm.percentile(mm.arange(11), 70)) == 7.0


def test_integers_of_linear_ramps() -> None:
    for width in range(1, 201):
        x = np.array([width, -width])
        expected = np.pad(x, width, mode="linear_ramp")
        np.testing.assert_array_equal(mm.pad(mm.asarray(x), width, mode="linear_ramp"), expected)


@pytest.mark.parametrize(
    ("dtype", "n"), [("float16", 4099), ("float16", 70000), ("bfloat16", 1001)]
)
def test_quantiles_of_more_elements_than_the_type_counts(dtype: str, n: int) -> None:
    values = mm.astype(mm.arange(n) >= n // 2, dtype)
    for part in (0.0, (n // 2 - 1) / (n - 1), (n // 2) / (n - 1), 1.0):
        assert float(mm.nanquantile(values, part)) == float(mm.quantile(values, part))
    assert float(mm.nanmedian(values)) == float(mm.median(values))


@pytest.mark.parametrize("name", ["mean", "nanmean", "var", "sum", "nansum", "cumsum"])
def test_statistics_are_computed_in_the_type_that_is_asked_for(name: str) -> None:
    x = np.array([16777216.0, 1.0, 4097.0], "float32")
    options: list[dict[str, Any]] = [{}]
    if name in ("mean", "nanmean", "sum", "nansum"):
        options += [{"where": [True, True, False]}, {"axis": 0, "where": [True, False, True]}]
    for one in options:
        actual = getattr(mm, name)(mm.asarray(x), dtype="float64", **one)
        expected = getattr(np, name)(x, dtype="float64", **one)
        np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-14)


def test_deviation_of_too_few_elements() -> None:
    with pytest.warns(RuntimeWarning, match="std: 1 elements with correction 1"):
        assert np.isnan(float(mm.std(mm.ones(1), ddof=1)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert float(mm.std(mm.ones(2), ddof=1)) == 0.0


# convolutions with nan and infinities -------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(data=st.data(), function=st.sampled_from(["convolve", "correlate"]))
def test_convolutions_of_numbers_that_are_not_finite(data: st.DataObject, function: str) -> None:
    numbers = st.sampled_from([0.0, 1.0, -2.0, 3.0, np.nan, np.inf, -np.inf])
    a, v = (
        np.asarray(data.draw(st.lists(numbers, min_size=1, max_size=7)), dtype="float64")
        for _ in range(2)
    )
    mode = data.draw(st.sampled_from(["full", "same", "valid"]))
    with np.errstate(invalid="ignore"):
        expected = getattr(np, function)(a, v, mode)
    actual = getattr(mm, function)(mm.asarray(a), mm.asarray(v), mode).numpy()
    np.testing.assert_allclose(actual, expected, rtol=1e-12, err_msg=f"{a} {v} {mode}")


@pytest.mark.parametrize("function", ["convolve", "correlate"])
@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128", "int64", "bool"])
@pytest.mark.parametrize(("m", "n"), [(9, 4), (4, 9), (5, 5), (1, 3), (200, 65), (70, 64)])
def test_convolutions_of_all_lengths(function: str, mode: str, dtype: str, m: int, n: int) -> None:
    a, v = (RANDOM.integers(-4, 5, size).astype(dtype) for size in (m, n))
    if dtype == "complex128":
        a = a + 1j * RANDOM.integers(-4, 5, m)
        v = v - 1j * RANDOM.integers(-4, 5, n)
    expected = getattr(np, function)(a, v, mode)
    for kind, workers in (("inline", 1), ("shared", 3)):
        with current(kind, workers):
            actual = getattr(mm, function)(mm.asarray(a), mm.asarray(v), mode)
            assert actual.dtype == getattr(mm, dtype)
            np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-6)


# rounding -----------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:numpy.fix is deprecated")
@pytest.mark.parametrize("name", ["rint", "floor", "ceil", "trunc", "fix", "round"])
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "float32", "float64"])
def test_types_of_rounded_numbers(name: str, dtype: str) -> None:
    """NumPy's, except that small integers become the default type rather than float16."""
    x = np.asarray([0, 1, 5], dtype) / (4 if dtype.startswith("float") else 1)
    x = x.astype(dtype)
    expected = getattr(np, name)(x)
    if expected.dtype == np.float16:
        expected = expected.astype("float64")
    for actual in (getattr(mm, name)(mm.asarray(x)), getattr(np, name)(mm.asarray(x))):
        assert actual.numpy().dtype == expected.dtype
        np.testing.assert_array_equal(actual.numpy(), expected)


# complex numbers ----------------------------------------------------------------------------------

PARTS = st.sampled_from([0.0, 1.0, -1.0, 2.0, np.nan, np.inf, -np.inf])


@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    name=st.sampled_from(["sort", "argsort", "max", "min", "argmax", "argmin", "sort_complex"]),
    dtype=st.sampled_from(["complex64", "complex128"]),
)
def test_order_of_complex_numbers(data: st.DataObject, name: str, dtype: str) -> None:
    size = data.draw(st.integers(1, 6))
    table = [
        [complex(data.draw(PARTS), data.draw(PARTS)) for _ in range(size)]
        for _ in range(data.draw(st.integers(1, 3)))
    ]
    x = np.asarray(table, dtype)
    axis = data.draw(st.sampled_from([0, 1, -1, None]))
    options: dict[str, Any] = {} if name == "sort_complex" else {"axis": axis}
    if name.endswith("sort"):
        options["kind"] = "stable"
    if name in ("max", "min"):
        options["keepdims"] = data.draw(st.booleans())
    expected = getattr(np, name)(x, **options)
    actual = getattr(mm, name)(mm.asarray(x), **options)
    assert actual.shape == np.shape(expected)
    np.testing.assert_array_equal(actual.numpy(), expected, err_msg=f"{x} {options}")


@given(data=st.data(), equal_nan=st.booleans())
def test_different_complex_numbers_with_nan(data: st.DataObject, equal_nan: bool) -> None:
    x = np.array([complex(data.draw(PARTS), data.draw(PARTS)) for _ in range(6)])
    expected = np.unique(x, return_counts=True, equal_nan=equal_nan)
    actual = mm.unique(mm.asarray(x), return_counts=True, equal_nan=equal_nan)
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(one.numpy(), other)


def test_order_of_complex_numbers_on_workers_and_its_gradient() -> None:
    x = (RANDOM.integers(-2, 3, (8, 6)) + 1j * RANDOM.integers(-2, 3, (8, 6))).astype("complex128")
    for layout in (mm.Layout.split(0), mm.Layout.split(1)):
        with current("shared", 3):
            array = mm.asarray(x, layout=layout)
            np.testing.assert_array_equal(mm.sort(array, axis=0).numpy(), np.sort(x, axis=0))
            np.testing.assert_array_equal(mm.max(array, axis=(0, 1)).numpy(), x.max())
            np.testing.assert_array_equal(mm.argmin(array, axis=1).numpy(), x.argmin(axis=1))
    np.testing.assert_array_equal(
        mm.sort(mm.asarray([1j, 1.0, 0j]), descending=True).numpy(), [1.0, 1j, 0]
    )
    with pytest.raises(ValueError, match="extent 0"):
        mm.max(mm.asarray(np.empty(0, "complex128")))


COMPLEX_FUNCTIONS = [
    "less", "less_equal", "greater", "greater_equal", "maximum", "minimum", "fmax", "fmin",
]  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    name=st.sampled_from(COMPLEX_FUNCTIONS),
    dtype=st.sampled_from(["complex64", "complex128"]),
    kind=st.sampled_from([("inline", 1), ("shared", 2)]),
)
def test_comparisons_of_complex_numbers(
    data: st.DataObject, name: str, dtype: str, kind: tuple[str, int]
) -> None:
    numbers = st.builds(complex, PARTS, PARTS)
    x, column = (
        np.asarray(data.draw(st.lists(numbers, min_size=1, max_size=4)), dtype) for _ in range(2)
    )
    y = data.draw(st.sampled_from([column[:, None], x[::-1], x.real, column[0], 1, 0.5, 1j]))
    pair = data.draw(st.permutations([x, y]))
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(*pair)
    with current(*kind):
        ours = [mm.asarray(z) if isinstance(z, np.ndarray) else z for z in pair]
        actual = getattr(mm, name)(*ours)
        assert actual.dtype == expected.dtype
        np.testing.assert_array_equal(actual.numpy(), expected, err_msg=f"{pair}")


@settings(max_examples=40, deadline=None)
@given(data=st.data(), name=st.sampled_from(["max", "min"]))
def test_extrema_with_an_initial_value(data: st.DataObject, name: str) -> None:
    dtype, initial = data.draw(
        st.sampled_from(
            [("bool", 5), ("bool", False), ("complex128", 1j), ("int8", 3), ("float64", 0.5)]
        )
    )
    shape = data.draw(st.sampled_from([(3,), (0,), (2, 3), (2, 0)]))
    x = np.random.default_rng(data.draw(st.integers(0, 99))).integers(-5, 6, shape).astype(dtype)
    options = {"axis": data.draw(st.sampled_from([None, 0, -1])), "initial": initial}
    options["keepdims"] = data.draw(st.booleans())
    expected = getattr(np, name)(x, **options)
    actual = getattr(mm, name)(mm.asarray(x), **options)
    assert (actual.dtype, actual.shape) == (expected.dtype, np.shape(expected))
    np.testing.assert_array_equal(actual.numpy(), expected)


# integers -----------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    name=st.sampled_from(["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"]),
    dtype=st.sampled_from(["int8", "int32", "int64"]),
)
def test_uint64_is_compared_with_signed_integers(
    data: st.DataObject, name: str, dtype: str
) -> None:
    limits = np.iinfo(dtype)
    few = st.lists(st.sampled_from([limits.min, -1, 0, 1, 7, limits.max]), min_size=1, max_size=4)
    large = st.lists(
        st.sampled_from([0, 1, 7, 2**63 - 1, 2**63, 2**64 - 1]), min_size=1, max_size=4
    )
    x, y = np.asarray(data.draw(few), dtype)[:, None], np.asarray(data.draw(large), "uint64")
    pair = data.draw(st.permutations([x, y]))
    result = getattr(mm, name)(*map(mm.asarray, pair))
    np.testing.assert_array_equal(result.numpy(), getattr(np, name)(*pair), err_msg=f"{pair}")


# powers of two ------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    x=st.sampled_from([0.0, -0.0, 1.0, -1.5, 5e-324, 1e-300, 1e300, np.inf, -np.inf, np.nan]),
    power=st.sampled_from(
        [0, 1, -1, 300, 1023, 1024, 1500, -1074, -1500, 5000, -5000, 2**31 - 1, -(2**31)]
    ),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_ldexp_of_any_exponent(x: float, power: int, dtype: str) -> None:
    with np.errstate(all="ignore"):
        value = np.asarray([x]).astype(dtype)
        expected = np.ldexp(value, power)
    actual = mm.ldexp(mm.asarray(value), mm.asarray([power])).numpy()
    np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(np.signbit(actual), np.signbit(expected))


# memory -------------------------------------------------------------------------------------------


def test_may_share_memory() -> None:
    x = mm.ones(3)
    assert mm.may_share_memory(x, x)
    assert not mm.may_share_memory(x, x + 0)
    assert mm.may_share_memory(x, x[:2])
    assert not mm.may_share_memory(x[:1], x[2:])
    assert not np.may_share_memory(x, np.ones(3))


@pytest.mark.parametrize("name", ["StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler"])
def test_scalers_of_scikit_learn(name: str) -> None:
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    x = RANDOM.normal(size=(20, 3))
    scaler, known = getattr(preprocessing, name)(), getattr(preprocessing, name)()
    scaled = scaler.fit_transform(mm.asarray(x))
    np.testing.assert_allclose(np.asarray(scaled), known.fit_transform(x))
    back = scaler.inverse_transform(scaler.transform(mm.asarray(x)))
    np.testing.assert_allclose(np.asarray(back), x)


# exceptions ---------------------------------------------------------------------------------------


def written(lib: Any, index: Any, value: Any) -> None:
    x = lib.ones((2, 3))
    x[index] = value


MISTAKES: dict[str, Callable[[Any], Any]] = {
    "reshape": lambda lib: lib.reshape(lib.ones((2, 3)), (4, 2)),
    "reshape, two free": lambda lib: lib.reshape(lib.ones(6), (-1, -1)),
    "index": lambda lib: lib.ones(3)[5],
    "index, float": lambda lib: lib.ones(3)[1.5],
    "index, too many": lambda lib: lib.ones(3)[0, 0],
    "index, text": lambda lib: lib.ones(3)["a"],
    "mask": lambda lib: lib.ones(3)[lib.asarray(np.array([True, False]))],
    "write, index": lambda lib: written(lib, 5, 1.0),
    "write, shape": lambda lib: written(lib, slice(0, 2), lib.ones(4)),
    "axis": lambda lib: lib.sum(lib.ones((2, 3)), axis=2),
    "axis, float": lambda lib: lib.sum(lib.ones((2, 3)), axis=1.0),
    "axis, twice": lambda lib: lib.sum(lib.ones((2, 3)), axis=(0, 0)),
    "axis of sort": lambda lib: lib.sort(lib.ones(3), axis=1),
    "axis of flip": lambda lib: lib.flip(lib.ones(3), axis=1),
    "axis of concatenate": lambda lib: lib.concatenate([lib.ones(2)], axis=1),
    "product": lambda lib: lib.ones((2, 3)) @ lib.ones((2, 3)),
    "product, 0-d": lambda lib: lib.matmul(lib.asarray(1.0), lib.ones(3)),
    "sum of shapes": lambda lib: lib.ones(3) + lib.ones(4),
    "sum with text": lambda lib: lib.ones(3) + "a",
    "sum with None": lambda lib: lib.ones(3) + None,
    "and of floats": lambda lib: lib.ones(3) & lib.ones(3),
    "minus of truth values": lambda lib: -(lib.ones(3) > 0),
    "concatenate": lambda lib: lib.concatenate([lib.ones((2, 3)), lib.ones((3, 4))]),
    "concatenate, none": lambda lib: lib.concatenate([]),
    "stack": lambda lib: lib.stack([lib.ones(2), lib.ones(3)]),
    "inverse, singular": lambda lib: np.asarray(lib.linalg.inv(lib.zeros((2, 2)))),
    "inverse, not square": lambda lib: lib.linalg.inv(lib.ones((2, 3))),
    "inverse, vector": lambda lib: lib.linalg.inv(lib.ones(3)),
    "determinant": lambda lib: lib.linalg.det(lib.ones((2, 3))),
    "eigenvalues": lambda lib: lib.linalg.eigh(lib.ones((2, 3))),
    "singular values": lambda lib: lib.linalg.svd(lib.ones(3)),
    "qr": lambda lib: lib.linalg.qr(lib.ones(3)),
    "least squares": lambda lib: lib.linalg.lstsq(lib.ones((2, 3)), lib.ones(3)),
    "matrix power": lambda lib: lib.linalg.matrix_power(lib.ones((2, 3)), 2),
    "cholesky": lambda lib: np.asarray(lib.linalg.cholesky(-lib.eye(2))),
    "solve": lambda lib: np.asarray(lib.linalg.solve(lib.zeros((2, 2)), lib.ones(2))),
    "solve, shapes": lambda lib: lib.linalg.solve(lib.eye(2), lib.ones(3)),
    "transpose": lambda lib: lib.transpose(lib.ones((2, 3)), (0, 0)),
    "squeeze": lambda lib: lib.squeeze(lib.ones((2, 3)), 0),
    "broadcast": lambda lib: lib.broadcast_to(lib.ones(3), (2, 4)),
    "split": lambda lib: lib.split(lib.ones(5), 2),
    "take": lambda lib: np.asarray(lib.take(lib.ones(3), lib.asarray(np.array([5])))),
    "shape, negative": lambda lib: lib.zeros(-1),
    "shape, float": lambda lib: lib.zeros(1.5),
    "type": lambda lib: lib.zeros(2, dtype="foo"),
    "einsum": lambda lib: lib.einsum("ij,jk", lib.ones((2, 3)), lib.ones((4, 2))),
    "histogram": lambda lib: lib.histogram(lib.ones(3), bins=-1),
    "bincount": lambda lib: np.asarray(lib.bincount(lib.asarray(np.array([-1, 2])))),
    "bincount, complex": lambda lib: lib.bincount(lib.asarray([0]), weights=lib.asarray([1j])),
    "packbits": lambda lib: lib.packbits(lib.asarray([1.0, 0.0])),
    "truth value": lambda lib: bool(lib.ones(3)),
    "float()": lambda lib: float(lib.ones(3)),
    "item": lambda lib: lib.ones(3).item(),
    "len": lambda lib: len(lib.asarray(1.0)),
    "quantile": lambda lib: lib.quantile(lib.ones(3), 2.0),
    "percentile": lambda lib: lib.percentile(lib.ones(3), 200),
    "convolve": lambda lib: lib.convolve(lib.ones(3), lib.ones(2), "foo"),
    "diff": lambda lib: lib.diff(lib.ones(3), n=-1),
    "unravel_index": lambda lib: lib.unravel_index(100, (2, 3)),
    "ravel_multi_index": lambda lib: lib.ravel_multi_index((5, 5), (2, 2)),
    "partition": lambda lib: lib.partition(lib.ones(3), 5),
    "pad": lambda lib: lib.pad(lib.ones(3), -1),
    **{
        f"pad nothing, {mode}": lambda lib, mode=mode: lib.pad(lib.ones((2, 0)), 1, mode)
        for mode in ("edge", "linear_ramp", "maximum", "mean", "median", "reflect", "wrap")
    },
    "insert": lambda lib: lib.insert(lib.ones(3), 10, 1),
    "delete": lambda lib: lib.delete(lib.ones(3), 10),
    "fft": lambda lib: lib.fft.fft(lib.ones(3), n=0),
    "max of nothing": lambda lib: lib.max(lib.ones(0)),
    "argmax of nothing": lambda lib: lib.argmax(lib.ones(0)),
    "index, shapes": lambda lib: lib.ones((2, 3))[[0, 1], [0, 1, 2]],
    "write, index shapes": lambda lib: written(lib, ([0, 1], [0, 1, 2]), 1.0),
    "delete an item": lambda lib: lib.ones(3).__delitem__(0),
    "transpose, one axis": lambda lib: lib.transpose(lib.ones((2, 3)), 1),
    "norm of a vector": lambda lib: lib.linalg.norm(lib.ones(3), "fro"),
    "norm of a matrix": lambda lib: lib.linalg.norm(lib.ones((2, 3)), 3),
    "choose": lambda lib: lib.choose([0, 2], [lib.ones(2), lib.ones(2)]),
    "at": lambda lib: lib.add.at(lib.ones(3), [3], 1.0),
    "choose, negative": lambda lib: lib.choose([0, -1], [lib.ones(2), lib.ones(2)]),
    "choose, float": lambda lib: lib.choose(lib.ones(2), [lib.ones(2), lib.ones(2)]),
    "vsplit of a vector": lambda lib: lib.vsplit(lib.ones(4), 2),
    "outer of matrices": lambda lib: lib.linalg.outer(lib.ones((2, 2)), lib.ones(2)),
    "put_along_axis": lambda lib: lib.put_along_axis(
        lib.ones((2, 2)), lib.asarray([[1]]), lib.ones((1, 1)), None
    ),
    "take_along_axis, mask": lambda lib: lib.take_along_axis(lib.ones(2), lib.ones(2) > 0, 0),
    "delete, truth value": lambda lib: lib.delete(lib.ones(3), True),
    "delete, mask": lambda lib: lib.delete(lib.ones(3), [True, False]),
    "delete, float": lambda lib: lib.delete(lib.ones(3), [1.0]),
    "insert, floats": lambda lib: lib.insert(lib.ones(3), lib.asarray([1.0, 2.0]), [5.0, 6.0]),
    "unravel_index, float": lambda lib: lib.unravel_index(0.5, (2, 2)),
    "unravel_index, list": lambda lib: lib.unravel_index([], (2, 2)),
    "unravel_index, 0-d": lambda lib: lib.unravel_index([0], ()),
    "unravel_index, large": lambda lib: lib.unravel_index(1, (2**32, 2**32)),
    "ravel_multi_index, float": lambda lib: lib.ravel_multi_index(([0.5], [1]), (2, 2)),
    "two corrections": lambda lib: lib.var(lib.ones(3), ddof=1, correction=1),
    "two corrections of nanstd": lambda lib: lib.nanstd(lib.ones(3), ddof=1, correction=1),
    "nanmean as integers": lambda lib: lib.nanmean(lib.ones(3), dtype=int),
    "lexsort, shapes": lambda lib: lib.lexsort((lib.ones(2), lib.ones(3))),
    "gradient, distances": lambda lib: lib.gradient(lib.ones((2, 2)), 1.0, 2.0, 3.0),
    "weights without axis": lambda lib: lib.average(lib.ones((2, 2)), weights=lib.ones(2)),
    "weights of cov": lambda lib: lib.cov(lib.ones(2), fweights=[0.5, 1.0]),
    "select, integers": lambda lib: lib.select([lib.asarray([1, 0])], [lib.ones(2)]),
    "histogram, float": lambda lib: lib.histogram(lib.ones(3), bins=2.5),
    "histogram, weights": lambda lib: lib.histogram(lib.ones(3), "auto", weights=lib.ones(3)),
    "isin": lambda lib: lib.isin(lib.ones(3), lib.ones(3), kind="foo"),
    "pad, length": lambda lib: lib.pad(lib.ones(3), 1, mode="mean", stat_length=-2),
    "pad, no maximum": lambda lib: lib.pad(lib.ones(3), 1, mode="maximum", stat_length=0),
    "window": lambda lib: lib.hanning("3"),
    "condition of nothing": lambda lib: lib.linalg.cond(lib.ones((2, 0, 0))),
    "condition, shape": lambda lib: lib.linalg.cond(lib.ones((2, 3)), 1),
    "sorter, short": lambda lib: lib.searchsorted(lib.arange(3), 1, sorter=[0, 1]),
    "sorter, long": lambda lib: lib.searchsorted(lib.arange(3), 1, sorter=[0, 1, 2, 0]),
    "sorter, negative": lambda lib: lib.searchsorted(lib.arange(3), -1, sorter=[-1, -1, -1]),
    "mask of putmask": lambda lib: lib.putmask(lib.arange(3), [True], 5),
    "tensorinv": lambda lib: lib.linalg.tensorinv(lib.ones((2, 3, 4))),
    "tensorinv, no axis": lambda lib: lib.linalg.tensorinv(lib.ones((1, 1)), 0),
    "tensorsolve": lambda lib: lib.linalg.tensorsolve(lib.ones((2, 3, 4)), lib.ones(2)),
    "truth values in a row": lambda lib: lib.arange(3, dtype=bool),
    "a row without an end": lambda lib: lib.arange(step=2),
    "ravel_multi_index, no element": lambda lib: lib.ravel_multi_index(
        ([0], [0]), (2, 0), mode="clip"
    ),
    "ravel_multi_index, large": lambda lib: lib.ravel_multi_index(([0], [0]), (2**62, 2)),
    "trim_zeros": lambda lib: lib.trim_zeros(lib.arange(3), ""),
    "axis of a number": lambda lib: lib.max(lib.asarray(1.0), 1),
    "axis of moveaxis": lambda lib: lib.moveaxis(lib.ones((2, 3)), 2, 0),
    "axis of swapaxes": lambda lib: lib.swapaxes(lib.ones((2, 3)), 0, -3),
    "axis of quantile weights": lambda lib: lib.quantile(
        lib.ones((2, 3)), 0.5, weights=lib.ones(3), method="inverted_cdf"
    ),
    "two tolerances": lambda lib: lib.linalg.pinv(lib.ones((2, 3)), rcond=0.1, rtol=0.1),
    "concatenate to integers": lambda lib: lib.concatenate([lib.asarray([1.7])], dtype=int),
    "concatenate to floats": lambda lib: lib.concatenate([lib.asarray([1j])], dtype=float),
    "stack to unsigned integers": lambda lib: lib.stack([lib.asarray([-1])], dtype="uint8"),
    "vstack to truth values": lambda lib: lib.vstack([lib.asarray([1])], dtype=bool),
    "hstack to integers": lambda lib: lib.hstack([[0.5], lib.asarray([1])], dtype="int64"),
    "repeat, floats": lambda lib: lib.repeat(lib.ones(2), lib.asarray([1.9, 2.9])),
    "put_along_axis, dimensions": lambda lib: lib.put_along_axis(
        lib.zeros((2, 3)), lib.asarray([0, 1, 2]), 5, 1
    ),
    "put_along_axis, floats": lambda lib: lib.put_along_axis(lib.ones(2), lib.ones(2), 5, 0),
    "ediff1d, truth values": lambda lib: lib.ediff1d(lib.asarray([True, False])),
    "pad, mode": lambda lib: lib.pad(lib.ones(3), 0, mode="foo"),
    "round": lambda lib: lib.round(lib.ones(3), 1.5),
    "histogram2d, lengths": lambda lib: lib.histogram2d([1.0, 2.0, 3.0], [1.0]),
    "histogramdd, lengths": lambda lib: lib.histogramdd([[1.0], [1.0, 2.0]]),
}


def bases(error: type[BaseException]) -> set[type[BaseException]]:
    """The classes by which programs catch an exception of NumPy."""
    usual = (
        *(ValueError, IndexError, TypeError, OverflowError),
        *(np.linalg.LinAlgError, np.exceptions.AxisError),
    )
    return {base for base in usual if issubclass(error, base)}


@pytest.mark.parametrize("name", MISTAKES)
def test_exceptions_are_of_numpys_classes(name: str) -> None:
    with pytest.raises(Exception) as known:  # noqa: PT011
        MISTAKES[name](np)
    with pytest.raises((mm.errors.MagmathError, TypeError, ValueError, IndexError)) as actual:
        MISTAKES[name](mm)
    assert bases(known.type), known
    assert bases(known.type) <= bases(actual.type), (known, actual)


# linear algebra -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@given(data=st.data())
def test_condition_numbers_of_singular_matrices_are_infinite(
    dtype: str, data: st.DataObject
) -> None:
    orders: list[Any] = [None, 1, -1, 2, -2, np.inf, -np.inf, "fro"]
    kinds = data.draw(st.lists(st.sampled_from(["zero", "column", "regular"]), min_size=1))
    stack = np.array([[[4.0, 1.0], [1.0, 2.0]]] * len(kinds)).astype(dtype)
    for matrix, kind in zip(stack, kinds, strict=True):
        if kind != "regular":
            matrix[:, 0 if kind == "column" else slice(None)] = 0
    with current(*data.draw(st.sampled_from([("inline", 1), ("shared", 2)]))):
        numbers = [mm.linalg.cond(mm.asarray(stack), p) for p in orders]
        mm.evaluate(*numbers)  # as one program
        for p, number in zip(orders, numbers, strict=True):
            actual, expected = number.numpy(), np.linalg.cond(stack, p)
            assert actual.dtype == expected.dtype
            np.testing.assert_allclose(actual, expected, rtol=1e-5, err_msg=str(p))


# types --------------------------------------------------------------------------------------------

EVERY_TYPE = ["bool", "int8", "uint8", "int64", "float16", "float32", "float64"]


@pytest.mark.parametrize("initial", [1, True, 3, np.int64(3), np.int8(3), np.array(3), np.array(0)])
@pytest.mark.parametrize("dtype", EVERY_TYPE)
@pytest.mark.parametrize("name", ["max", "min"])
def test_an_initial_value_does_not_change_the_type_of_an_extremum(
    name: str, dtype: str, initial: Any
) -> None:
    values, mask = np.array([[1, 0], [1, 2]]).astype(dtype), np.array([True, False])
    options: list[dict[str, Any]] = [{}, {"where": mask}, {"axis": 0}, {"keepdims": True}]
    for option in options:
        expected = np.asarray(getattr(np, name)(values, initial=initial, **option))
        actual = getattr(mm, name)(mm.asarray(values), initial=initial, **option)
        assert str(actual.dtype) == str(expected.dtype)
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("dtype", EVERY_TYPE)
def test_weights_of_bincount_are_added_in_float64(dtype: str) -> None:
    weights = np.array([1, 0, 1, 1]).astype(dtype)
    result = mm.bincount(mm.asarray([0, 2, 2, 0]), mm.asarray(weights), minlength=4)
    assert result.dtype is mm.float64
    np.testing.assert_array_equal(result, np.bincount([0, 2, 2, 0], weights, 4))


@pytest.mark.parametrize("dtype", [*EVERY_TYPE, "complex64"])
@pytest.mark.parametrize("name", ["real", "imag"])
def test_parts_of_all_types(name: str, dtype: str) -> None:
    values = np.array([1, 0, 1]).astype(dtype)
    own, function = mm.asarray(values), getattr(mm, name)
    expected = getattr(np, name)(values)
    for actual in (function(own), getattr(own, name), mm.compile(function)(own)):
        assert str(actual.dtype) == str(expected.dtype)
        np.testing.assert_array_equal(actual, expected)
    assert function(3) == getattr(np, name)(3)


@pytest.mark.parametrize(
    "call",
    [
        lambda lib: lib.outer(2.0, 3.0),
        lambda lib: lib.outer(2, 3),
        lambda lib: lib.outer(2, 3.5),
        lambda lib: lib.outer(2, [1.0, 2.0]),
        lambda lib: lib.tensordot(2.0, 3.0, 0),
        lambda lib: lib.lexsort((1, 2)),
        lambda lib: lib.lexsort((lib.asarray(2.0),)),
        lambda lib: lib.lexsort(lib.asarray([2, 1])),
        lambda lib: lib.lexsort(lib.asarray([[2, 1], [1, 1]])),
    ],
)
def test_operands_without_dimensions(call: Callable[[Any], Any]) -> None:
    actual, expected = call(mm), np.asarray(call(np))
    assert (actual.shape, str(actual.dtype)) == (expected.shape, str(expected.dtype))
    np.testing.assert_array_equal(actual, expected)


# parameters by position ---------------------------------------------------------------------------


def by_position(function: Callable[..., Any]) -> list[str]:
    """The names of the parameters that may be given by position; none for functions written in C."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.kind <= p.POSITIONAL_OR_KEYWORD]


def test_axes_are_at_numpys_positions() -> None:
    actual = 0
    for ours, theirs in ((mm, np), (mm.linalg, np.linalg), (mm.fft, np.fft)):
        for name in {*dir(ours)} & {*dir(theirs)}:
            if name.startswith("_") or not callable(getattr(theirs, name)):
                continue
            expected = by_position(getattr(theirs, name))
            for what in {"axis", "axes", "keepdims", "ddof"} & {*expected}:
                given = by_position(getattr(ours, name))
                assert what in given, (name, what)
                assert given.index(what) == expected.index(what), (name, what)
                actual += 1
    assert actual > 100


def test_limits_and_classes_of_numbers() -> None:
    x = mm.ones(3, dtype=mm.float32)
    assert mm.finfo(x.dtype).tiny == np.finfo(np.float32).tiny
    assert isinstance(x.dtype.type(1.5), np.float32)


# small corners -----------------------------------------------------------------------------------


@pytest.mark.parametrize("extent", [1, 5, 20_000])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_numbers_to_the_power_zero_are_one(extent: int, dtype: str) -> None:
    with current("inline"):
        zeros = mm.asarray(np.zeros(extent, dtype))
        for power in (zeros**0, zeros**zeros, (zeros + 2) ** zeros[:1]):
            np.testing.assert_array_equal(power.numpy(), np.ones(extent, dtype))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("exponent", [2, 2.0, 0.5, -1, -1.0, np.float64(0.5), np.float32(2)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "bool"])
@pytest.mark.parametrize("extent", [8, 20_000])
def test_powers_that_are_other_operations_have_numpys_bits(
    exponent: Any, dtype: str, extent: int
) -> None:
    values = np.array([-0.0, -np.inf, np.inf, np.nan, 2, -2, 0, 7.3])
    values = np.resize(values if dtype.startswith("float") else [3, 1, 5, 0], extent).astype(dtype)
    with current("inline"):
        x = mm.asarray(values)
        for of in (lambda lib, x: x**exponent, lambda lib, x: lib.power(x, exponent)):
            if type(exponent) is int and exponent < 0 and not dtype.startswith("float"):
                for lib, operand in ((np, values), (mm, x)):
                    with pytest.raises(ValueError, match="[Ii]ntegers to"):
                        of(lib, operand)
                continue
            for _ in range(2):  # the second time it is a repeated call
                actual, expected = of(mm, x).numpy(), of(np, values)
                assert actual.dtype == expected.dtype
                np.testing.assert_array_equal(actual, expected)
                is_number = ~np.isnan(expected)
                same_signs = np.signbit(actual[is_number]) == np.signbit(expected[is_number])
                assert same_signs.all()


@pytest.mark.parametrize("function", ["fmod", "fmax", "fmin"])
@pytest.mark.parametrize("dtype", ["int8", "int32", "uint8", "float32"])
def test_numbers_take_the_type_of_arrays(function: str, dtype: str) -> None:
    with current("inline"):
        values = np.arange(1, 6).astype(dtype)
        for of in (lambda f, x: f(x, 2), lambda f, x: f(3, x), lambda f, x: f(x, x[::-1])):
            expected = of(getattr(np, function), values)
            actual = of(getattr(mm, function), mm.asarray(values)).numpy()
            assert actual.dtype == expected.dtype
            np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("kind", [("inline", 1), ("shared", 2)], ids=lambda kind: kind[0])
@pytest.mark.parametrize("key", [slice(1, 3), [0, 3], [True, False, False, True]])
@pytest.mark.parametrize("values", [1, 0.5, [0, 2], (0.0, np.nan), range(2), [True, False]])
def test_numbers_written_as_truth_values(kind: tuple[str, int], key: Any, values: Any) -> None:
    expected, added = np.array([True, False, False, True]), np.zeros(4, bool)
    expected[key] = values
    np.add.at(added, [1, 2], np.asarray(values, dtype=bool).ravel())
    with current(*kind):
        actual, sums = mm.asarray([True, False, False, True]), mm.zeros(4, dtype=bool)
        actual[key] = values
        mm.add.at(sums, [1, 2], np.ravel(values).tolist())
        np.testing.assert_array_equal(actual.numpy(), expected)
        np.testing.assert_array_equal(sums.numpy(), added)


def test_writes_of_numbers_and_products_of_truth_values() -> None:
    with current("inline"):
        small, truth = mm.asarray([3], dtype="uint8"), mm.asarray([True, False])
        small.fill(1)
        assert mm.prod(truth).dtype is mm.int64
        mm.copyto(truth, 1)
        assert (small.tolist(), truth.tolist(), int(mm.prod(truth))) == ([1], [True, True], 1)
        x = mm.asarray([np.nan, 1.0])
        assert mm.nan_to_num(x, copy=False) is x
        assert x.tolist() == [0, 1]


@pytest.mark.parametrize("nan", [0.0, -1.0, np.nan])
@pytest.mark.parametrize("positive", [None, 7.0, np.inf])
@pytest.mark.parametrize("negative", [None, -7.0, -np.inf])
def test_numbers_for_nan_and_infinities_of_complex_numbers(
    nan: float, positive: float | None, negative: float | None
) -> None:
    """Each part has its own."""
    parts = np.array([0.0, 1.5, np.inf, -np.inf, np.nan])
    values = np.empty((5, 5), np.complex128)
    values.real, values.imag = parts, parts[:, None]
    options: Any = {"nan": nan, "posinf": positive, "neginf": negative}
    with current("inline"):
        for dtype in ("complex64", "complex128"):
            wanted = np.nan_to_num(values.astype(dtype), **options)
            numbers = mm.nan_to_num(mm.asarray(values.astype(dtype)), **options).numpy()
            assert numbers.dtype == wanted.dtype
            np.testing.assert_array_equal(numbers, wanted)


def test_parts_of_complex_numbers_are_views() -> None:
    with current("inline"):
        x = mm.asarray(np.arange(3) * 1j)
        real, imag = mm.real(x), mm.imag(x)
        real += 5
        imag *= 2
        assert x.tolist() == [5, 5 + 2j, 5 + 4j]


# arrays without elements, and leading dimensions --------------------------------------------------


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (0, 0), (2, 0, 3)])
def test_unique_parts_of_arrays_without_elements(shape: tuple[int, ...]) -> None:
    for axis in range(len(shape)):
        result = mm.unique(mm.zeros(shape), axis=axis)
        assert result.shape == np.unique(np.zeros(shape), axis=axis).shape


@pytest.mark.parametrize("name", ["max", "min", "nanmax", "nanmin"])
@pytest.mark.parametrize("dtype", ["bool", "int64", "float64"])
def test_no_elements_have_no_extremum(name: str, dtype: str) -> None:
    with pytest.raises(ValueError, match="axis of extent 0 in shape"):
        getattr(mm, name)(mm.zeros((2, 0), dtype=dtype), axis=1)


def test_copies_to_fewer_dimensions() -> None:
    x = mm.zeros(6)
    mm.copyto(x, mm.ones((1, 1, 6)))
    assert x.tolist() == [1] * 6
    with pytest.raises(ValueError, match="cannot be stretched"):
        mm.copyto(x, mm.ones((2, 6)))


SMALL_INTEGERS = """
polyval(a, 2); polyval([100, 100], a); polyval(a, 200); convolve(u, [1, 1]); kron(a, [2]); polyadd(a, [100])
left_shift(a, [7, 8]); diff(a, prepend=-100); histogram(u, bins=[0, 64, 256])[0]; digitize(u, [0, 64, 256])
digitize(u, [-1, 0, 1]); interp(u, [0, 64, 256], [0.0, 1, 2]); cov(u, [1, 2, 300]); trapezoid(u, [0, 1, 300])
array_equal(u, [1, 2, 300]); allclose(u, [1, 2, 300]); setdiff1d(u, [1, 2, 300]); intersect1d(u, [1, 300])
union1d(u, [1, 300]); add(u, [1, 2, 3]); multiply(a, [2, 3]); equal(u, [1, 2, 300]); maximum(u, [1, 2, 300])
where(u > 3, u, [1, 2, 300]); clip(u, [2, 2, 2], 250); isin(u, [1, 300]); searchsorted(u, [0, 300])
concatenate([u, [300]]); subtract([1, 2], a); gcd(12, 18); lcm(4, 6); meshgrid(ones((2, 2)), [1])[0]
"""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", [x.strip() for x in SMALL_INTEGERS.replace("\n", ";").split(";")])
def test_small_integers_with_lists_of_integers(call: str) -> None:
    """Lists of integers have 64 bits, so that nothing wraps."""
    if not call:
        return
    values = {"a": np.array([100, 100], np.int8), "u": np.array([1, 200, 255], np.uint8)}
    former = mm.get_default_dtype()
    mm.set_default_dtype("float64")
    try:
        actual = eval(
            call, vars(mm) | dict(mm_names()) | {k: mm.asarray(v) for k, v in values.items()}
        )
        wanted = eval(call, {**vars(np), **values})
    finally:
        mm.set_default_dtype(former)
    np.testing.assert_array_equal(np.asarray(actual), wanted)
    assert np.asarray(actual).dtype == np.asarray(wanted).dtype


def mm_names() -> list[tuple[str, Any]]:
    """The functions of magmath that the calls use."""
    return [(name, getattr(mm, name)) for name in re.findall(r"(\w+)\(", SMALL_INTEGERS)]


@pytest.mark.parametrize("shape", [(5, 3), (3, 3), (2, 4)])
@pytest.mark.parametrize("columns", [(), (2,)])
def test_residuals_of_least_squares(shape: tuple[int, int], columns: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal(shape), rng.standard_normal((shape[0], *columns))
    actual = mm.linalg.lstsq(mm.asarray(a, dtype="float64"), mm.asarray(b, dtype="float64"))
    wanted = np.linalg.lstsq(a, b, rcond=None)
    assert actual[1].shape == wanted[1].shape
    np.testing.assert_allclose(actual[1], wanted[1], atol=1e-12)


def test_seeds_of_generators() -> None:
    rng = mm.random.default_rng(3)
    assert mm.random.default_rng(rng) is rng
    first, second = (mm.random.default_rng([1, 2]).random(3).tolist() for _ in range(2))
    assert first == second != mm.random.default_rng([2, 1]).random(3).tolist()


def test_lists_of_texts_are_shuffled_and_drawn() -> None:
    names = ["a", "b", "c", "d"]
    rng = mm.random.default_rng(3)
    order = names.copy()
    rng.shuffle(order)
    assert sorted(order) == names
    assert sorted(rng.permutation(names).tolist()) == names
    drawn = rng.choice(names, (200, 2), p=[0.5, 0.5, 0, 0])
    assert drawn.shape == (200, 2)
    assert set(drawn.ravel().tolist()) == {"a", "b"}
    assert rng.choice(names) in names
    assert sorted(rng.choice(names, 4, replace=False).tolist()) == names


def test_random_numbers_are_stored() -> None:
    rng, out = mm.random.default_rng(3), mm.zeros((2, 3))
    other = out
    assert rng.random(out=out) is out
    expected = mm.random.default_rng(3).random((2, 3))
    np.testing.assert_array_equal(other.numpy(), expected.numpy())
    rng.standard_normal(out=out)
    assert not np.array_equal(other.numpy(), expected.numpy())


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: mm.random.RandomState(0), r"write mm\.random\.default_rng\(seed\)"),
        (lambda x: setattr(x, "shape", (3, 2)), r"write x = x\.reshape\(\(3, 2\)\)"),
        (lambda x: setattr(x, "dtype", int), r"write x = x\.astype\(dtype\)"),
        (lambda x: x.__delitem__(0), r"write x = mm\.delete\(x, i, axis=0\)"),
        (lambda x: mm.percentile(x, 101), r"percentile: q must be from 0 to 100, .* to 101;"),
        (lambda x: mm.quantile(x, [0.5, -2]), r"quantile: q must be from 0 to 1, .* from -2 to"),
        (lambda x: mm.choose([2], [x, x]), r"choose: a number is out of range for 2 choices"),
        (lambda x: f"{x:.2f}", r"format: '\.2f' is for one number.* f'{x\[0, 0\]:\.2f}'"),
        (lambda x: f"{x[0]:.2f}", r"this array has shape \(3,\).* f'{x\[0\]:\.2f}' does for"),
        (lambda _: mm.genfromtxt(["a b", "1 2"], names=True), r"records.* skip_header=1"),
        (lambda x: mm.r_["r", x, x], r"r_: a text before the arrays .*was 'r'"),
        (lambda x: mm.r_["0,2,0,1", x], r"r_: a text before the arrays .*was '0,2,0,1'"),
        (lambda x: x.resize(3, 2), r"x = x\.reshape\(shape\), or x = mm\.resize\(x, shape\)"),
        (lambda _: mm.can_cast("foo", "int32"), r"can_cast: dtype 'foo' is not known"),
        (lambda _: mm.can_cast("int32", "foo"), r"can_cast: dtype 'foo' is not known"),
    ],
)
def test_refusals_name_the_remedy(call: Any, words: str) -> None:
    with pytest.raises((AttributeError, ValueError, TypeError), match=words):
        call(mm.ones((2, 3)))


def test_no_array_is_cast_to_types_that_numpy_alone_has() -> None:
    assert mm.can_cast("int32", "S3") is np.can_cast(np.float64, "S3") is False


@given(data=st.data())
def test_arrays_are_joined_as_a_text_says(data: st.DataObject) -> None:
    numbers = st.integers(-4, 3)
    text = ",".join(map(str, data.draw(st.lists(numbers, min_size=1, max_size=3))))
    shapes = st.sampled_from([(2,), (1, 2), (2, 1), (1, 2, 1)])
    entries = [np.ones(shape) for shape in data.draw(st.lists(shapes, min_size=1, max_size=2))]
    for name in ("r_", "c_"):
        join = getattr(np, name)
        for extra in ((), (slice(0, 2),), (3.0,)):
            try:
                expected = join[(text, *entries, *extra)]
            except ValueError:
                continue
            computed = getattr(mm, name)[(text, *map(mm.asarray, entries), *extra)]
            np.testing.assert_array_equal(computed.numpy(), expected)


def test_elements_are_enumerated_with_their_indices() -> None:
    values = np.arange(6).reshape(2, 3)
    assert [*mm.ndenumerate(mm.asarray(values))] == [*np.ndenumerate(values)]


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("stack", [(), (3,), (2, 0)])
@pytest.mark.parametrize("kind", ["inline", "planned"])
def test_small_systems(kind: str, stack: tuple[int, ...], dtype: str) -> None:
    random = np.random.default_rng(0)
    a = (random.normal(size=(*stack, 4, 4)) + 3 * np.eye(4)).astype(dtype)
    b = random.normal(size=(*stack, 4, 2)).astype(dtype)
    with current(kind):
        x, y = mm.asarray(a), mm.asarray(b)
        actual = mm.linalg.solve(x, y)
        assert actual.dtype == dtype
        np.testing.assert_allclose(actual.numpy(), np.linalg.solve(a, b), rtol=2e-4)
        slope = mm.grad(lambda y: mm.sum(mm.real(mm.linalg.solve(x, y))))(y)
        expected = np.linalg.solve(np.conj(np.swapaxes(a, -1, -2)), np.ones_like(b))
        np.testing.assert_allclose(slope.numpy(), expected, rtol=2e-4)
        if x.size:
            with pytest.raises(np.linalg.LinAlgError, match="solve: the matrix is singular"):
                mm.evaluate(mm.linalg.solve(0 * x, y), wait=True)


# complex numbers ----------------------------------------------------------------------------------

UFUNCS = [name for name in dir(mm) if isinstance(getattr(np, name, None), np.ufunc)]
UFUNCS = [name for name in UFUNCS if getattr(np, name).signature is None]  # of single elements
OPERANDS = {"complex": RANDOM.normal(size=3) + 1j, "real": RANDOM.normal(size=3)}


def _takes(lib: Any, name: str, kinds: tuple[str, ...]) -> bool:
    operands = [lib.asarray(OPERANDS[kind]) for kind in kinds]
    try:
        np.asarray(getattr(lib, name)(*operands))
    except TypeError:
        return False
    return True


@pytest.mark.parametrize("name", [*UFUNCS, "i0", "isposinf", "isneginf"])
def test_functions_of_real_numbers_take_no_complex_ones(name: str) -> None:
    operands = getattr(getattr(np, name), "nin", 1)
    forms = [("complex",)] if operands == 1 else [("complex", "real"), ("real", "complex")]
    for kinds in [x for x in forms if not _takes(np, name, x)]:
        assert not _takes(mm, name, kinds)


# values that are defaults in NumPy ------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["median", "nanmedian", "histogram", "histogramdd", "histogram_bin_edges", "digitize"]
)
def test_statistics_of_real_numbers_take_no_complex_ones(name: str) -> None:
    arguments = ([1.0, 2.0],) if name == "digitize" else ()
    with pytest.raises(TypeError, match=f"{name}: takes real numbers, was given complex"):
        getattr(mm, name)(mm.asarray([1j, 2.0]), *arguments)


ROUNDED = [0.0, -0.0, 2.55, -3.45, np.inf, -np.inf, np.nan]


@pytest.mark.parametrize("decimals", [0, 1, -1])
def test_parts_of_complex_numbers_are_rounded_by_themselves(decimals: int) -> None:
    x = np.array([complex(a, b) for a in ROUNDED for b in ROUNDED])
    actual, expected = mm.round(mm.asarray(x), decimals).numpy(), np.round(x, decimals)
    np.testing.assert_array_equal(actual.view(float), expected.view(float))


def test_zeros_are_positive_where_those_of_numpy_are() -> None:
    steps = np.array([-1.0, 0.0, 2.0, np.inf, -np.inf])
    flat = np.array([1.0, 2.0, 2.0, 2.0])
    pairs = [
        (mm.heaviside(mm.asarray(steps), -2.0), np.heaviside(steps, -2.0)),
        (mm.gradient(mm.asarray(flat)), np.gradient(flat)),
        (mm.gradient(mm.asarray(flat), edge_order=2), np.gradient(flat, edge_order=2)),
    ]
    for actual, expected in pairs:
        np.testing.assert_array_equal(actual.numpy(), expected)
        np.testing.assert_array_equal(np.signbit(actual.numpy()), np.signbit(expected))


RANGES: list[Callable[[Any, Any], Any]] = [
    lambda lib, x: x + range(3),
    lambda lib, x: range(3) * x,
    lambda lib, x: x == range(3),
    lambda lib, x: x < range(1, 4),
    lambda lib, x: x @ range(3),
    lambda lib, x: lib.asarray([1, 2, 3], dtype="uint8") + range(3),
    lambda lib, x: lib.asarray([[range(3), range(3)]]),
    lambda lib, x: lib.mean(range(4)),
    lambda lib, x: lib.polyfit(range(4), [1.0, 3, 5, 7], 1),
    lambda lib, x: lib.interp([0.5, 2.5], range(4), range(0, 8, 2)),
    lambda lib, x: lib.concatenate([x[0], range(3)]),
    lambda lib, x: lib.stack([range(3), range(3)]),
    lambda lib, x: lib.where(x > 1, range(3), 0),
    lambda lib, x: lib.isin(x, range(1, 3)),
    lambda lib, x: lib.take(x, range(2), axis=1),
    lambda lib, x: lib.repeat(x, range(2), axis=0),
    lambda lib, x: lib.bincount(range(3)),
    lambda lib, x: lib.choose(range(2), [[1, 2], [3, 4]]),
    lambda lib, x: lib.histogram(x, range(4))[0],
    lambda lib, x: lib.meshgrid(range(2), range(3))[1],
    lambda lib, x: lib.full((2, 3), range(3)),
    lambda lib, x: lib.sum(range(0)),
]


@pytest.mark.parametrize("call", RANGES)
def test_ranges_are_lists_of_integers(call: Callable[[Any, Any], Any]) -> None:
    x = np.arange(6.0).reshape(2, 3)
    mm.set_default_dtype("float64")
    try:
        actual, expected = np.asarray(call(mm, mm.asarray(x))), np.asarray(call(np, x))
    finally:
        mm.set_default_dtype("float32")
    np.testing.assert_allclose(actual, expected, atol=1e-12)
    assert actual.dtype == expected.dtype


def test_numbers_of_averaged_elements() -> None:
    for shape, axis in ((0,), None), ((2, 0), 1), ((0, 2), 0), ((2, 3), 1):
        x = np.ones(shape)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            actual = mm.average(mm.asarray(x), axis=axis, returned=True)
            expected = np.average(x, axis=axis, returned=True)
        for mine, other in zip(actual, expected, strict=True):
            np.testing.assert_array_equal(mine.numpy(), other)


def test_numbers_and_truth_values_are_taken_and_choose() -> None:
    assert mm.take(mm.asarray(3), [0, -1, 0], axis=0).tolist() == [3, 3, 3]
    assert mm.choose(mm.asarray([True, False]), [[1, 2], [3, 4]]).tolist() == [3, 2]


def test_norms_of_transforms_that_are_none() -> None:
    x = RANDOM.normal(size=(4, 6))
    for name in ["fft", "ifft", "rfft", "irfft", "fftn", "ifft2", "rfftn", "irfftn", "hfft"]:
        transform = getattr(mm.fft, name)(mm.asarray(x), norm=None)
        np.testing.assert_allclose(transform.numpy(), getattr(np.fft, name)(x), atol=1e-12)


def test_differences_of_order_zero() -> None:
    x = np.arange(3.0)
    np.testing.assert_array_equal(mm.diff(mm.asarray(x), n=0, prepend=1), np.diff(x, 0, prepend=1))


@given(real=st.floats(-700, 700), imag=st.floats(-3, 3))
def test_complex_sigmoid_has_full_relative_accuracy(real: float, imag: float) -> None:
    z = np.array([complex(real, imag)])
    power = np.exp(-z if real >= 0 else z)
    expected = (1 if real >= 0 else power) / (1 + power)
    np.testing.assert_allclose(
        np.asarray(mm.sigmoid(mm.asarray(z))).real, expected.real, rtol=1e-12
    )


@pytest.mark.parametrize("values", [[2**62 + 1, 5], []])
@pytest.mark.parametrize("name", ["max", "min"])
def test_whole_initial_values_of_integers_are_exact(name: str, values: list[int]) -> None:
    """Other floats are more general than integers, also where there are no elements."""
    x = np.array(values, dtype=np.int64)
    for initial in (0.0, -3.0, 7):
        result = getattr(mm, name)(mm.asarray(x), initial=initial)
        assert result.dtype is mm.int64
        assert int(result) == getattr(np, name)(x, initial=int(initial))
    result = getattr(mm, name)(mm.asarray(x), initial=2.5)
    assert result.dtype is mm.float64
    assert float(result) == getattr(np, name)(x.astype(float), initial=2.5)


@pytest.mark.parametrize("axis", [0, -1])
def test_cross_products_of_two_and_three_infinite_elements(axis: int) -> None:
    """The missing third element is no number: it makes no products."""
    short = np.array([[np.inf, 1], [1, 1], [2, -1], [-np.inf, 2]])
    long = np.array([[1, 2, 3], [1, np.inf, 1], [np.inf, 4, 5], [1, 2, np.inf]])
    (a, b), (x, y, z) = short.T, long.T
    with np.errstate(invalid="ignore"):
        expected = np.stack([b * z, -(a * z), a * y - b * x], -1)
    first, second = (mm.asarray(np.moveaxis(v, -1, axis)) for v in (short, long))
    expected = np.moveaxis(expected, -1, axis)
    np.testing.assert_array_equal(mm.cross(first, second, axis=axis), expected)
    np.testing.assert_array_equal(mm.cross(second, first, axis=axis), -expected)


INTEGERS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "apply_over_axes": lambda np, x, i: np.apply_over_axes(np.sum, x, i(0)),
    "arange": lambda np, x, i: np.arange(i(4)),
    "argmax": lambda np, x, i: np.argmax(x, axis=i(0)),
    "broadcast_shapes": lambda np, x, i: np.zeros(np.broadcast_shapes(i(3), (2, 3))),
    "broadcast_to": lambda np, x, i: np.broadcast_to(5.0, i(3)),
    "concatenate": lambda np, x, i: np.concatenate((x, x), axis=i(1)),
    "cumsum": lambda np, x, i: np.cumsum(x, axis=i(1)),
    "delete": lambda np, x, i: np.delete(x, i(0), i(1)),
    "diff": lambda np, x, i: np.diff(x, i(1), i(0)),
    "expand_dims": lambda np, x, i: np.expand_dims(x, i(0)),
    "eye": lambda np, x, i: np.eye(i(3), i(4), i(1)),
    "flip": lambda np, x, i: np.flip(x, i(0)),
    "full": lambda np, x, i: np.full(i(3), 2.0),
    "gradient": lambda np, x, i: np.gradient(x, axis=i(1)),
    "histogram": lambda np, x, i: np.histogram(x, i(3))[0],
    "insert": lambda np, x, i: np.insert(x, i(1), 5.0, axis=i(0)),
    "median": lambda np, x, i: np.median(x, axis=i(0)),
    "moveaxis": lambda np, x, i: np.moveaxis(x, i(0), i(1)),
    "norm": lambda np, x, i: np.linalg.norm(x, axis=i(1)),
    "pad": lambda np, x, i: np.pad(x, i(1)),
    "repeat": lambda np, x, i: np.repeat(x, i(2), axis=i(0)),
    "reshape": lambda np, x, i: np.reshape(x, i(6)),
    "roll": lambda np, x, i: np.roll(x, i(1), i(0)),
    "rot90": lambda np, x, i: np.rot90(x, i(1)),
    "sliding_window_view": lambda np, x, i: np.lib.stride_tricks.sliding_window_view(x, i(2), i(0)),
    "sort": lambda np, x, i: np.sort(x, axis=i(0)),
    "split": lambda np, x, i: np.split(x, i(3), axis=i(1))[2],
    "squeeze": lambda np, x, i: np.squeeze(x[None], i(0)),
    "stack": lambda np, x, i: np.stack((x, x), axis=i(1)),
    "sum": lambda np, x, i: np.sum(x, axis=i(0)),
    "swapaxes": lambda np, x, i: np.swapaxes(x, i(0), i(1)),
    "take": lambda np, x, i: np.take(x, [0], axis=i(1)),
    "tensordot": lambda np, x, i: np.tensordot(x, x.T, i(1)),
    "tensordot_axes": lambda np, x, i: np.tensordot(x, x, (i(1), i(1))),
    "tile": lambda np, x, i: np.tile(x, i(2)),
    "trim_zeros": lambda np, x, i: np.trim_zeros(np.asarray([0.0, 1.0, 0.0]), axis=i(0)),
    "unique": lambda np, x, i: np.unique(x, axis=i(0)),
    "vander": lambda np, x, i: np.vander(x[0], i(2)),
    "zeros": lambda np, x, i: np.zeros(i(3)),
}


@pytest.mark.parametrize("kind", [int, np.int64, np.int8, np.array])
@pytest.mark.parametrize("name", INTEGERS)
def test_integers_of_numpy_are_axes_shapes_and_counts(name: str, kind: Any) -> None:
    x = RANDOM.normal(size=(2, 3))
    expected = INTEGERS[name](np, x, int)
    np.testing.assert_allclose(INTEGERS[name](mm, mm.asarray(x), kind), expected, rtol=1e-12)


def test_shapes_and_counts_in_arrays() -> None:
    x = np.arange(6.0).reshape(2, 3)
    y, shape = mm.asarray(x), np.array([3, 2])
    np.testing.assert_array_equal(mm.reshape(y, shape), x.reshape(shape))
    np.testing.assert_array_equal(mm.tile(y, shape), np.tile(x, shape))
    np.testing.assert_array_equal(mm.zeros(shape), np.zeros(shape))
    np.testing.assert_array_equal(mm.broadcast_to(y, np.array([4, 2, 3])), [x] * 4)
    np.testing.assert_array_equal(mm.roll(y, np.array([1, 1]), (0, 1)), np.roll(x, (1, 1), (0, 1)))


@pytest.mark.parametrize("seed", range(8))
def test_remainders_of_polynomials_have_the_degrees_of_numpy(seed: int) -> None:
    random = np.random.default_rng(seed)
    u, v = (random.normal(size=n) * 30 for n in random.integers(1, 7, 2))
    for dividend in (u, np.polymul(u, v)):
        expected = np.polydiv(dividend, v)
        results = mm.polydiv(mm.asarray(dividend), mm.asarray(v))
        for x, y in zip(results, expected, strict=True):
            assert x.shape == y.shape
            np.testing.assert_allclose(x, y, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("suffix", ["", ".txt", ".gz", ".bz2", ".xz"])
def test_text_files_are_compressed_by_their_names(suffix: str, tmp_path: Path) -> None:
    x = RANDOM.normal(size=(4, 3))
    path = tmp_path / f"table{suffix}"
    mm.savetxt(path, mm.asarray(x), header="a b c")
    np.testing.assert_array_equal(np.loadtxt(path), x)
    np.testing.assert_array_equal(mm.loadtxt(path), x)
    assert (b"a b c" in path.read_bytes()) is (suffix in ("", ".txt"))


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint8", "uint32"])
@pytest.mark.parametrize("shapes", [((1000,), (1000,)), ((30, 30), (30, 30)), ((70, 9), (9,))])
def test_products_of_small_integers_wrap_as_those_of_numpy(dtype: str, shapes: Any) -> None:
    info = np.iinfo(dtype)
    a, b = (RANDOM.integers(info.min, info.max, shape, dtype, endpoint=True) for shape in shapes)
    with current("inline"):
        result = mm.asarray(a) @ mm.asarray(b)
        assert result.dtype == mm.asarray(a @ b).dtype
        np.testing.assert_array_equal(result.numpy(), a @ b)


# elements ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", "?bBhHiIlLqQefdFD")
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("extent", [3, 150])
def test_arrays_of_all_types_of_c_are_computed_with(code: str, swapped: bool, extent: int) -> None:
    dtype = np.dtype(code)
    x = np.zeros((extent, extent), dtype.newbyteorder() if swapped else dtype)
    x[...] = RANDOM.integers(0, 2, x.shape)
    y = np.ones_like(x)
    calls: list[Callable[[Any, Any], Any]] = [
        lambda a, b: a[None] @ b[None],
        lambda a, b: a[a == b],
    ]
    if dtype.kind in "iuf":
        calls += [lambda a, b: a % b, lambda a, b: a // b, lambda a, b: 1**a + b]
    for call in calls:
        actual, expected = call(mm.asarray(x), mm.asarray(y)).numpy(), call(x, y)
        np.testing.assert_array_equal(actual, expected)
        assert actual.dtype == expected.dtype.newbyteorder("=")


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float32", "complex64"])
@pytest.mark.parametrize("key", [slice(1, 1), [], np.zeros((4, 2), bool), (slice(0), 1), (..., [])])
@pytest.mark.parametrize("value", [[], ()])
def test_an_empty_list_is_written_into_any_type(dtype: str, key: Any, value: Any) -> None:
    x = np.ones((4, 2), dtype)
    ours, failed = mm.asarray(x), False
    try:
        x[key] = value
    except ValueError:
        failed = True
    if failed:
        with pytest.raises(ValueError, match="broadcast"):
            ours[key] = value
    else:
        ours[key] = value
    np.testing.assert_array_equal(ours.numpy(), x)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_positions_of_any_type_give_indices_of_int64(dtype: str, order: Any) -> None:
    positions = RANDOM.integers(0, 24, (2, 5)).astype(dtype)
    actual = mm.unravel_index(mm.asarray(positions), (2, 3, 4), order)
    expected = np.unravel_index(positions.astype("int64"), (2, 3, 4), order)
    for ours, theirs in zip(actual, expected, strict=True):
        assert ours.dtype == mm.int64
        np.testing.assert_array_equal(ours.numpy(), theirs)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 2)])
@pytest.mark.parametrize("function", ["partition", "argpartition"])
def test_arrays_without_elements_are_partitioned_anywhere(
    shape: tuple[int, ...], function: str
) -> None:
    x = np.zeros(shape)
    for axis in (None, *range(-x.ndim, x.ndim)):
        for kth in (0, 7):
            expected = getattr(np, function)(x, kth, axis)
            assert getattr(mm, function)(mm.asarray(x), kth, axis).shape == expected.shape


@pytest.mark.parametrize("order", ["C", "c", "F", "f", None])
def test_orders_are_named_in_letters_of_either_size(order: Any) -> None:
    x = RANDOM.normal(size=(2, 3, 4))
    for call in (lambda a: a.reshape(6, 4, order=order), lambda a: a.flatten(order)):
        np.testing.assert_array_equal(call(mm.asarray(x)).numpy(), call(x))


@pytest.mark.parametrize("kind", ["quick", "QUICKSORT", "m", "heap", "Stable", None])
def test_the_first_letter_names_an_algorithm(kind: Any) -> None:
    x = RANDOM.normal(size=8)
    np.testing.assert_array_equal(mm.sort(mm.asarray(x), kind=kind).numpy(), np.sort(x, kind=kind))


@given(
    start=st.none() | st.integers(-5, 5), stop=st.integers(-5, 9), step=st.sampled_from([1, 2, -3])
)
def test_ranges_by_the_names_of_their_ends(start: int | None, stop: int, step: int) -> None:
    ends = {"stop": stop, "step": step} | ({} if start is None else {"start": start})
    np.testing.assert_array_equal(mm.arange(**ends).numpy(), np.arange(start or 0, stop, step))


@pytest.mark.parametrize("name", ["var", "std"])
@pytest.mark.parametrize("dtype", ["float32", "complex64", "complex128"])
def test_deviations_have_the_type_that_is_asked_for(name: str, dtype: str) -> None:
    for x in (RANDOM.normal(size=(3, 4)), RANDOM.integers(0, 9, (3, 4))):
        actual = getattr(mm, name)(mm.asarray(x), axis=0, dtype=dtype).numpy()
        expected = getattr(np, name)(x, axis=0, dtype=dtype)
        assert actual.dtype == expected.dtype
        np.testing.assert_allclose(actual, expected, rtol=1e-5)


_PARTS = st.sampled_from([0.0, 1.5, -2.0, np.inf, -np.inf, np.nan])


@settings(max_examples=60)
@given(
    values=st.lists(st.tuples(_PARTS, _PARTS), min_size=2, max_size=5),
    at=st.lists(st.sampled_from([-1.0, 0.0, 0.25, 1.0, 1.5, 2.75, 9.0, np.nan]), min_size=1),
    is_number=st.booleans(),
)
def test_parts_of_complex_numbers_are_interpolated_by_themselves(
    values: list[tuple[float, float]], at: list[float], is_number: bool
) -> None:
    points, ends = np.arange(float(len(values))), np.array([complex(*pair) for pair in values])
    x: Any = at[0] if is_number else np.array(at)
    actual = np.asarray(mm.interp(x, mm.asarray(points), mm.asarray(ends)))
    with np.errstate(invalid="ignore"):
        expected = np.interp(x, points, ends)
    np.testing.assert_array_equal(actual.real, expected.real)
    np.testing.assert_array_equal(actual.imag, expected.imag)


@settings(max_examples=30)
@given(
    lengths=st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=4),
    at=st.lists(st.integers(-2, 9), min_size=1, max_size=6),
)
def test_gradients_of_interpolation_are_finite_at_equal_points(
    lengths: list[float], at: list[int]
) -> None:
    """A change of one of the values changes the result by its share."""
    points = np.cumsum([0.0, *lengths])
    x, values = np.array(at) / 4, np.arange(float(len(points))) ** 2
    operands = [mm.asarray(operand) for operand in (x, points, values)]
    by_x, by_points, by_values = mm.grad(mm.sum(mm.interp(*operands)), operands)
    expected = [np.interp(x, points, unit).sum() for unit in np.eye(len(points))]
    np.testing.assert_allclose(by_values.numpy(), expected, atol=1e-12)
    assert np.isfinite(by_x.numpy()).all()
    assert np.isfinite(by_points.numpy()).all()


# weights -------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(data=st.data())
@pytest.mark.parametrize("name", ["average", "quantile", "percentile"])
def test_weights_have_the_dimensions_of_the_axes_in_their_order(
    name: str, data: st.DataObject
) -> None:
    x = RANDOM.normal(size=(2, 3, 2, 3))
    axes = tuple(data.draw(st.permutations(range(4)))[: data.draw(st.integers(1, 4))])
    signed = tuple(d - 4 * data.draw(st.integers(0, 1)) for d in axes)
    weights = RANDOM.uniform(0.1, 1, [x.shape[d] for d in axes])
    share = () if name == "average" else (0.3,)
    method = {} if name == "average" else {"method": "inverted_cdf"}
    given_axes: Any = signed[0] if len(signed) == 1 else signed
    actual, expected = (
        getattr(lib, name)(lib.asarray(x), *share, axis=given_axes, weights=w, **method)
        for lib, w in ((mm, mm.asarray(weights)), (np, weights))
    )
    np.testing.assert_allclose(np.asarray(actual), expected)


@pytest.mark.parametrize("default", [mm.float32, mm.float64])
@pytest.mark.parametrize("kind", ["float32", "float64", "int64", "float16", "complex64"])
def test_values_of_all_types_are_interpolated(default: Any, kind: str) -> None:
    points, values = np.array([0.0, 1.0, 2.5]), np.array([3, 5, -1]).astype(kind)
    x = np.array([-1.0, 0.25, 2.0, 4.0], "float32")
    mm.set_default_dtype(default)
    try:
        for ends in ({}, {"left": 7.0}, {"right": np.float32(2)}):
            result = mm.interp(mm.asarray(x), mm.asarray(points), mm.asarray(values), **ends)
            np.testing.assert_allclose(result.numpy(), np.interp(x, points, values, **ends))
    finally:
        mm.set_default_dtype(mm.float32)


@pytest.mark.parametrize("initial", [np.float64(1.5), np.float32(2), np.int64(3), np.array(1.5)])
@pytest.mark.parametrize("name", ["sum", "prod"])
def test_an_initial_value_has_the_type_of_the_sum(name: str, initial: Any) -> None:
    x = np.array([2.0, 4.0], "float32")
    for dtype in (None, "float32", "float64"):
        actual = getattr(mm, name)(mm.asarray(x), dtype=dtype, initial=initial)
        expected = getattr(np, name)(x, dtype=dtype, initial=initial)
        assert actual.dtype.name == expected.dtype.name
        assert actual.tolist() == expected.tolist()
    replaced = mm.nan_to_num(mm.asarray(x), nan=np.float64(0), posinf=np.float64(1))
    assert replaced.dtype is mm.float32


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "uint64", "int64"])
def test_positions_of_narrow_types_are_wrapped(dtype: str) -> None:
    x, positions = np.arange(300), np.array([1, 2, 127]).astype(dtype)
    expected = np.take(x, positions, mode="wrap")
    actual = mm.take(mm.asarray(x), mm.asarray(positions), mode="wrap")
    np.testing.assert_array_equal(actual.numpy(), expected)
    flat = mm.ravel_multi_index((positions, positions), (300, 40000), mode="wrap")
    known = np.ravel_multi_index((positions.astype(int),) * 2, (300, 40000), mode="wrap")
    np.testing.assert_array_equal(flat.numpy(), known)


@pytest.mark.parametrize("ends", [(10, 0, -1), (10, -1, -3), (0, 10, 3), (3, 9, -1), (-5, -9, 1)])
def test_ranges_of_unsigned_integers(ends: tuple[int, int, int]) -> None:
    for dtype in ("uint8", "uint64"):
        result = mm.arange(*ends, dtype=dtype)
        np.testing.assert_array_equal(result.numpy(), np.arange(*ends, dtype=dtype))
    top = 2**64 - 1
    assert mm.arange(top, top - 5, -2, dtype="uint64").tolist() == [top, top - 2, top - 4]


@pytest.mark.parametrize("rcond", [-1, -1.0, np.int64(-1), np.float32(-1)])
def test_a_negative_tolerance_of_least_squares_is_the_precision(rcond: Any) -> None:
    a, b = np.array([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]]), np.array([1.0, 2.0, 3.0])
    actual, expected = mm.linalg.lstsq(mm.asarray(a), b, rcond=rcond), np.linalg.lstsq(a, b, rcond)
    np.testing.assert_allclose(actual.solution.numpy(), expected[0], atol=1e-12)
    assert int(actual.rank) == expected[2] == 1


@pytest.mark.parametrize("order", ["c", "C", "f", "F"])
def test_indices_in_orders_of_either_letter(order: Any) -> None:
    assert mm.ravel_multi_index(([1], [2]), (3, 4), order=order).tolist() == [
        *np.ravel_multi_index(([1], [2]), (3, 4), order=order)
    ]
    assert mm.unravel_index(5, (3, 4), order=order) == np.unravel_index(5, (3, 4), order=order)


def test_products_of_polynomials_with_infinite_coefficients() -> None:
    for p, q in (([1.0, 2.0], [np.inf, 1.0]), ([np.nan, 2.0, 1.0], [1.0, 3.0])):
        np.testing.assert_array_equal(mm.polymul(p, q).numpy(), np.polymul(p, q))
        np.testing.assert_array_equal(mm.polymul(q, p).numpy(), np.polymul(q, p))


@pytest.mark.parametrize("order", [np.int64(1), np.uint8(2), np.float32(1.5), np.float64(np.inf)])
def test_orders_of_norms_are_numbers_of_numpy(order: Any) -> None:
    x = np.arange(4.0)
    result = mm.linalg.norm(mm.asarray(x), ord=order)
    np.testing.assert_allclose(float(result), np.linalg.norm(x, ord=order))


def test_windows_by_numpys_name() -> None:
    x = np.arange(6)
    windows = np.lib.stride_tricks.sliding_window_view
    np.testing.assert_array_equal(
        windows(mm.asarray(x), window_shape=3), windows(x, window_shape=3)
    )


def test_diagonals_of_more_dimensions_repeat_the_values() -> None:
    x, ours = np.zeros((3, 3, 3)), mm.zeros((3, 3, 3))
    np.fill_diagonal(x, [1, 2])
    mm.fill_diagonal(ours, [1, 2])
    np.testing.assert_array_equal(ours.numpy(), x)


@pytest.mark.parametrize("source", ["bool", "int32", "int64", "float32", "float64"])
@pytest.mark.parametrize("casting", ["no", "equiv", "safe", "same_kind", "unsafe"])
def test_rules_for_copies_between_types(casting: Any, source: str) -> None:
    for dtype in ("int32", "int64", "float32", "float64"):
        x, values = np.zeros(2, dtype), np.array([1, 0]).astype(source)
        ours = mm.asarray(x)
        try:
            np.copyto(x, values, casting=casting)
        except TypeError:
            with pytest.raises(TypeError, match="copyto: "):
                mm.copyto(ours, mm.asarray(values), casting=casting)
        else:
            mm.copyto(ours, mm.asarray(values), casting=casting)
        np.testing.assert_array_equal(ours.numpy(), x)


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: mm.ediff1d([1, 2, 4], to_end=[2.7]), TypeError, "ediff1d: cannot put float"),
        (lambda: mm.copyto(mm.ones(2), 1, casting="any"), ValueError, "copyto: casting is one"),
        (lambda: mm.array([1.0], copy=False), ValueError, "copy=False"),
        (lambda: mm.polyfit([1.0, 2.0], [1.0, 2.0], 1, w=[2.0]), ValueError, "a weight for each"),
        (lambda: mm.linalg.multi_dot([mm.ones((2, 2, 2))] * 2), ValueError, "needs matrices"),
        (lambda: mm.linalg.multi_dot([mm.ones((2, 2)), mm.ones(2), mm.ones((2, 2))]), ValueError,
         r"needs matrices.* shape \(2,\)"),
        (lambda: mm.histogram2d([1.0, 2.0], [1.0, 2.0], weights=[5.0]), ValueError, "weight for"),
        (lambda: mm.histogramdd(mm.ones((2, 2, 2))), ValueError, "the sample has shape"),
        (lambda: mm.add(mm.asarray([2.7]), 1, dtype=int), TypeError, "add: dtype=int64 is the type"),
        (lambda: mm.sqrt(mm.asarray([2]), dtype=int), TypeError, "sqrt: the result for dtype=int64"),
        (lambda: mm.add(mm.ones(2, dtype="int8"), 300, dtype="int8"), ValueError, "does not fit"),
        (lambda: mm.nan_to_num(np.ones(2), copy=False), TypeError, "nan_to_num: writes to a magm"),
    ],
)  # fmt: skip
def test_what_would_lose_values_or_fit_by_chance_is_refused(
    call: Callable[[], Any], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        call()


def test_one_edge_bounds_no_bin() -> None:
    counts, edges = mm.histogram(mm.asarray([1.0, 2.0]), bins=[1.0])
    assert (counts.tolist(), edges.tolist(), counts.dtype) == ([], [1.0], mm.int64)


@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn"])
@pytest.mark.parametrize("shape", [(4,), (3, 5)])
def test_transforms_have_no_more_lengths_than_dimensions(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(np.exceptions.AxisError, match=f"{name}: axis -{len(shape) + 1} is out of"):
        getattr(mm.fft, name)(mm.ones(shape), s=(2,) * (len(shape) + 1))


MASKED: dict[str, Callable[..., Any]] = {
    **{
        name: lambda lib, x, mask, name=name: getattr(lib, name)(x, axis=0, where=mask)
        for name in ("sum", "prod", "any", "all", "mean", "var", "std", "nansum", "nanmean")
    },
    "max": lambda lib, x, mask: lib.max(x, initial=0.0, where=mask),
    "add.reduce": lambda lib, x, mask: lib.add.reduce(x, where=mask),
    "maximum.reduce": lambda lib, x, mask: lib.maximum.reduce(x, initial=0.0, where=mask),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", MASKED)
def test_masks_of_reductions_broadcast_to_the_array(name: str) -> None:
    for shape in ((3,), (1, 3), (2, 3)):
        x = np.arange(1.0, 1 + np.prod(shape)).reshape(shape)
        for other in ((), (1,), (3,), (2, 1), (1, 3), (2, 3), (1, 1, 1), (2, 2, 3), (2,)):
            mask = np.arange(np.prod(other, dtype=int)).reshape(other) % 3 != 1
            try:
                expected = MASKED[name](np, x, mask)
            except ValueError:
                with pytest.raises(ValueError, match="where|broadcast"):
                    MASKED[name](mm, mm.asarray(x), mm.asarray(mask))
            else:
                result = MASKED[name](mm, mm.asarray(x), mm.asarray(mask))
                np.testing.assert_allclose(result, expected, rtol=1e-12)


@pytest.mark.parametrize("values", [[2, 0, 3], [2.0, 0.5], [-1, 1], [True, True], []])
@pytest.mark.parametrize(
    "name", ["sum", "prod", "cumsum", "cumprod", "nansum", "nanprod", "nancumsum", "nancumprod"]
)
def test_sums_and_products_are_truth_values(name: str, values: list[Any]) -> None:
    x = np.array(values)
    result, expected = (getattr(lib, name)(lib.asarray(x), dtype=bool) for lib in (mm, np))
    assert result.dtype == bool
    np.testing.assert_array_equal(result, expected)


def test_masked_products_of_truth_values() -> None:
    x, mask = np.array([True, False, True]), np.array([True, False, True])
    for options in ({"where": mask}, {"initial": 3}, {"initial": 0, "where": mask}):
        for dtype in (None, bool, "int8"):
            expected = np.prod(x, dtype=dtype, **options)
            result = mm.prod(mm.asarray(x), dtype=dtype, **options)
            assert (result.dtype, result.tolist()) == (expected.dtype, expected.tolist())


@pytest.mark.parametrize("kind", [int, np.int64, np.int8, np.array])
@pytest.mark.parametrize("decimals", [-1, 0, 2])
def test_decimals_do_not_change_the_type(kind: Any, decimals: int) -> None:
    for dtype in ("float32", "float64", "complex64", "int32"):
        x = np.array([12.345, 0.5, -7.25]).astype(dtype)
        result = mm.asarray(x).round(kind(decimals))
        assert result.dtype == x.dtype
        np.testing.assert_allclose(result, x.round(decimals), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
@pytest.mark.parametrize("edge_order", [1, 2])
def test_slopes_have_the_type_of_the_values(dtype: str, edge_order: Any) -> None:
    values = np.array([1, 4, 9, 7, 5]).astype(dtype)
    for spacing in (2, 0.5, np.float64(0.5), np.array(0.5), np.array([0.0, 1.0, 3.0, 4.0, 6.0])):
        expected = np.gradient(values, spacing, edge_order=edge_order)
        result = mm.gradient(mm.asarray(values), spacing, edge_order=edge_order)
        assert result.dtype == expected.dtype
        np.testing.assert_allclose(result, expected, rtol=1e-6)


@pytest.mark.parametrize("shape", [(3, 1), (1, 3), (3,), (1,), (3, 2)])
@pytest.mark.parametrize("rowvar", [False, True])
def test_further_variables_of_a_covariance(shape: tuple[int, ...], rowvar: bool) -> None:
    y = np.arange(1.0, 1 + np.prod(shape)).reshape(shape) ** 2
    m = np.array([[1.0, 2.0, 4.0], [3.0, 1.0, 5.0]])
    m = m if rowvar else m.T
    try:
        expected = np.cov(m, y, rowvar=rowvar)
    except ValueError:
        with pytest.raises(ValueError, match="concat"):
            mm.cov(mm.asarray(m), mm.asarray(y), rowvar=rowvar)
    else:
        result = mm.cov(mm.asarray(m), mm.asarray(y), rowvar=rowvar)
        np.testing.assert_allclose(result, expected, rtol=1e-12)


def test_names_of_the_norm_of_frobenius() -> None:
    x = np.arange(12.0).reshape(2, 3, 2)
    for options in ({"ord": "f", "axis": (0, 1)}, {"ord": "f", "axis": (2, 1), "keepdims": True}):
        expected = np.linalg.norm(x, **options)
        np.testing.assert_allclose(mm.linalg.norm(mm.asarray(x), **options), expected, rtol=1e-12)


# writing by masks and positions -------------------------------------------------------------------


@given(
    shape=st.sampled_from([(), (4,), (2, 3), (2, 2)]),
    mask_shape=st.sampled_from([(), (1,), (2,), (4,), (6,), (2, 3), (3, 2), (1, 4)]),
    seed=st.integers(0, 99),
    name=st.sampled_from(["place", "putmask"]),
)
def test_masks_of_another_shape(
    shape: tuple[int, ...], mask_shape: tuple[int, ...], seed: int, name: str
) -> None:
    rng = np.random.default_rng(seed)
    mask = rng.random(mask_shape) < 0.6
    x = rng.integers(0, 9, shape)
    ours, values = mm.asarray(x), [7, 8]
    try:
        getattr(np, name)(x, mask, values)
    except ValueError:
        with pytest.raises(ValueError, match=f"{name}: needs a mask"):
            getattr(mm, name)(ours, mm.asarray(mask), values)
    else:
        getattr(mm, name)(ours, mm.asarray(mask), values)
    np.testing.assert_array_equal(ours.numpy(), x)


@pytest.mark.parametrize("target", ["int64", "uint64", "int8", "float32", "complex64"])
@pytest.mark.parametrize("source", ["int64", "uint64", "int8", "float32", "bool"])
def test_copies_where_a_mask_is_true(target: str, source: str) -> None:
    x, values = np.arange(3).astype(target), np.array([7, 0, 9]).astype(source)
    mask, ours = np.array([True, False, True]), mm.asarray(x)
    try:
        np.copyto(x, values, where=mask)
    except TypeError:
        with pytest.raises(TypeError, match="copyto: "):
            mm.copyto(ours, mm.asarray(values), where=mm.asarray(mask))
    else:
        mm.copyto(ours, mm.asarray(values), where=mm.asarray(mask))
    np.testing.assert_array_equal(ours.numpy(), x)


def test_positions_of_a_number() -> None:
    """An array without dimensions has position 0."""
    for write in (
        lambda lib, x: lib.put(x, [0], 7.0),
        lambda lib, x: lib.put(x, [0, -1], [7.0, 8.0]),
        lambda lib, x: lib.place(x, lib.asarray(True), [9.0]),
    ):
        theirs, ours = np.array(3.0), mm.asarray(3.0)
        write(np, theirs)
        write(mm, ours)
        assert float(ours) == theirs


# options and edges --------------------------------------------------------------------------------


def test_options_in_numpys_order(tmp_path: Path) -> None:
    x = np.array([[0.5, -2.0], [3.25, 1e-9]])
    options = ("%.3f", ",", ";\n", "head", "foot", "% ")
    np.savetxt(tmp_path / "expected", x, *options)
    mm.savetxt(tmp_path / "actual", mm.asarray(x), *options)
    assert (tmp_path / "actual").read_text() == (tmp_path / "expected").read_text()
    expected = np.array2string(x, 20, 2, True, "; ", "xx")
    assert mm.array2string(mm.asarray(x), 20, 2, True, "; ", "xx") == expected
    assert mm.sort(mm.asarray([3, 1]), -1, None, None).tolist() == [1, 3]
    for name in ("sort", "argsort", "partition", "argpartition"):
        arguments = [1] if "partition" in name else []
        with pytest.raises(ValueError, match=f"{name}: order names fields"):
            getattr(mm, name)(mm.ones(3), *arguments, order="a")


def test_choice_of_nothing() -> None:
    for replace in (True, False):
        for entries in (0, [], mm.ones((0, 2))):
            expected = np.random.default_rng(0).choice(np.asarray(entries), (0, 3), replace)
            actual = mm.random.choice(entries, (0, 3), replace)
            assert actual.shape == expected.shape
    with pytest.raises(ValueError, match="there is nothing to choose from"):
        mm.random.choice(0, size=1)


@given(
    st.sampled_from(["uint64", "int64", "int8", "uint8"]),
    st.lists(st.sampled_from([-300, -1, 0, 1, 200, 2**63 - 1, 2**63, 2**64 - 1]), max_size=12),
)
def test_members_outside_of_the_type(dtype: str, members: list[int]) -> None:
    limits = np.iinfo(dtype)
    x = np.array([0, 1, limits.min, limits.max], dtype)
    for kind in (list, tuple):
        actual = mm.isin(mm.asarray(x), kind(members))
        assert actual.tolist() == [int(n) in members for n in x]


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "nancumsum", "nancumprod"])
def test_axes_of_running_results_of_a_number(name: str) -> None:
    for axis in (None, 0, -1):
        assert getattr(mm, name)(mm.asarray(3.0), axis).tolist() == [3.0]
    for axis in (1, -2, 5):
        with pytest.raises(np.exceptions.AxisError):
            getattr(mm, name)(mm.asarray(3.0), axis)


@pytest.mark.parametrize("matrix", [np.zeros((2, 2)), np.eye(2), np.diag([1.0, 0.0])], ids=str)
def test_absolute_tolerances_of_ranks(matrix: np.ndarray[Any, Any]) -> None:
    for tol in (-1, -np.inf, 0, 0.5, 1, 2, np.nan):
        expected = np.linalg.matrix_rank(matrix, tol)
        assert int(mm.linalg.matrix_rank(mm.asarray(matrix), tol)) == expected


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 6), st.integers(1, 40), st.integers(0, 10_000), st.booleans())
def test_unique_rows(rows: int, columns: int, seed: int, has_nan: bool) -> None:
    """Also of matrices with more columns than rows, which are sorted in rounds."""
    draw = np.random.default_rng(seed)
    x = draw.integers(0, 2, (rows, columns)).astype(float)
    if has_nan:
        x[draw.random(x.shape) < 0.1] = np.nan
    with current("inline"):
        results = mm.unique(x, return_index=True, return_inverse=True, return_counts=True, axis=0)
        wanted = np.unique(x, return_index=True, return_inverse=True, return_counts=True, axis=0)
        for actual, expected in zip(results, wanted, strict=True):
            np.testing.assert_array_equal(actual, expected)


def test_a_function_of_very_many_operations_is_called_again() -> None:
    """Its operations are not recorded: there may be more than Python calls can nest."""
    keys = np.random.default_rng(0).integers(0, 2, (1500, 4))
    with current("inline"):
        arrays = [mm.asarray(key) for key in keys]
        for _ in range(3):
            np.testing.assert_array_equal(mm.lexsort(arrays), np.lexsort(keys))
