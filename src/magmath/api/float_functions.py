"""Element-wise functions of floating point numbers, composed of those of `elementwise.py`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from magmath.api.creation import asarray, zeros
from magmath.api.cumulative import cumulative_sum, diff
from magmath.api.data_types import astype, finfo, result_type
from magmath.api.elementwise import (
    abs,
    clip,
    copysign,
    divide,
    equal,
    exp,
    floor,
    floor_divide,
    fmod,
    greater_equal,
    imag,
    isfinite,
    isinf,
    isnan,
    less,
    less_equal,
    log2,
    logaddexp,
    logical_and,
    logical_or,
    maximum,
    minimum,
    multiply,
    negative,
    nextafter,
    pow,
    real,
    remainder,
    round,
    sin,
    sqrt,
    subtract,
    trunc,
)
from magmath.api.manipulation import concat
from magmath.api.searching import where
from magmath.arrays.array import Array, as_array, as_arrays, floating
from magmath.arrays.indexing.masked_elements import takes_selected
from magmath.arrays.inputs.number_list import is_number
from magmath.arrays.inputs.operands import promoted_nodes
from magmath.arrays.protocols.cached_functions import dispatch_cached
from magmath.arrays.ufuncs.output import (
    takes_out,
    takes_out_of_first_type,
    takes_two_outs,
    target,
)
from magmath.arrays.ufuncs.ufunc_methods import as_ufunc
from magmath.core.dtypes import complex128, compute_dtype, float64, int32, int64
from magmath.core.shapes import normalize_axis, with_extent
from magmath.engine.user_line import user_line
from magmath.errors import DTypeError
from magmath.graph import apply
from magmath.ops import elementwise as e

LOG_2 = math.log(2.0)
RADIANS_PER_DEGREE = math.pi / 180
_SINC_DIVISORS = tuple(k * (k + 1) for k in range(2, 16, 2))
"""Ratios of the coefficients of the series of sin(y) / y."""


def require_real(name: str, x: Array) -> Array:
    """Return an array of real numbers; complex ones have no sign."""
    if x.dtype.kind == "complex":
        raise DTypeError(
            f"{name}: takes real numbers, was given {x.dtype}; take mm.real(x), mm.imag(x) or "
            f"mm.abs(x)"
        )
    return x


def _real_floating(name: str, x: Any) -> Array:
    """Return an array of real floating point numbers."""
    return floating(name, require_real(name, as_array(name, x)))


@as_ufunc(1)
@takes_out
@dispatch_cached
def deg2rad(x: Any, /) -> Array:
    """Return degrees as radians."""
    return multiply(_real_floating("deg2rad", x), RADIANS_PER_DEGREE)


@as_ufunc(1)
@takes_out
@dispatch_cached
def rad2deg(x: Any, /) -> Array:
    """Return radians as degrees."""
    return multiply(_real_floating("rad2deg", x), 1 / RADIANS_PER_DEGREE)


@as_ufunc(1)
@takes_out
@dispatch_cached
def exp2(x: Any, /) -> Array:
    """Return 2 to the power x."""
    return pow(2.0, floating("exp2", x))


@as_ufunc(1)
@takes_out
@dispatch_cached
def fabs(x: Any, /) -> Array:
    """Return the absolute value as a floating point number."""
    return abs(_real_floating("fabs", x))


@as_ufunc(1)
@takes_out
@dispatch_cached
def rint(x: Any, /) -> Array:
    """Return the nearest whole number, of two equally near ones the even one, as a floating point
    number."""
    return round(floating("rint", x))


@as_ufunc(2, is_associative=True)
@takes_out
@dispatch_cached
def fmax(x1: Any, x2: Any, /) -> Array:
    """Return the larger of two elements, or the one that is not nan.

    Where they are equal, x1 has the gradient, as in PyTorch.
    """
    a, b = map(Array, promoted_nodes("fmax", x1, x2))
    if a.dtype.kind not in ("float", "complex"):
        return maximum(a, b)
    return where(logical_or(greater_equal(a, b), isnan(b)), a, b)


@as_ufunc(2, is_associative=True)
@takes_out
@dispatch_cached
def fmin(x1: Any, x2: Any, /) -> Array:
    """Return the smaller of two elements, or the one that is not nan.

    Where they are equal, x1 has the gradient, as in PyTorch.
    """
    a, b = map(Array, promoted_nodes("fmin", x1, x2))
    if a.dtype.kind not in ("float", "complex"):
        return minimum(a, b)
    return where(logical_or(less_equal(a, b), isnan(b)), a, b)


@takes_two_outs(2)
@dispatch_cached
def divmod(x1: Any, x2: Any, /) -> tuple[Array, Array]:
    """Return the quotient rounded down, and the remainder."""
    return floor_divide(x1, x2), remainder(x1, x2)


@as_ufunc(2)
@takes_out
@dispatch_cached
def float_power(x1: Any, x2: Any, /) -> Array:
    """Return x1 to the power x2 as float64 or complex128."""
    kinds = [as_array("float_power", x).dtype.kind for x in (x1, x2)]
    element = complex128 if "complex" in kinds else float64
    return pow(asarray(x1, dtype=element), asarray(x2, dtype=element))


@as_ufunc(2)
@takes_out
@dispatch_cached
def heaviside(x1: Any, x2: Any, /) -> Array:
    """Return 0 for negative x1, 1 for positive, x2 at 0."""
    a, b = (
        _real_floating("heaviside", Array(node))
        for node in promoted_nodes("heaviside", *as_arrays("heaviside", x1, x2))
    )
    return where(isnan(a), a, where(equal(a, 0), b, astype(a > 0, a.dtype)))


@takes_out
@dispatch_cached
def isneginf(x: Any) -> Array:
    """Return True for -inf."""
    x = require_real("isneginf", as_array("isneginf", x))
    return logical_and(isinf(x), less(x, 0))


@takes_out
@dispatch_cached
def isposinf(x: Any) -> Array:
    """Return True for inf."""
    x = require_real("isposinf", as_array("isposinf", x))
    return logical_and(isinf(x), less(0, x))


@as_ufunc(2, is_associative=True, identity=-math.inf)
@takes_out
@dispatch_cached
def logaddexp2(x1: Any, x2: Any, /) -> Array:
    """Return log2(2**x1 + 2**x2)."""
    a, b = (
        _real_floating("logaddexp2", Array(node))
        for node in promoted_nodes("logaddexp2", *as_arrays("logaddexp2", x1, x2))
    )
    element, wide = a.dtype, compute_dtype(a.dtype)
    a, b = (multiply(astype(x, wide, copy=False), LOG_2) for x in (a, b))
    return astype(divide(logaddexp(a, b), LOG_2), element, copy=False)


@takes_out
@dispatch_cached
def sinc(x: Any) -> Array:
    """Return sin(πx) / (πx), 1 at 0."""
    x = floating("sinc", x)
    angle = multiply(x, math.pi)
    near = less(abs(angle), 0.5) if x.dtype.is_floating else equal(x, 0)
    safe, square = where(near, 1.0, angle), where(near, multiply(angle, angle), 0.0)
    series = 1.0 - square / _SINC_DIVISORS[-1]  # near 0, derivatives of the quotient cancel
    for divisor in _SINC_DIVISORS[-2::-1]:
        series = 1.0 - square / divisor * series
    return where(near, series, divide(sin(safe), safe))


@as_ufunc(1)
@takes_out
@dispatch_cached
def spacing(x: Any, /) -> Array:
    """Return the distance from each number to the next one of larger size."""
    x = _real_floating("spacing", x)
    size = abs(x)
    distance = subtract(nextafter(size, math.inf), size)
    return where(isfinite(x), where(less(x, 0), negative(distance), distance), math.nan)


@as_ufunc(2, has_own_types=True)
@takes_out_of_first_type
@dispatch_cached
def ldexp(x1: Any, x2: Any, /) -> Array:
    """Return x1 · 2**x2, for integers or truth values x2."""
    x, power = _real_floating("ldexp", x1), as_array("ldexp", x2)
    if not power.dtype.is_integer and power.dtype.kind != "bool":
        raise DTypeError(
            f"ldexp: exponents are integers, was given {power.dtype}"
            "; convert them with mm.astype(x, mm.int32)"
        )
    return _scaled(x, astype(power, int64))


def _scaled(x: Array, power: Array) -> Array:
    """Return x · 2**power; in four steps, which overflow only if the result does. Their factors are
    normal numbers, so that 0 and inf stay."""
    widest = 4 * (math.frexp(finfo(x.dtype).max)[1] - 2)
    power = minimum(maximum(power, -widest), widest)
    quarter = floor_divide(power, 4)
    for part in (quarter, quarter, quarter, power - 3 * quarter):
        x = multiply(x, pow(astype(2 + 0 * part, x.dtype), astype(part, x.dtype)))
    return x


@takes_two_outs(1)
@dispatch_cached
def frexp(x: Any, /) -> tuple[Array, Array]:
    """Return a mantissa m with 0.5 ≤ |m| < 1 and an exponent e, with x = m · 2**e."""
    x = floating("frexp", x)
    usable = logical_and(isfinite(x), x != 0)
    size = where(usable, abs(x), 1.0)
    power = astype(floor(log2(size)), int64) + 1
    mantissa = _scaled(size, -power)
    large, small = mantissa >= 1.0, mantissa < 0.5
    mantissa = where(large, mantissa * 0.5, where(small, mantissa * 2.0, mantissa))
    power = power + astype(large, int64) - astype(small, int64)
    return where(usable, copysign(mantissa, x), x), astype(where(usable, power, 0), int32)


@takes_two_outs(1)
@dispatch_cached
def modf(x: Any, /) -> tuple[Array, Array]:
    """Return the fractional and the integral part, both with the sign of x."""
    x = floating("modf", x)
    fraction = where(isinf(x), copysign(0.0, x), fmod(x, 1.0))
    return fraction, copysign(trunc(x), x)


@takes_selected
@dispatch_cached
def nan_to_num(
    x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None
) -> Array:
    """Return x with numbers for nan and infinities: by default 0 and the largest and least number
    of the type. Without `copy`, x itself is changed.

    For a Python number it returns a Python number, by default with the limits of float64, which
    float32 does not hold: give `posinf` and `neginf` for operations with arrays of smaller types.
    """
    if is_number(x) and all(v is None or is_number(v) for v in (nan, posinf, neginf)):
        number: Any = np.nan_to_num(x, nan=nan, posinf=posinf, neginf=neginf)
        return number.item()  # type: ignore[no-any-return]
    array = as_array("nan_to_num", x)
    if not copy and isinstance(x, (Array, np.ndarray)):
        written = target("nan_to_num", x)
        written[...] = nan_to_num(written, nan=nan, posinf=posinf, neginf=neginf)
        return written
    if array.dtype.kind == "complex":
        parts = [
            nan_to_num(part, nan=nan, posinf=posinf, neginf=neginf).node
            for part in (real(array), imag(array))
        ]
        return Array(apply(e.OPERATIONS["complex"], *parts, line=user_line()))
    if not array.dtype.is_floating:
        return Array(array.node)
    limits = finfo(array.dtype)
    result = where(isnan(array), nan, array)
    result = where(isposinf(array), limits.max if posinf is None else posinf, result)
    result = where(isneginf(array), limits.min if neginf is None else neginf, result)
    return astype(result, array.dtype, copy=False)


@dispatch_cached
def unwrap(p: Any, discont: Any = None, axis: int = -1, *, period: Any = 2 * math.pi) -> Array:
    """Return angles along an axis, with multiples of the period added where neighbours are further
    apart than `discont` (half a period for None)."""
    p = as_array("unwrap", p)
    axis = normalize_axis("unwrap", axis, p.ndim)
    element = result_type(p, period)
    steps = diff(p, axis=axis)
    integer = element.is_integer
    high = period // 2 if integer else period / 2
    ambiguous = not integer or period % 2 == 0
    wrapped = remainder(steps + high, period) - high
    if ambiguous:
        wrapped = where(logical_and(equal(wrapped, -high), steps > 0), high, wrapped)
    limit = period / 2 if discont is None else discont
    corrections = where(less(abs(steps), limit), 0, wrapped - steps)
    total = cumulative_sum(corrections, axis=axis)
    first = zeros(with_extent(total.shape, axis, 1), dtype=total.dtype)
    return astype(p, element) + concat([first, total], axis=axis)


# Chebyshev coefficients of exp(-x)·I0(x) on [0, 8], and of exp(-x)·√x·I0(x) beyond: Cephes, i0.c.
_NEAR = (
    -4.41534164647933937950e-18, 3.33079451882223809783e-17, -2.43127984654795469359e-16,
    1.71539128555513303061e-15, -1.16853328779934516808e-14, 7.67618549860493561688e-14,
    -4.85644678311192946090e-13, 2.95505266312963983461e-12, -1.72682629144155570723e-11,
    9.67580903537323691224e-11, -5.18979560163526290666e-10, 2.65982372468238665035e-9,
    -1.30002500998624804212e-8, 6.04699502254191894932e-8, -2.67079385394061173391e-7,
    1.11738753912010371815e-6, -4.41673835845875056359e-6, 1.64484480707288970893e-5,
    -5.75419501008210370398e-5, 1.88502885095841655729e-4, -5.76375574538582365885e-4,
    1.63947561694133579842e-3, -4.32430999505057594430e-3, 1.05464603945949983183e-2,
    -2.37374148058994688156e-2, 4.93052842396707084878e-2, -9.49010970480476444210e-2,
    1.71620901522208775349e-1, -3.04682672343198398683e-1, 6.76795274409476084995e-1,
)  # fmt: skip
_FAR = (
    -7.23318048787475395456e-18, -4.83050448594418207126e-18, 4.46562142029675999901e-17,
    3.46122286769746109310e-17, -2.82762398051658348494e-16, -3.42548561967721913462e-16,
    1.77256013305652638360e-15, 3.81168066935262242075e-15, -9.55484669882830764870e-15,
    -4.15056934728722208663e-14, 1.54008621752140982691e-14, 3.85277838274214270114e-13,
    7.18012445138366623367e-13, -1.79417853150680611778e-12, -1.32158118404477131188e-11,
    -3.14991652796324136454e-11, 1.18891471078464383424e-11, 4.94060238822496958910e-10,
    3.39623202570838634515e-9, 2.26666899049817806459e-8, 2.04891858946906374183e-7,
    2.89137052083475648297e-6, 6.88975834691682398426e-5, 3.36911647825569408990e-3,
    8.04490411014108831608e-1,
)  # fmt: skip


def _chebyshev(x: Array, coefficients: tuple[float, ...]) -> Array:
    before, last = 0.0 * x, 0.0 * x + coefficients[0]
    for coefficient in coefficients[1:-1]:
        before, last = last, x * last - before + coefficient
    final = x * last - before + coefficients[-1]
    return 0.5 * (final - before)


@dispatch_cached
def i0(x: Any) -> Array:
    """Return the modified Bessel function of the first kind, of order 0."""
    x = _real_floating("i0", x)
    size = where(x < 0, -x, x)  # the function is smooth at 0, abs is not
    near, far = clip(size, max=8.0), clip(size, min=8.0)
    inner = exp(near) * _chebyshev(near / 2.0 - 2.0, _NEAR)
    outer = exp(far) * _chebyshev(32.0 / far - 2.0, _FAR) / sqrt(far)
    return where(size <= 8.0, inner, outer)
