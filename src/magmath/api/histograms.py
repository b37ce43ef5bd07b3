"""Counts of elements in bins. Each worker counts its own elements, then counts are added up."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, final

import numpy as np

from magmath.api.creation import arange, asarray, zeros
from magmath.api.cumulative import diff
from magmath.api.data_types import astype, result_type
from magmath.api.elementwise import clip, isfinite
from magmath.api.float_functions import require_real
from magmath.api.indexing import take
from magmath.api.manipulation import ravel, reshape
from magmath.api.order_statistics import percentile
from magmath.api.reductions import any, max, min, sum
from magmath.api.searching import searchsorted, where
from magmath.api.statistics import std
from magmath.arrays.array import Array, as_array, as_array_for, as_arrays, floating
from magmath.arrays.inputs.number_list import is_number
from magmath.arrays.lazy_array import evaluate
from magmath.arrays.protocols.cached_functions import dispatch_cached
from magmath.core.dtypes import bool_, float64, int64
from magmath.core.integers import is_integer, require_integer
from magmath.engine.user_line import user_line
from magmath.errors import DTypeError, OptionError, RangeError, ShapeError, TracingError
from magmath.graph import apply
from magmath.ops.bin_counts import BIN_COUNTS
from magmath.ops.indexing.gather_scatter import scatter_add


@dispatch_cached
def bincount(x: Any, weights: Any = None, minlength: int = 0) -> Array:
    """Return the number of occurrences of each integer from 0 to the largest, or the sum of the
    weights of its elements, in float64. The largest is computed. Raises RangeError for negative
    integers."""
    x = as_array("bincount", x)
    if x.ndim != 1:
        raise ShapeError(
            f"bincount: needs a 1-D array, was given shape {x.shape}"
            "; flatten it with mm.reshape(x, (-1,))"
        )
    if x.size and not (x.dtype.is_integer or x.dtype is bool_):
        raise DTypeError(f"bincount: takes integers, was given {x.dtype}; convert with astype")
    positions = astype(x, int64)
    length = require_integer("bincount: minlength", minlength, 0)
    if x.size:
        length = _bin_count(positions, length)
    if weights is None:
        return _counts(positions, None, length)
    weights = as_array("bincount", weights, float64)
    if weights.shape != x.shape:
        raise ShapeError(
            f"bincount: needs a weight for each element, was given shapes {x.shape} and "
            f"{weights.shape}"
            "; reshape or broadcast the weights"
        )
    return _counts(positions, weights, length)


def _bin_count(positions: Array, least: int) -> int:
    """Return the number of bins for all positions, at least `least`."""
    low, high = min(positions), max(positions)
    try:
        evaluate(low, high)
    except TracingError:
        raise TracingError(
            "bincount: the number of bins follows from the largest integer, which is unknown while "
            "mm.compile (or mm.vmap, mm.cond, mm.scan, mm.remat) traces a function; for n bins "
            "write mm.sum(mm.nn.functional.one_hot(x, n), axis=0), or with weights "
            "mm.add.at(sums, x, weights), where sums = mm.zeros(n)"
        ) from None
    if bool(low < 0):
        raise RangeError(
            "bincount: takes integers from 0, some of those given are negative"
            "; subtract the smallest of them first"
        )
    return int(high) + 1 if bool(high >= least) else least


def _counts(positions: Array, weights: Array | None, length: int) -> Array:
    """Return the count, or the sum of the weights, of each position from 0 to `length`.

    Sums of integers wrap in their type. Other weights are added in float64 or complex128.
    """
    if not positions.size:
        return zeros((length,), dtype=int64 if weights is None else weights.dtype)
    if weights is None:
        return Array(apply(BIN_COUNTS, positions.node, extent=length, line=user_line()))
    known = weights if weights.dtype.is_integer else _in_double(weights)
    added = scatter_add(
        known.node, [positions.node], axes=(0,), at=0, extents=(length,), line=user_line()
    )
    return astype(Array(added), weights.dtype)


def _in_double(x: Array) -> Array:
    """Return numbers in float64, complex ones in complex128."""
    return astype(x, result_type(x.dtype, float64))


@dispatch_cached
def digitize(x: Any, bins: Any, right: bool = False) -> Array:
    """Return the index of the bin of each element: the number of edges that are less than or equal
    to it, or with `right` less than it. The edges ascend or descend; their values are computed to
    check that, unless they depend on arguments of a function that is traced."""
    values, edges = [require_real("digitize", a) for a in as_arrays("digitize", x, bins)]
    if edges.ndim != 1:
        raise ShapeError(
            f"digitize: bins must be 1-D, was given shape {edges.shape}"
            "; flatten them with mm.reshape(bins, (-1,))"
        )
    side: Literal["left", "right"] = "left" if right else "right"
    if edges.size < 2:
        return searchsorted(edges, values, side)
    rises, falls = edges[1:] > edges[:-1], edges[1:] < edges[:-1]  # differences may overflow
    if _is_surely_true(any(rises) & any(falls)):
        raise OptionError("digitize: bins must rise or fall throughout; sort them first")
    descend = edges[0] > edges[-1]
    number = searchsorted(where(descend, edges[::-1], edges), values, side)
    return where(descend, edges.size - number, number)


def _is_surely_true(condition: Array) -> bool:
    """Return the value of a condition; False if it depends on an argument of a traced function."""
    try:
        return bool(condition)
    except TracingError:
        return False


@dispatch_cached
def histogram(
    a: Any,
    bins: Any = 10,
    range: Any = None,
    density: bool | None = None,
    weights: Any = None,
) -> tuple[Array, Array]:
    """Return the counts of elements in bins, or sums of their weights, and the edges of the bins.

    bins: the number of bins of equal width, the edges, or the name of a rule
    (`histogram_bin_edges`). With `density` the counts are divided by their sum and by the widths.
    """
    x = ravel(a)
    grid = _bins("histogram", x, bins, range, has_weights=weights is not None)
    counts = _binned([x], [grid], _weights("histogram", weights, x))
    if density:
        counts = counts / diff(grid.edges) / sum(counts)
    return counts, grid.edges


@dispatch_cached
def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Array:
    """Return the edges of bins. The names of rules: "auto", "fd", "doane", "scott", "stone" (not
    supported), "rice", "sturges", "sqrt"; the number of bins that they determine is computed."""
    name = "histogram_bin_edges"
    return _bins(name, ravel(a), bins, range, has_weights=weights is not None).edges


def _weights(name: str, weights: Any, x: Array) -> Array | None:
    """Return one weight for each element of x, or None for none."""
    if weights is None:
        return None
    flat = ravel(as_array_for(name, weights, x))
    if flat.size != x.size:
        raise ShapeError(
            f"{name}: needs a weight for each of {x.size} elements, was given {flat.size}"
            "; pass one for each"
        )
    return flat


@final
class _Bins(NamedTuple):
    """The edges of bins along one dimension, and True if all bins have the same width."""

    edges: Array
    are_equal: bool


def _bins(name: str, x: Array, bins: Any, range: Any, *, has_weights: bool = False) -> _Bins:
    require_real(name, x)
    if isinstance(bins, str):
        if has_weights:
            raise TypeError(f"{name}: rules for the number of bins take no weights; give a number")
        bins = _bin_count_by_rule(name, x, bins, range)
    if is_number(bins) and not is_integer(bins):
        raise TypeError(f"{name}: the number of bins is an integer, was given {bins!r}")
    if not is_integer(bins):
        _, edges = as_arrays(name, x, bins)
        if edges.ndim != 1:
            raise ShapeError(
                f"{name}: edges are 1-D, was given shape {edges.shape}"
                "; pass a flat list of edges, or the number of bins"
            )
        if _is_surely_true(any(edges[1:] < edges[:-1])):  # differences may overflow
            raise OptionError(f"{name}: edges must rise; sort them first")
        return _Bins(edges, False)
    number = require_integer(f"{name}: bins", bins, 1)
    low, high = _range(name, x, range)
    along = astype(arange(number + 1), low.dtype)
    inner = low + along * ((high - low) / number)
    return _Bins(where(arange(number + 1) == number, high, inner), True)


def _range(name: str, x: Array, range: Any) -> tuple[Array, Array]:
    """Return the first and the last edge as 0-d arrays, apart from each other."""
    element = floating(name, x).dtype
    if range is not None:
        first, last = range
        if not (math.isfinite(first) and math.isfinite(last)) or first > last:
            raise RangeError(
                f"{name}: range must be two finite numbers that rise, was {range}"
                "; give (low, high) with low ≤ high"
            )
        element = result_type(element, first, last)
        low, high = asarray(float(first), dtype=element), asarray(float(last), dtype=element)
    elif not x.size:
        low, high = asarray(0.0, dtype=element), asarray(1.0, dtype=element)
    else:
        low, high = astype(min(x), element), astype(max(x), element)
        if not bool(isfinite(low) & isfinite(high)):
            raise RangeError(
                f"{name}: the elements must be finite; give a range to leave others out"
            )
    alike = low == high
    return where(alike, low - 0.5, low), where(alike, high + 0.5, high)


def _bin_count_by_rule(name: str, x: Array, rule: str, range: Any) -> int:
    """Return the number of bins by a rule, as NumPy's."""
    low, high = _range(name, x, range)
    if range is not None:
        x = x[(x >= low) & (x <= high)]
    n = x.size
    if not n:
        return 1
    largest, least = max(x), min(x)
    spread = float(largest) - float(least)
    if not x.dtype.is_integer:
        spread = float(largest - least)  # rounded to the type, as the extent is
    extent = float(high - low)
    widths: dict[str, Callable[[], float]] = {
        "sqrt": lambda: spread / math.sqrt(n),
        "sturges": lambda: spread / (math.log2(n) + 1),
        "rice": lambda: spread / (2.0 * n ** (1 / 3)),
        "scott": lambda: (24.0 * math.sqrt(math.pi) / n) ** (1 / 3) * float(std(x)),
        "fd": lambda: 2.0 * _quartiles(x) / n ** (1 / 3),
        "doane": lambda: _doane(x, n, spread),
    }
    if rule == "auto":
        wide = builtins.max(widths["fd"](), widths["sqrt"]() / 2)
        width = builtins.min(wide, widths["sturges"]())
    elif rule in widths:
        width = widths[rule]()
    else:
        raise OptionError(
            f"{name}: bins is a number, edges, auto, {', '.join(widths)}; was {rule!r}"
        )
    if x.dtype.is_integer:
        width = width and builtins.max(width, 1.0)
    return math.ceil(extent / width) if width else 1


def _quartiles(x: Array) -> float:
    low, high = percentile(astype(x, float64), [25, 75]).tolist()  # as NumPy interpolates
    return float(high - low)


def _doane(x: Array, n: int, spread: float) -> float:
    deviation = float(std(x))
    if n < 3 or not deviation:
        return 0.0
    skew = float(sum(((x - sum(x) / n) / deviation) ** 3) / n)
    error = math.sqrt(6.0 * (n - 2) / ((n + 1.0) * (n + 3)))
    return spread / (1.0 + math.log2(n) + math.log2(1.0 + abs(skew) / error))


def _binned(columns: Sequence[Array], bins: Sequence[_Bins], weights: Array | None) -> Array:
    """Return counts, or sums of weights, in a grid of bins; the last bin of each dimension is
    closed."""
    shape = tuple(bins_of_dim.edges.size - 1 for bins_of_dim in bins)
    number: Any = 0
    inside: Any = True
    for x, bins_of_dim, extent in zip(columns, bins, shape, strict=True):
        edges = bins_of_dim.edges
        here = (x >= edges[0]) & (x <= edges[-1])
        inside = here & inside & (extent > 0)  # a single edge bounds no bin
        number = number * extent + _bins_of(x, here, bins_of_dim)
    size = math.prod(shape)
    flat = _counts(where(inside, number, size), weights, size + 1)[:size]
    return reshape(flat, shape)


def _bins_of(x: Array, inside: Array, bins: _Bins) -> Array:
    """Return the bin of each element; elements outside of all bins get an arbitrary bin.

    A bin among equal ones is computed and compared with its edges, which rounding may miss by one;
    this takes a tenth of the time of a binary search.
    """
    edges, last = bins.edges, bins.edges.size - 2
    if not bins.are_equal:
        return where(x == edges[-1], last, searchsorted(edges, x, "right") - 1)
    widths = (edges[-1] - edges[0]) / (last + 1)
    at = clip(astype(where(inside, (x - edges[0]) / widths, 0), int64), 0, last)
    at = at - (x < take(edges, at, axis=0))
    at = clip(at, 0, last)
    return at + ((x >= take(edges, at + 1, axis=0)) & (at < last))


def histogramdd(
    sample: Any, bins: Any = 10, range: Any = None, density: bool | None = None,
    weights: Any = None,
) -> tuple[Array, list[Array]]:  # fmt: skip
    """Return the counts of points, or sums of their weights, in a grid of bins, in float64, and
    the edges for each dimension.

    sample: rows of an array (n, d), numbers (n,), or a list of d arrays of coordinates.
    """
    if isinstance(sample, (list, tuple)) and builtins.any(np.ndim(x) for x in sample):
        columns = [ravel(x) for x in sample]
        if len({x.size for x in columns}) > 1:
            raise ShapeError(
                f"histogramdd: needs as many coordinates for each dimension, was given "
                f"{[x.size for x in columns]}; pass one for each point"
            )
    else:
        points = as_array("histogramdd", sample)
        if points.ndim > 2:
            raise ShapeError(
                f"histogramdd: the sample has shape (n, d) or (n,), was given {points.shape}; pass "
                f"a row for each point"
            )
        points = points if points.ndim == 2 else reshape(points, (-1, 1))
        columns = [points[:, d] for d in builtins.range(points.shape[1])]
    dimensions = len(columns)
    single = is_number(bins) or isinstance(bins, np.integer)
    bins_of_dims = [bins] * dimensions if single else list(bins)
    ranges = [None] * dimensions if range is None else list(range)
    if len(bins_of_dims) != dimensions or len(ranges) != dimensions:
        raise ShapeError(
            f"histogramdd: needs bins and a range for each of {dimensions} dimensions"
            "; pass a list with one entry for each, or one number of bins for all"
        )
    grid = [
        _bins("histogramdd", x, bins_of_dim, limits)
        for x, bins_of_dim, limits in zip(columns, bins_of_dims, ranges, strict=True)
    ]
    edges = [bins_of_dim.edges for bins_of_dim in grid]
    each_weight = _weights("histogramdd", weights, columns[0])
    summands = each_weight if each_weight is None else _in_double(each_weight)
    counts = floating("histogramdd", _binned(columns, grid, summands))
    if density:
        total = sum(counts)
        for d, edges_of_dim in enumerate(edges):
            behind = (1,) * (dimensions - d - 1)
            counts = counts / reshape(diff(edges_of_dim), (-1, *behind))
        counts = counts / total
    return counts, edges


def histogram2d(
    x: Any, y: Any, bins: Any = 10, range: Any = None, density: bool | None = None,
    weights: Any = None,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Return the counts of points in a grid of bins, and the edges for x and for y."""
    if not is_number(bins) and not isinstance(bins, np.integer) and len(bins) != 2:
        bins = [bins, bins]
    counts, (first, second) = histogramdd([x, y], bins, range, density, weights)
    return counts, first, second
