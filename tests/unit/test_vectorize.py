"""`vectorize` against NumPy's, for functions that can be traced and others."""

from __future__ import annotations

import math
import operator
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import singledispatch
from typing import Any

import numpy
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import magmath as mm
from engines import current
from magmath.transform.elementwise_code import is_elementwise

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
    lambda v, w: (v + w) * 3,
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
    options: dict[str, Any] = {}
    if otype is not None:
        options["otypes"] = [otype] * (2 if rule is RULES[2] else 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = numpy.vectorize(rule, **options)(a, b)
        except (OverflowError, TypeError) as error:  # the type of the result has no such number
            with pytest.raises(type(error)):
                mm.vectorize(rule, **options)(mm.asarray(a), mm.asarray(b))
            return
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


log: list[int] = []
table = defaultdict(float, {1: 5.0})


def _logged(x: Any) -> Any:
    log.extend([0])
    return x * 0 + len(log)


@singledispatch
def _by_type(x: Any) -> Any:
    return -x


@_by_type.register
def _(x: float) -> Any:
    return x * 2


@_by_type.register
def _(x: int) -> Any:
    return x * 3


class _Ignoring:
    """Suppresses errors in a `with`, and in its calls."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> bool:
        return True

    def __call__(self, x: Any) -> Any:
        return _root_or_nan(x)


def _root_or_negative(x: Any) -> Any:
    with _Ignoring():
        return math.sqrt(x)
    return -x


handlers: list[Any] = [None] * 600 + [_root_or_nan]

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
    "sum of comparisons": lambda x: ((x > 0) + (x > 1)) * 1.0,
    "missing item": lambda x: table[x] + x,
    "size of a set": lambda x: len({x, 2}) + 0 * x,
    "extend": _logged,
    "class": lambda x: x * 2 if x.__class__ is float else -x,
    "dispatch by type": lambda x: _by_type(x),
    "error in with": _root_or_negative,
    "call of an object": lambda x: _Ignoring()(x),
    "long list": lambda x: handlers[600](x),
    "builtin": math.floor,
    "operator": operator.neg,
    "floor division": lambda x: operator.floordiv(7, x),
    "divmod": lambda x: divmod(7, x)[1],
    "pow": lambda x: pow(2.0, x),
    "shift": lambda x: 1 >> x,
    "default": lambda x, by=(1.0, 2.0): x * by[0],
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
        log.clear()
        table.clear()
        try:
            with numpy.errstate(all="ignore"):
                results.append(numpy.asarray(of(OF_NUMBERS[name], **options)(numbers)))
        except (ArithmeticError, TypeError, ValueError) as error:
            results.append(type(error))
    expected, actual = results
    if isinstance(expected, type):
        assert actual is expected
    else:
        numpy.testing.assert_allclose(actual, expected, rtol=1e-15)


def _scaled(x: Any, by: float = 2.0) -> Any:
    return x * by


def _stepwise(x: Any, y: Any) -> Any:
    z = numpy.exp(-x) / 2
    z += _scaled(y)
    return mm.sqrt(z), z**2


def _applied(function: Any, x: Any) -> Any:
    return function(x)


TRACED: list[Callable[..., Any]] = [
    lambda x, y: _scaled(x) ** 2 / y + math.pi,
    lambda x, y: _applied(numpy.tanh, x) - _applied(_scaled, y),
    lambda x, y: numpy.maximum(x, y) + numpy.abs(x),
    _stepwise,
    mm.hypot,
    numpy.add,
]


@pytest.mark.parametrize("function", TRACED)
def test_functions_that_only_compute_are_traced(
    function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = numpy.asarray([[1.0], [-2.0]]), numpy.asarray([0.5, 4.0, 2.0])
    expected = numpy.asarray(numpy.vectorize(function)(x, y))
    monkeypatch.setattr(mm.vectorize, "_call_with_numbers", None)
    actual = numpy.asarray(mm.vectorize(function)(mm.asarray(x), y))
    numpy.testing.assert_allclose(actual, expected, rtol=1e-14)


def test_results_of_a_trace_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    divided = mm.compile(mm.vectorize(lambda x: 1 / x))
    monkeypatch.setattr(mm.vectorize, "_call_with_numbers", None)
    assert divided(mm.asarray([0.0, 2.0])).tolist() == [math.inf, 0.5]


OPERATIONS = ["{} + {}", "{} - {}", "{} * {}", "{} // {}", "{} % {}", "{} >> {}", "{} or {}"]
CALLS = ["-{}", "~{}", "{} / 2", "{} ** 1.5", "{} ** -1", "{} > 1", "{} if x else 2", "x.real * {}",
         "np.floor({})", "np.sign({})", "np.maximum({}, 2)", "np.greater({}, 1)", "abs({})",
         "math.floor({})", "float({})", "int({})", "round({})", "isinstance({}, int)"]  # fmt: skip
EXPRESSIONS = st.recursive(
    st.sampled_from(["x", "y", "2", "0.5", "True"]),
    lambda inner: (
        st.builds(lambda form, a, b: f"({form.format(a, b)})", st.sampled_from(OPERATIONS), inner,
                  inner)
        | st.builds(lambda form, a: f"({form.format(a)})", st.sampled_from(CALLS), inner)
    ),
    max_leaves=5,
)  # fmt: skip


@given(text=EXPRESSIONS, type_of_x=st.sampled_from(["bool", "int64", "float64"]))
def test_expressions(text: str, type_of_x: str) -> None:
    """Whatever a function has, it gives NumPy's numbers, or raises its error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rule = eval(f"lambda x, y: {text}", {"np": numpy, "math": math})
    x, y = numpy.asarray([1, 3, 0, 1], type_of_x), numpy.asarray([2, 0, 1, -1])
    results = []
    for of in (numpy.vectorize, mm.vectorize):
        try:
            with numpy.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                results.append(numpy.asarray(of(rule, otypes=[float])(x, y)))
        except (ArithmeticError, TypeError, ValueError) as error:
            results.append(type(error))
    expected, actual = results
    if isinstance(expected, type):
        assert actual is expected
    else:
        numpy.testing.assert_allclose(actual, expected, rtol=1e-14)


@pytest.mark.parametrize("rule", [
    lambda x, y: x + y, lambda x, y: x - y, lambda x, y: x * y, lambda x, y: x * x - y,
    lambda x, y: x**2, lambda x, y: -x * y / 2, lambda x, y: -x,
])  # fmt: skip
@pytest.mark.parametrize("x", [2**31, -(2**40), 2**63 - 1, -(2**63)])
@pytest.mark.parametrize("y", [3, -(2**33), 2**62])
def test_integers_beyond_64_bits(rule: Callable[..., Any], x: int, y: int) -> None:
    """They are Python's, and none wraps on the way to the result."""
    assert is_elementwise(rule)  # so that arrays are tried
    results: list[Any] = []
    for of in (numpy.vectorize, mm.vectorize):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the first call, with a number of NumPy
            try:
                results.append(numpy.asarray(of(rule, otypes=[float])([3, x], [2, y])))
            except (OverflowError, ValueError) as error:
                results.append(type(error))
    expected, actual = results
    assert expected is actual if isinstance(expected, type) else numpy.array_equal(expected, actual)


@pytest.mark.parametrize("rule", [lambda x: x * x, lambda x: x**2, lambda x: (x << 40) + 1])
def test_integers_that_no_array_holds_are_an_error(rule: Callable[..., Any]) -> None:
    for of in (numpy.vectorize, mm.vectorize):
        with pytest.raises(OverflowError):
            of(rule)([3, 2**40])
