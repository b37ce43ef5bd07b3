"""Element-wise functions of the array API: they differ only in name, so a table defines them.

Each takes NumPy's `out`, `where` and `dtype`; functions of two operands have `reduce`,
`accumulate`, `outer` and `at` (`ufunc_methods.py`).
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


def _unary(name: str, operation: str | None = None, text: str = "") -> UnaryFunction:
    def function(x: Array, /, out: Any = None, *, where: Any = True, dtype: Any = None) -> Array:
        if out is None and where is True and dtype is None and isinstance(x, Array):
            return unary(operation or name, x)
        return _with_options(operation or name, (x,), out, where, dtype)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = text or f"Element-wise {name} of x."
    return attach_unary_methods(name, function)


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


def _binary(name: str, text: str = "") -> BinaryFunction:
    def function(
        x1: Any, x2: Any, /, out: Any = None, *, where: Any = True, dtype: Any = None
    ) -> Array:
        if out is None and where is True and dtype is None and not _are_special(x1, x2):
            return binary(name, x1, x2)
        return _with_options(name, (x1, x2), out, where, dtype)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = text or f"Element-wise {name} of x1 and x2, which broadcast."
    return attach_ufunc_methods(name, function)


def _logical(name: str) -> BinaryFunction:
    """Return a function of truth values; numbers are true where they are not zero."""

    def function(
        x1: Any, x2: Any, /, out: Any = None, *, where: Any = True, dtype: Any = None
    ) -> Array:
        given = (x1, x2) if _are_numbers(x1, x2) else (_truth(name, x1), _truth(name, x2))
        return _with_options(name, given, out, where, dtype)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Element-wise {name} of x1 and x2; numbers other than 0 are true."
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
            number: Any = e.OPERATIONS[operation].reference(*given).item()
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


abs = _unary("abs", text="The absolute value of each element.")
acos = _unary("acos")
acosh = _unary("acosh")
asin = _unary("asin")
asinh = _unary("asinh")
atan = _unary("atan")
atanh = _unary("atanh")
bitwise_count = _unary("bitwise_count", text="The number of one bits of |x|, as uint8.")
bitwise_invert = _unary("bitwise_invert")
cbrt = _unary("cbrt", text="The cube root of each element, also of negative ones.")
ceil = _unary("ceil")
conj = _unary("conj", text="The complex conjugate of each element.")
cos = _unary("cos")
cosh = _unary("cosh")
erf = _unary("erf", text="The error function 2/√π · ∫₀ˣ exp(-t²) dt of each element.")
erfc = _unary("erfc", text="1 - erf(x) of each element, without the cancellation for large x.")
exp = _unary("exp")
digamma = _unary("digamma", text="The derivative of lgamma at each element.")
expm1 = _unary("expm1")
floor = _unary("floor")
imag = _part("imag", text="The imaginary part of each element; 0 for real numbers.")
isfinite = _unary("isfinite")
isinf = _unary("isinf")
isnan = _unary("isnan")
lgamma = _unary("lgamma", text="The logarithm of |Γ(x)| of each element x.")
log = _unary("log", text="The natural logarithm of each element.")
log10 = _unary("log10")
log1p = _unary("log1p")
log2 = _unary("log2")
negative = _unary("negative")
real = _part("real", text="The real part of each element.")
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
fmod = _binary("fmod", "The remainder of x1 / x2 with the sign of x1.")
gcd = _binary("gcd", "The greatest common divisor of |x1| and |x2|.")
greater = _binary("greater")
greater_equal = _binary("greater_equal")
hypot = _binary("hypot")
lcm = _binary("lcm", "The least common multiple of |x1| and |x2|; 0 where one of them is 0.")
less = _binary("less")
less_equal = _binary("less_equal")
logaddexp = _binary("logaddexp")
logical_and = _logical("logical_and")
logical_or = _logical("logical_or")
logical_xor = _logical("logical_xor")
maximum = _binary(
    "maximum", "The larger of x1 and x2; where they are equal, each has half of the gradient."
)
minimum = _binary(
    "minimum", "The smaller of x1 and x2; where they are equal, each has half of the gradient."
)
multiply = _binary("multiply")
nextafter = _binary("nextafter", "The number next to x1 in the direction of x2.")
not_equal = _binary("not_equal")
pow = _binary("power", "x1 raised to the power x2, element by element.")
remainder = _binary("remainder")
subtract = _binary("subtract")


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


_inverse = _unary("reciprocal")


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


_rint = _unary("round")


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
