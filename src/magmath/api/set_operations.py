"""Sets as sorted arrays, by NumPy's names. The number of elements of a result depends on the
values, which are computed."""

from __future__ import annotations

import builtins
from typing import Any

from magmath.api.creation import asarray, zeros
from magmath.api.cumulative import cumulative_sum
from magmath.api.data_types import astype, result_type
from magmath.api.elementwise import isnan, logical_not
from magmath.api.indexing import take, take_along_axis
from magmath.api.manipulation import concat, moveaxis, ravel, reshape
from magmath.api.order_statistics import lexsort
from magmath.api.reductions import any
from magmath.api.searching import nonzero
from magmath.api.sorting import argsort, sort
from magmath.api.unique import EqualGroups, isin
from magmath.arrays.array import Array, as_array, as_arrays
from magmath.core.dtypes import int64
from magmath.core.shapes import normalize_axis


def unique(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    sorted: bool = True,
) -> Any:
    """Return the different elements in order, or the different parts along an axis; on request with
    their first positions, with the number of the group of each element, and with their counts."""
    x = as_array("unique", ar)
    dim = None if axis is None else normalize_axis("unique", axis, x.ndim)
    if dim is not None and x.ndim > 1:
        return _unique_parts(x, dim, return_index, return_inverse, return_counts)
    groups = EqualGroups("unique", x, equal_nan)
    results = [groups.values()]
    if return_index:
        results.append(groups.indices())
    if return_inverse:
        results.append(groups.inverse())
    if return_counts:
        results.append(groups.counts())
    return tuple(results) if len(results) > 1 else results[0]


def _unique_parts(x: Array, dim: int, index: bool, inverse: bool, counts: bool) -> Any:
    """Return the different parts of an array along an axis, compared element by element."""
    front = moveaxis(x, dim, 0)
    n = front.shape[0]
    rows = reshape(front, (n, -1)) if front.size else zeros((n, 1))  # parts of nothing are equal
    order = _order_of_rows(rows)
    ordered = take(rows, order, 0)
    differs = any(ordered[1:] != ordered[:-1], axis=1)
    begins = concat([asarray([True]), differs]) if n else differs
    (starts,) = nonzero(begins)
    firsts = take(order, starts, 0)
    results = [moveaxis(take(front, firsts, 0), 0, dim)]
    if index:
        results.append(firsts)
    if inverse:
        group = cumulative_sum(begins) - 1
        results.append(take(group, argsort(order), 0))
    if counts:
        results.append(concat([starts[1:], asarray([n])]) - starts)
    return tuple(results) if len(results) > 1 else results[0]


def _order_of_rows(rows: Array) -> Array:
    """Return the positions that sort the rows of a matrix by the first column, and among equal
    elements by the next one, and so on.

    A matrix with more columns than rows is sorted in rounds: each sorts all columns at once, and
    makes one column of two. That are log₂ m rounds for m columns, each with twice the work.
    """
    n = rows.shape[0]
    while (width := rows.shape[1]) > builtins.max(n, 1):
        ranks = _ranks(rows)
        even = width - width % 2
        pairs = ranks[:, 0:even:2] * n + ranks[:, 1:even:2]
        rows = concat([pairs, ranks[:, even:]], axis=1)
    return lexsort(rows.T[::-1])


def _ranks(columns: Array) -> Array:
    """Return for each element the number of smaller values in its column; all NaN are equal."""
    order = argsort(columns, axis=0)
    ordered = take_along_axis(columns, order, 0)
    former, later = ordered[:-1], ordered[1:]
    differs = later != former
    if columns.dtype.kind in ("float", "complex"):
        differs &= logical_not(isnan(former))
    first = zeros((builtins.min(1, columns.shape[0]), columns.shape[1]), dtype=int64)
    group = concat([first, cumulative_sum(astype(differs, int64), axis=0)])
    return take_along_axis(group, argsort(order, axis=0), 0)


def union1d(ar1: Any, ar2: Any) -> Array:
    """Return the elements of either array."""
    both: Array = unique(concat([ravel(x) for x in as_arrays("union1d", ar1, ar2)]))
    return both


def intersect1d(
    ar1: Any, ar2: Any, assume_unique: bool = False, return_indices: bool = False
) -> Any:
    """Return the elements of both arrays; with `return_indices` also their first positions in
    either."""
    x, y = map(ravel, as_arrays("intersect1d", ar1, ar2))
    element = result_type(x, y)
    x, y = astype(x, element, copy=False), astype(y, element, copy=False)
    first, positions = _distinct(x, assume_unique)
    second, second_positions = _distinct(y, assume_unique)
    common = isin(first, second)
    values = first[common]
    if not return_indices:
        return values if not assume_unique else sort(values)
    if assume_unique:
        order = argsort(values)
        values, positions = take(values, order, 0), take(nonzero(common)[0], order, 0)
    else:
        positions = positions[common]
    back = nonzero(isin(second, first))[0]
    if assume_unique:
        back = take(back, argsort(take(second, back, 0)), 0)
        return values, positions, back
    return values, positions, take(second_positions, back, 0)


def _distinct(x: Array, is_distinct: bool) -> tuple[Array, Any]:
    """Return the different elements and their first positions."""
    if is_distinct:
        return x, None
    values, indices = unique(x, return_index=True)
    return values, indices


def setdiff1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> Array:
    """Return the elements of the first array that the second does not have."""
    x, y = map(ravel, as_arrays("setdiff1d", ar1, ar2))
    if not assume_unique:
        x = unique(x)
    return x[logical_not(isin(x, y))]


def setxor1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> Array:
    """Return the elements that exactly one of the arrays has."""
    x, y = map(ravel, as_arrays("setxor1d", ar1, ar2))
    if not assume_unique:
        x, y = unique(x), unique(y)
    return sort(concat([x[logical_not(isin(x, y))], y[logical_not(isin(y, x))]]))
