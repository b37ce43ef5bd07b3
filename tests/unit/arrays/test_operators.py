"""Operators, updates in place, and arrays as Python's numbers."""

from __future__ import annotations

import bisect
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import magmath as mm
from arrays import EDGES, check
from engines import current
from magmath.errors import (
    DTypeError,
    RangeError,
    ShapeError,
    TracingError,
)
from magmath.runtime import Pool

ARITHMETIC = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv,
              operator.mod, operator.pow]  # fmt: skip
COMPARISON = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]
few = settings(max_examples=20, suppress_health_check=list(HealthCheck))


@st.composite
def integers(draw: st.DrawFn) -> np.ndarray[Any, Any]:
    """Integers of any type, also the least and the last."""
    name = draw(st.sampled_from(["int8", "int16", "int32", "int64"]))
    limits = np.iinfo(draw(st.sampled_from(["", "u"])) + name)
    result = st.integers(limits.min, limits.max) | st.sampled_from([limits.min, limits.max, 0, 1])
    return np.asarray(draw(st.lists(result, max_size=5)), limits.dtype)


BITWISE = [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift]


@pytest.mark.parametrize("function", [*ARITHMETIC, *COMPARISON], ids=lambda f: f.__name__)
def test_operators_from_both_sides(function: Callable[[Any, Any], Any], every_pool: Pool) -> None:
    a, b = np.array([[1.5, 2.0, 3.0]]), np.array([[2.0], [0.5]])
    x, y = mm.asarray(a), mm.asarray(b)
    check(function(x, y), function(a, b))
    check(function(x, 2), function(a, 2))
    check(function(2, x), function(2, a))
    check(function(x, b), function(a, b))


def test_sums_of_infinite_complex_numbers_are_numpys(every_pool: Pool) -> None:
    parts = [0.0, 1.0, np.inf, -np.inf, np.nan]
    values = np.asarray([complex(a, b) for a in parts for b in parts])
    for function in (operator.add, operator.sub):
        with np.errstate(all="ignore"):
            expected = function(values[:, None], values)
        x = mm.asarray(values)
        actual = function(x[:, None], x).numpy()
        np.testing.assert_array_equal(actual.view("float64"), expected.view("float64"))


@pytest.mark.parametrize("function", COMPARISON, ids=lambda f: f.__name__)
@given(data=st.data())
@few
def test_integers_compare_with_numbers_beyond_their_type(
    function: Callable[[Any, Any], Any], every_pool: Pool, data: st.DataObject
) -> None:
    """As NumPy: what is mathematically right, from both sides, and for numbers given to a compiled
    function."""
    x = data.draw(integers())
    a, number = mm.asarray(x), data.draw(st.sampled_from(EDGES))
    check(function(a, number), function(x, number))
    check(function(number, a), function(number, x))
    if -(2**63) <= number < 2**63:
        check(mm.compile(function)(a, number), function(x, number))
        check(mm.compile(function)(number, a), function(number, x))


@given(data=st.data())
@few
def test_integers_are_found_and_limited_with_numbers_beyond_their_type(
    every_pool: Pool, data: st.DataObject
) -> None:
    x = np.sort(data.draw(integers()))
    a, number = mm.asarray(x), data.draw(st.sampled_from(EDGES))
    exact = [int(n) for n in x]
    check(mm.isin(a, number), np.asarray([n == number for n in exact], bool))
    for side, find in (("left", bisect.bisect_left), ("right", bisect.bisect_right)):
        check(mm.searchsorted(a, number, side=side), np.int64(find(exact, number)))
    for limits in ({"min": number}, {"max": number}):
        try:
            expected = np.clip(x, **limits)
        except OverflowError:
            with pytest.raises(RangeError, match="does not fit"):
                mm.clip(a, **limits)
        else:
            check(mm.clip(a, **limits), expected)


@given(data=st.data())
@few
def test_numbers_given_to_compiled_functions_must_fit_too(data: st.DataObject) -> None:
    x, number = data.draw(integers()), data.draw(st.sampled_from(EDGES))
    limits = np.iinfo(x.dtype)
    add = mm.compile(operator.add)
    check(add(mm.asarray(x), 1), x + x.dtype.type(1))
    if max(limits.min, -(2**63)) <= number <= min(limits.max, 2**63 - 1):
        check(add(mm.asarray(x), number), x + x.dtype.type(number))
    else:
        with pytest.raises(RangeError, match=f"compile: {number} does not fit"):
            add(mm.asarray(x), number)


@pytest.mark.parametrize("function", BITWISE, ids=lambda f: f.__name__)
def test_bitwise_operators(function: Callable[[Any, Any], Any]) -> None:
    a, b = np.array([5, 12, 7]), np.array([1, 2, 3])
    check(function(mm.asarray(a), mm.asarray(b)), function(a, b))
    check(function(mm.asarray(a), 2), function(a, 2))
    check(function(2, mm.asarray(b)), function(2, b))


def test_unary_operators() -> None:
    x = mm.asarray([1.5, -2.0])
    check(-x, np.array([-1.5, 2.0], np.float32))
    check(abs(x), np.array([1.5, 2.0], np.float32))
    check(~mm.asarray([1, 0]), ~np.array([1, 0]))
    assert +x is not x
    check(+x, np.array([1.5, -2.0], np.float32))


IN_PLACE = [operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv,
            operator.imod, operator.ipow]  # fmt: skip
IN_PLACE_BITS = [operator.iand, operator.ior, operator.ixor, operator.ilshift, operator.irshift]


@pytest.mark.parametrize("function", [*IN_PLACE, *IN_PLACE_BITS], ids=lambda f: f.__name__)
def test_updates_in_place_are_seen_by_every_holder(function: Callable[[Any, Any], Any]) -> None:
    dtype = np.int64 if function in IN_PLACE_BITS else np.float64
    a, b = np.array([[4, 9, 6], [3, 5, 8]], dtype), np.array([2, 1, 3], dtype)
    x, known = mm.asarray(a), mm.asarray(a) * 2
    mm.evaluate(known)
    for array in (x, known):
        expected, other, earlier = array.numpy(), array, +array
        assert function(array, mm.asarray(b)) is array
        check(earlier, expected)
        check(other, function(expected, b))
        check(function(array, 2), function(expected, 2))


def test_updates_in_place_keep_shape_and_type() -> None:
    x = mm.asarray([1.0, 2.0])
    with pytest.raises(ShapeError, match=r"in place.*shape \(2,\).*would have \(3, 2\)"):
        x += mm.ones((3, 1))
    with pytest.raises(DTypeError, match=r"in place.*would be complex64.*a = a \+ b"):
        x *= np.array([1j, 2.0], np.complex64)
    x *= np.array([1.0, 2.0])  # of the same kind: converted, as in NumPy
    check(x, np.array([1, 4], np.float32))
    y = mm.asarray(np.eye(2))
    y @= mm.asarray(np.array([[1.0, 2.0], [3.0, 4.0]]))
    check(y, np.array([[1.0, 2.0], [3.0, 4.0]]))
    check(np.eye(2) @ y, y.numpy())


def test_updated_variables_stay_variables() -> None:
    x = mm.variable("x", [1.0, 2.0])
    y = x * 2
    x += 1
    assert isinstance(x, mm.Variable)
    check(x, np.array([2, 3], np.float32))
    check(y, np.array([2, 4], np.float32))


def test_numbers_given_to_compiled_functions_are_updated_as_numbers_are() -> None:
    @mm.compile
    def twice(x: mm.Array, n: Any) -> mm.Array:
        m = n
        n += 1
        return x * m + n

    check(twice(mm.asarray([1.0, 2.0]), 3.0), np.array([7, 10], np.float32))


def test_arithmetic_of_numbers_given_to_compiled_functions_is_that_of_numbers() -> None:
    x = mm.asarray([1.0, 2.0])
    whole = mm.asarray([1, 2])

    def computed(function: Any, array: mm.Array, n: float) -> None:
        expected = np.asarray(function(np.asarray(array), n))
        compiled = mm.compile(function)
        compiled(array, type(n)(2))
        result = compiled(array, n)
        assert result.dtype == array.dtype or expected.dtype == bool
        np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-6)

    for n in (3, 3.5):
        computed(lambda a, n: a * (n + 1) - n / 4, x, n)
        computed(lambda a, n: a * -n + abs(1 - n) ** 2, x, n)
        computed(lambda a, n: a + (n % 2) * (7 // n), x, n)
        computed(lambda a, n: a * (1 * (n > 3)), x, n)
    computed(lambda a, n: a * (n // 2 + n % 2 - n**2), whole, 7)
    computed(lambda a, n: a & ~(n << 2 | 1) ^ n, whole, 5)
    assert mm.compile(lambda n: n + 1)(3).dtype == mm.int64
    assert float(mm.compile(lambda n: n / 3)(1)) == 1 / 3, "in 64 bits"


@pytest.mark.parametrize(
    "function",
    [
        mm.zeros,
        mm.eye,
        mm.arange,
        lambda n: mm.sum(mm.ones((3, 2, 4)), axis=n),
        lambda n: mm.stack([mm.ones(2) * i for i in range(n + 1)]),
        lambda n: mm.ones(5)[n:],
        lambda n: mm.ones(n) if n > 1 else -mm.ones(3),
        lambda n: mm.reshape(mm.arange(12), (n + 1, -1)),
        lambda n: mm.vmap(lambda row: row[:n])(mm.ones((2, 4))),
        lambda n: mm.linspace(0.0, n, 3) * float(n),
    ],
)
def test_a_function_is_traced_for_the_values_of_numbers_that_it_needs(function: Any) -> None:
    compiled = mm.compile(function)
    for n in (2, 1, 2, 0, True) if function is not mm.eye else (2, 3):
        np.testing.assert_array_equal(compiled(n), function(n), strict=True)


def test_numbers_that_are_needed_are_told_apart_by_sign_and_class() -> None:
    signed = mm.compile(lambda x, s: x * math.copysign(1.0, s))
    assert [float(signed(mm.ones(()), s)) for s in (0.0, -0.0, 0)] == [1.0, -1.0, 1.0]
    repeated = mm.compile(lambda x, n: mm.repeat(x, n))
    assert repeated(mm.arange(2), 2).tolist() == [0, 0, 1, 1]


def test_only_the_numbers_that_are_needed_are_known() -> None:
    traced: list[object] = []

    @mm.compile
    def scaled(x: Any, factor: float, sizes: Any) -> Any:
        traced.append(None)
        return x[: sizes["rows"]] * factor

    for factor in range(5):
        for rows in (1, 2):
            x = scaled(mm.ones(3), float(factor), {"rows": rows})
            assert x.tolist() == [float(factor)] * rows
    assert len(traced) == 3, "one trace ends where the number is needed"


def test_random_numbers_and_variables_are_those_of_one_trace() -> None:
    """A trace that ends where it needs a number draws and assigns nothing."""
    v = mm.variable("v", 0.0)

    @mm.compile
    def step(x: Any, epoch: int) -> Any:
        v.assign(v + 1)
        noise = mm.random.normal(size=(2,))
        return (0.5 if epoch < 2 else 2.0) * x + noise

    mm.random.seed(3)
    actual = [step(mm.ones(2), epoch).tolist() for epoch in range(4)]
    mm.random.seed(3)
    rates = [0.5, 0.5, 2.0, 2.0]
    expected = [(rate * mm.ones(2) + mm.random.normal(size=(2,))).tolist() for rate in rates]
    assert actual == expected
    assert float(v) == 4


def test_many_values_of_a_number_that_is_needed_are_warned_of() -> None:
    head = mm.compile(lambda x, n: x[:n])
    for n in range(31):
        assert head(mm.ones(64), n).shape == (n,)
    with pytest.warns(UserWarning, match=r"compile: .* was traced 32 times"):
        head(mm.ones(64), 31)
    assert head(mm.ones(64), 32).shape == (32,)


def test_counters_of_loops_have_no_values() -> None:
    with pytest.raises(TracingError, match="among the arguments of the compiled function"):
        mm.fori_loop(0, 3, lambda i, x: x[:i], mm.ones(3))


def test_values_as_python_numbers() -> None:
    x = mm.asarray(2.5)
    assert (float(x), int(x), complex(x), bool(x), x.item()) == (2.5, 2, 2.5 + 0j, True, 2.5)
    assert (round(x), round(x, 1), type(round(x))) == (2, 2.5, int)
    assert [10, 20, 30][mm.asarray(1)] == 20
    assert mm.asarray([[1, 2]]).tolist() == [[1, 2]]
    assert [float(v) for v in mm.asarray([1.0, 2.0])] == [1.0, 2.0]
    assert len(mm.zeros((3, 2))) == 3
    assert f"{x:.3f} {mm.asarray(7):>3} {mm.ones(2)}" == f"2.500   7 {mm.ones(2)!s}"
    with pytest.raises(TypeError, match="format: .* one number"):
        f"{mm.ones(2):.3f}"
    for function in (float, int, bool, complex):
        with pytest.raises(TypeError, match=r"needs a 0-d array, this one has shape \(2,\)"):
            function(mm.ones(2))
    with pytest.raises(TypeError, match="only integer arrays"):
        operator.index(x)
    with pytest.raises(TypeError, match="0-d array has no length"):
        len(x)
    with pytest.raises(TypeError):
        "text" + x


def test_arrays_print_their_values_and_layout() -> None:
    with current("shared", 2):
        text = repr(mm.asarray([[1.0, 2.0], [3.0, 4.0]], layout=mm.Layout.split(0)) * 2)
    assert "2." in text
    assert "8." in text
    assert "shape=(2, 2), dtype=float32" in text
    assert "layout=" in text


@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 3)])
def test_layouts_are_omitted_only_where_they_are_known(kind: str, workers: int) -> None:
    """An array on worker 0 is one of several layouts in a pool of several workers."""
    with current(kind, workers):
        for worker in range(workers):
            x = mm.asarray([1.0, 2.0], layout=mm.Layout.on(worker))
            assert x.layout.is_whole_on_first_worker == (worker == 0)
            for shown in (x, x + 1):
                assert repr(shown).endswith(f"layout=R on {worker})") == (workers > 1)
                assert ("layout=" in repr(shown)) == (workers > 1)
