"""`reduce`, `accumulate`, `outer` and `at` of binary functions: NumPy's methods of universal
functions.

Sums, products, extrema and truth values have reductions of their own. Other associative functions
combine halves of an axis, log₂ n times. `accumulate` doubles the distance between combined elements
in each of its steps, so that all workers compute in all steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from magmath.arrays.array import Array, as_array, as_arrays
from magmath.arrays.namespace import array_namespace
from magmath.arrays.operands import written_operand
from magmath.arrays.output import stored
from magmath.core.dtypes import accumulator_dtype, as_dtype, bool_
from magmath.core.shapes import Axis, broadcast, normalize_axes, normalize_axis, reduced_shape
from magmath.engine.user_line import user_line
from magmath.errors import OptionError, ShapeError
from magmath.graph import Node, apply
from magmath.ops import elementwise as e
from magmath.ops.concatenation import CONCAT
from magmath.ops.creation import iota
from magmath.ops.indexing.gather_scatter import SCATTER_ADD
from magmath.ops.leaves import constant
from magmath.ops.manipulation import reshape
from magmath.ops.reductions import reduce as reduced
from magmath.ops.reductions import reduction_of
from magmath.ops.scans import CUMULATIVE_PROD, CUMULATIVE_SUM
from magmath.ops.slicing import slice_along
from magmath.ops.sums import broadcast_to

REDUCTIONS = {
    "add": "sum",
    "multiply": "prod",
    "maximum": "max",
    "minimum": "min",
    "logical_and": "all",
    "logical_or": "any",
}
SCANS = {"add": CUMULATIVE_SUM, "multiply": CUMULATIVE_PROD}
ASSOCIATIVE = frozenset(
    (
        *REDUCTIONS,
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
        "logical_xor",
        "logaddexp",
        "hypot",
        "gcd",
        "lcm",
    )
)


class BinaryFunction(Protocol):
    """An element-wise function of two operands with NumPy's methods of universal functions."""

    __name__: str
    __qualname__: str
    reduce: Callable[..., Array]
    accumulate: Callable[..., Array]
    outer: Callable[..., Array]
    at: Callable[..., None]

    def __call__(
        self, x1: Any, x2: Any, /, out: Any = None, *, where: Any = True, dtype: Any = None
    ) -> Array: ...


def attach_ufunc_methods(name: str, function: Any) -> BinaryFunction:
    """Attach NumPy's methods to the function of the operation `name`."""

    def reduce(
        x: Array,
        axis: Axis = 0,
        dtype: Any = None,
        out: Any = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = True,
    ) -> Array:
        if initial is not None or where is not True:
            return _reduce_some(name, _operand(name, x, dtype), axis, out, keepdims, initial, where)
        return stored(name, _reduce(name, _operand(name, x, dtype), axis, keepdims), out)

    def accumulate(x: Array, axis: int = 0, dtype: Any = None, out: Any = None) -> Array:
        return stored(name, _accumulate(name, _operand(name, x, dtype), axis), out)

    def outer(x1: Any, x2: Any, /) -> Array:
        a, b = as_arrays(name, x1, x2)
        result: Array = function(Array(reshape(a.node, a.shape + (1,) * b.ndim)), b)
        return result

    def at(x: Array, indices: Any, values: Any, /) -> None:
        _update_at(name, function, x, indices, values)

    for method in (reduce, accumulate, outer, at):
        method.__qualname__ = f"{name}.{method.__name__}"
        setattr(function, method.__name__, method)
    typed: BinaryFunction = function
    return typed


def _operand(name: str, x: Any, dtype: Any) -> Node:
    node = as_array(name, x).node
    if name.startswith("logical"):
        return node if node.dtype is bool_ else e.call("not_equal", node, constant(0, node.dtype))
    if dtype is not None:
        return e.astype(node, as_dtype(dtype))
    return e.astype(node, accumulator_dtype(node.dtype)) if name in SCANS else node


def _check(name: str, method: str) -> None:
    if name not in ASSOCIATIVE:
        raise OptionError(
            f"{name}.{method}: the function must be associative, such as add, multiply or maximum; "
            f"write a loop over the axis for {name}"
        )


def _reduce(name: str, x: Node, axis: Axis, keepdims: bool) -> Array:
    _check(name, "reduce")
    axes = normalize_axes(name, axis, x.ndim)
    if name in REDUCTIONS:
        return Array(reduced(reduction_of(REDUCTIONS[name], x.dtype), x, axes, keepdims))
    shape = reduced_shape(x.shape, axes, keepdims)
    for d in axes:
        if not x.shape[d]:
            raise ShapeError(
                f"{name}.reduce: axis {d} of shape {x.shape} has no elements"
                "; leave empty arrays out, or choose another axis"
            )
        while (extent := x.shape[d]) > 1:
            half = extent // 2
            joined = e.call(name, slice_along(x, d, 0, half), slice_along(x, d, half, 2 * half))
            rest = slice_along(x, d, 2 * half, extent)
            x = apply(CONCAT, joined, rest, axis=d) if extent % 2 else joined
    return Array(reshape(x, shape))


def _reduce_some(
    name: str, x: Node, axis: Axis, out: Any, keepdims: bool, initial: Any, where: Any
) -> Array:
    """Return the reduction of the elements for which `where` is true, and of an initial value."""
    if name not in REDUCTIONS:
        raise OptionError(
            f"{name}.reduce: initial and where are available for {', '.join(REDUCTIONS)}; "
            f"select the elements first, and combine the result with the initial value"
        )
    options: dict[str, Any] = {} if where is True else {"where": where}
    logical = name.startswith("logical")  # all and any take no initial value
    if initial is not None and not logical:
        options["initial"] = initial
    reduction = getattr(array_namespace(), REDUCTIONS[name])
    result = reduction(Array(x), axis=axis, keepdims=keepdims, **options)
    if initial is not None and logical:
        result = Array(e.call(name, result.node, constant(bool(initial), bool_)))
    return stored(name, result, out)


def _accumulate(name: str, x: Node, axis: int) -> Array:
    _check(name, "accumulate")
    d = normalize_axis(name, axis, x.ndim)
    if name in SCANS:
        return Array(apply(SCANS[name], x, axis=d, line=user_line()))
    step, extent = 1, x.shape[d]
    while step < extent:
        later = slice_along(x, d, step, extent)
        joined = e.call(name, slice_along(x, d, 0, extent - step), later)
        x = apply(CONCAT, slice_along(x, d, 0, step), joined, axis=d, line=user_line())
        step *= 2
    return Array(x)


def _update_at(
    name: str, function: Callable[[Any, Any], Any], x: Array, indices: Any, values: Any
) -> None:
    """Combine elements with values at positions; add values as often as a position occurs."""
    items = indices if isinstance(indices, tuple) else (indices,)
    listed = [_is_positions(item) for item in items]
    if not any(listed):  # no element occurs twice
        x[indices] = function(x[indices], values)
    elif all(listed):
        x._updated(_added(name, x.node, items, values))
    else:
        numbers = Array(reshape(iota((x.size,), 0), x.shape))[indices]
        flat = reshape(x.node, (x.size,))
        whole = broadcast_to(written_operand(x.dtype, values), numbers.shape)
        x._updated(reshape(_added(name, flat, (numbers,), whole), x.shape))


def _is_positions(item: Any) -> bool:
    """Return True for an array or list of integers, in which a position may occur twice."""
    if item is None or item is Ellipsis or isinstance(item, (slice, int)):
        return False
    return as_array("at", item).dtype is not bool_


def _added(name: str, x: Node, positions: Sequence[Any], values: Any) -> Node:
    """Return x with values combined with its elements at positions, as often as these occur."""
    if name not in ("add", "subtract", "maximum", "minimum"):
        raise OptionError(
            f"{name}.at: only add, subtract, maximum and minimum combine several values of one "
            f"element; write x[i] = mm.{name}(x[i], v) where no index occurs twice"
        )
    indices = [as_array(f"{name}.at", index).node for index in positions]
    shape = broadcast(f"{name}.at", *[index.shape for index in indices])
    behind = x.shape[len(indices) :]
    added = values if isinstance(values, Node) else written_operand(x.dtype, values)
    addends = broadcast_to(added, (*shape, *behind))
    if name in ("maximum", "minimum"):
        return _extreme(name, x, [broadcast_to(index, shape) for index in indices], addends)
    sums = apply(
        SCATTER_ADD,
        addends,
        *[broadcast_to(index, shape) for index in indices],
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
    axes = [space.reshape(Array(index), (-1, *[1] * len(behind))) for index in indices]
    rest = [
        space.reshape(space.arange(n), [1] * (d + 1) + [n] + [1] * (len(behind) - 1 - d))
        for d, n in enumerate(behind)
    ]
    table = space.reshape(Array(values), (-1, *behind))
    place = [space.reshape(space.broadcast_to(i, table.shape), (-1,)) for i in (*axes, *rest)]
    flat = space.reshape(table, (-1,))
    order = space.argsort(flat, descending=name == "minimum", stable=True)
    written = tuple([i[order] for i in place])
    marked = space.copy(Array(x))
    marked[written] = flat[order]
    return e.call(name, x, marked.node)
