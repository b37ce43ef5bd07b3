"""Reductions that ignore nan: nan becomes the neutral element, or is not counted."""

from __future__ import annotations

import math
from typing import Any

from magmath.api.cumulative import cumprod, cumsum
from magmath.api.elementwise import isnan, logical_and, logical_not
from magmath.api.manipulation import broadcast_to
from magmath.api.reductions import all, any, count_nonzero, max, min, prod, sum
from magmath.api.searching import argmax, argmin
from magmath.api.searching import where as choice
from magmath.api.statistics import mean, std, var
from magmath.arrays.array import Array, as_array
from magmath.arrays.protocols.cached_functions import dispatch_cached
from magmath.arrays.ufuncs.output import stored
from magmath.core.dtypes import as_dtype
from magmath.core.shapes import Axis
from magmath.errors import DTypeError, ShapeError


def _can_hold_nan(x: Array) -> bool:
    """Return True for types that hold nan."""
    return x.dtype.kind in ("float", "complex")


def _numbers(name: str, a: Any, dtype: Any) -> Array:
    """Return an array of the elements, converted to `dtype` if that type holds nan too."""
    holds_nan = dtype is not None and as_dtype(dtype).kind in ("float", "complex")
    return as_array(name, a, dtype if holds_nan else None)


def _filled(name: str, a: Any, value: float, dtype: Any = None) -> Array:
    """Return the array with a number for nan."""
    x = _numbers(name, a, dtype)
    return choice(isnan(x), value, x) if _can_hold_nan(x) else x


def _numbers_mask(x: Array, mask: Any) -> Any:
    """Return `mask` without the positions of nan."""
    if not _can_hold_nan(x):
        return mask
    is_number = logical_not(isnan(x))
    return is_number if mask is None or mask is True else logical_and(is_number, mask)


@dispatch_cached
def nansum(
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Array:
    """Return `sum` with nan as 0."""
    return sum(_filled("nansum", a, 0.0, dtype), axis, dtype, out, keepdims, initial, where)


@dispatch_cached
def nanprod(
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Array:
    """Return `prod` with nan as 1."""
    return prod(_filled("nanprod", a, 1.0, dtype), axis, dtype, out, keepdims, initial, where)


@dispatch_cached
def nancumsum(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Array:
    """Return `cumsum` with nan as 0."""
    return cumsum(_filled("nancumsum", a, 0.0, dtype), axis, dtype, out)


@dispatch_cached
def nancumprod(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Array:
    """Return `cumprod` with nan as 1."""
    return cumprod(_filled("nancumprod", a, 1.0, dtype), axis, dtype, out)


@dispatch_cached
def nanmax(
    a: Any,
    axis: Axis = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Array:
    """Return the largest element that is not nan; nan where all are."""
    x = as_array("nanmax", a)
    largest = max(_filled("nanmax", x, -math.inf), axis, None, keepdims, initial, where)
    return stored("nanmax", _or_nan(x, largest, axis, keepdims, initial), out)


@dispatch_cached
def nanmin(
    a: Any,
    axis: Axis = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Array:
    """Return the smallest element that is not nan; nan where all are."""
    x = as_array("nanmin", a)
    smallest = min(_filled("nanmin", x, math.inf), axis, None, keepdims, initial, where)
    return stored("nanmin", _or_nan(x, smallest, axis, keepdims, initial), out)


def _or_nan(x: Array, extremum: Array, axis: Axis, keepdims: bool, initial: Any) -> Array:
    """Return an extremum without an initial value, nan where all elements are nan."""
    if not _can_hold_nan(x) or initial is not None:
        return extremum
    return choice(all(isnan(x), axis, None, keepdims), math.nan, extremum)


@dispatch_cached
def nanargmax(a: Any, axis: int | None = None, out: Any = None, *, keepdims: bool = False) -> Array:
    """Return the position of the largest element that is not nan. Raises ValueError where all are
    nan; the values are computed to find out."""
    _check_has_number("nanargmax", a, axis)
    return argmax(_filled("nanargmax", a, -math.inf), axis, out, keepdims=keepdims)


@dispatch_cached
def nanargmin(a: Any, axis: int | None = None, out: Any = None, *, keepdims: bool = False) -> Array:
    """Return the position of the smallest element that is not nan; see `nanargmax`."""
    _check_has_number("nanargmin", a, axis)
    return argmin(_filled("nanargmin", a, math.inf), axis, out, keepdims=keepdims)


def _check_has_number(name: str, a: Any, axis: int | None) -> None:
    """Raise ShapeError if all elements along the axis are nan somewhere."""
    x = as_array(name, a)
    if _can_hold_nan(x) and any(all(isnan(x), axis)):
        raise ShapeError(f"{name}: all elements along axis {axis} are nan; omit such rows first")


def _check_type(name: str, x: Array, dtype: Any) -> None:
    """Raise TypeError if the result of numbers that may be nan is to have a type that has none."""
    if dtype is not None and _can_hold_nan(x) and as_dtype(dtype).kind not in ("float", "complex"):
        raise DTypeError(
            f"{name}: the result for {x.dtype} is floating point, was given dtype {dtype}"
            "; convert it with mm.astype(result, dtype)"
        )


@dispatch_cached
def nanmean(
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: bool = False,
    *,
    where: Any = None,
) -> Array:
    """Return the mean of the elements that are not nan."""
    x = _numbers("nanmean", a, dtype)
    _check_type("nanmean", x, dtype)
    return mean(x, axis, dtype, out, keepdims, where=_numbers_mask(x, where))


@dispatch_cached
def nanvar(
    a: Any,
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
    """Return the variance of the elements that are not nan."""
    result = _spread("nanvar", var, a, axis, dtype, ddof, keepdims, where, mean, correction)
    return stored("nanvar", result, out)


@dispatch_cached
def nanstd(
    a: Any,
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
    """Return the standard deviation of the elements that are not nan."""
    result = _spread("nanstd", std, a, axis, dtype, ddof, keepdims, where, mean, correction)
    return stored("nanstd", result, out)


def _spread(
    name: str,
    function: Any,
    a: Any,
    axis: Axis,
    dtype: Any,
    ddof: float,
    keepdims: bool,
    where: Any,
    mean: Any,
    correction: float | None,
) -> Array:
    """Return the variance or standard deviation of the elements that are not nan; nan where their
    number is not larger than the correction."""
    x = _numbers(name, a, dtype)
    _check_type(name, x, dtype)
    mask = _numbers_mask(x, where)
    result: Array = function(
        x, axis, dtype, None, ddof, keepdims, where=mask, mean=mean, correction=correction
    )
    less = ddof if correction is None else correction
    if not _can_hold_nan(x) or less <= 0:
        return result
    counts = count_nonzero(broadcast_to(mask, x.shape), axis=axis, keepdims=keepdims)
    return choice(counts <= less, math.nan, result)
