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
