"""Searching functions of the array API: selection by a condition, and positions of elements."""

from __future__ import annotations

from typing import Any, Literal, overload

from magmath.api.complex_order import complex_arg_extremum
from magmath.api.data_types import astype
from magmath.api.elementwise import truth_values
from magmath.arrays.array import Array, as_array
from magmath.arrays.indexing.index_checks import check_indices
from magmath.arrays.indexing.masks import count_mask
from magmath.arrays.inputs.number_list import is_number
from magmath.arrays.inputs.operands import promoted_nodes
from magmath.arrays.protocols.cached_functions import dispatch_cached
from magmath.arrays.ufuncs.output import stored
from magmath.core.dtypes import int64, uint8
from magmath.core.keyword_hints import keyword_hints
from magmath.core.promotion import common_dtype
from magmath.core.shapes import normalize_axis, size_of
from magmath.core.type_aliases import Number
from magmath.engine.user_line import user_line
from magmath.errors import OptionError, PositionError, ShapeError
from magmath.graph import Node, apply
from magmath.ops import argreduce, manipulation
from magmath.ops import elementwise as e
from magmath.ops.indexing.gather_scatter import take
from magmath.ops.sort.searchsorted import SEARCHSORTED


@overload
def where(condition: Any, /) -> tuple[Array, ...]: ...
@overload
def where(condition: Any, x1: Any, x2: Any, /) -> Array: ...
@dispatch_cached
def where(condition: Any, x1: Any = None, x2: Any = None, /) -> Any:
    """Return x1 where the condition is true, otherwise x2. With a condition alone, return the
    indices where it is true, as `nonzero` does. Numbers as a condition are true where they are not
    0."""
    if x1 is None and x2 is None:
        return nonzero(condition)
    if x1 is None or x2 is None:
        raise TypeError(
            "where: takes a condition alone, or a condition and two operands, was given one"
            "; write mm.where(condition, x, y)"
        )
    condition = truth_values("where", as_array("where", condition))
    if is_number(x1) and is_number(x2):
        x1 = as_array("where", x1, common_dtype(type(x1), type(x2)))
    x, y = promoted_nodes("where", x1, x2)
    return Array(apply(e.WHERE, condition.node, x, y, line=user_line()))


def _arg_extremum(name: str, x: Array, axis: int | None, keepdims: bool) -> Array:
    x = as_array(name, x)
    x = astype(x, uint8) if x.dtype.kind == "bool" else x
    if not x.ndim and axis in (0, -1):
        axis = None
    node = x.node if axis is not None else manipulation.reshape(x.node, (x.size,))
    position = 0 if axis is None else normalize_axis(name, axis, x.ndim)
    if x.dtype.kind == "complex":
        result = complex_arg_extremum(name.removeprefix("arg"), node, position)
        if not keepdims:
            result_shape = tuple(n for d, n in enumerate(node.shape) if d != position)
            result = manipulation.reshape(result, result_shape)
    else:
        record = argreduce.OPERATIONS[name]
        result = apply(record, node, axis=position, keepdims=keepdims, line=user_line())
    if axis is None and keepdims:
        result = manipulation.reshape(result, (1,) * x.ndim)
    return Array(result)


@dispatch_cached
@keyword_hints
def argmax(a: Array, axis: int | None = None, out: Any = None, *, keepdims: bool = False) -> Array:
    """Return the position of the first largest element along `axis` (of the flat array for
    None)."""
    return stored("argmax", _arg_extremum("argmax", a, axis, keepdims), out)


@dispatch_cached
@keyword_hints
def argmin(a: Array, axis: int | None = None, out: Any = None, *, keepdims: bool = False) -> Array:
    """Return the position of the first smallest element along `axis` (of the flat array for
    None)."""
    return stored("argmin", _arg_extremum("argmin", a, axis, keepdims), out)


def nonzero(a: Array) -> tuple[Array, ...]:
    """Return the indices of true or nonzero elements for each dimension, in C order.

    Their number depends on the values, which are computed. Raises ShapeError for 0-d arrays.
    """
    a = as_array("nonzero", a)
    if not a.ndim:
        raise ShapeError(
            "nonzero: needs 1 or more dimensions, was given a 0-d array"
            "; reshape it with mm.reshape(x, (1,))"
        )
    counted = count_mask(truth_values("nonzero", a).node, a.node.layout)
    return tuple(Array(node) for node in counted.positions())


@dispatch_cached
def searchsorted(
    a: Array,
    v: Array | Number,
    side: Literal["left", "right"] = "left",
    sorter: Array | None = None,
) -> Array:
    """Return the positions, of v's shape, at which the elements of v would be inserted in `a`:
    before equal elements ("left") or after them ("right"). `a` has 1 dimension and is sorted, or
    `sorter` has the positions that sort it.
    """
    if side not in ("left", "right"):
        raise OptionError(f"searchsorted: side is 'left' or 'right', was given {side!r}")
    x, values = promoted_nodes("searchsorted", a, v)
    if sorter is not None:
        order = as_array("searchsorted", sorter)
        x = take(x, _order_of("searchsorted", order, size_of(x.shape)), 0)
    return Array(apply(SEARCHSORTED, x, values, side=side, line=user_line()))


def _order_of(name: str, sorter: Array, extent: int) -> Node:
    """Return the node of the positions that sort an array of this extent."""
    if sorter.ndim != 1 or sorter.size != extent:
        raise ShapeError(
            f"{name}: the sorter has one position for each of the {extent} elements, was given "
            f"shape {sorter.shape}; it is mm.argsort(a)"
        )
    if sorter.dtype.kind == "int":  # negative numbers do not count from the end
        sorter = where(sorter < 0, extent, astype(sorter, int64))
    try:
        check_indices(sorter.node, 0, extent)
    except IndexError:
        raise PositionError(
            f"{name}: a position of the sorter is out of range for {extent} elements; it is "
            "mm.argsort(a)"
        ) from None
    return sorter.node
