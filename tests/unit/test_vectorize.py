"""`vectorize` against NumPy's, for functions that can be traced and others."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest

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
    found = mm.vectorize(function, **options)(mm.asarray(a), mm.asarray(b))
    assert isinstance(found, tuple) == isinstance(expected, tuple)
    results = found if isinstance(found, tuple) else (found,)
    wanted = expected if isinstance(expected, tuple) else (expected,)
    for one, value in zip(results, wanted, strict=True):
        assert one.dtype == value.dtype
        numpy.testing.assert_allclose(one.numpy(), value)


def test_errors_of_the_function_are_raised() -> None:
    def refuse(a: Any) -> Any:
        raise KeyError("no")

    with pytest.raises(KeyError, match="no"):
        mm.vectorize(refuse)(mm.ones(3))
