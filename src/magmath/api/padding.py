"""`pad`: arrays made larger, with values that a mode determines from the array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from magmath.api.creation import arange, asarray
from magmath.api.data_types import astype
from magmath.api.elementwise import floor, round
from magmath.api.indexing import take
from magmath.api.manipulation import broadcast_to, concat, reshape
from magmath.api.order_statistics import median
from magmath.api.reductions import max, min
from magmath.api.statistics import mean
from magmath.arrays.array import Array, as_array, as_arrays
from magmath.arrays.protocols.cached_functions import dispatch_cached
from magmath.core.dtypes import float64
from magmath.core.integers import is_integer
from magmath.core.shapes import with_extent
from magmath.errors import OptionError, ShapeError

Pair = tuple[Any, Any]

STATISTICS: dict[str, Callable[..., Array]] = {
    "maximum": max, "minimum": min, "mean": mean, "median": median
}  # fmt: skip
OPTIONS = {
    "constant": "constant_values",
    "linear_ramp": "end_values",
    **dict.fromkeys(STATISTICS, "stat_length"),
}
"""The option of a mode, with a value for both sides of each axis."""
REFLECTED = ("reflect", "symmetric")
MODES = (*OPTIONS, *REFLECTED, "edge", "wrap", "empty")


@dispatch_cached
def pad(array: Any, pad_width: Any, mode: str = "constant", **options: Any) -> Array:
    """Return an array with `pad_width` more elements before and after each axis.

    mode: "constant" (with `constant_values`), "edge", "linear_ramp" (to `end_values`), "maximum",
    "minimum", "mean" and "median" (of `stat_length` elements at the edge), "reflect" and
    "symmetric" (with `reflect_type` "even", or "odd": 2·edge - reflected), "wrap", "empty" (zeros).
    """
    if mode not in MODES:
        raise OptionError(f"pad: mode {mode!r} is not known; mm.pad.__doc__ lists the modes")
    x = as_array("pad", array)
    widths = _widths(pad_width, x.ndim)
    option = OPTIONS.get(mode)
    default = None if mode in STATISTICS else 0
    values = _pairs(option, options.pop(option, default), x.ndim) if option else None
    reflect_type = options.pop("reflect_type", "even") if mode in REFLECTED else "even"
    if reflect_type not in ("even", "odd"):
        raise OptionError(f'pad: reflect_type is "even" or "odd", was given {reflect_type!r}')
    if options:
        raise OptionError(
            f"pad: mode {mode!r} has no options {', '.join(options)}"
            "; leave them out, or choose the mode that they are for"
        )
    for d, pair in enumerate(widths):
        if any(pair):
            of_axis = (0, 0) if values is None else values[d]
            before, behind = _edges(x, d, pair, of_axis, mode, reflect_type == "odd")
            x = concat([before, x, behind], d)
    return Array(x.node) if x is array else x


def _edges(x: Array, d: int, widths: Pair, values: Pair, mode: str, is_odd: bool) -> list[Array]:
    """Return the elements before and after an axis; `values` are those of the mode's option."""
    if mode in ("constant", "empty"):
        return _constants(x, d, widths, values)
    if not x.shape[d]:
        raise ShapeError(
            f'pad: mode {mode!r} cannot extend axis {d}, which has no elements; use mode="constant"'
        )
    if mode == "linear_ramp":
        return _ramps(x, d, widths, values)
    if mode in STATISTICS:
        return _statistics(x, d, widths, values, mode)
    return _copies(x, d, widths, mode, is_odd)


def _widths(pad_width: Any, ndim: int) -> list[tuple[int, int]]:
    if isinstance(pad_width, dict):
        widths: list[Any] = [(0, 0)] * ndim
        for axis, width in pad_width.items():
            widths[axis] = (width, width) if is_integer(width) else tuple(width)
        pad_width = widths
    pairs = _pairs("pad_width", pad_width, ndim)
    if not all(hasattr(n, "__index__") for pair in pairs for n in pair):
        raise TypeError(
            f"pad: widths must be integers, was given {pad_width!r}"
            "; pass a number, a pair, or a pair for each axis"
        )
    if any(a < 0 or b < 0 for a, b in pairs):
        raise ShapeError(
            f"pad: widths must be at least 0, was given {pad_width}"
            "; use a slice instead, as x[1:-1]"
        )
    return pairs


def _pairs(name: str, value: Any, ndim: int) -> list[Pair]:
    """Return a value for both sides of each axis, from a number, a pair, or a pair for each
    axis."""
    if value is None:
        return [(None, None)] * ndim
    try:
        wide = np.broadcast_to(np.asarray(value), (ndim, 2))
    except ValueError:
        raise ShapeError(
            f"pad: {name} must be a number, a pair or a pair for each of {ndim} axes, was given "
            f"{value!r}"
            "; pass one of these"
        ) from None
    return [(a, b) for a, b in wide.tolist()]


def _constants(x: Array, d: int, widths: Pair, values: Pair) -> list[Array]:
    return [
        broadcast_to(astype(as_arrays("pad", x, value)[1], x.dtype), with_extent(x.shape, d, width))
        for width, value in zip(widths, values, strict=True)
    ]


def _at(x: Array, d: int, start: int | None, stop: int | None, step: int = 1) -> Array:
    return x[(*(slice(None),) * d, slice(start, stop, step))]


def _ramps(x: Array, d: int, widths: Pair, ends: Pair) -> list[Array]:
    """Return straight lines from the end values to the edges."""
    column = (-1,) + (1,) * (x.ndim - d - 1)
    parts = []
    for side, (width, end) in enumerate(zip(widths, ends, strict=True)):
        edge = _at(x, d, None, 1) if side == 0 else _at(x, d, -1, None)
        if x.dtype.kind in ("int", "uint"):  # differences would wrap
            edge = astype(edge, float64)
        index = reshape(arange(width), column) if width else reshape(arange(0), column)
        index = index if side == 0 else width - 1 - index
        step = (edge - end) / float(width or 1)
        ramp = end + index * step  # rounded as by linspace, so that floor gives NumPy's integers
        parts.append(_as_type(ramp, x))
    return parts


def _as_type(values: Array, x: Array) -> Array:
    return astype(floor(values) if x.dtype.is_integer else values, x.dtype)


def _statistics(x: Array, d: int, widths: Pair, lengths: Pair, mode: str) -> list[Array]:
    parts = []
    for side, (width, length) in enumerate(zip(widths, lengths, strict=True)):
        extent = x.shape[d] if length is None or length > x.shape[d] else length
        if extent < 0:
            raise OptionError(f"pad: stat_length must be at least 0, was given {length}")
        edge = _at(x, d, None, extent) if side == 0 else _at(x, d, x.shape[d] - extent, None)
        value = STATISTICS[mode](edge, d, keepdims=True)
        if mode in ("mean", "median") and x.dtype.is_integer:
            value = round(value)
        parts.append(broadcast_to(astype(value, x.dtype), with_extent(x.shape, d, width)))
    return parts


def _copies(x: Array, d: int, widths: Pair, mode: str, is_odd: bool) -> list[Array]:
    """Return elements of the array itself, at positions that continue those of the axis."""
    n = x.shape[d]
    before, behind = widths
    indices = [np.arange(-before, 0), np.arange(n, n + behind)]
    return [_copied(x, d, index, mode, is_odd) for index in indices]


def _copied(x: Array, d: int, index: Any, mode: str, is_odd: bool) -> Array:
    n = x.shape[d]
    if mode == "edge":
        return _elements(x, d, np.clip(index, 0, n - 1))
    if mode == "wrap":
        return _elements(x, d, index % n)
    period = 2 * n if mode == "symmetric" else 2 * (n - 1) or 1
    within = index % period
    mirrored = (period - 1 if mode == "symmetric" else period) - within
    source = np.where(within < n, within, mirrored) if n > 1 or mode == "symmetric" else 0 * index
    reflected = _elements(x, d, source)
    if not is_odd or n == 1:
        return reflected
    return _odd_reflection(x, d, reflected, index // period, within >= n)


def _odd_reflection(x: Array, d: int, reflected: Array, periods: Any, is_mirrored: Any) -> Array:
    """Return reflected elements turned about the edges: each period adds twice the difference of
    the last and the first element, and mirrored elements are turned about the last one."""
    column = (-1,) + (1,) * (x.ndim - d - 1)

    def numbers(values: Any) -> Array:
        return astype(reshape(asarray(values), column), x.dtype)

    first, last = _at(x, d, None, 1), _at(x, d, -1, None)
    steps = numbers(2 * periods) * (last - first)
    signs = numbers(np.where(is_mirrored, -1, 1))
    return signs * reflected + numbers(2 * is_mirrored) * last + steps


def _elements(x: Array, d: int, source: Any) -> Array:
    """Return the elements of an axis at some positions: as a slice where the positions allow one,
    so that workers exchange no requests."""
    steps = set(np.diff(source).tolist())
    if len(source) < 2 or steps == {0}:
        first = int(source[0]) if len(source) else 0
        return broadcast_to(_at(x, d, first, first + 1), with_extent(x.shape, d, len(source)))
    if steps == {1}:
        return _at(x, d, int(source[0]), int(source[-1]) + 1)
    if steps == {-1}:
        return _at(x, d, int(source[0]), int(source[-1]) - 1 if source[-1] else None, -1)
    return take(x, source, d)
