"""Mean, variance and standard deviation: compositions of operations, which native code fuses."""

from __future__ import annotations

import builtins
import warnings
from typing import Any

from magmath.api.data_types import astype
from magmath.api.elementwise import divide, maximum, multiply, square, subtract
from magmath.api.reductions import count_nonzero, sum
from magmath.arrays.array import Array, as_array
from magmath.arrays.indexing.masked_elements import reduces_selected
from magmath.arrays.protocols.cached_functions import dispatch_cached
from magmath.arrays.ufuncs.output import mask_of, stored
from magmath.core.call_effects import CALL_EFFECTS
from magmath.core.dtypes import compute_dtype, float64, real_dtype
from magmath.core.keyword_hints import keyword_hints
from magmath.core.promotion import floating_dtype
from magmath.core.shapes import Axis, normalize_axes, size_of
from magmath.engine.user_line import user_line
from magmath.errors import OptionError
from magmath.ops import elementwise as e
from magmath.ops.leaves import constant
from magmath.ops.sums import broadcast_to


def _count(name: str, x: Array, axis: Axis) -> int:
    """Return the number of elements that are reduced to one."""
    return size_of(x.shape[d] for d in normalize_axes(name, axis, x.ndim))


@dispatch_cached
@keyword_hints
@reduces_selected
def mean(
    a: Array,
    axis: Axis = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: bool = False,
    *,
    where: Any = None,
) -> Array:
    """Return the arithmetic mean over `axis`; nan where there are no elements.

    Integers accumulate in float64; the mean of 32-bit and 64-bit integers is float64, that of
    smaller ones and bool has the default floating point type.
    """
    a = as_array("mean", a, dtype)
    element = floating_dtype(a.dtype) if dtype is None else a.dtype
    count = _count("mean", a, axis)
    if not count:
        warn_empty("mean: no elements, the result is nan")
    if where is not None and where is not True:
        result = _mean_where(_wide(a), where, axis, keepdims)
    else:
        result = _mean(_wide(a), count, axis, keepdims)
    return stored("mean", astype(result, element, copy=False), out)


def warn_empty(message: str) -> None:
    """Issue the RuntimeWarning of NumPy for a statistic of too few elements, at the user's line."""
    CALL_EFFECTS.count += 1
    line = user_line()
    file, number = ("magmath", 0) if line is None else line
    warnings.warn_explicit(message, RuntimeWarning, file, number)


def _mean_where(x: Array, where: Any, axis: Axis, keepdims: bool) -> Array:
    """Return the mean of the elements where a mask is true."""
    counts = _count_where(x, where, axis, keepdims)
    return divide(sum(x, axis=axis, keepdims=keepdims, where=where), counts)


def _count_where(x: Array, where: Any, axis: Axis, keepdims: bool) -> Array:
    """Return the number of elements where a mask is true, in the real type of x."""
    wide = Array(broadcast_to(mask_of("where", where, x.shape), x.shape))
    counts = count_nonzero(wide, axis=axis, keepdims=keepdims)
    return astype(counts, real_dtype(x.dtype), copy=False)


def _mean(x: Array, count: int, axis: Axis, keepdims: bool) -> Array:
    total = sum(x, axis=axis, keepdims=keepdims)
    if count and count & (count - 1) == 0:  # 1 / count is exact, and gradients need no division
        return multiply(total, 1.0 / count)
    return divide(total, float(count))


def _wide(x: Array) -> Array:
    """Return x in its accumulation type: float64 for integers, float32 for half types.

    float64 is exact for integers of up to 32 bits.
    """
    exact = x.dtype.kind in ("float", "complex")
    return astype(x, compute_dtype(x.dtype) if exact else float64, copy=False)


@dispatch_cached
@keyword_hints
@reduces_selected
def var(
    a: Array,
    axis: Axis = None,
    dtype: Any = None,
    out: Any = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    where: Any = None,
    mean: Any = None,
    correction: float | None = None,
) -> Array:
    """Return the variance over `axis`: squared deviations from the mean over (count - correction).

    Of complex numbers it is that of their distances from the mean, a real number. It is nan or
    infinite where count - correction is not positive. `ddof` is NumPy's name of the correction.
    `mean` is the mean with the reduced axes kept, if it is known. Integers as for `mean`.
    """
    less = _correction("var", ddof, correction)
    return stored("var", _variance("var", a, axis, dtype, less, keepdims, where, mean), out)


@dispatch_cached
@keyword_hints
@reduces_selected
def std(
    a: Array,
    axis: Axis = None,
    dtype: Any = None,
    out: Any = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    where: Any = None,
    mean: Any = None,
    correction: float | None = None,
) -> Array:
    """Return the standard deviation over `axis`: the root of `var`."""
    less = _correction("std", ddof, correction)
    return stored("std", _variance("std", a, axis, dtype, less, keepdims, where, mean), out)


def _correction(name: str, ddof: float, correction: float | None) -> float:
    """Return the correction by either of its names. Raises ValueError for two values."""
    if correction is None:
        return ddof
    if ddof != 0:
        raise OptionError(
            f"{name}: ddof and correction are two names of one number, was given {ddof} and "
            f"{correction}; pass one of them"
        )
    return correction


def _variance(
    name: str,
    x: Array,
    axis: Axis,
    dtype: Any,
    correction: float,
    keepdims: bool,
    where: Any,
    mean: Any,
) -> Array:
    x = as_array(name, x, dtype)
    count = _count(name, x, axis)
    try:
        degrees: Any = builtins.max(0.0, float(count - correction))
    except TypeError:
        raise TypeError(
            f"{name}: correction must be a real number, was given {correction!r}; 1 treats the "
            "values as a sample, 0 as the whole population"
        ) from None
    if not degrees > 0:
        warn_empty(f"{name}: {count} elements with correction {correction:g}, not a finite number")
    wide = _wide(x)
    if where is True:
        where = None
    if where is not None:
        degrees = maximum(subtract(_count_where(wide, where, axis, keepdims), correction), 0)
        mean = _mean_where(wide, where, axis, True) if mean is None else mean
    elif mean is None:
        mean = _mean(wide, count, axis, True)
    deviation = subtract(wide, mean)
    if where is not None:  # before they are squared: the slope of a square of nan is nan
        mask = as_array(name, where).node
        deviation = Array(e.where(mask, deviation.node, constant(0, deviation.dtype)))
    if x.dtype.kind == "complex":
        squares = Array(e.squared_sizes(deviation.node))
    else:
        squares = square(deviation)
    squares = sum(squares, axis=axis, keepdims=keepdims)
    result = divide(squares, degrees)
    if name == "std":
        result = Array(e.call("root", result.node))
    result = astype(result, real_dtype(floating_dtype(x.dtype)), copy=False)
    return result if dtype is None or x.dtype.kind != "complex" else astype(result, dtype)
