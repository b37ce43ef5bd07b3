"""Running sums and products along an axis, and the differences of neighbours."""

from __future__ import annotations

from typing import Any

from magmath.api.creation import asarray, full
from magmath.api.manipulation import concat, reshape
from magmath.arrays.array import Array, as_array, as_arrays
from magmath.arrays.protocols.cached_functions import dispatch_cached
from magmath.arrays.ufuncs.output import stored
from magmath.core.dtypes import accumulator_dtype, bool_, int64, uint64
from magmath.core.integers import require_integer
from magmath.core.keyword_hints import keyword_hints
from magmath.core.shapes import normalize_axis, with_extent
from magmath.engine.user_line import user_line
from magmath.errors import ShapeError
from magmath.graph import Operation, apply
from magmath.ops import elementwise as e
from magmath.ops.cumulative import CUMULATIVE_PROD, CUMULATIVE_SUM
from magmath.ops.slicing import slice_along
from magmath.ops.sums import broadcast_to


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
    result = _cumulative(CUMULATIVE_SUM, 0, x, axis, dtype, include_initial)
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
    result = _cumulative(CUMULATIVE_PROD, 1, x, axis, dtype, include_initial)
    return stored("cumulative_prod", result, out)


@dispatch_cached
@keyword_hints
def cumsum(a: Array, axis: int | None = None, dtype: Any = None, out: Any = None) -> Array:
    """Return running sums along `axis`, or of the flattened array for None."""
    return cumulative_sum(*_flat_or_along("cumsum", a, axis, dtype), dtype, out)


@dispatch_cached
def cumprod(a: Array, axis: int | None = None, dtype: Any = None, out: Any = None) -> Array:
    """Return running products along `axis`, or of the flattened array for None."""
    return cumulative_prod(*_flat_or_along("cumprod", a, axis, dtype), dtype, out)


def _flat_or_along(name: str, x: Array, axis: int | None, dtype: Any) -> tuple[Array, int]:
    x = as_array(name, x, dtype)
    return (reshape(x, (-1,)), axis or 0) if axis is None or not x.ndim else (x, axis)


def _cumulative(
    record: Operation, initial: int, x: Array, axis: int | None, dtype: Any, include_initial: bool
) -> Array:
    x = as_array(record.name, x, dtype)
    if axis is None and x.ndim != 1:
        raise ShapeError(
            f"{record.name}: needs `axis` for an array of {x.ndim} dimensions"
            "; flatten it with mm.reshape(x, (-1,)), or name the axis"
        )
    position = normalize_axis(record.name, 0 if axis is None else axis, x.ndim)
    element = accumulator_dtype(x.dtype) if dtype is None else x.dtype
    wide = int64 if element is bool_ else element  # truth values are counted
    running = apply(record, e.astype(x.node, wide), axis=position, line=user_line())
    result = Array(e.astype(running, element))
    if not include_initial:
        return result
    first = full(with_extent(x.shape, position, 1), initial, dtype=element)
    return concat([first, result], axis=position)


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
    node = _with_ends(a, d, prepend, append).node
    difference = "not_equal" if node.dtype.kind == "bool" else "subtract"
    for _ in range(steps):
        last = node.shape[d] - 1 if node.shape[d] else 0
        upper, lower = slice_along(node, d, 1, last + 1), slice_along(node, d, 0, last)
        node = apply(e.OPERATIONS[difference], upper, lower, line=user_line())
    return Array(node)


def _with_ends(a: Array, d: int, prepend: Any, append: Any) -> Array:
    """Return an array with others, or numbers, joined before and after it along an axis."""
    is_narrow = a.dtype is not uint64  # numbers have 64 bits, as in NumPy
    first, last = (
        asarray(end) if is_narrow and isinstance(end, int) else end for end in (prepend, append)
    )
    parts = [part for part in (first, a, last) if part is not None]
    if len(parts) == 1:
        return a
    shape = with_extent(a.shape, d, 1)
    arrays = as_arrays("diff", *parts)
    return concat([x if x.ndim else Array(broadcast_to(x.node, shape)) for x in arrays], axis=d)
