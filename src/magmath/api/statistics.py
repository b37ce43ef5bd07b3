"""Reductions and running sums of the array API.

Mean, variance and standard deviation are composed of other operations, which the fuse pass merges.
"""

from __future__ import annotations

import builtins
import warnings
from typing import Any

import numpy as np

from magmath.api.complex_order import complex_extremum
from magmath.api.creation import asarray, full
from magmath.api.data_types import astype
from magmath.api.elementwise import (
    abs,
    add,
    divide,
    maximum,
    minimum,
    multiply,
    not_equal,
    square,
    subtract,
)
from magmath.api.manipulation import concat, reshape
from magmath.arrays.array import Array, as_array, as_arrays
from magmath.arrays.indexing.masked_elements import reduces_selected
from magmath.arrays.inputs.number_list import is_number
from magmath.arrays.inputs.operands import promoted_nodes
from magmath.arrays.protocols.dispatch_cache import dispatch_cached
from magmath.arrays.ufuncs.output import stored
from magmath.core.call_effects import CALL_EFFECTS
from magmath.core.dtypes import (
    DType,
    accumulator_dtype,
    as_dtype,
    bool_,
    compute_dtype,
    float64,
    int64,
    is_same_kind,
    real_dtype,
    uint64,
)
from magmath.core.integers import require_integer
from magmath.core.keyword_hints import keyword_hints
from magmath.core.promotion import floating_dtype
from magmath.core.shapes import (
    Axis,
    broadcast,
    normalize_axes,
    normalize_axis,
    reduced_axes,
    size_of,
)
from magmath.engine.user_line import user_line
from magmath.errors import ShapeError
from magmath.graph import Operation, apply
from magmath.ops import elementwise as e
from magmath.ops import reductions, scans
from magmath.ops.slicing import slice_along
from magmath.ops.sums import broadcast_to, check_extremum


def _reduction(
    name: str,
    x: Array,
    axis: Axis,
    keepdims: bool,
    dtype: Any = None,
    out: Any = None,
    initial: Any = None,
    where: Any = None,
) -> Array:
    x = as_array(name, x)
    if dtype is not None and as_dtype(dtype) != x.dtype:
        x = astype(x, dtype)
    if name in _EXTREMA and initial is not None:
        initial = _initial_value(name, x, initial)
    if where is not None and where is not True:
        x = _selected(name, x, where, initial)
    axes = reduced_axes(name, axis, x.ndim)
    if name in _EXTREMA:
        if initial is None:
            check_extremum(name, x.shape, axes)
        else:
            x, axes = _with_initial(name, x, axes, initial)
        if x.dtype.kind == "complex":
            return stored(name, Array(complex_extremum(name, x.node, axes, keepdims)), out)
    record = reductions.REDUCTIONS[reductions.reduction_of(name, x.dtype)]
    node = apply(record, x.node, axis=axes, keepdims=keepdims, line=user_line())
    if dtype is not None:
        node = e.astype(node, as_dtype(dtype))
    result = Array(node)
    if initial is not None and name in _COMBINED:
        result = _COMBINED[name](result, initial)
    return result if out is None else stored(name, result, out)


_NEUTRAL = {"sum": 0, "prod": 1, "any": False, "all": True}
_COMBINED = {"sum": add, "prod": multiply}
_EXTREMA = {"max": maximum, "min": minimum}


def _selected(name: str, x: Array, where: Any, initial: Any) -> Array:
    """Return x with the neutral element of the reduction where the mask is false."""
    neutral = _NEUTRAL.get(name, initial)
    if neutral is None:
        raise ShapeError(
            f"{name}: a reduction with `where` needs an initial value"
            "; pass initial=…, the result for no elements"
        )
    mask = as_array(name, where).node
    shape = broadcast(name, x.shape, mask.shape)
    (other,) = promoted_nodes(name, x, neutral)[1:]
    wide = broadcast_to(e.astype(x.node, other.dtype), shape)
    return Array(apply(e.WHERE, mask, wide, other, line=user_line()))


def _initial_value(name: str, x: Array, initial: Any) -> Any:
    """Return the initial value of an extremum in the type of x, which is that of the result, unless
    the value is of a more general kind."""
    if isinstance(initial, np.generic):
        initial = initial.item()
    if is_number(initial):
        if x.dtype is bool_:
            return bool(initial)
        is_whole = isinstance(initial, float) and initial.is_integer()
        return int(initial) if is_whole and x.dtype.is_integer else initial
    value = as_array(name, initial)
    are_integers = value.dtype.is_integer and x.dtype.is_integer
    is_converted = x.dtype is bool_ or are_integers or is_same_kind(value.dtype, x.dtype)
    return astype(value, x.dtype) if is_converted else value


def _with_initial(
    name: str, x: Array, axes: tuple[int, ...], initial: Any
) -> tuple[Array, tuple[int, ...]]:
    """Return x and an initial value that takes part in an extremum, also that of no elements."""
    if size_of(x.shape[d] for d in axes) == 0:
        shape = tuple(1 if d in axes else n for d, n in enumerate(x.shape))
        (value,) = promoted_nodes(name, x, initial)[1:]  # of the type that elements would give
        return full(shape, initial, dtype=value.dtype), axes
    return _EXTREMA[name](x, initial), axes


@dispatch_cached
@keyword_hints
@reduces_selected
def sum(
    a: Array,
    axis: Axis = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Array:
    """Return the sum over `axis` (all axes for None); small integers accumulate in 64 bits."""
    return _reduction("sum", a, axis, keepdims, dtype, out, initial, where)


@dispatch_cached
@keyword_hints
@reduces_selected
def prod(
    a: Array,
    axis: Axis = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Array:
    """Return the product over `axis`; small integers and truth values accumulate in 64 bits."""
    a = as_array("prod", a)
    if dtype is None and a.dtype is bool_:
        dtype = int64
    return _reduction("prod", a, axis, keepdims, dtype, out, initial, where)


@dispatch_cached
@keyword_hints
@reduces_selected
def max(
    a: Array,
    axis: Axis = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Array:
    """Return the largest element along `axis`; true is larger than false."""
    return _reduction("max", a, axis, keepdims, None, out, initial, where)


@dispatch_cached
@keyword_hints
@reduces_selected
def min(
    a: Array,
    axis: Axis = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Array:
    """Return the smallest element along `axis`; false is smaller than true."""
    return _reduction("min", a, axis, keepdims, None, out, initial, where)


def _truth(name: str, x: Array) -> Array:
    x = as_array(name, x)
    return x if x.dtype.kind == "bool" else not_equal(x, 0)


@dispatch_cached
@keyword_hints
@reduces_selected
def any(
    a: Array, axis: Axis = None, out: Any = None, keepdims: bool = False, *, where: Any = None
) -> Array:
    """Return True where an element along `axis` is true or not zero."""
    return _reduction("any", _truth("any", a), axis, keepdims, None, out, None, where)


@dispatch_cached
@keyword_hints
@reduces_selected
def all(
    a: Array, axis: Axis = None, out: Any = None, keepdims: bool = False, *, where: Any = None
) -> Array:
    """Return True where every element along `axis` is true or not zero."""
    return _reduction("all", _truth("all", a), axis, keepdims, None, out, None, where)


def _count(name: str, x: Array, axis: Axis) -> int:
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
    a = as_array("mean", a)
    element = floating_dtype(a.dtype) if dtype is None else as_dtype(dtype)
    count = _count("mean", a, axis)
    if not count:
        warn_empty("mean: no elements, the result is nan")
    if where is not None and where is not True:
        result = _mean_where(_wide(a), where, axis, keepdims)
    else:
        wide = _wide(a if dtype is None else astype(a, element))
        result = _mean(wide, count, axis, keepdims)
    return stored("mean", _as(element, result), out)


def warn_empty(message: str) -> None:
    """Issue the RuntimeWarning of NumPy for a statistic of too few elements, at the user's line."""
    CALL_EFFECTS.count += 1
    line = user_line()
    file, number = ("magmath", 0) if line is None else line
    warnings.warn_explicit(message, RuntimeWarning, file, number)


def _mean_where(x: Array, where: Any, axis: Axis, keepdims: bool) -> Array:
    """Return the mean of the elements where the mask holds."""
    counts = _count_where(x, where, axis, keepdims)
    return divide(sum(x, axis=axis, keepdims=keepdims, where=where), counts)


def _count_where(x: Array, where: Any, axis: Axis, keepdims: bool) -> Array:
    mask = as_array("where", where).node
    wide = Array(broadcast_to(mask, broadcast("where", x.shape, mask.shape)))
    return _as(real_dtype(x.dtype), count_nonzero(wide, axis=axis, keepdims=keepdims))


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
    return _as(compute_dtype(x.dtype) if exact else float64, x)


def _as(dtype: DType, x: Array) -> Array:
    return x if x.dtype is dtype else Array(e.astype(x.node, dtype))


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
    less = ddof if correction is None else correction
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
    less = ddof if correction is None else correction
    return stored("std", _variance("std", a, axis, dtype, less, keepdims, where, mean), out)


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
    x = as_array(name, x) if dtype is None else astype(as_array(name, x), dtype)
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
    if mean is None:
        some = where is not None
        mean = _mean_where(wide, where, axis, True) if some else _mean(wide, count, axis, True)
    deviation = subtract(wide, mean)
    if x.dtype.kind == "complex":
        deviation = abs(deviation)
    squares = sum(square(deviation), axis=axis, keepdims=keepdims, where=where)
    result = divide(squares, degrees)
    if name == "std":
        result = Array(e.call("root", result.node))
    return _as(real_dtype(floating_dtype(x.dtype)), result)


@dispatch_cached
@keyword_hints
def cumulative_sum(
    x: Array,
    /,
    axis: int | None = None,
    dtype: Any = None,
    out: Any = None,
    *,
    include_initial: bool = False,
) -> Array:
    """Return running sums along `axis`, from the first element (or from 0 with
    `include_initial`)."""
    result = _cumulative(scans.CUMULATIVE_SUM, 0, x, axis, dtype, include_initial)
    return stored("cumulative_sum", result, out)


@dispatch_cached
def cumulative_prod(
    x: Array,
    /,
    axis: int | None = None,
    dtype: Any = None,
    out: Any = None,
    *,
    include_initial: bool = False,
) -> Array:
    """Return running products along `axis`, from the first element (or from 1 with
    `include_initial`)."""
    result = _cumulative(scans.CUMULATIVE_PROD, 1, x, axis, dtype, include_initial)
    return stored("cumulative_prod", result, out)


@dispatch_cached
@keyword_hints
def cumsum(a: Array, axis: int | None = None, dtype: Any = None, out: Any = None) -> Array:
    """Return running sums along `axis`, or of the flattened array for None."""
    return cumulative_sum(*_flat_or_along("cumsum", a, axis), dtype, out)


@dispatch_cached
def cumprod(a: Array, axis: int | None = None, dtype: Any = None, out: Any = None) -> Array:
    """Return running products along `axis`, or of the flattened array for None."""
    return cumulative_prod(*_flat_or_along("cumprod", a, axis), dtype, out)


def _flat_or_along(name: str, x: Array, axis: int | None) -> tuple[Array, int]:
    x = as_array(name, x)
    return (reshape(x, (-1,)), 0) if axis is None or not x.ndim else (x, axis)


def _cumulative(
    record: Operation, initial: int, x: Array, axis: int | None, dtype: Any, include_initial: bool
) -> Array:
    x = as_array(record.name, x)
    if axis is None and x.ndim != 1:
        raise ShapeError(
            f"{record.name}: needs `axis` for an array of {x.ndim} dimensions"
            "; flatten it with mm.reshape(x, (-1,)), or name the axis"
        )
    position = normalize_axis(record.name, 0 if axis is None else axis, x.ndim)
    element = accumulator_dtype(x.dtype) if dtype is None else as_dtype(dtype)
    running = apply(record, e.astype(x.node, element), axis=position, line=user_line())
    result = Array(e.astype(running, element))
    if not include_initial:
        return result
    shape = (*x.shape[:position], 1, *x.shape[position + 1 :])
    return concat([full(shape, initial, dtype=element), result], axis=position)


@dispatch_cached
@keyword_hints
def count_nonzero(a: Array, axis: Axis = None, *, keepdims: bool = False) -> Array:
    """Return the number of elements along `axis` that are true or not zero, as int64."""
    truth = _truth("count_nonzero", a)
    axes = reduced_axes("count_nonzero", axis, truth.ndim)
    return sum(truth, axis=axes, keepdims=keepdims)


@dispatch_cached
@keyword_hints
def diff(
    a: Array,
    n: int = 1,
    axis: int = -1,
    prepend: Any = None,
    append: Any = None,
) -> Array:
    """Return the n-th differences of neighbours along `axis`, after joining `prepend` and `append`
    to `a`, or `a` itself for n=0."""
    a = as_array("diff", a)
    d = normalize_axis("diff", axis, a.ndim)
    steps = require_integer("diff: n", n, 0)
    if not steps:
        return a
    line = (*a.shape[:d], 1, *a.shape[d + 1 :])
    wide = a.dtype is not uint64  # numbers have 64 bits, as in NumPy
    ends = [asarray(end) if wide and isinstance(end, int) else end for end in (prepend, append)]
    given = as_arrays("diff", *[part for part in (ends[0], a, ends[1]) if part is not None])
    parts = [part if part.ndim else Array(broadcast_to(part.node, line)) for part in given]
    node = concat(parts, axis=d).node if len(parts) > 1 else a.node
    difference = "not_equal" if node.dtype.kind == "bool" else "subtract"
    for _ in range(steps):
        last = node.shape[d] - 1 if node.shape[d] else 0
        upper, lower = slice_along(node, d, 1, last + 1), slice_along(node, d, 0, last)
        node = apply(e.OPERATIONS[difference], upper, lower, line=user_line())
    return Array(node)
