"""Element-wise functions of the array API: they differ only in name, so a table defines them.

Each takes NumPy's `out`, `where` and `dtype`; functions of two operands have `reduce`,
`accumulate`, `outer` and `at` (`arrays/ufuncs/ufunc_methods.py`).
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from math import factorial
from typing import Any

import numpy as np

from magmath.arrays.array import Array, as_array, binary, floating, unary
from magmath.arrays.indexing.masked_elements import MaskedElements, takes_selected
from magmath.arrays.inputs.number_list import is_number
from magmath.arrays.inputs.operands import OPERANDS
from magmath.arrays.protocols.dispatch_cache import dispatch_cached
from magmath.arrays.traced_scalar import TracedScalar, of_numbers
from magmath.arrays.ufuncs.output import masked, stored
from magmath.arrays.ufuncs.ufunc_methods import (
    BinaryFunction,
    UnaryFunction,
    as_ufunc,
    attach_ufunc_methods,
    attach_unary_methods,
)
from magmath.core.dtypes import PYTHON_NUMBERS, as_dtype, bool_, int8, side_of_range
from magmath.core.integers import require_integer
from magmath.ops import elementwise as e
from magmath.ops.leaves import constant

_NUMBER_CLASSES = frozenset((*PYTHON_NUMBERS, TracedScalar))


def _unary(name: str, operation: str | None = None, *, text: str) -> UnaryFunction:
    def function(x: Array, /, out: Any = None, *, where: Any = True, dtype: Any = None) -> Array:
        if out is None and where is True and dtype is None and isinstance(x, Array):
            return unary(operation or name, x)
        return _with_options(operation or name, (x,), out, where, dtype)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = _documentation(text, operation or name, "The result has the shape of x.")
    return attach_unary_methods(name, function)


def _documentation(text: str, operation: str, shapes: str) -> str:
    """Return the documentation of a function: its first line, shapes and types, and options."""
    converts = operation in e.FLOATING
    types = " Integers and truth values are converted to floating point." if converts else ""
    return (
        f"{text}\n\n    {shapes}{types}\n"
        f"    `out`, `where` and `dtype` are those of NumPy's universal functions. Raises "
        f"DTypeError\n    for types that the function does not take.\n    "
    )


def _part(name: str, text: str) -> Callable[..., Array]:
    """Return a function for the parts of complex numbers, which are views, as the attributes."""
    computed = _unary(name, text=text)

    def function(val: Array, out: Any = None, *, where: Any = True, dtype: Any = None) -> Array:
        if out is None and where is True and dtype is None and isinstance(val, Array):
            part: Array = getattr(val, name)
            return part
        return computed(val, out, where=where, dtype=dtype)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = text
    return function


def _binary(name: str, text: str) -> BinaryFunction:
    def function(
        x1: Any, x2: Any, /, out: Any = None, *, where: Any = True, dtype: Any = None
    ) -> Array:
        if out is None and where is True and dtype is None and not _are_special(x1, x2):
            return binary(name, x1, x2)
        return _with_options(name, (x1, x2), out, where, dtype)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = _documentation(text, name, "x1 and x2 broadcast.")
    return attach_ufunc_methods(name, function)


def _logical(name: str) -> BinaryFunction:
    """Return a function of truth values; numbers are true where they are not zero."""

    def function(
        x1: Any, x2: Any, /, out: Any = None, *, where: Any = True, dtype: Any = None
    ) -> Array:
        given = (x1, x2) if _are_numbers(x1, x2) else (_truth(name, x1), _truth(name, x2))
        return _with_options(name, given, out, where, dtype)

    function.__name__ = function.__qualname__ = name
    text = f"x1 {name.removeprefix('logical_')} x2 as truth values: numbers other than 0 are true."
    function.__doc__ = _documentation(text, name, "x1 and x2 broadcast.")
    return attach_ufunc_methods(name, function)


def _truth(name: str, x: Any) -> Any:
    """Return an operand as truth values."""
    if is_number(x):
        return bool(x)
    array = as_array(name, x)
    return array if array.dtype is bool_ else binary("not_equal", array, 0)


def _are_numbers(x: Any, y: Any) -> bool:
    return type(x) in _NUMBER_CLASSES and type(y) in _NUMBER_CLASSES


def _are_special(x: Any, y: Any) -> bool:
    """Return True for two numbers, and for elements that a mask selects while a function is
    traced."""
    first, second = type(x), type(y)
    if first is MaskedElements or second is MaskedElements:
        return True
    return first in _NUMBER_CLASSES and second in _NUMBER_CLASSES


def _of_masked(operation: str, x: Any, *others: Any) -> Any:
    """Return an element-wise function of elements that a mask selects."""
    if not others:
        return x._unary(operation)
    (y,) = others
    return x._binary(operation, y) if type(x) is MaskedElements else y._reflected(operation, x)


def _with_options(
    operation: str, given: tuple[Any, ...], out: Any, where: Any, dtype: Any
) -> Array:
    """Return an element-wise operation with NumPy's options. Of Python numbers alone the result is
    a Python number, which takes the type of the arrays that it is combined with."""
    plain = out is None and dtype is None and where is True
    if plain and MaskedElements in map(type, given):
        return _of_masked(operation, *given)  # type: ignore[no-any-return]
    if plain and len(given) == 2 and _are_numbers(*given) and not all(map(is_number, given)):
        return of_numbers(operation, *given)
    if plain and all(map(is_number, given)):
        with np.errstate(all="ignore"):
            number: Any = np.asarray(e.OPERATIONS[operation].reference(*given)).item()
        return number  # type: ignore[no-any-return]
    if dtype is not None or all(map(is_number, given)):
        element = None if dtype is None else as_dtype(dtype)
        arrays = [as_array(operation, x) for x in given]
        given = tuple(Array(e.astype(x.node, element or x.dtype)) for x in arrays)
    if len(given) == 1:
        result = unary(operation, as_array(operation, given[0]))
    else:
        result = binary(operation, *given)
    if isinstance(out, tuple) and len(out) == 1:
        (out,) = out
    return stored(operation, masked(operation, result, where, out), out)


abs = _unary("abs", text="The absolute value of each element; of complex numbers a real number.")
acos = _unary("acos", text="The inverse cosine of each element, in [0, π]; nan outside [-1, 1].")
acosh = _unary("acosh", text="The inverse hyperbolic cosine of each element; nan below 1.")
asin = _unary("asin", text="The inverse sine of each element, in [-π/2, π/2]; nan outside [-1, 1].")
asinh = _unary("asinh", text="The inverse hyperbolic sine of each element.")
atan = _unary("atan", text="The inverse tangent of each element, in [-π/2, π/2].")
atanh = _unary("atanh", text="The inverse hyperbolic tangent of each element; nan outside [-1, 1].")
bitwise_count = _unary("bitwise_count", text="The number of one bits of |x|, as uint8.")
bitwise_invert = _unary(
    "bitwise_invert", text="Each element with all bits inverted; for truth values the opposite."
)
cbrt = _unary("cbrt", text="The cube root of each element, also of negative ones.")
ceil = _unary(
    "ceil", text="The smallest integer that is at least x, for each element, in x's type."
)
conj = _unary("conj", text="The complex conjugate of each element.")
cos = _unary("cos", text="The cosine of each element, an angle in radians.")
cosh = _unary("cosh", text="The hyperbolic cosine of each element.")
erf = _unary("erf", text="The error function 2/√π · ∫₀ˣ exp(-t²) dt of each element.")
erfc = _unary("erfc", text="1 - erf(x) of each element, without the cancellation for large x.")
exp = _unary("exp", text="e to the power of each element.")
digamma = _unary("digamma", text="The derivative of lgamma at each element.")
expm1 = _unary("expm1", text="exp(x) - 1 of each element, also accurate near 0.")
floor = _unary(
    "floor", text="The largest integer that is at most x, for each element, in x's type."
)
imag = _part("imag", text="The imaginary part of each element; 0 for real numbers.")
isfinite = _unary("isfinite", text="True for each element that is neither nan nor infinite.")
isinf = _unary("isinf", text="True for each element that is inf or -inf.")
isnan = _unary("isnan", text="True for each element that is nan.")
lgamma = _unary("lgamma", text="The logarithm of |Γ(x)| of each element x.")
log = _unary(
    "log", text="The natural logarithm of each element; -inf for 0, nan for negative numbers."
)
log10 = _unary(
    "log10", text="The logarithm to base 10 of each element; -inf for 0, nan for negative numbers."
)
log1p = _unary("log1p", text="log(1 + x) of each element, also accurate near 0; nan below -1.")
log2 = _unary(
    "log2", text="The logarithm to base 2 of each element; -inf for 0, nan for negative numbers."
)
negative = _unary("negative", text="Each element with the opposite sign; unsigned integers wrap.")
real = _part("real", text="The real part of each element.")
sign = _unary("sign", text="-1, 0 or 1 by the sign of each element; x / |x| for complex numbers.")
signbit = _unary("signbit", text="True for each element with a minus sign, also -0.0.")
sin = _unary("sin", text="The sine of each element, an angle in radians.")
sinh = _unary("sinh", text="The hyperbolic sine of each element.")
sqrt = _unary("sqrt", text="The square root of each element; nan for negative numbers.")
square = _unary("square", text="The square of each element.")
tan = _unary("tan", text="The tangent of each element, an angle in radians.")
tanh = _unary("tanh", text="The hyperbolic tangent of each element.")
trunc = _unary("trunc", text="Each element rounded towards 0, in x's type.")

add = _binary("add", "x1 + x2; of truth values, whether one of them is true.")
atan2 = _binary("atan2", "The angle of the point (x2, x1) in radians, in [-π, π].")
bitwise_and = _binary(
    "bitwise_and", "The bits that are set in both x1 and x2; `and` of truth values."
)
bitwise_left_shift = _binary(
    "bitwise_left_shift", "x1 with its bits shifted to the left by x2 places."
)
bitwise_or = _binary("bitwise_or", "The bits that are set in x1 or x2; `or` of truth values.")
bitwise_right_shift = _binary(
    "bitwise_right_shift", "x1 with its bits shifted to the right by x2 places."
)
bitwise_xor = _binary("bitwise_xor", "The bits that are set in only one of x1 and x2.")
copysign = _binary("copysign", "|x1| with the sign of x2.")
divide = _binary("divide", "x1 / x2, of integers too a floating point number.")
equal = _binary("equal", "True where x1 and x2 are equal.")
floor_divide = _binary(
    "floor_divide", "The largest integer that is at most x1 / x2, in the type of the operands."
)
fmod = _binary("fmod", "The remainder of x1 / x2 with the sign of x1.")
gcd = _binary("gcd", "The greatest common divisor of |x1| and |x2|.")
greater = _binary("greater", "True where x1 > x2.")
greater_equal = _binary("greater_equal", "True where x1 ≥ x2.")
hypot = _binary("hypot", "√(x1² + x2²), without overflow of the squares.")
lcm = _binary("lcm", "The least common multiple of |x1| and |x2|; 0 where one of them is 0.")
less = _binary("less", "True where x1 < x2.")
less_equal = _binary("less_equal", "True where x1 ≤ x2.")
logaddexp = _binary("logaddexp", "log(exp(x1) + exp(x2)), without overflow.")
logical_and = _logical("logical_and")
logical_or = _logical("logical_or")
logical_xor = _logical("logical_xor")
maximum = _binary(
    "maximum", "The larger of x1 and x2; where they are equal, each has half of the gradient."
)
minimum = _binary(
    "minimum", "The smaller of x1 and x2; where they are equal, each has half of the gradient."
)
multiply = _binary("multiply", "x1 · x2; of truth values, whether both are true.")
nextafter = _binary("nextafter", "The number next to x1 in the direction of x2.")
not_equal = _binary("not_equal", "True where x1 and x2 differ.")
pow = _binary("power", "x1 raised to the power x2, element by element.")
remainder = _binary("remainder", "The remainder of x1 / x2 with the sign of x2, as Python's %.")
subtract = _binary("subtract", "x1 - x2.")


@takes_selected
def polygamma(n: int, x: Array, /) -> Array:
    """Return the derivative of order n + 1 of lgamma at each element, n ≥ 0; n = 1 is trigamma."""
    order = require_integer("polygamma: n", n, 0)
    if order == 0:
        return digamma(x)
    x = floating("polygamma", x)
    series = binary("zeta", float(order + 1), x)
    return multiply(series, (-1.0) ** (order + 1) * float(factorial(order)))


@as_ufunc(1)
@takes_selected
def logical_not(x: Array, /, out: Any = None, *, where: Any = True) -> Array:
    """Return True where x is false or zero."""
    given = x if is_number(x) else _truth("logical_not", x)
    return _with_options("logical_not", (given,), out, where, None)


_inverse = _unary("reciprocal", text="1 / x of each element.")


@as_ufunc(1)
@takes_selected
def reciprocal(x: Array, /, out: Any = None, *, where: Any = True, dtype: Any = None) -> Array:
    """Return 1 / x; of integers that of 1 and -1, and otherwise 0, as NumPy."""
    if dtype is None and type(x) not in _NUMBER_CLASSES:
        array = as_array("reciprocal", x)
        if array.dtype is bool_ or array.dtype.is_integer:
            node = e.astype(array.node, int8) if array.dtype is bool_ else array.node
            is_unit = equal(abs(Array(node)), 1)
            result = Array(e.where(is_unit.node, node, constant(0, node.dtype)))
            return stored("reciprocal", masked("reciprocal", result, where, out), out)
    return _inverse(x, out, where=where, dtype=dtype)


_rint = _unary("round", text="Each element rounded to the nearest integer, ties to even.")


@dispatch_cached
@takes_selected
def round(a: Array, decimals: int = 0, out: Any = None) -> Array:
    """Return each element rounded to the nearest multiple of 10**-decimals, ties to even."""
    if decimals == 0 and not (isinstance(a, Array) and a.dtype is bool_):
        return _rint(a, out)
    if is_number(a):
        number: Any = np.round(a, decimals)
        return number.item()  # type: ignore[no-any-return]
    array = as_array("round", a)
    if array.dtype is bool_:
        return stored("round", floating("round", array), out)
    scale = 10.0 ** builtins.abs(decimals)
    if array.dtype.is_integer:
        if decimals > 0:
            return stored("round", positive(array), out)
        tens = _rint(divide(array, scale))
        return stored("round", Array(e.astype(multiply(tens, scale).node, array.dtype)), out)
    if decimals > 0:
        return stored("round", divide(_rint(multiply(array, scale)), scale), out)
    return stored("round", multiply(_rint(divide(array, scale)), scale), out)


@as_ufunc(1)
@takes_selected
def positive(x: Array, /, out: Any = None) -> Array:
    """Return the elements of x as they are."""
    return stored("positive", +as_array("positive", x), out)


@dispatch_cached
@takes_selected
def clip(
    a: Array,
    min: Any = None,
    max: Any = None,
    out: Any = None,
    *,
    a_min: Any = None,
    a_max: Any = None,
) -> Array:
    """Return `a` limited to [min, max], also named a_min and a_max; None leaves a side open.

    The gradient of elements at a limit is 1, as in PyTorch.
    """
    min, max = a_min if min is None else min, a_max if max is None else max
    result = Array(as_array("clip", a).node)
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
        result = binary("clamp_min", result, min)
    if max is not None:
        result = binary("clamp_max", result, max)
    return stored("clip", result, out)
