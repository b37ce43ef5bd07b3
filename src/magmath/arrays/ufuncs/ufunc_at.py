"""`at` of NumPy's universal functions: functions of elements at positions, as often as a position
occurs.

Sums, differences and extrema of numbers scatter their values. Other associative functions, and the
sum of truth values, which is `logical_or`, combine the values of each position first. The remaining
ones take one pass for each occurrence of a position, so that they combine in NumPy's order; these
two compute the positions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from magmath.arrays.array import Array, as_array
from magmath.arrays.indexing.index_checks import check_indices
from magmath.arrays.inputs.operands import written_operand
from magmath.arrays.protocols.namespace import array_namespace
from magmath.arrays.ufuncs.output import target
from magmath.arrays.ufuncs.ufunc_segments import Combine, combined_segments
from magmath.core.dtypes import bool_
from magmath.core.expression_lock import exclusive
from magmath.core.shapes import broadcast
from magmath.engine.user_line import user_line
from magmath.graph import Node
from magmath.ops import elementwise as e
from magmath.ops.creation import iota
from magmath.ops.indexing.gather_scatter import scatter_add
from magmath.ops.manipulation import reshape
from magmath.ops.sums import broadcast_to

_NO_POSITIONS = np.empty(0, np.int64)
SCATTERED = ("add", "subtract", "maximum", "minimum")


@exclusive
def update_at(
    name: str, function: Callable[..., Any], x: Array, indices: Any, *values: Any,
    combine: Combine | None = None, has_own_types: bool = False,
) -> None:  # fmt: skip
    """Replace elements at positions by a function of them, and of values if it takes two operands.

    combine        the function of nodes, if it is associative
    has_own_types  the values are not converted to the type of x
    """
    x = target(f"{name}.at", x)
    items = indices if isinstance(indices, tuple) else (indices,)
    items = tuple(
        [_NO_POSITIONS if isinstance(item, list) and not item else item for item in items]
    )
    listed = [_is_positions(item) for item in items]
    if not any(listed):  # no element occurs twice
        x[indices] = function(x[indices], *values)
        return
    is_scattered = name in SCATTERED and not (name == "add" and x.dtype is bool_)
    if all(listed) and len(items) <= x.ndim and is_scattered:
        x.replace_value(_added(name, x.node, items, *values))
        return
    flat = Array(reshape(x.node, (x.size,)))
    numbers = Array(reshape(iota((x.size,), 0), x.shape))[indices]
    positions = reshape(numbers.node, (numbers.size,))
    operands = [
        as_array(f"{name}.at", y).node if has_own_types else written_operand(x.dtype, y)
        for y in values
    ]
    whole = [reshape(broadcast_to(node, numbers.shape), (numbers.size,)) for node in operands]
    if is_scattered:
        flat = Array(_added(name, flat.node, (Array(positions),), *whole))
    elif numbers.size:
        _apply_at(function, flat, Array(positions), [Array(node) for node in whole], combine)
    x.replace_value(reshape(flat.node, x.shape))


def _apply_at(
    function: Callable[..., Any],
    flat: Array,
    positions: Array,
    values: Sequence[Array],
    combine: Combine | None,
) -> None:
    """Update a 1-D array at positions, in the order of the values."""
    space = array_namespace()
    order = space.argsort(positions, stable=True)
    ordered, sorted_values = positions[order], [x[order] for x in values]
    is_first = space.concat([space.ones((1,), dtype=bool_), ordered[1:] != ordered[:-1]])
    (starts,) = space.nonzero(is_first)
    if combine is not None and values:
        (operand,) = sorted_values
        combined = combined_segments(combine, operand.node, starts.node, 0)
        places = ordered[starts]
        flat[places] = function(flat[places], Array(combined))
        return
    ends = space.concat([starts[1:], space.full((1,), ordered.size, dtype=starts.dtype)])
    for number in range(int(space.max(ends - starts))):
        at = starts[ends - starts > number] + number
        places = ordered[at]
        flat[places] = function(flat[places], *[x[at] for x in sorted_values])


def _is_positions(item: Any) -> bool:
    """Return True for an array or list of integers, in which a position may occur twice."""
    if item is None or item is Ellipsis or isinstance(item, (slice, int)):
        return False
    return as_array("at", item).dtype is not bool_


def _added(name: str, x: Node, positions: Sequence[Any], values: Any) -> Node:
    """Return x with values combined with its elements at positions, as often as these occur."""
    indices = [as_array(f"{name}.at", index).node for index in positions]
    for d, index in enumerate(indices):
        check_indices(index, d, x.shape[d])
    shape = broadcast(f"{name}.at", *[index.shape for index in indices])
    behind = x.shape[len(indices) :]
    added = values if isinstance(values, Node) else written_operand(x.dtype, values)
    addends = broadcast_to(added, (*shape, *behind))
    if name in ("maximum", "minimum"):
        return _extreme(name, x, [broadcast_to(index, shape) for index in indices], addends)
    sums = scatter_add(
        addends,
        [broadcast_to(index, shape) for index in indices],
        axes=tuple(range(len(indices))),
        at=0,
        extents=x.shape[: len(indices)],
        line=user_line(),
    )
    return e.call(name, x, sums)


def _extreme(name: str, x: Node, indices: Sequence[Node], values: Node) -> Node:
    """Return x with the largest, or smallest, of its element and the values at each position.

    Values are written in ascending (descending) order, and the last one at a position stays.
    """
    space = array_namespace()
    behind = x.shape[len(indices) :]
    if 0 in behind:
        return x
    axes = [space.reshape(Array(index), (-1, *[1] * len(behind))) for index in indices]
    trailing = [
        space.reshape(space.arange(n), [1] * (d + 1) + [n] + [1] * (len(behind) - 1 - d))
        for d, n in enumerate(behind)
    ]
    table = space.reshape(Array(values), (-1, *behind))
    positions = [
        space.reshape(space.broadcast_to(i, table.shape), (-1,)) for i in (*axes, *trailing)
    ]
    flat = space.reshape(table, (-1,))
    order = space.argsort(flat, descending=name == "minimum", stable=True)
    written = tuple([i[order] for i in positions])
    marked = space.copy(Array(x))
    marked[written] = flat[order]
    return e.call(name, x, marked.node)
