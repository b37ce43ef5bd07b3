"""Differences, gradients, integrals and interpolation along axes; convolution of vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from magmath.api.creation import asarray
from magmath.api.cumulative import diff
from magmath.api.data_types import astype
from magmath.api.elementwise import conj, divide, imag, real, remainder
from magmath.api.indexing import take
from magmath.api.manipulation import concat, flip, ravel, reshape
from magmath.api.reductions import sum
from magmath.api.searching import where
from magmath.api.signal import convolve as convolved
from magmath.api.sorting import argsort
from magmath.arrays.array import Array, as_arrays, floating
from magmath.arrays.inputs.number_list import is_number
from magmath.arrays.inputs.operands import written_operand
from magmath.arrays.protocols.cached_functions import dispatch_cached
from magmath.core.dtypes import bool_, float64, int64
from magmath.core.integers import is_integer
from magmath.core.shapes import Axis, normalize_axes, normalize_axis
from magmath.engine.user_line import user_line
from magmath.errors import OptionError, ShapeError
from magmath.graph import apply
from magmath.ops import elementwise as e
from magmath.ops.interpolation import INTERPOLATION
from magmath.ops.type_rules import require_kind

END_TERMS = 64
"""Longest vector whose convolution is summed at the ends without zeros, in memory for the square of
its elements."""


@dispatch_cached
def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Array:
    """Return the differences of neighbours in the flattened array, with given numbers before and
    after them. Raises DTypeError for truth values, which have no differences, and for numbers of a
    more general kind than the array's."""
    flat = ravel(ary)
    require_kind("ediff1d", "numeric", flat.dtype)
    steps = diff(flat)
    first, last = (
        [] if x is None else [ravel(Array(written_operand(steps.dtype, x, "ediff1d")))]
        for x in (to_begin, to_end)
    )
    return concat([*first, steps, *last]) if first or last else steps


@dispatch_cached
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Array:
    """Return the integral along an axis by the trapezoidal rule, at positions x or `dx` apart."""
    values, at = as_arrays("trapezoid", y, y if x is None else x)
    dim = normalize_axis("trapezoid", axis, values.ndim)
    if x is None:
        steps = dx
    else:
        steps = diff(at, axis=axis if at.ndim > 1 else 0)
        if at.ndim == 1:
            steps = reshape(steps, (-1,) + (1,) * (values.ndim - dim - 1))
    before = (slice(None),) * dim
    later, former = values[(*before, slice(1, None))], values[(*before, slice(None, -1))]
    return sum(divide(steps * (later + former), 2.0), dim)


@dispatch_cached
def gradient(f: Any, *varargs: Any, axis: Axis = None, edge_order: int = 1) -> Any:
    """Return the slope along each axis: central differences inside, one-sided ones at both ends.

    varargs: the distance of neighbours, for all axes or each, or the positions along each axis.
    The type is that of f, or floating point for integers.
    """
    values = floating("gradient", f)
    axes = range(values.ndim) if axis is None else (axis,) if is_integer(axis) else axis
    dims = [normalize_axis("gradient", d, values.ndim) for d in axes]
    normalize_axes("gradient", dims, values.ndim)
    if edge_order not in (1, 2):
        raise OptionError(f"gradient: edge_order is 1 or 2, was given {edge_order!r}")
    spacing = list(varargs) or [1.0]
    if len(spacing) == 1 and (is_number(spacing[0]) or not getattr(spacing[0], "shape", (1,))):
        spacing = spacing * len(dims)
    if len(spacing) != len(dims):
        raise TypeError(
            f"gradient: needs one distance, or one for each of {len(dims)} axes"
            "; pass one number, or one for each axis"
        )
    slopes = [
        _slope(values, d, _steps(values, d, distance), edge_order)
        for d, distance in zip(dims, spacing, strict=True)
    ]
    return slopes[0] if len(slopes) == 1 else tuple(slopes)


def _steps(values: Array, d: int, spacing: Any) -> Any:
    """Return the distance of neighbours along an axis: a number, or an array that broadcasts."""
    if is_number(spacing) or not getattr(spacing, "shape", (1,)):
        return spacing
    _, at = as_arrays("gradient", values, spacing)
    at = floating("gradient", at)
    if at.shape != (values.shape[d],):
        raise ShapeError(
            f"gradient: needs {values.shape[d]} positions for axis {d}, was given shape {at.shape}"
        )
    return reshape(diff(at), (-1,) + (1,) * (values.ndim - d - 1))


def _slope(f: Array, d: int, steps: Any, edge_order: int) -> Array:
    """Return the slope along an axis, for one distance of neighbours or one for each pair."""
    extent = f.shape[d]
    if extent < edge_order + 1:
        raise ShapeError(
            f"gradient: needs {edge_order + 1} or more elements, axis {d} has {extent}"
            "; use a smaller edge_order, or leave the axis out with axis=…"
        )

    def at(start: int, stop: int) -> Array:
        return f[(*(slice(None),) * d, slice(start, stop))]

    def step(i: int) -> Any:
        return steps[i % (extent - 1)][None] if is_uneven else steps

    is_uneven = isinstance(steps, Array) and steps.ndim > 0
    if is_uneven:
        before, behind = steps[:-1], steps[1:]
        inner = (
            -behind / (before * (before + behind)) * at(0, extent - 2)
            + (behind - before) / (before * behind) * at(1, extent - 1)
            + before / (behind * (before + behind)) * at(2, extent)
        )
    else:
        inner = (at(2, extent) - at(0, extent - 2)) / (2.0 * steps)
    counts = range(edge_order + 1)
    first = _edge_slope([at(i, i + 1) for i in counts], step(0), step(1))
    last = 0.0 - _edge_slope([at(extent - 1 - i, extent - i) for i in counts], step(-1), step(-2))
    return astype(concat([first, inner, last], d), f.dtype, copy=False)


def _edge_slope(values: Sequence[Array], near: Any, far: Any) -> Array:
    """Return the slope at the first of two values, or of a parabola through three values, whose
    distances are `near` and `far`."""
    if len(values) == 2:
        slope: Array = (values[1] - values[0]) / near
    else:
        slope = (
            -(2.0 * near + far) / (near * (near + far)) * values[0]
            + (near + far) / (near * far) * values[1]
            - near / (far * (near + far)) * values[2]
        )
    return slope


@dispatch_cached
def interp(
    x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None
) -> Array:
    """Return the piecewise linear interpolation at x through the points (xp, fp).

    x            positions of any shape, which the result has; they are computed in float64
    xp           (n,) positions of the points, ascending unless there is a period; n ≥ 1
    fp           (n,) values of the points, real or complex
    left, right  the values outside of the points, by default those at the ends
    period       the distance after which the points repeat; then `left` and `right` have no effect

    Raises ShapeError unless xp and fp are vectors of one length, OptionError for the period 0.
    """
    at, points = asarray(x, dtype=float64), asarray(xp, dtype=float64)
    values = floating("interp", as_arrays("interp", at, fp)[1])
    if points.ndim != 1 or values.shape != points.shape or not points.size:
        raise ShapeError(
            f"interp: needs two 1-D arrays of equal length, 1 or more, was given {points.shape} "
            f"and {values.shape}"
        )
    if period is not None:
        size = abs(period)
        if not size:
            raise OptionError(
                "interp: the period must not be 0; pass a positive one, such as 360 for degrees"
            )
        at, points = remainder(at, size), remainder(points, size)
        order = argsort(points)
        points, values = take(points, order, 0), take(values, order, 0)
        points = concat([points[-1:] - size, points, points[:1] + size])
        values = concat([values[-1:], values, values[:1]])
        left = right = None
    ends = [
        values[i] if end is None else as_arrays("interp", at, end)[1]
        for i, end in ((0, left), (-1, right))
    ]
    if values.dtype.kind != "complex":
        return _interpolated(at, points, values, *ends)
    # an infinite part leaves the other one as it is
    parts = [_interpolated(at, points, part(values), *map(part, ends)) for part in (real, imag)]
    return where(at != at, at, Array(e.call("complex", *[part.node for part in parts])))


def _interpolated(*operands: Array) -> Array:
    wide = [e.astype(x.node, float64) for x in operands]
    return Array(apply(INTERPOLATION, *wide, line=user_line()))


@dispatch_cached
def convolve(a: Any, v: Any, mode: str = "full") -> Array:
    """Return Σ_j a[i - j] v[j] of two vectors, (m,) and (n,).

    mode  "full": all positions with an overlap, (m + n - 1,); "same": the middle part of that,
          (max(m, n),); "valid": the positions where the longer vector contains the shorter one,
          (|m - n| + 1,)

    Raises ShapeError unless both are vectors with elements, OptionError for another mode.
    """
    x, y = _vectors("convolve", a, v)
    if x.dtype is bool_ and y.dtype is bool_:  # whether any of the products is true
        return convolve(astype(x, int64), astype(y, int64), mode) != 0
    if x.size < y.size:  # zeros surround the longer vector, apart from its infinities
        x, y = y, x
    return _convolved("convolve", x, y, mode)


@dispatch_cached
def correlate(a: Any, v: Any, mode: str = "valid") -> Array:
    """Return Σ_j a[i + j] conj(v[j]) of two vectors; the modes are those of `convolve`."""
    x, y = _vectors("correlate", a, v)
    if x.dtype is bool_ and y.dtype is bool_:
        return correlate(astype(x, int64), astype(y, int64), mode) != 0
    if x.size >= y.size:
        return _convolved("correlate", x, flip(conj(y)), mode)
    # zeros surround the longer vector, apart from its infinities
    flipped = flip(_full_convolution(flip(conj(y)), x))
    return flip(_part_of_mode(flipped, y.size, x.size, mode, "correlate"))


def _convolved(name: str, x: Array, y: Array, mode: str) -> Array:
    """Return the part of the convolution of a vector and a shorter one that a mode selects."""
    if mode == "valid":  # there all of the products exist
        return convolved(x, y, mode, method="direct")
    return _part_of_mode(_full_convolution(x, y), x.size, y.size, mode, name)


def _full_convolution(x: Array, y: Array) -> Array:
    """Return the full convolution of a vector and a shorter one.

    At both ends only some of the products exist. For y of up to `END_TERMS` elements these are
    summed without zeros in the place of the others, as infinities and nan in y times 0 are nan.
    """
    m, n = x.size, y.size
    has_nan = y.dtype.kind in ("float", "complex")
    if not has_nan or not 1 < n <= END_TERMS:
        return convolved(x, y, method="direct")
    ends = np.arange(n - 1)
    index = np.concatenate([ends, ends + m])[:, None] - np.arange(n)
    inside = (index >= 0) & (index < m)
    terms = where(asarray(inside), take(x, asarray(np.where(inside, index, 0)), 0) * y, 0)
    sums = sum(terms, 1)
    middle = convolved(x, y, "valid", method="direct")
    return concat([sums[: n - 1], middle, sums[n - 1 :]])


def _vectors(name: str, a: Any, v: Any) -> tuple[Array, Array]:
    x, y = (ravel(x) if not x.ndim else x for x in as_arrays(name, a, v))
    if x.ndim != 1 or y.ndim != 1 or not x.size or not y.size:
        raise ShapeError(
            f"{name}: needs two 1-D arrays with elements, was given {x.shape} and {y.shape}; "
            f"mm.signal.{name} takes more dimensions"
        )
    return x, y


def _part_of_mode(whole: Array, m: int, n: int, mode: str, name: str) -> Array:
    """Return the part of a full convolution of m and n elements that a mode selects."""
    if mode not in ("full", "same", "valid"):
        raise OptionError(f'{name}: mode is "full", "same" or "valid", was given {mode!r}')
    short, long = min(m, n), max(m, n)
    if mode == "full":
        return whole
    if mode == "valid":
        return whole[short - 1 : long]
    first = (short - 1) // 2
    return whole[first : first + long]
