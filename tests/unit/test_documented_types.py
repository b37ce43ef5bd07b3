"""The documentation of element-wise functions states what they do with shapes and types."""

from __future__ import annotations

import numpy as np
import pytest

import magmath as mm
from magmath.api import elementwise
from magmath.errors import DTypeError
from magmath.ops import elementwise as e

FUNCTIONS = {
    name: function
    for name, function in vars(elementwise).items()
    if not name.startswith("_") and getattr(function, "nin", 0) and name in e.OPERATIONS
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_integers_are_converted_where_the_documentation_says_so(name: str) -> None:
    function = FUNCTIONS[name]
    text = function.__doc__ or ""
    converts = "converted to floating point" in text
    for kind in ("int32", "bool"):
        x = mm.asarray(np.array([1, 0, 1], dtype=kind))
        try:
            result = function(*[x] * function.nin)
        except DTypeError:
            assert not converts
            continue
        assert result.shape == x.shape
        assert result.dtype.is_floating == (converts and result.dtype is not mm.bool)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_first_lines_say_what_a_function_returns(name: str) -> None:
    first, *_ = (FUNCTIONS[name].__doc__ or "").splitlines()
    assert first.endswith(".")
    assert len(first) <= 100
    assert not first.startswith(("Element-wise", f"{name} of"))


def test_numbers_of_the_documentation() -> None:
    values = mm.asarray([-2.0, -0.5, 0.0, 0.5, 2.0])
    outside = [True, False, False, False, True]
    for function in (mm.acos, mm.asin, mm.atanh):
        assert mm.isnan(function(values)).tolist() == outside
    assert mm.isnan(mm.acosh(values)).tolist() == [True] * 4 + [False]
    for function in (mm.log, mm.log2, mm.log10):
        assert mm.isnan(function(values)).tolist() == [True, True, False, False, False]
        assert float(function(values)[2]) == -np.inf
    assert mm.ceil(mm.asarray([1, 2])).dtype.is_integer
    assert abs(complex(mm.sign(mm.asarray([3 + 4j]))[0]) - (0.6 + 0.8j)) < 1e-6
    assert np.isfinite(float(mm.hypot(*[mm.asarray(np.array([1e200]))] * 2)[0]))
