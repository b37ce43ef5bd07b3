"""In every function of several values, numbers and lists of numbers keep their digits if an array of
double precision is another value, and have the type of an array of integers."""

from __future__ import annotations

import operator
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
    "heaviside": lambda np, x: np.heaviside(x - 0.1, 0.7),
    "float_power": lambda np, x: np.float_power(x, 0.1),
    "linspace": lambda np, x: np.linspace(x, [0.3, 0.1, 0.7], 4),
}


@pytest.mark.parametrize("name", CASES)
def test_numbers_are_converted_to_double_precision(name: str) -> None:
    own, known = CASES[name](mm, mm.asarray(X)), CASES[name](np, X)
    found = np.asarray(own)
    if known is not None and np.asarray(known).dtype.kind in "fc":
        assert found.dtype == np.asarray(known).dtype
    np.testing.assert_allclose(found, known, rtol=1e-14, atol=1e-16)


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
    found = np.asarray(INTEGERS[name](mm, mm.asarray(x)))
    known = np.asarray(INTEGERS[name](np, x))
    np.testing.assert_array_equal(found, known)
    if name in ("put", "place", "putmask"):
        assert found.dtype == known.dtype


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
    found = written(WRITTEN[name])(mm, mm.asarray(x))
    np.testing.assert_array_equal(found.numpy(), written(WRITTEN[name])(np, x))
    assert found.dtype.name == dtype


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
