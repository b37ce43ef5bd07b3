"""`vectorize` against NumPy's, for functions that can be traced and others."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

import magmath as mm
from engines import current

FUNCTIONS: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (lambda a, b: a * b + 1, {}),
    (lambda a, b: a if a > b else b, {}),
    (lambda a, b: math.hypot(a, b), {"otypes": [float]}),
    (lambda a, b: (a + b, a - b), {}),
    (lambda a, b: (a, int(b) % 2), {}),
    (lambda a, b: a * b, {"otypes": ["int64"]}),
    (lambda a, b: 7, {}),
    (lambda a, b: sum(a) + b, {"signature": "(n),()->()"}),
    (lambda a, b: a + len(b), {"excluded": [1]}),
]


@pytest.fixture(autouse=True, params=[("inline", 1), ("shared", 2)], ids=str)
def pool(request: pytest.FixtureRequest) -> Iterator[None]:
    with current(*request.param):
        mm.set_default_dtype(mm.float64)
        yield
        mm.set_default_dtype(mm.float32)


@pytest.mark.parametrize("number", range(len(FUNCTIONS)))
def test_vectorize(number: int) -> None:
    function, options = FUNCTIONS[number]
    a, b = numpy.arange(6.0).reshape(2, 3), numpy.asarray([2.0, 3.0, 1.0])
    if "signature" in options:
        b = b[:2]
    expected = numpy.vectorize(function, **options)(a, b)
    actual = mm.vectorize(function, **options)(mm.asarray(a), mm.asarray(b))
    assert isinstance(actual, tuple) == isinstance(expected, tuple)
    results = actual if isinstance(actual, tuple) else (actual,)
    wanted = expected if isinstance(expected, tuple) else (expected,)
    for one, value in zip(results, wanted, strict=True):
        assert one.dtype == value.dtype
        numpy.testing.assert_allclose(one.numpy(), value)


TYPES = ["bool", "uint8", "int8", "int32", "int64", "uint64", "float32", "float64", "complex64"]
RULES: list[Callable[..., Any]] = [
    lambda v, w: v * w,
    lambda v, w: v / 3 - w,
    lambda v, w: (v - 2 * w, v * w * 1e30),
]


@given(
    types=st.tuples(st.sampled_from(TYPES), st.sampled_from(TYPES)),
    rule=st.sampled_from(RULES),
    otype=st.sampled_from([None, "int64", "float64", "complex128"]),
)
@example(types=("uint8", "uint8"), rule=RULES[0], otype="int64")
@example(types=("float32", "float32"), rule=RULES[1], otype="float64")
def test_functions_compute_with_pythons_numbers(
    types: tuple[str, str], rule: Callable[..., Any], otype: str | None
) -> None:
    """Elements of small types neither wrap nor are rounded before the result."""
    a, b = (numpy.asarray([1, 0, 100], one) for one in types)
    assume("bool" not in types or rule is not RULES[0])  # products of Python's are integers
    options: dict[str, Any] = {}
    if otype is not None:
        options["otypes"] = [otype] * (2 if rule is RULES[2] else 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = numpy.vectorize(rule, **options)(a, b)
        except (OverflowError, TypeError):  # a number that the type of the result does not hold
            assume(False)
        actual = mm.vectorize(rule, **options)(mm.asarray(a), mm.asarray(b))
    pairs = zip(actual, expected, strict=True) if rule is RULES[2] else [(actual, expected)]
    for one, value in pairs:
        assert one.dtype == value.dtype
        numpy.testing.assert_allclose(one.numpy(), value, rtol=1e-15)


def test_errors_of_the_function_are_raised() -> None:
    def refuse(a: Any) -> Any:
        raise KeyError("no")

    with pytest.raises(KeyError, match="no"):
        mm.vectorize(refuse)(mm.ones(3))


def _inverse_or_nothing(x: Any) -> Any:
    try:
        return 1 / x
    except ZeroDivisionError:
        return 0.0


def _root_or_nan(x: Any) -> float:
    try:
        return math.sqrt(x)
    except Exception:
        return math.nan


def _inner(x: Any) -> Any:
    return x + _inverse_or_nothing(x)


calls: list[int] = [0]
total = 0.0


def _counted(x: Any) -> Any:
    calls[0] += 1
    return x + calls[0]


def _summed(x: Any) -> Any:
    global total
    total = total + x
    return total


OF_NUMBERS: dict[str, Callable[[Any], Any]] = {
    "caught": _inverse_or_nothing,
    "in a function that is called": lambda x: _inner(x),
    "caught error of the trace": _root_or_nan,
    "isinstance": lambda x: x * 2 if isinstance(x, (int, float)) else -1.0,
    "type": lambda x: type(x)(2) + x,
    "str": lambda x: len(str(x)),
    "text": lambda x: len(f"{x}"),
    "format": lambda x: len(format(x, ".1f")),
    "get": lambda x: {1: 5.0, 2: 6.0}.get(x, 0.0),
    "in": lambda x: (x in {1, 2}) + x,
    "count": _counted,
    "sum": _summed,
    "inverse": lambda x: 1 / x,
    "power": lambda x: 2.0**x,
    "negative power": lambda x: x**-1,
    "square": lambda x: x**2,
    "root": lambda x: (x**0.5).real,
    "floor": lambda x: 7 // x,
    "remainder": lambda x: x % 3,
    "infinity": lambda x: x * math.inf,
}


@pytest.mark.parametrize("name", OF_NUMBERS)
@given(
    st.lists(st.sampled_from([0, 1, 2, 5, -3, 2000]), min_size=1, max_size=5)
    | st.lists(st.sampled_from([0.0, 1.0, 2.5, -3.0, 1e300]), min_size=1, max_size=5)
)
def test_what_python_does_with_numbers_alone(name: str, numbers: list[Any]) -> None:
    global total
    options = {} if "root" in name else {"otypes": [float]}
    results = []
    for of in (numpy.vectorize, mm.vectorize):
        calls[0], total = 0, 0.0
        try:
            with numpy.errstate(all="ignore"):
                results.append(numpy.asarray(of(OF_NUMBERS[name], **options)(numbers)))
        except (ArithmeticError, TypeError) as error:
            results.append(type(error))
    expected, actual = results
    if isinstance(expected, type):
        assert actual is expected
    else:
        numpy.testing.assert_allclose(actual, expected, rtol=1e-15)


def test_functions_that_only_compute_are_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    factor = mm.asarray(2.0)

    def scaled(x: Any) -> Any:
        return x * factor

    function = mm.vectorize(lambda x, y: scaled(x) ** 2 / y + x % 3)
    divided = mm.compile(mm.vectorize(lambda x: 1 / x))
    monkeypatch.setattr(mm.vectorize, "_call_with_numbers", None)
    results = function([1.0, 2.0, math.nan], 2.0)
    numpy.testing.assert_array_equal(results.numpy(), [3.0, 10.0, math.nan])
    assert divided(mm.asarray([0.0, 2.0])).tolist() == [math.inf, 0.5]
