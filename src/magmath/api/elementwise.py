"""Element-wise functions of the array API, made by a table because only their names differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from magmath.array.array import Array, as_array, binary, unary
from magmath.array.operands import OPERANDS
from magmath.core.dtypes import side_of_range


def _unary(name: str, operation: str | None = None, text: str = "") -> Callable[[Array], Array]:
    def function(x: Array, /) -> Array:
        return unary(operation or name, as_array(name, x))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = text or f"Element-wise {name} of x."
    return function


def _binary(name: str, text: str = "") -> Callable[[Any, Any], Array]:
    def function(x1: Any, x2: Any, /) -> Array:
        return binary(name, x1, x2)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = text or f"Element-wise {name} of x1 and x2, which broadcast."
    return function


abs = _unary("abs", text="The absolute value of each element.")
acos = _unary("acos")
acosh = _unary("acosh")
asin = _unary("asin")
asinh = _unary("asinh")
atan = _unary("atan")
atanh = _unary("atanh")
bitwise_invert = _unary("bitwise_invert")
ceil = _unary("ceil")
conj = _unary("conj", text="The complex conjugate of each element.")
cos = _unary("cos")
cosh = _unary("cosh")
exp = _unary("exp")
expm1 = _unary("expm1")
floor = _unary("floor")
imag = _unary("imag", text="The imaginary part of each element; 0 for real numbers.")
isfinite = _unary("isfinite")
isinf = _unary("isinf")
isnan = _unary("isnan")
log = _unary("log", text="The natural logarithm of each element.")
log10 = _unary("log10")
log1p = _unary("log1p")
log2 = _unary("log2")
logical_not = _unary("logical_not")
negative = _unary("negative")
real = _unary("real", text="The real part of each element.")
reciprocal = _unary("reciprocal")
round = _unary("round", text="Each element rounded to the nearest integer, ties to even.")
sign = _unary("sign")
signbit = _unary("signbit", text="True for each element with a minus sign, also -0.0.")
sin = _unary("sin")
sinh = _unary("sinh")
sqrt = _unary("sqrt")
square = _unary("square")
tan = _unary("tan")
tanh = _unary("tanh")
trunc = _unary("trunc")

add = _binary("add")
atan2 = _binary("atan2")
bitwise_and = _binary("bitwise_and")
bitwise_left_shift = _binary("bitwise_left_shift")
bitwise_or = _binary("bitwise_or")
bitwise_right_shift = _binary("bitwise_right_shift")
bitwise_xor = _binary("bitwise_xor")
copysign = _binary("copysign")
divide = _binary("divide")
equal = _binary("equal")
floor_divide = _binary("floor_divide")
greater = _binary("greater")
greater_equal = _binary("greater_equal")
hypot = _binary("hypot")
less = _binary("less")
less_equal = _binary("less_equal")
logaddexp = _binary("logaddexp")
logical_and = _binary("logical_and")
logical_or = _binary("logical_or")
logical_xor = _binary("logical_xor")
maximum = _binary("maximum")
minimum = _binary("minimum")
multiply = _binary("multiply")
nextafter = _binary("nextafter", "The number next to x1 in the direction of x2.")
not_equal = _binary("not_equal")
pow = _binary("power", "x1 raised to the power x2, element by element.")
remainder = _binary("remainder")
subtract = _binary("subtract")


def positive(x: Array, /) -> Array:
    """Return the elements of x unchanged."""
    return +as_array("positive", x)


def clip(x: Array, /, min: Any = None, max: Any = None) -> Array:
    """Return x limited to [min, max]; None leaves a side open."""
    result = Array(as_array("clip", x).node)
    for name, limit in (("minimum", min), ("maximum", max)):
        if limit is not None and not isinstance(limit, OPERANDS):
            raise TypeError(
                f"clip: the {name} must be a number, an array or a list, was given "
                f"{type(limit).__name__}; None leaves a side open"
            )
    if isinstance(min, int) and side_of_range(min, result.dtype) < 0:  # below all elements
        min = None
    if isinstance(max, int) and side_of_range(max, result.dtype) > 0:
        max = None
    if min is not None:
        result = maximum(result, min)
    return result if max is None else minimum(result, max)
