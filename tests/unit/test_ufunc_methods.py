"""The methods and attributes of universal functions against NumPy's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import current
from magmath.errors import DTypeError, ShapeError
from magmath.graph import Operation
from magmath.ops import elementwise
from operation_table.elementwise import ROWS

KINDS = [("inline", 1), ("shared", 2)]
BOTH = [
    "add", "multiply", "maximum", "minimum", "logaddexp", "logaddexp2", "hypot", "fmax", "fmin",
    "subtract", "divide", "logical_and", "logical_or", "logical_xor",
]  # fmt: skip
INTEGERS = ["bitwise_and", "bitwise_or", "bitwise_xor", "gcd", "lcm", "floor_divide", "remainder"]
UNARY = ["negative", "square", "sqrt", "exp2", "positive", "fabs", "reciprocal"]
TWO_RESULTS = ["divmod", "frexp", "modf"]
ASSOCIATIVE = [
    (record, dtype)
    for record in (*elementwise.BINARY, *elementwise.LOGICAL)
    if record.public.is_associative
    for dtype in ("bool", "uint8", "int32", "float64")
    if dtype in ROWS[record.name].dtypes
]


@pytest.fixture(autouse=True)
def default_type() -> Iterator[None]:
    mm.set_default_dtype(mm.float64)
    yield
    mm.set_default_dtype(mm.float32)


@st.composite
def arrays(draw: st.DrawFn, name: str, least: int = 0) -> Any:
    shape = draw(st.lists(st.integers(least, 6), min_size=1, max_size=3))
    random = numpy.random.default_rng(draw(st.integers(0, 1000)))
    if name in INTEGERS or draw(st.booleans()):
        return random.integers(1, 9, shape).astype(draw(st.sampled_from(["int64", "uint8"])))
    return random.uniform(0.5, 2, shape)


def check(actual: Any, expected: Any) -> None:
    assert actual.dtype == numpy.asarray(expected).dtype
    assert actual.shape == numpy.shape(expected)
    numpy.testing.assert_allclose(actual.numpy(), expected, rtol=1e-10)


few = settings(max_examples=5, deadline=None)


@pytest.mark.parametrize(("record", "dtype"), ASSOCIATIVE, ids=lambda value: str(value))
def test_associative_records_are_so_and_have_their_identity(record: Operation, dtype: str) -> None:
    """Otherwise halves of an axis would combine to wrong numbers. The gcd with 0 is |x|."""
    random = numpy.random.default_rng(0)
    low, high = (0, 2) if dtype == "bool" else (0, 9) if dtype == "uint8" else (-9, 9)
    x, y, z = random.integers(low, high, (3, 200)).astype(dtype)
    f = record.reference
    numpy.testing.assert_allclose(f(f(x, y), z), f(x, f(y, z)), rtol=1e-12)
    if record.public.identity is not None:
        identity = numpy.asarray(record.public.identity).astype(dtype)
        for result in (f(identity, x), f(x, identity)):
            is_size = record.name in ("gcd", "hypot")
            numpy.testing.assert_array_equal(result, abs(x) if is_size else x)


@pytest.mark.parametrize("name", ["add", "hypot", "gcd", "lcm", "logaddexp", "bitwise_xor", "fmax"])
@pytest.mark.parametrize("method", ["reduce", "accumulate"])
@few
@given(data=st.data())
def test_axes_of_extent_1(name: str, method: str, data: st.DataObject) -> None:
    """`reduce` begins with the identity, if there is one, so that gcd and hypot are not negative;
    `accumulate` begins with the first element."""
    shape = data.draw(st.permutations([1, data.draw(st.integers(1, 4))]))
    x = numpy.random.default_rng(data.draw(st.integers(0, 99))).integers(-9, 0, shape)
    axis = data.draw(st.sampled_from([0, 1, -1]))
    expected = getattr(getattr(numpy, name), method)(x, axis=axis)
    check(getattr(getattr(mm, name), method)(mm.asarray(x), axis=axis), expected)


@pytest.mark.parametrize("name", BOTH + INTEGERS)
@pytest.mark.parametrize(("kind", "workers"), KINDS)
@few
@given(data=st.data())
def test_segments(name: str, kind: str, workers: int, data: st.DataObject) -> None:
    x = data.draw(arrays(name, 1))
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    starts = data.draw(st.lists(st.integers(0, x.shape[axis] - 1), min_size=1, max_size=8))
    if data.draw(st.booleans()):
        starts = sorted(set(starts))
    if not _is_taken(name, x):
        return
    positions = numpy.array(starts, data.draw(st.sampled_from(["int64", "uint8", "uint64"])))
    expected = getattr(numpy, name).reduceat(x, starts, axis)
    with current(kind, workers):
        layout = data.draw(st.sampled_from([None, *map(mm.Layout.split, range(x.ndim))]))
        array = mm.asarray(x, layout=layout)
        check(getattr(mm, name).reduceat(array, positions, axis), expected)


@pytest.mark.parametrize("name", BOTH + INTEGERS)
@few
@given(data=st.data())
def test_reductions(name: str, data: st.DataObject) -> None:
    x = data.draw(arrays(name))
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    options: dict[str, Any] = {"keepdims": data.draw(st.booleans())}
    if data.draw(st.booleans()):
        options["initial"] = data.draw(st.integers(1, 3))
    if data.draw(st.booleans()):
        options["where"] = numpy.random.default_rng(1).random(x.shape) < 0.6
    if not _is_taken(name, x):
        return
    with current("inline"):
        given = mm.asarray(x)
        _alike(name, "reduce", x, given, (axis,), options)
        _alike(name, "accumulate", x, given, (axis,), {})


def _is_taken(name: str, x: Any) -> bool:
    """Narrow integers become float16 in NumPy, and do not overflow."""
    floating = ("logaddexp", "logaddexp2", "hypot", "divide")
    return not (name in (*floating, "lcm") and x.dtype == numpy.uint8)


def _alike(name: str, method: str, x: Any, given: Any, arguments: Any, options: Any) -> None:
    try:
        expected = getattr(getattr(numpy, name), method)(x, *arguments, **options)
    except (ValueError, TypeError):
        with pytest.raises((ValueError, TypeError)):
            getattr(getattr(mm, name), method)(given, *arguments, **options).evaluated_leaf()
        return
    check(getattr(getattr(mm, name), method)(given, *arguments, **options), expected)


@pytest.mark.parametrize("name", BOTH + INTEGERS)
@pytest.mark.parametrize("axis", [0, -1, None])
def test_reductions_of_a_single_number(name: str, axis: int | None) -> None:
    for options in {}, {"initial": 2}, {"keepdims": True}, {"initial": 1, "where": False}:
        expected = getattr(numpy, name).reduce(numpy.asarray(5), axis=axis, **options)
        x = mm.asarray(5)
        check(getattr(mm, name).reduce(x, axis=axis, **options), expected)


@pytest.mark.parametrize("name", BOTH + INTEGERS)
@pytest.mark.parametrize(("kind", "workers"), KINDS)
@few
@given(data=st.data())
def test_updates_at_positions(name: str, kind: str, workers: int, data: st.DataObject) -> None:
    x = data.draw(arrays(name, 1))
    if x.dtype.kind != "f" and name not in ("add", "multiply", "maximum", "subtract", *INTEGERS):
        x = x.astype(float)  # the type must not change
    key = data.draw(st.lists(st.integers(0, x.shape[0] - 1), max_size=8))
    index: Any = numpy.asarray(key, dtype=int)
    if x.ndim > 1 and data.draw(st.booleans()):
        index = index, slice(None, None, -1)
    values = numpy.random.default_rng(len(key)).integers(1, 3, x[index].shape).astype(x.dtype)
    check_update(name, x, index, values, kind, workers)


def check_update(name: str, x: Any, index: Any, values: Any, kind: str, workers: int) -> None:
    """Assert that the update of x at positions is NumPy's."""
    expected = x.copy()
    getattr(numpy, name).at(expected, index, values)
    with current(kind, workers):
        actual = mm.asarray(x, copy=True)
        getattr(mm, name).at(actual, index, values)
        check(actual, expected)


OF_TRUTH_VALUES = [
    "add", "multiply", "maximum", "minimum", "bitwise_and", "bitwise_or", "bitwise_xor",
    "logical_and", "logical_or", "logical_xor",
]  # fmt: skip


@pytest.mark.parametrize("name", OF_TRUTH_VALUES)
@pytest.mark.parametrize(("kind", "workers"), KINDS)
@few
@given(data=st.data())
def test_updates_of_truth_values_at_positions(
    name: str, kind: str, workers: int, data: st.DataObject
) -> None:
    random = numpy.random.default_rng(data.draw(st.integers(0, 1000)))
    x = random.random((4, 3)) < 0.5
    row = data.draw(st.lists(st.integers(-4, 3), max_size=8))
    index: Any = data.draw(st.sampled_from([row, (row,), (row, 1), (slice(1, None), [0, 0, 2])]))
    values = random.random(x[index].shape) < 0.5
    check_update(name, x, index, values, kind, workers)


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("index", [[0, 2], [1, 1, 0], [2, 2, 2], (slice(None), [0, 0])])
def test_functions_of_one_operand_at_positions(name: str, index: Any) -> None:
    x = numpy.random.default_rng(0).uniform(0.5, 2, (3, 4))
    expected = x.copy()
    getattr(numpy, name).at(expected, index)
    with current("inline"):
        actual = mm.asarray(x)
        getattr(mm, name).at(actual, index)
        check(actual, expected)


@pytest.mark.parametrize("exponents", [2, -1, [1, 3, 2], np.array([1, 3, 2], "int8"), True])
@pytest.mark.parametrize("index", [[0, 2, 0], (slice(None), [1, 0, 1])])
def test_exponents_at_positions_are_integers(index: Any, exponents: Any) -> None:
    x = np.random.default_rng(0).uniform(0.5, 2, (3, 3)).astype("float32")
    check_update("ldexp", x, index, np.asarray(exponents), "inline", 1)
    result, expected = mm.asarray(x), x.copy()
    mm.ldexp.at(result, index, exponents)
    np.ldexp.at(expected, index, exponents)
    check(result, expected)


@pytest.mark.parametrize("name", BOTH + INTEGERS + UNARY + TWO_RESULTS)
def test_attributes(name: str) -> None:
    for attribute in ("nin", "nout", "nargs"):
        assert getattr(getattr(mm, name), attribute) == getattr(getattr(numpy, name), attribute)
    if name not in ("logaddexp2",):
        assert getattr(mm, name).identity == getattr(numpy, name).identity


@pytest.mark.parametrize("name", TWO_RESULTS)
def test_two_results_are_stored(name: str) -> None:
    x = numpy.asarray([1.5, -2.25, 7.0])
    given = (x, numpy.asarray([2.0, 3.0, -4.0])) if name == "divmod" else (x,)
    second = numpy.int32 if name == "frexp" else numpy.float64
    mask = numpy.asarray([True, False, True])
    for options in {}, {"where": mask}:
        wanted = numpy.full(3, 9.0), numpy.full(3, 9, dtype=second)
        getattr(numpy, name)(*given, out=wanted, **options)
        with current("inline"):
            outs = mm.full(3, 9.0), mm.full(3, 9, dtype=second)
            getattr(mm, name)(*map(mm.asarray, given), out=outs, **options)
            others = mm.full(3, 9.0), mm.full(3, 9, dtype=second)
            getattr(mm, name)(*map(mm.asarray, given), *others, **options)
            for actual, again, expected in zip(outs, others, wanted, strict=True):
                check(actual, expected)
                check(again, expected)


def test_positions_out_of_range_are_refused() -> None:
    with current("inline"):
        for starts in [3], [-1]:
            with pytest.raises(IndexError, match=r"add\.reduceat: an index is out of range"):
                mm.add.reduceat(mm.ones(3), starts)
        with pytest.raises(ValueError, match=r"reduceat: indices are 1-D integers"):
            mm.add.reduceat(mm.ones(3), [0.5])


@pytest.mark.parametrize("name", ["add", "subtract", "maximum", "multiply", "divide"])
@pytest.mark.parametrize("dtype", ["float64", "bool"])
@pytest.mark.parametrize("shape", [(5,), (200_000,), (1000, 200)])
def test_updates_at_positions_out_of_range_raise_at_their_line(
    name: str, dtype: str, shape: tuple[int, ...]
) -> None:
    with current("eager", 2):
        x = mm.ones(shape, dtype=dtype)
        for position in shape[0], -shape[0] - 1:
            with pytest.raises(IndexError, match=f"index {position} is out of range"):
                getattr(mm, name).at(x, [0, position], True)
        assert bool(mm.all(x == 1))


@pytest.mark.parametrize("name", ["add", "maximum", "multiply", "divide", "negative"])
@pytest.mark.parametrize("index", [[], ([],), numpy.zeros(0, dtype=int)])
def test_no_positions_change_nothing(name: str, index: Any) -> None:
    x = mm.asarray([1.0, 2.0])
    getattr(mm, name).at(x, index, *[2.0] * (name != "negative"))
    assert x.tolist() == [1.0, 2.0]


UFUNCS = sorted(
    {
        name
        for name in dir(numpy)
        if isinstance(f := getattr(numpy, name), numpy.ufunc) and hasattr(mm, name)
        if f.nout == 1 and f.signature is None
    }
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*UFUNCS, "isposinf", "isneginf"])
def test_functions_take_an_array_for_the_result_and_a_mask(name: str) -> None:
    theirs, ours = getattr(numpy, name), getattr(mm, name)
    operands = [numpy.array([1, 2, 1])] * getattr(theirs, "nin", 1)
    expected = numpy.full_like(theirs(*operands), 1)
    arrays = [mm.asarray(x) for x in operands]
    for options in ({}, {"where": [True, False, True]}):
        if options and not hasattr(theirs, "nin"):
            continue
        known, actual = expected.copy(), mm.asarray(expected)
        theirs(*operands, known, **options)
        assert ours(*arrays, actual, **options) is actual
        numpy.testing.assert_allclose(actual.numpy(), known)
        actual = mm.asarray(expected)
        if hasattr(theirs, "nin"):
            assert theirs(*arrays, out=actual, **options) is actual
            numpy.testing.assert_allclose(actual.numpy(), known)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", UFUNCS)
def test_elements_that_are_not_computed_have_no_gradient(name: str) -> None:
    function, operands = getattr(mm, name), range(getattr(numpy, name).nin)
    try:
        if not function(*[mm.ones(1) for _ in operands]).dtype.is_floating:
            return
    except DTypeError:  # a function of integers
        return
    values = numpy.array([[0.5], [0.0], [numpy.nan], [-1.0], [0.75]]) + numpy.zeros(len(operands))
    mask = numpy.array([True, False, False, False, True])

    def slopes(x: numpy.ndarray, **options: Any) -> list[numpy.ndarray]:
        arrays = [mm.asarray(column) for column in x.T]
        total = lambda *x: mm.sum(function(*x, **options))  # noqa: E731
        return [x.numpy() for x in mm.grad(total, argnums=tuple(operands))(*arrays)]

    for options in ({}, {"out": mm.ones(5, dtype=mm.float64)}, {"dtype": "float64"}):
        found = slopes(values, where=mm.asarray(mask), **options)
        for some, known in zip(found, slopes(values[mask]), strict=True):
            numpy.testing.assert_array_equal(some[mask], known)
            assert not some[~mask].any()


def test_elements_that_are_not_reduced_have_no_gradient() -> None:
    mask = mm.asarray([True, False, True])
    for other in (0.0, numpy.nan):
        x = mm.asarray([2.0, other, 4.0])
        slope = mm.grad(lambda x: mm.divide.reduce(x, where=mask, initial=16.0))(x)
        assert slope.tolist() == [-1.0, 0.0, -0.5]


def test_elements_that_are_not_computed_do_not_fail() -> None:
    base, exponent = mm.asarray([2, 3, 4]), mm.asarray([-1, 2, -3])
    assert mm.power(base, exponent, where=exponent > 0).tolist() == [0, 9, 0]
    assert mm.power(base, exponent.numpy(), where=exponent.numpy() > 0).tolist() == [0, 9, 0]
    wide = mm.divide(1.0, mm.asarray(0.0), where=[False, False])
    assert wide.tolist() == [0.0, 0.0]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("operand", ["bool", "int8", "uint8", "int64", "float32", "complex64"])
@pytest.mark.parametrize("name", UFUNCS)
def test_the_type_of_the_result_is_asked_for(name: str, operand: str) -> None:
    """`dtype` chooses the type of the result; operands are converted by the rule "same_kind"."""
    if (name, operand) == ("ldexp", "int64"):  # NumPy does not convert both operands there
        return
    theirs, ours = getattr(numpy, name), getattr(mm, name)
    values = [1, 2, int(name == "reciprocal")], [1, 0, 1]  # 1 / 0 is no integer
    operands = [numpy.array(x).astype(operand) for x in values[: theirs.nin]]
    for dtype in ("bool", "int8", "int64", "uint64", "float32", "float64", "complex128"):
        try:
            expected = theirs(*operands, dtype=dtype)
        except TypeError:
            with pytest.raises(TypeError):
                ours(*map(mm.asarray, operands), dtype=dtype)
            continue
        actual = ours(*map(mm.asarray, operands), dtype=dtype)
        assert actual.dtype.name == dtype
        numpy.testing.assert_allclose(actual.numpy(), expected, rtol=1e-6)


def test_at_needs_an_array_of_magmath() -> None:
    with pytest.raises(TypeError, match=r"add\.at: writes to a magmath array, was given ndarray"):
        mm.add.at(numpy.zeros(2), [0], 1.0)


@pytest.mark.parametrize("name", ["add", "multiply", "maximum"])
@pytest.mark.parametrize("starts", [[0, 2, 1], [1, 2]])
def test_reductions_of_segments_have_gradients(name: str, starts: list[int]) -> None:
    with current("inline"):
        x = mm.asarray([1.0, 2.0, 3.0, 4.0])
        total = lambda x: mm.sum(getattr(mm, name).reduceat(x, starts) ** 2)  # noqa: E731
        step = 1e-6
        slopes = [
            float(total(x + step * mm.eye(4)[i]) - total(x - step * mm.eye(4)[i])) / (2 * step)
            for i in range(4)
        ]
        numpy.testing.assert_allclose(mm.grad(total)(x), slopes, rtol=1e-4)


@pytest.mark.parametrize("name", ["add", "maximum", "multiply", "hypot"])
@pytest.mark.parametrize("shape", [(), (3,), (3, 2)])
def test_at_refuses_more_indices_than_dimensions(name: str, shape: tuple[int, ...]) -> None:
    indices = tuple([[0, 1, 0]] * (len(shape) + 1))
    with pytest.raises(IndexError, match=f"{len(indices)} indices for an array of"):
        getattr(mm, name).at(mm.ones(shape), indices, 5.0)


@pytest.mark.parametrize("shape", [(0,), (0, 2), (2, 0), (0, 0), (3, 2)])
@pytest.mark.parametrize("axis", [0, -1, None])
def test_no_initial_value_needs_elements(shape: tuple[int, ...], axis: int | None) -> None:
    values = np.ones(shape)
    try:
        expected = np.add.reduce(values, axis=axis, initial=None)
    except ValueError:
        with pytest.raises(ShapeError, match=r"add\.reduce: initial=None needs elements"):
            mm.add.reduce(mm.asarray(values), axis=axis, initial=None)
    else:
        result = mm.add.reduce(mm.asarray(values), axis=axis, initial=None)
        np.testing.assert_array_equal(np.asarray(result), expected)


@pytest.mark.parametrize("name", ["vecdot", "matvec", "vecmat"])
def test_products_of_vectors_take_an_array_for_the_result(name: str) -> None:
    shapes = {"vecdot": ((4, 3), (4, 3)), "matvec": ((4, 3), (3,)), "vecmat": ((3,), (3, 4))}
    operands = [np.random.default_rng(1).normal(size=shape) for shape in shapes[name]]
    out = mm.zeros(4, dtype=mm.float64)
    for function in (getattr(mm, name), getattr(np, name)):
        out[...] = 0
        assert function(*map(mm.asarray, operands), out=out) is out
        np.testing.assert_allclose(out.numpy(), getattr(np, name)(*operands), rtol=1e-13)


@pytest.mark.parametrize("method", ["reduce", "accumulate", "reduceat"])
@pytest.mark.parametrize("function", ["add", "multiply"])
@pytest.mark.parametrize(
    "dtype", ["int8", "uint8", "int32", "uint64", "float32", "float64", "bool"]
)
def test_sums_and_products_have_the_type_that_is_asked_for(
    method: str, function: str, dtype: str
) -> None:
    """They wrap in it, as NumPy's."""
    x = np.array([[100, 100, 0], [-7, 2, 90]], np.int8)
    starts = ([0, 1],) if method == "reduceat" else ()
    for axis in (0, 1):
        options = {"axis": axis, "dtype": dtype}
        actual = getattr(getattr(mm, function), method)(mm.asarray(x), *starts, **options)
        wanted = getattr(getattr(np, function), method)(x, *starts, **options)
        assert actual.dtype == wanted.dtype
        np.testing.assert_array_equal(actual, wanted)


@pytest.mark.parametrize("size", [1, 3, 17, 5000, 100_000])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_negated_complex_numbers_have_signed_zeros(size: int, dtype: str) -> None:
    z = np.full(size, 1.0 + 0.0j, dtype)
    for function in (lambda z: -z, mm.compile(lambda z: -z)):
        result = function(mm.asarray(z)).numpy()
        assert np.signbit(result.imag).all()
        np.testing.assert_array_equal(mm.angle(mm.asarray(result)), np.angle(-z))
