"""In every function of several values, numbers and lists of numbers keep their digits if an array of
double precision is another value, and have the type of an array of integers."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import magmath as mm

LIST = [0.1, 0.2, 0.3]
X = np.array(LIST)
MATRIX = np.array([[0.1, 0.7, 0.3], [0.4, 0.5, 0.6], [0.2, 0.3, 0.9]])


@pytest.fixture(autouse=True)
def pool() -> Iterator[None]:
    with mm.init(workers=0, device="cpu"):
        yield


def written(function: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """Return a function that writes into a copy of its array, and returns it."""

    def call(np: Any, x: Any) -> Any:
        target = np.array(x)
        function(np, target)
        return target

    return call


CASES: dict[str, Callable[[Any, Any], Any]] = {
    "array_equal": lambda np, x: np.array_equal(x, LIST),
    "array_equiv": lambda np, x: np.array_equiv(x, LIST),
    "allclose": lambda np, x: np.allclose(x, LIST, rtol=0, atol=1e-12),
    "isclose": lambda np, x: np.isclose(LIST, x, rtol=0, atol=1e-12),
    "intersect1d": lambda np, x: np.intersect1d(x, LIST),
    "setdiff1d": lambda np, x: np.setdiff1d(x, LIST[1:]),
    "setxor1d": lambda np, x: np.setxor1d(x, LIST[1:]),
    "union1d": lambda np, x: np.union1d(x, LIST),
    "digitize": lambda np, x: np.digitize(x, LIST),
    "digitize a list": lambda np, x: np.digitize(LIST, x),
    "histogram": lambda np, x: np.histogram(x, bins=[0.1, 0.2, 0.3, 0.4])[0],
    "dot": lambda np, x: np.dot(x, LIST),
    "dot of a list": lambda np, x: np.dot(LIST, x),
    "vdot": lambda np, x: np.vdot(x, LIST),
    "inner": lambda np, x: np.inner(x, LIST),
    "kron": lambda np, x: np.kron(x, LIST),
    "cross": lambda np, x: np.cross(x, [0.3, 0.1, 0.7]),
    "convolve": lambda np, x: np.convolve(x, [0.1, 0.7]),
    "correlate": lambda np, x: np.correlate(x, [0.1, 0.7]),
    "matvec": lambda np, x: np.matvec(np.asarray(MATRIX), LIST),
    "vecmat": lambda np, x: np.vecmat(LIST, np.asarray(MATRIX)),
    "multi_dot": lambda np, x: np.linalg.multi_dot([LIST, np.asarray(MATRIX), x]),
    "outer": lambda np, x: np.multiply.outer(x, LIST),
    "append": lambda np, x: np.append(x, 0.1),
    "append a list": lambda np, x: np.append(LIST, x),
    "append complex numbers": lambda np, x: np.append(x * 1j, [0.1j]),
    "hstack": lambda np, x: np.hstack([x, LIST]),
    "vstack": lambda np, x: np.vstack([x, LIST]),
    "dstack": lambda np, x: np.dstack([x, LIST]),
    "column_stack": lambda np, x: np.column_stack([x, LIST]),
    "r_": lambda np, x: np.r_[x, 0.1, LIST],
    "c_": lambda np, x: np.c_[x, LIST],
    "array": lambda np, x: np.array([x, LIST]),
    "polyval": lambda np, x: np.polyval([0.1, 0.7], x),
    "polyadd": lambda np, x: np.polyadd(x, [0.1]),
    "polymul": lambda np, x: np.polymul(x, [0.1, 0.3]),
    "interp": lambda np, x: np.interp(0.17, x, x * x),
    "interp of points": lambda np, x: np.interp(x, [0.05, 0.4], [0.1, 0.7]),
    "interp outside": lambda np, x: np.interp(x + 0.5, [0.05, 0.4], [0.1, 0.7], 0.3, 0.9),
    "interp of lists": lambda np, x: np.interp([0.1, 0.3], [0.05, 0.4], [0.1, 0.7]),
    "trapezoid": lambda np, x: np.trapezoid(x, LIST),
    "trapezoid of a list": lambda np, x: np.trapezoid(LIST, x),
    "gradient": lambda np, x: np.gradient(x, LIST),
    "average": lambda np, x: np.average(x, weights=[0.1, 0.7, 0.1]),
    "cov": lambda np, x: np.cov(x, [0.3, 0.1, 0.7]),
    "cov with weights": lambda np, x: np.cov(x, aweights=[0.1, 0.7, 0.3]),
    "corrcoef": lambda np, x: np.corrcoef(x, [0.3, 0.1, 0.7]),
    "piecewise": lambda np, x: np.piecewise(x, [x > 0.15], [0.1, 0.7]),
    "pad": lambda np, x: np.pad(x, 1, constant_values=0.1),
    "insert": lambda np, x: np.insert(x, 0, 0.1),
    "insert a list": lambda np, x: np.insert(x, 1, [0.7, 0.1]),
    "ediff1d": lambda np, x: np.ediff1d(x, to_end=0.1, to_begin=LIST),
    "diff": lambda np, x: np.diff(x, append=0.1, prepend=[0.7]),
    "put": written(lambda np, x: np.put(x, [0, 1], [0.7, 0.1])),
    "place": written(lambda np, x: np.place(x, x > 0.15, [0.7])),
    "putmask": written(lambda np, x: np.putmask(x, x > 0.15, 0.7)),
    "copyto": written(lambda np, x: np.copyto(x, [0.3, 0.1, 0.7])),
    "flat": written(lambda np, x: setattr(x, "flat", [0.7, 0.1])),
    "full_like": lambda np, x: np.full_like(x, [0.3, 0.1, 0.7]),
    "polyint": lambda np, x: np.polyint(x, k=0.1),
    "polydiv": lambda np, x: np.polydiv(x, [0.3, 0.7])[0],
    "bincount": lambda np, x: np.bincount([0, 1, 1], weights=LIST),
    "heaviside": lambda np, x: np.heaviside(x - 0.1, 0.7),
    "float_power": lambda np, x: np.float_power(x, 0.1),
    "linspace": lambda np, x: np.linspace(x, [0.3, 0.1, 0.7], 4),
    "block": lambda np, x: np.block([[x, 0.1], [0.1, x]]),
    "tensorsolve": lambda np, x: np.linalg.tensorsolve(np.asarray(MATRIX), LIST),
    "histogram with weights": lambda np, x: np.histogram(x, bins=2, weights=LIST)[0],
    "histogram2d with weights": lambda np, x: np.histogram2d(x, x, bins=2, weights=LIST)[0],
    "apply_along_axis": lambda np, x: np.apply_along_axis(lambda row: float(row[0]), 0, x),
    "apply_along_axis to lists": lambda np, x: np.apply_along_axis(lambda row: LIST, 0, x),
}


@pytest.mark.parametrize("name", CASES)
def test_numbers_are_converted_to_double_precision(name: str) -> None:
    own, known = CASES[name](mm, mm.asarray(X)), CASES[name](np, X)
    actual = np.asarray(own)
    if known is not None and np.asarray(known).dtype.kind in "fc":
        assert actual.dtype == np.asarray(known).dtype
    np.testing.assert_allclose(actual, known, rtol=1e-14, atol=1e-16)


TYPED: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda np, t: np.sum(LIST, dtype=t),
    "prod": lambda np, t: np.prod(LIST, dtype=t),
    "mean": lambda np, t: np.mean(LIST, dtype=t),
    "mean of some": lambda np, t: np.mean(LIST, dtype=t, where=[True, False, True]),
    "var": lambda np, t: np.var(LIST, dtype=t),
    "cumsum": lambda np, t: np.cumsum(LIST, dtype=t),
    "cumprod": lambda np, t: np.cumprod(LIST, dtype=t),
    "cumulative_sum": lambda np, t: np.cumulative_sum(LIST, dtype=t),
    "nansum": lambda np, t: np.nansum(LIST, dtype=t),
    "nanmean": lambda np, t: np.nanmean([*LIST, np.nan], dtype=t),
    "nanvar": lambda np, t: np.nanvar(LIST, dtype=t),
    "nancumprod": lambda np, t: np.nancumprod(LIST, dtype=t),
    "add.reduce": lambda np, t: np.add.reduce(LIST, dtype=t),
    "multiply.accumulate": lambda np, t: np.multiply.accumulate(LIST, dtype=t),
    "add.reduceat": lambda np, t: np.add.reduceat(LIST, [0, 1], dtype=t),
    "add": lambda np, t: np.add(LIST, 0.7, dtype=t),
    "add of numbers": lambda np, t: np.add(0.1, 0.7, dtype=t),
    "sqrt": lambda np, t: np.sqrt(0.7, dtype=t),
    "fmax": lambda np, t: np.fmax(LIST, 0.15, dtype=t),
    "fabs": lambda np, t: np.fabs(-0.7, dtype=t),
    "ldexp": lambda np, t: np.ldexp(np.asarray(LIST, dtype=t), 3, dtype=t),
    "concatenate": lambda np, t: np.concatenate([LIST, [0.7]], dtype=t),
    "stack": lambda np, t: np.stack([0.1, 0.7], dtype=t),
    "hstack": lambda np, t: np.hstack([LIST, [0.7]], dtype=t),
    "vstack": lambda np, t: np.vstack([LIST, LIST], dtype=t),
    "full": lambda np, t: np.full((2, 3), LIST, dtype=t),
    "linspace": lambda np, t: np.linspace([0.1, 0.2], [0.3, 0.7], 4, dtype=t),
    "geomspace": lambda np, t: np.geomspace([0.1, 0.2], [0.3, 0.7], 4, dtype=t),
    "logspace": lambda np, t: np.logspace([0.1, 0.2], [0.3, 0.7], 4, dtype=t),
    "logspace of bases": lambda np, t: np.logspace(0.1, 0.7, 3, base=LIST, dtype=t),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@pytest.mark.parametrize("name", TYPED)
def test_numbers_have_the_digits_of_the_type_that_is_asked_for(name: str, dtype: str) -> None:
    if dtype == "complex128" and name in ("var", "nanvar", "fabs", "ldexp"):
        return  # real functions, and deviations, whose type NumPy leaves real
    actual, known = np.asarray(TYPED[name](mm, dtype)), np.asarray(TYPED[name](np, dtype))
    assert actual.dtype == known.dtype
    rtol = 2e-6 if dtype == "float32" else 1e-14
    np.testing.assert_allclose(actual, known, rtol=rtol)


@pytest.mark.parametrize(
    "draw",
    [
        lambda g, x: g.normal(x, 1e-6, dtype="float64"),
        lambda g, x: g.uniform(x, 123456790.0, dtype="float64"),
        lambda g, x: g.poisson(x),
        lambda g, x: g.multivariate_normal(x, np.eye(1), dtype="float64"),
        lambda g, x: g.multivariate_normal([0.0], [x], dtype="float64"),
        lambda g, x: g.dirichlet([*x, 1.0], dtype="float64"),
    ],
)
def test_parameters_of_distributions_keep_their_digits(draw: Callable[[Any, Any], Any]) -> None:
    exact = np.array([123456789.0])
    drawn = draw(mm.random.Generator(3), exact.tolist())
    np.testing.assert_array_equal(drawn, draw(mm.random.Generator(3), exact))


def test_functions_of_numbers_alone_have_their_digits() -> None:
    for name in ("fabs", "rint", "spacing", "sinc", "nan_to_num", "exp2", "deg2rad", "rad2deg"):
        for x in (-1e300, 0.1, 16777217.0, 3, float("inf")):
            with np.errstate(all="ignore"):
                expected = getattr(np, name)(x)
            actual = getattr(mm, name)(x)
            assert type(actual) is type(expected.item())
            np.testing.assert_equal(actual, expected.item())
    for name in ("fmax", "fmin", "heaviside", "logaddexp2", "float_power", "ldexp", "divmod"):
        actual, expected = getattr(mm, name)(16777217.0, 3), getattr(np, name)(16777217.0, 3)
        np.testing.assert_equal(actual, expected)
    assert mm.modf(1e300) == (0.0, 1e300)
    assert mm.frexp(1e300) == np.frexp(1e300)
    assert mm.isneginf(-1e300) is False
    x = mm.zeros((), dtype="float64")
    assert mm.add(0.1, 0.2, out=x).tolist() == 0.1 + 0.2
    assert mm.fmax(0.1, 0.2, out=x).tolist() == 0.2
    assert mm.equal(16777217.0, 16777216.0, dtype="bool").tolist() is False
    assert mm.equal(mm.asarray([0.1]), 0.1, dtype="bool").tolist() == [True]
    assert mm.kaiser(5, 100.0).tolist()[2] == 1.0


def test_numbers_alone_are_chosen_in_their_common_type() -> None:
    c = mm.asarray([True, False])
    for x, y, dtype in ((1, 0.5, "float32"), (1, 1j, "complex64"), (True, 2, "int64")):
        for first, second in ((x, y), (y, x)):
            chosen = mm.where(c, first, second)
            assert (chosen.dtype.name, chosen.tolist()) == (dtype, [first, second])


@pytest.mark.parametrize("name", ["dot", "append", "hstack", "polyval", "kron", "cross", "union1d"])
def test_single_precision_stays_if_the_default_is_double(name: str) -> None:
    mm.set_default_dtype(mm.float64)
    try:
        assert CASES[name](mm, mm.asarray(X.astype("f"))).dtype == mm.float32
    finally:
        mm.set_default_dtype(mm.float32)


INTEGERS: dict[str, Callable[[Any, Any], Any]] = {
    "array_equal": lambda np, x: np.array_equal(x, [1, 2, 3]),
    "append": lambda np, x: np.append(x, [1]),
    "dot": lambda np, x: np.dot(x, [1, 2, 3]),
    "union1d": lambda np, x: np.union1d(x, [1, 7]),
    "intersect1d": lambda np, x: np.intersect1d(x, [1, 7]),
    "diff": lambda np, x: np.diff(x, append=4),
    "digitize": lambda np, x: np.digitize(x, [1, 2]),
    "put": written(lambda np, x: np.put(x, [0], 1)),
    "place": written(lambda np, x: np.place(x, x > 1, [4])),
    "putmask": written(lambda np, x: np.putmask(x, x > 1, 4)),
}


OF_TRUTH_VALUES = ("array_equal", "intersect1d", "digitize", "put", "place", "putmask")
"""Functions whose results for truth values do not depend on the type of the numbers."""


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(name, dtype) for name in INTEGERS for dtype in ("uint64", "int8", "float32")]
    + [(name, "bool") for name in OF_TRUTH_VALUES],
)
def test_integers_take_the_type_of_arrays(name: str, dtype: str) -> None:
    x = np.array([1, 2, 3]).astype(dtype)
    actual = np.asarray(INTEGERS[name](mm, mm.asarray(x)))
    known = np.asarray(INTEGERS[name](np, x))
    np.testing.assert_array_equal(actual, known)
    if name in ("put", "place", "putmask"):
        assert actual.dtype == known.dtype


def added_to(np: Any, x: Any) -> None:
    x += [1, 2, 3]


WRITTEN = {
    "put": lambda np, x: np.put(x, [0, 1], [4, 5]),
    "place": lambda np, x: np.place(x, x > 1, [4, 5]),
    "putmask": lambda np, x: np.putmask(x, x > 1, [4, 5, 6]),
    "copyto": lambda np, x: np.copyto(x, [4, 5, 6]),
    "fill_diagonal": lambda np, x: np.fill_diagonal(np.reshape(x[:1], (1, 1)), [4, 5]),
    "rows": lambda np, x: x.__setitem__([0, 1], [4, 5]),
    "a mask": lambda np, x: x.__setitem__(x > 1, [4, 5]),
    "a slice": lambda np, x: x.__setitem__(slice(None), [4, 5, 6]),
    "an update in place": added_to,
    "add.at": lambda np, x: np.add.at(x, [0, 0], [1, 2]),
}


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "float32", "float64"])
@pytest.mark.parametrize("name", WRITTEN)
def test_integers_of_lists_are_written_into_narrower_arrays(name: str, dtype: str) -> None:
    x = np.array([1, 2, 3]).astype(dtype)
    result = written(WRITTEN[name])(mm, mm.asarray(x))
    np.testing.assert_array_equal(result.numpy(), written(WRITTEN[name])(np, x))
    assert result.dtype.name == dtype


TYPES = ["uint8", "int8", "int32", "uint32", "int64", "float16", "float32", "float64", "complex64"]
UPDATES: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.iadd,
    "subtract": operator.isub,
    "multiply": operator.imul,
    "divide": operator.itruediv,
    "a view": lambda x, y: operator.iadd(x[1:], y[1:]),
    "matrices": lambda x, y: operator.imatmul(x.reshape(3, 1)[:1], y.reshape(3, 1)[:1]),
}


@pytest.mark.parametrize("name", UPDATES)
@pytest.mark.parametrize("dtype", TYPES)
def test_updates_in_place_convert_as_numpy_does(dtype: str, name: str) -> None:
    for other in TYPES:
        x, y = np.array([7, 200, 31]).astype(dtype), np.array([3, 5, 2]).astype(other)
        ours, theirs = mm.asarray(x), mm.asarray(y)
        try:
            UPDATES[name](x, y)
        except TypeError:
            with pytest.raises(mm.errors.DTypeError, match="update in place"):
                UPDATES[name](ours, theirs)
        else:
            UPDATES[name](ours, theirs)
            assert ours.dtype.name == dtype
        np.testing.assert_allclose(ours.numpy(), x, rtol=1e-3, err_msg=other)


def test_writing_no_values_is_an_error() -> None:
    for write in (
        lambda: mm.put(mm.zeros(3), [0, 1], []),
        lambda: mm.fill_diagonal(mm.zeros((2, 2)), []),
        lambda: mm.putmask(mm.zeros(3), [True] * 3, []),
    ):
        with pytest.raises(mm.errors.ShapeError, match="at least one value"):
            write()


def test_differences_of_truth_values_and_a_number_are_integers() -> None:
    x = np.array([True, False])
    known = np.diff(x, prepend=0, append=5)
    assert mm.diff(mm.asarray(x), prepend=0, append=5).tolist() == known.tolist()


def test_fill_diagonal_takes_numbers() -> None:
    for dtype, value in (("float64", 0.1), ("float32", 4), ("int8", 4), ("uint64", 7)):
        x, y = np.zeros((3, 3), dtype), mm.zeros((3, 3), dtype=getattr(mm, dtype))
        np.fill_diagonal(x, value)
        mm.fill_diagonal(y, value)
        np.testing.assert_array_equal(y.numpy(), x)


def test_weights_of_losses_lose_no_digits() -> None:
    scores, labels = mm.asarray(MATRIX), mm.asarray([0, 1, 2])
    exact = mm.nn.cross_entropy(scores, labels, weight=mm.asarray(X))
    assert float(mm.nn.cross_entropy(scores, labels, weight=LIST)) == float(exact)
    squares = float(mm.nn.mean_squared_error(mm.asarray(X) * 2, LIST))
    assert squares == pytest.approx(np.mean(X**2), rel=1e-15)


def test_a_number_beyond_the_type_is_infinite_without_a_warning() -> None:
    """In every call: later ones take a faster way than the first."""
    x = mm.asarray(np.ones(3, np.float32))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            y = x * 1e300
            assert np.isinf(y.numpy()).all()
