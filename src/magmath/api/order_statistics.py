"""Order statistics: medians, quantiles, partitions.

One operation (`ops/sort/order_statistics.py`) returns the elements at the positions that are
needed, and these elements are interpolated.
"""

from __future__ import annotations

import math
from operator import index
from types import SimpleNamespace
from typing import Any

import numpy as np

from magmath.api.aligned_weights import aligned_weights
from magmath.api.creation import asarray, full, zeros
from magmath.api.cumulative import cumulative_sum
from magmath.api.data_types import astype
from magmath.api.elementwise import (
    ceil,
    equal,
    floor,
    isinf,
    isnan,
    logical_and,
    logical_not,
    logical_or,
    maximum,
    minimum,
    round,
)
from magmath.api.float_functions import require_real
from magmath.api.indexing import take, take_along_axis
from magmath.api.manipulation import broadcast_to, concat, moveaxis, reshape
from magmath.api.reductions import max, min, sum
from magmath.api.searching import where
from magmath.api.sorting import argsort, check_kind, sort
from magmath.api.statistics import warn_empty
from magmath.arrays.array import Array, as_array, floating
from magmath.arrays.protocols.cached_functions import dispatch_cached
from magmath.arrays.ufuncs.output import stored
from magmath.core.dtypes import bool_, float64, int64, uint8
from magmath.core.shapes import Axis, normalize_axes, normalize_axis, size_of
from magmath.engine.user_line import user_line
from magmath.errors import OptionError, RangeError, ShapeError
from magmath.graph import apply
from magmath.ops.manipulation import reshape as reshaped
from magmath.ops.sort.order_statistics import ORDER_STATISTICS
from magmath.ops.sort.quantiles import interpolated
from magmath.ops.sort.quantiles import quantile as quantile_node

INTERPOLATING = {  # position n·q + α + q·(1 - α - β) - 1: Hyndman and Fan (1996), methods 4 to 9
    "interpolated_inverted_cdf": (0.0, 1.0),
    "hazen": (0.5, 0.5),
    "weibull": (0.0, 0.0),
    "linear": (1.0, 1.0),  # (n - 1)·q, whose rounding is smaller
    "median_unbiased": (1 / 3, 1 / 3),
    "normal_unbiased": (3 / 8, 3 / 8),
}
OTHERS = ("lower", "higher", "midpoint", "nearest", "inverted_cdf", "averaged_inverted_cdf",
          "closest_observation")  # fmt: skip
SELECTING = ("lower", "higher", "nearest", "inverted_cdf", "closest_observation")
"""The methods that return elements, in their type."""


@dispatch_cached
def quantile(
    a: Any,
    q: Any,
    axis: Axis = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: Any = None,
) -> Array:
    """Return the q-quantiles of the elements along `axis`, for q from 0 to 1; nan if an element is
    nan.

    q: a number, or an array whose axes come first in the result; its values are computed. method:
    the rule for a value between two elements, as in NumPy; weights: numbers of at least 0, in the
    shape of `a` or along `axis`, for the method "inverted_cdf".
    """
    return stored("quantile", _quantile("quantile", a, q, axis, method, keepdims, weights), out)


@dispatch_cached
def percentile(
    a: Any,
    q: Any,
    axis: Axis = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: Any = None,
) -> Array:
    """Return `quantile` for q from 0 to 100."""
    shares = _shares("percentile", q) / 100
    result = _quantile("percentile", a, shares, axis, method, keepdims, weights)
    return stored("percentile", result, out)


@dispatch_cached
def nanquantile(
    a: Any,
    q: Any,
    axis: Axis = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: Any = None,
) -> Array:
    """Return `quantile` of the elements that are not nan."""
    result = _quantile("nanquantile", a, q, axis, method, keepdims, weights, propagates_nan=False)
    return stored("nanquantile", result, out)


@dispatch_cached
def nanpercentile(
    a: Any,
    q: Any,
    axis: Axis = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: Any = None,
) -> Array:
    """Return `percentile` of the elements that are not nan."""
    shares = _shares("nanpercentile", q) / 100
    result = _quantile(
        "nanpercentile", a, shares, axis, method, keepdims, weights, propagates_nan=False
    )
    return stored("nanpercentile", result, out)


@dispatch_cached
def median(
    a: Any,
    axis: Axis = None,
    out: Any = None,
    overwrite_input: bool = False,
    keepdims: bool = False,
) -> Array:
    """Return the middle element along `axis`, or the mean of the two in the middle; nan where one
    is."""
    x = as_array("median", a)
    return stored("median", _quantile("median", x, 0.5, axis, "linear", keepdims, None), out)


@dispatch_cached
def nanmedian(
    a: Any,
    axis: Axis = None,
    out: Any = None,
    overwrite_input: bool = False,
    keepdims: bool = False,
) -> Array:
    """Return the median of the elements that are not nan."""
    result = _quantile("nanmedian", a, 0.5, axis, "linear", keepdims, None, propagates_nan=False)
    return stored("nanmedian", result, out)


def _shares(name: str, q: Any) -> Any:
    """Return q, the shares of elements below the quantiles, as a NumPy array."""
    shares = q.numpy() if isinstance(q, Array) else np.asarray(q)
    if shares.dtype.kind not in "biuf":
        raise OptionError(
            f"{name}: q must be real numbers, was given {q!r}"
            "; pass a number, or a list or array of numbers"
        )
    return shares.astype(np.float64)


def _check_range(name: str, shares: Any) -> None:
    if shares.size and not (shares.min() >= 0 and shares.max() <= 1):
        whole = 100 if name.endswith("percentile") else 1
        raise RangeError(
            f"{name}: q must be from 0 to {whole}, was given numbers from {whole * shares.min():g} "
            f"to {whole * shares.max():g}; percentiles are percentages, quantiles shares of 1"
        )


def _quantile(
    name: str,
    a: Any,
    q: Any,
    axis: Axis,
    method: str,
    keepdims: bool,
    weights: Any,
    propagates_nan: bool = True,
) -> Array:
    shares = _shares(name, q)
    _check_range(name, shares)
    x = require_real(name, as_array(name, a))
    if x.dtype.kind == "float" or method not in SELECTING or not x.size:
        x = floating(name, x)
    result_dtype = x.dtype
    if x.dtype is bool_:
        x = astype(x, uint8)
    axes = normalize_axes(name, axis, x.ndim)
    kept_shape = tuple(n for d, n in enumerate(x.shape) if d not in axes)
    reduced = (
        tuple(1 if d in axes else n for d, n in enumerate(x.shape)) if keepdims else kept_shape
    )
    shape = (*shares.shape, *reduced)
    if not x.size:
        if size_of(kept_shape):
            warn_empty(f"{name}: no elements, the result is nan")
        return full(shape, math.nan, dtype=x.dtype)
    lines = _lines(x, axes, kept_shape)
    if weights is not None:
        aligned = _lines(_weights(name, weights, x, axis, method), axes, kept_shape)
        values = _at_weighted(lines, aligned, shares.ravel(), propagates_nan)
    elif not shares.ndim and (propagates_nan or x.dtype.is_integer):
        value = astype(_single(lines, shares, method, name), result_dtype, copy=False)
        return reshape(value, shape)
    elif propagates_nan or x.dtype.is_integer:
        values = _at(lines, shares.ravel(), method, name)
    else:
        values = _at_numbers(lines, shares.ravel(), method, name)
    values = astype(values, result_dtype, copy=False)
    if not shape:  # a number, no view of the array
        return Array(reshaped(values.node, shape).at_line(user_line()))
    return reshape(moveaxis(values, -1, 0), shape)


def _lines(x: Array, axes: tuple[int, ...], kept_shape: tuple[int, ...]) -> Array:
    """Return the elements along some axes as the last axis, behind the other axes."""
    return reshape(moveaxis(x, axes, range(x.ndim - len(axes), x.ndim)), (*kept_shape, -1))


def _weights(name: str, weights: Any, x: Array, axis: Axis, method: str) -> Array:
    """Return the weights of the elements in the shape of x. Their signs and sums are not tested."""
    if method != "inverted_cdf":
        raise OptionError(
            f'{name}: weights need method="inverted_cdf", was given {method!r}; give that method'
        )
    known = as_array(name, weights, float64)
    return broadcast_to(aligned_weights(name, known, x, axis), x.shape)


def _at_weighted(lines: Array, weights: Array, shares: Any, propagates_nan: bool) -> Array:
    """Return the first elements along the last axis up to which the elements have these shares of
    all weights."""
    if lines.dtype.is_integer:
        propagates_nan = True
    elif not propagates_nan:
        weights = where(isnan(lines), 0.0, weights)
    order = argsort(lines)
    ordered = take_along_axis(lines, order)
    sums = cumulative_sum(take_along_axis(weights, order), axis=-1)
    reached = where(sums == 0, -1.0, sums / sums[..., -1:])  # the share 0 has the first weight
    last = lines.shape[-1] - 1
    positions = [
        minimum(sum(reached < share, -1, keepdims=True), last) for share in shares.tolist()
    ]
    values = take_along_axis(ordered, concat(positions, axis=-1))
    if propagates_nan and not lines.dtype.is_integer:
        values = where(isnan(ordered[..., -1:]), math.nan, values)
    return values


def _neighbours(shares: Any, n: int, method: str, name: str) -> tuple[Any, Any, Any]:
    """Return the positions of the elements below and above each quantile of n elements, and the
    weight of the one above, as NumPy arrays."""
    low, weight = map(np.asarray, _lower_positions(shares, n, method, name, np))
    below, above = (np.clip(i, 0, n - 1).astype(np.int64) for i in (low, low + 1))
    return below, above, weight


def _single(lines: Array, share: Any, method: str, name: str) -> Array:
    """Return one quantile along the last axis, or nan where an element is nan."""
    below, above, weight = _neighbours(share, lines.shape[-1], method, name)
    node = quantile_node(lines.node, int(below), int(above), float(weight))
    return Array(node.at_line(user_line()))


def _at(lines: Array, shares: Any, method: str, name: str) -> Array:
    """Return the quantiles along the last axis, or nan where an element is nan.

    NaN is ordered last, so the last order statistic shows it.
    """
    below, above, weight = _neighbours(shares, lines.shape[-1], method, name)
    last = lines.shape[-1] - 1
    positions = sorted({*below.tolist(), *(above.tolist() if np.any(weight) else ()), last})
    statistics = Array(
        apply(
            ORDER_STATISTICS,
            lines.node,
            axis=lines.ndim - 1,
            positions=tuple(positions),
            line=user_line(),
        )
    )
    values = _selected(statistics, positions, below)
    if np.any(weight):
        upper = _selected(statistics, positions, above)
        values = interpolated(values, upper, astype(asarray(weight), lines.dtype), _ARRAY_FUNCTIONS)
    if lines.dtype.is_integer:
        return values
    return where(isnan(statistics[..., -1:]), math.nan, values)


def _selected(statistics: Array, positions: list[int], chosen: Any) -> Array:
    """Return the order statistics at the chosen positions, given those at `positions`."""
    if len(chosen) == 1:
        i = positions.index(chosen[0])
        return statistics[..., i : i + 1]
    return take(statistics, np.searchsorted(positions, chosen), -1)


def _at_numbers(lines: Array, shares: Any, method: str, name: str) -> Array:
    """Return the quantiles along the last axis of the elements that are not nan; nan for none."""
    ordered = sort(lines)  # nan comes last
    counts = astype(sum(logical_not(isnan(lines)), -1, keepdims=True), float64)  # exact
    low, weight = _lower_positions(as_array(name, shares), counts, method, name, _ARRAY_FUNCTIONS)
    last = maximum(counts - 1, 0)
    shape = (*counts.shape[:-1], shares.size)
    below, above = (
        take_along_axis(ordered, astype(broadcast_to(minimum(maximum(i, 0), last), shape), int64))
        for i in (low, low + 1)
    )
    return where(
        counts == 0,
        math.nan,
        interpolated(below, above, astype(weight, ordered.dtype), _ARRAY_FUNCTIONS),
    )


_ARRAY_FUNCTIONS = SimpleNamespace(
    floor=floor, ceil=ceil, rint=round, where=where,
    isinf=isinf, logical_and=logical_and, logical_or=logical_or, equal=equal,
)  # fmt: skip
"""The functions of NumPy that `_lower_positions` and `interpolated` use, for arrays of magmath."""


def _lower_positions(
    shares: Any, n: Any, method: str, name: str, functions: Any
) -> tuple[Any, Any]:
    """Return for each share a position among n sorted elements, and the weight of the next element.

    Positions before the first or after the last element denote that element.
    """
    position = (n - 1) * shares
    if method in INTERPOLATING:
        if method != "linear":
            alpha, beta = INTERPOLATING[method]
            position = n * shares + (alpha + shares * (1 - alpha - beta)) - 1
        low = functions.floor(position)
        return low, position - low
    if method in ("lower", "higher", "nearest"):
        function = {"lower": functions.floor, "higher": functions.ceil, "nearest": functions.rint}[
            method
        ]
        return function(position), 0.0 * position
    if method == "midpoint":
        low = functions.floor(position)
        return low, functions.where(position == low, 0.0, 0.5)
    if method not in OTHERS:
        raise OptionError(
            f"{name}: method is one of {', '.join((*INTERPOLATING, *OTHERS))}, was given {method!r}"
        )
    position = n * shares - (1.5 if method == "closest_observation" else 1)
    low = functions.floor(position)
    weight = position - low
    if method == "averaged_inverted_cdf":
        return low, functions.where(weight == 0, 0.5, 1.0)
    takes_lower = weight == 0
    if method == "closest_observation":
        takes_lower = takes_lower & (low % 2 == 1)
    return functions.where(takes_lower, low, low + 1), 0.0 * weight


@dispatch_cached
def ptp(a: Any, axis: Axis = None, out: Any = None, keepdims: bool = False) -> Array:
    """Return the largest element less the smallest, along `axis`."""
    x = as_array("ptp", a)
    return stored("ptp", max(x, axis, None, keepdims) - min(x, axis, None, keepdims), out)


@dispatch_cached
def partition(
    a: Any, kth: Any, axis: int | None = -1, kind: str = "introselect", order: None = None
) -> Array:
    """Return the elements along an axis (flattened for None) in an order in which each position in
    `kth` has the element that sorting would put there. The result is sorted."""
    check_kind("partition", kind, order, ("introselect",))
    x = as_array("partition", a)
    _check_positions("partition", kth, x, axis)
    return sort(x, axis)


@dispatch_cached
def argpartition(
    a: Any, kth: Any, axis: int | None = -1, kind: str = "introselect", order: None = None
) -> Array:
    """Return the positions that partition an array; see `partition`."""
    check_kind("argpartition", kind, order, ("introselect",))
    x = as_array("argpartition", a)
    axis = axis if x.ndim else None
    _check_positions("argpartition", kth, x, axis)
    return argsort(x, axis)


def _check_positions(name: str, kth: Any, x: Array, axis: int | None) -> None:
    extent = x.size if axis is None else x.shape[normalize_axis(name, axis, x.ndim)]
    positions: Any = (kth,) if not hasattr(kth, "__iter__") else kth
    if not all(hasattr(k, "__index__") for k in positions):
        raise TypeError(f"{name}: kth must be integers, was given {kth!r}; pass Python integers")
    for k in map(index, positions) if x.size else ():
        if not -extent <= k < extent:
            raise RangeError(
                f"{name}: kth {k} is out of range for an extent of {extent}"
                "; pass an index within the axis"
            )


@dispatch_cached
def lexsort(keys: Any, axis: int = -1) -> Array:
    """Return the positions that sort by the last key, and among equal elements by the one before,
    and so on."""
    listed = list(keys) if isinstance(keys, (list, tuple)) else list(as_array("lexsort", keys))
    if not listed:
        raise ShapeError(
            "lexsort: needs at least one key; pass a tuple of arrays, the most important one last"
        )
    arrays = [as_array("lexsort", key) for key in listed]
    if not any(x.ndim for x in arrays):
        return zeros((), dtype=int64)
    if len({x.shape for x in arrays}) > 1:
        raise ShapeError(
            f"lexsort: needs keys of one shape, was given {', '.join(str(x.shape) for x in arrays)}"
            "; broadcast them with mm.broadcast_arrays"
        )
    order = argsort(arrays[0], axis)
    for key in arrays[1:]:
        next_order = argsort(take_along_axis(key, order, axis), axis)
        order = take_along_axis(order, next_order, axis)
    return order
