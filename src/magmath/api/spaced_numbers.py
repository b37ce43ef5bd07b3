"""Evenly spaced numbers, and numbers whose logarithms are, between numbers or arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from magmath.api.creation import (
    DTypeLike,
    arange,
    asarray,
    created_array,
    normal_shape,
    number_kind,
    python_number,
    require_known,
)
from magmath.api.data_types import astype
from magmath.api.elementwise import abs, floor, log10, pow
from magmath.api.manipulation import moveaxis, reshape
from magmath.api.reductions import any
from magmath.api.searching import where
from magmath.arrays.array import Array, as_array, as_arrays
from magmath.arrays.inputs.conversion import LayoutLike
from magmath.arrays.inputs.number_list import is_number
from magmath.arrays.protocols.cached_functions import dispatch_cached
from magmath.core.dtypes import DType, as_dtype, complex128, float64
from magmath.core.promotion import common_dtype, floating_dtype
from magmath.errors import RangeError


@dispatch_cached
def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: DTypeLike = None,
    axis: int = 0,
    *,
    layout: LayoutLike = None,
    device: object = None,
) -> Any:
    """Return `num` evenly spaced numbers from start to stop, the last exact (or left out); with
    `retstep` also their distance.

    Start and stop are numbers or arrays, which are broadcast; the numbers between two elements are
    along `axis` of the result. Complex numbers are on the line between start and stop. The type is
    the default floating point type or its complex counterpart; NumPy scalars and arrays keep their
    own type. Integers are rounded down.
    """
    require_known("linspace", "start + (stop - start) * mm.linspace(0, 1, n)", start, stop, num)
    if not hasattr(num, "__index__"):
        raise TypeError(
            f"linspace: num, the number of values, is an integer, was given {num!r}; "
            f"mm.arange(start, stop, step) takes the distance of values"
        )
    (count,) = normal_shape("linspace", num)
    first, last, natural = _ends("linspace", start, stop)
    parts = count - 1 if endpoint else count
    step = (last - first) / max(parts, 1)
    position = reshape(arange(count), (count,) + (1,) * getattr(step, "ndim", 0))
    values = first + astype(position, _exact(natural)) * step
    if endpoint and count > 1:
        values = where(position == parts, last, values)
    element = natural if dtype is None else as_dtype(dtype)
    if element.is_integer:
        values = floor(values)
    numbers = created_array(moveaxis(astype(values, element), 0, axis).node, layout, device)
    return (numbers, step if parts > 0 else math.nan) if retstep else numbers


@dispatch_cached
def logspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    base: Any = 10.0,
    dtype: DTypeLike = None,
    axis: int = 0,
) -> Array:
    """Return `num` numbers from base**start to base**stop whose logarithms are evenly spaced.

    Start, stop and base are numbers or arrays, as in `linspace`.
    """
    *_, natural = _ends("logspace", start, stop)
    powers = linspace(start, stop, num, endpoint, dtype=_exact(natural))
    bases = base if _is_scalar(base) else as_arrays("logspace", base, start, stop)[0]
    natural = common_dtype(natural, number_kind(bases))
    if _is_scalar(base):
        bases = python_number(base)
    else:
        bases, extents = as_array("logspace", base, _exact(natural)), powers.shape[1:]
        added = (1,) * (bases.ndim - len(extents))
        powers = reshape(powers, (powers.shape[0], *added, *extents))
    values = moveaxis(pow(bases, powers), 0, axis)
    return astype(values, natural if dtype is None else as_dtype(dtype), copy=False)


@dispatch_cached
def geomspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    dtype: DTypeLike = None,
    axis: int = 0,
) -> Array:
    """Return `num` numbers from start to stop, each a constant multiple of the one before.

    Start and stop are numbers or arrays, as in `linspace`. Real ones of different signs have no
    real numbers between them: these are nan. Raises RangeError for 0.
    """
    first, last, natural = _ends("geomspace", start, stop)
    if any(asarray(first) == 0) or any(asarray(last) == 0):
        raise RangeError(
            "geomspace: start and stop must not be 0"
            "; start at a small positive number, or use mm.linspace"
        )
    element = natural if dtype is None else as_dtype(dtype)
    exact = _exact(element if element.kind == "complex" else natural)
    first, last = (as_array("geomspace", x, exact) for x in (first, last))
    direction = first / abs(first)
    low, high = (log10(x / direction) for x in (first, last))  # powers of 10 have NumPy's digits
    values = direction * pow(10.0, linspace(low, high, num, endpoint))
    position = reshape(arange(values.shape[0]), (-1,) + (1,) * (values.ndim - 1))
    values = where(position == 0, first, values)
    if endpoint:
        values = where((position == values.shape[0] - 1) & (position > 0), last, values)
    return moveaxis(astype(values, element), 0, axis)


def _ends(name: str, start: Any, stop: Any) -> tuple[Any, Any, DType]:
    """Return start and stop as Python numbers or arrays in double precision, and the type of the
    result."""
    for value in (start, stop):
        if not (is_number(value) or hasattr(value, "dtype") or isinstance(value, (list, tuple))):
            raise TypeError(
                f"{name}: start and stop are numbers or arrays, was given {value!r}; pass a number"
            )
    ends = [
        x if _is_scalar(x) else as_arrays(name, start, stop)[i] for i, x in enumerate((start, stop))
    ]
    natural = floating_dtype(common_dtype(*map(number_kind, ends), float))
    exact = _exact(natural)
    first, last = [
        python_number(x) if _is_scalar(x) else as_array(name, x, exact) for x in (start, stop)
    ]
    return first, last, natural


def _exact(dtype: DType) -> DType:
    """Return the type of double precision of the kind of a type."""
    return complex128 if dtype.kind == "complex" else float64


def _is_scalar(value: Any) -> bool:
    return is_number(value) or isinstance(value, np.generic)
