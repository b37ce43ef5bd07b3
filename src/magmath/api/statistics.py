"""Reductions and running sums of the array API.

Mean, variance and standard deviation are composed of other operations, which the fuse pass merges.
"""

from __future__ import annotations

import builtins
from typing import Any

from magmath.api.creation import full
from magmath.api.data_types import astype
from magmath.api.elementwise import abs, divide, multiply, not_equal, sqrt, square, subtract
from magmath.api.manipulation import concat
from magmath.array.array import Array, as_array
from magmath.core.dtypes import (
    DType,
    accumulator_dtype,
    as_dtype,
    compute_dtype,
    float64,
    real_dtype,
)
from magmath.core.integers import require_integer
from magmath.core.promotion import floating_dtype
from magmath.core.shapes import normalize_axes, normalize_axis, size_of
from magmath.engine.user_line import user_line
from magmath.errors import ShapeError
from magmath.graph import Operation, apply
from magmath.ops import elementwise as e
from magmath.ops import reductions, scans
from magmath.ops.slicing import slice_along

Axis = int | tuple[int, ...] | None


def _reduction(name: str, x: Array, axis: Axis, keepdims: bool, dtype: Any = None) -> Array:
    x = as_array(name, x)
    if dtype is not None and as_dtype(dtype) != x.dtype:
        x = astype(x, dtype)
    axes = normalize_axes(name, axis, x.ndim)
    record = reductions.BY_NAME[name]
    result = apply(record, x.node, axis=axes, keepdims=keepdims, line=user_line())
    if dtype is not None:
        result = e.astype(result, as_dtype(dtype))
    return Array(result)


def sum(x: Array, /, *, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Array:
    """Return the sum over `axis` (all axes for None); small integers accumulate in 64 bits."""
    return _reduction("sum", x, axis, keepdims, dtype)


def prod(x: Array, /, *, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Array:
    """Return the product over `axis`; small integers accumulate in 64 bits."""
    return _reduction("prod", x, axis, keepdims, dtype)


def max(x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """Return the largest element along `axis`."""
    return _reduction("max", x, axis, keepdims)


def min(x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """Return the smallest element along `axis`."""
    return _reduction("min", x, axis, keepdims)


def _truth(name: str, x: Array) -> Array:
    x = as_array(name, x)
    return x if x.dtype.kind == "bool" else not_equal(x, 0)


def any(x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """Return True where any element along `axis` is true or not zero."""
    return _reduction("any", _truth("any", x), axis, keepdims)


def all(x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """Return True where every element along `axis` is true or not zero."""
    return _reduction("all", _truth("all", x), axis, keepdims)


def _count(name: str, x: Array, axis: Axis) -> int:
    return size_of(x.shape[d] for d in normalize_axes(name, axis, x.ndim))


def mean(x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """Return the arithmetic mean over `axis`; nan for zero elements.

    Integers accumulate in float64; the mean of 32-bit and 64-bit integers is float64, that of
    smaller ones and bool has the default floating point type.
    """
    x = as_array("mean", x)
    count = _count("mean", x, axis)
    return _as(floating_dtype(x.dtype), _mean(_wide(x), count, axis, keepdims))


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


def var(
    x: Array, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False
) -> Array:
    """Return the variance over `axis`: squared deviations from the mean over (count - correction).

    For complex numbers the deviations are the absolute distances from the mean, and the result is
    real. It is nan or infinite if count - correction is not positive. Integers as for `mean`.
    """
    return _variance("var", x, axis, correction, keepdims)


def std(
    x: Array, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False
) -> Array:
    """Return the standard deviation over `axis`."""
    return _variance("std", x, axis, correction, keepdims)


def _variance(name: str, x: Array, axis: Axis, correction: float, keepdims: bool) -> Array:
    x = as_array(name, x)
    count = _count(name, x, axis)
    try:
        degrees = builtins.max(0.0, float(count - correction))
    except TypeError:
        raise TypeError(
            f"{name}: correction must be a real number, was given {correction!r}; 1 takes the "
            f"values for a sample, 0 for all there are"
        ) from None
    wide = _wide(x)
    deviation = subtract(wide, _mean(wide, count, axis, True))
    if x.dtype.kind == "complex":
        deviation = abs(deviation)
    result = divide(sum(square(deviation), axis=axis, keepdims=keepdims), degrees)
    return _as(real_dtype(floating_dtype(x.dtype)), sqrt(result) if name == "std" else result)


def cumulative_sum(
    x: Array, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Array:
    """Return running sums along `axis`, from the first element (or 0 with `include_initial`)."""
    return _cumulative(scans.CUMULATIVE_SUM, 0, x, axis, dtype, include_initial)


def cumulative_prod(
    x: Array, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Array:
    """Return running products along `axis`, from the first element (1 with `include_initial`)."""
    return _cumulative(scans.CUMULATIVE_PROD, 1, x, axis, dtype, include_initial)


def _cumulative(
    record: Operation, initial: int, x: Array, axis: int | None, dtype: Any, include_initial: bool
) -> Array:
    x = as_array(record.name, x)
    if axis is None and x.ndim != 1:
        raise ShapeError(f"{record.name}: needs `axis` for an array of {x.ndim} dimensions")
    position = normalize_axis(record.name, 0 if axis is None else axis, x.ndim)
    element = accumulator_dtype(x.dtype) if dtype is None else as_dtype(dtype)
    running = apply(record, e.astype(x.node, element), axis=position, line=user_line())
    result = Array(e.astype(running, element))
    if not include_initial:
        return result
    shape = (*x.shape[:position], 1, *x.shape[position + 1 :])
    return concat([full(shape, initial, dtype=element), result], axis=position)


def count_nonzero(x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """Return the number of elements along `axis` that are true or not zero, as int64."""
    truth = _truth("count_nonzero", x)
    axes = normalize_axes("count_nonzero", axis, truth.ndim)
    return sum(truth, axis=axes, keepdims=keepdims)


def diff(
    x: Array,
    /,
    *,
    axis: int = -1,
    n: int = 1,
    prepend: Array | None = None,
    append: Array | None = None,
) -> Array:
    """Return the n-th differences of neighbours along `axis`, after joining `prepend` and `append`
    to x."""
    x = as_array("diff", x)
    d = normalize_axis("diff", axis, x.ndim)
    parts = [part for part in (prepend, x, append) if part is not None]
    node = concat(parts, axis=d).node if len(parts) > 1 else x.node
    for _ in range(require_integer("diff: n", n, 0)):
        last = node.shape[d] - 1 if node.shape[d] else 0
        upper, lower = slice_along(node, d, 1, last + 1), slice_along(node, d, 0, last)
        node = apply(e.OPERATIONS["subtract"], upper, lower, line=user_line())
    return Array(node)
