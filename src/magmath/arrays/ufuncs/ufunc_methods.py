"""`reduce`, `accumulate`, `reduceat`, `outer` and `at`: NumPy's methods of universal functions.

Sums, products, extrema and truth values have reductions of their own. Other associative functions
combine halves of an axis, log₂ n times. `accumulate` doubles the distance between combined elements
in each of its steps, so that all workers compute in all steps. Functions that are not associative
take one step for each element of the axis.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, final

import numpy as np

from magmath.arrays.array import Array, as_array, as_arrays
from magmath.arrays.inputs.conversion import leaf_of_values
from magmath.arrays.inputs.operands import written_operand
from magmath.arrays.ufuncs.output import mask_of, stored
from magmath.arrays.ufuncs.ufunc_at import update_at
from magmath.arrays.ufuncs.ufunc_segments import Combine, combined_segments, stepwise_segments
from magmath.core.dtypes import accumulator_dtype, as_dtype, bool_
from magmath.core.promotion import floating_dtype
from magmath.core.shapes import Axis, normalize_axes, normalize_axis, reduced_shape
from magmath.engine.user_line import user_line
from magmath.errors import OptionError, PositionError, ShapeError
from magmath.graph import Node, apply
from magmath.ops import elementwise as e
from magmath.ops.concatenation import CONCAT
from magmath.ops.creation import full
from magmath.ops.cumulative import CUMULATIVE_MAX, CUMULATIVE_MIN, CUMULATIVE_PROD, CUMULATIVE_SUM
from magmath.ops.leaves import constant
from magmath.ops.manipulation import reshape
from magmath.ops.reductions import reduce as reduced
from magmath.ops.reductions import reduction_of
from magmath.ops.segment_reductions import reduced_segments
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
CUMULATIVE_FUNCTIONS = {
    "add": CUMULATIVE_SUM,
    "multiply": CUMULATIVE_PROD,
    "maximum": CUMULATIVE_MAX,
    "minimum": CUMULATIVE_MIN,
}


class UnaryFunction(Protocol):
    """An element-wise function of one operand with NumPy's method and attributes."""

    __name__: str
    __qualname__: str
    at: Callable[..., None]
    nin: int
    nout: int
    nargs: int
    identity: None

    def __call__(
        self, x: Any, /, out: Any = None, *, where: Any = True, dtype: Any = None
    ) -> Array: ...


class BinaryFunction(Protocol):
    """An element-wise function of two operands with NumPy's methods of universal functions."""

    __name__: str
    __qualname__: str
    reduce: Callable[..., Array]
    accumulate: Callable[..., Array]
    reduceat: Callable[..., Array]
    outer: Callable[..., Array]
    at: Callable[..., None]
    nin: int
    nout: int
    nargs: int
    identity: Any

    def __call__(
        self, x1: Any, x2: Any, /, out: Any = None, *, where: Any = True, dtype: Any = None
    ) -> Array: ...


def as_ufunc(
    operands: int,
    *,
    is_associative: bool = False,
    identity: complex | None = None,
    has_own_types: bool = False,
) -> Callable[[Callable[..., Any]], Any]:
    """Return the decorator that attaches the methods to a function of one or two operands.

    `is_associative` and `identity` are those of `graph.public_function.PublicFunction`;
    `has_own_types`: the operands are not promoted to one type.
    """
    if operands == 1:
        return lambda function: attach_unary_methods(function.__name__, function)
    return lambda function: attach_ufunc_methods(
        function.__name__, function, is_associative, identity, has_own_types
    )


def attach_unary_methods(name: str, function: Any) -> UnaryFunction:
    """Attach NumPy's method and attributes to the function of one operand."""

    def at(x: Array, indices: Any, /) -> None:
        update_at(name, function, x, indices)

    _attach(name, function, at)
    _describe(function, 1, None)
    typed: UnaryFunction = function
    return typed


_IDENTITY = object()
"""The default of `initial`: the result of no elements is that of the function, if it has one."""


def attach_ufunc_methods(
    name: str,
    function: Any,
    is_associative: bool,
    identity: complex | None,
    has_own_types: bool = False,
) -> BinaryFunction:
    """Attach NumPy's methods and attributes to the function of two operands of this name."""

    def combine(x: Node, y: Node) -> Node:
        return as_array(name, function(Array(x), Array(y))).node

    methods = _UfuncMethods(name, combine, is_associative, identity)

    def reduce(
        array: Array,
        axis: Axis = 0,
        dtype: Any = None,
        out: Any = None,
        keepdims: bool = False,
        initial: Any = _IDENTITY,
        where: Any = True,
    ) -> Array:
        x = methods.operand(array, dtype)
        if not x.ndim and axis in (0, -1, None):  # one element along its axis 0
            x, keepdims = reshape(x, (1,)), False
        if initial is None:
            methods.require_elements(x, axis)
        elif initial is _IDENTITY:
            initial = None
        if initial is not None or where is not True:
            result = methods.reduce_some(x, axis, keepdims, initial, where)
        else:
            result = methods.reduce(x, axis, keepdims)
        return stored(name, methods.in_type(result, dtype), out)

    def accumulate(array: Array, axis: int = 0, dtype: Any = None, out: Any = None) -> Array:
        result = methods.accumulate(methods.operand(array, dtype), axis)
        return stored(name, methods.in_type(result, dtype), out)

    def reduceat(
        array: Array, indices: Any, axis: int = 0, dtype: Any = None, out: Any = None
    ) -> Array:
        x = methods.operand(array, dtype)
        starts = indices.numpy() if isinstance(indices, Array) else np.asarray(indices)
        return stored(name, methods.in_type(methods.reduceat(x, starts, axis), dtype), out)

    def outer(x1: Any, x2: Any, /) -> Array:
        a, b = as_arrays(name, x1, x2)
        result: Array = function(Array(reshape(a.node, a.shape + (1,) * b.ndim)), b)
        return result

    def at(x: Array, indices: Any, values: Any, /) -> None:
        keeps_type = not name.startswith("logical") or x.dtype is bool_
        merge = combine if is_associative and keeps_type else None
        update_at(name, function, x, indices, values, combine=merge, has_own_types=has_own_types)

    _attach(name, function, reduce, accumulate, reduceat, outer, at)
    _describe(function, 2, identity)
    typed: BinaryFunction = function
    return typed


def _attach(name: str, function: Any, *methods: Callable[..., Any]) -> None:
    for method in methods:
        method.__qualname__ = f"{name}.{method.__name__}"
        setattr(function, method.__name__, method)


def _describe(function: Any, operands: int, identity: Any) -> None:
    """Set NumPy's attributes of a function with one result."""
    function.nin, function.nout, function.nargs = operands, 1, operands + 1
    function.identity = identity


@final
class _UfuncMethods:
    """The methods of a function of nodes."""

    def __init__(
        self, name: str, combine: Combine, is_associative: bool, identity: complex | None
    ) -> None:
        self._name, self._combine = name, combine
        self._is_associative, self._identity = is_associative, identity

    def operand(self, array: Any, dtype: Any) -> Node:
        """Return the elements in the type in which the function combines them."""
        name, node = self._name, as_array(self._name, array, dtype).node
        if name.startswith("logical"):
            zero = constant(0, node.dtype)
            return node if node.dtype is bool_ else e.call("not_equal", node, zero)
        if name in ("add", "multiply") and (dtype is None or node.dtype is bool_):
            node = e.astype(node, accumulator_dtype(node.dtype))
        if name in e.FLOATING:
            return e.astype(node, floating_dtype(node.dtype))
        if name in e.OPERATIONS:
            return node
        one = constant(1, node.dtype)
        return e.astype(node, self._combine(one, one).dtype)

    def in_type(self, result: Array, dtype: Any) -> Array:
        """Return a sum or product in the type that is asked for, from that of its totals."""
        if dtype is None or self._name not in ("add", "multiply"):
            return result
        return Array(e.astype(result.node, as_dtype(dtype)))

    def reduce(self, x: Node, axis: Axis, keepdims: bool) -> Array:
        """Return the combined elements along axes."""
        name = self._name
        axes = normalize_axes(name, axis, x.ndim)
        if name in REDUCTIONS and not self._is_complex_extremum(x):
            return Array(reduced(reduction_of(REDUCTIONS[name], x.dtype), x, axes, keepdims))
        if not self._is_associative:
            axes = self._one_axis(axis, x)
        shape = reduced_shape(x.shape, axes, keepdims)
        for d in axes:
            if not x.shape[d]:
                return Array(full(shape, self._identity_node("reduce", x)))
            if x.shape[d] == 1 and self._identity is not None:
                x = self._combine(self._identity_node("reduce", x), x)  # |x| for gcd and hypot
            x = self._halved(x, d) if self._is_associative else self._stepwise(x, d)[-1]
        return Array(reshape(x, shape))

    def _is_complex_extremum(self, x: Node) -> bool:
        return x.dtype.kind == "complex" and self._name in ("maximum", "minimum")

    def require_elements(self, x: Node, axis: Axis) -> None:
        """Raise ShapeError if a result would be that of no elements: without an initial value."""
        axes = normalize_axes(self._name, axis, x.ndim)
        if not all(x.shape[d] for d in axes):
            raise ShapeError(
                f"{self._name}.reduce: initial=None needs elements, was given shape {x.shape}; "
                f"leave `initial` out for the result of none"
            )

    def _identity_node(self, method: str, x: Node) -> Node:
        """Return the result for no elements. Raises ShapeError for functions without one."""
        if self._identity is None:
            raise ShapeError(
                f"{self._name}.{method}: no elements of an array of shape {x.shape} have no "
                f"{self._name}; leave empty arrays out, choose another axis, or give initial="
            )
        all_bits = self._identity == -1 and x.dtype.kind in ("bool", "uint")
        if all_bits:
            return e.call("bitwise_invert", constant(0, x.dtype))
        return constant(self._identity, x.dtype)

    def _halved(self, x: Node, d: int) -> Node:
        while (extent := x.shape[d]) > 1:
            half = extent // 2
            first, second = slice_along(x, d, 0, half), slice_along(x, d, half, 2 * half)
            joined = self._combine(first, second)
            last = slice_along(x, d, 2 * half, extent)
            x = apply(CONCAT, joined, last, axis=d) if extent % 2 else joined
        return x

    def _stepwise(self, x: Node, d: int) -> list[Node]:
        """Return the running results along an axis, one step for each."""
        results = [slice_along(x, d, 0, 1)]
        for i in range(1, x.shape[d]):
            results.append(self._combine(results[-1], slice_along(x, d, i, i + 1)))
        return results

    def reduce_some(self, x: Node, axis: Axis, keepdims: bool, initial: Any, where: Any) -> Array:
        """Return the reduction of the elements for which `where` is true, and of an initial value.

        Elements that are not reduced are replaced by a number that changes no other one.
        """
        name = self._name
        start = None if initial is None else written_operand(x.dtype, initial)
        if where is not True:
            mask = broadcast_to(mask_of(f"{name}.reduce", where, x.shape), x.shape)
            neutral = start if self._identity is None else self._identity_node("reduce", x)
            if neutral is None:
                raise OptionError(
                    f"{name}.reduce: where= needs initial=, the result if no element is selected"
                )
            if not self._is_associative:
                return self._reduce_selected(x, axis, keepdims, neutral, mask)
            x = e.where(mask, x, neutral)
        if start is None:
            return self.reduce(x, axis, keepdims)
        axes = normalize_axes(name, axis, x.ndim)
        if not all(x.shape[d] for d in axes):
            return Array(full(reduced_shape(x.shape, axes, keepdims), start))
        if not self._is_associative:  # it is the first operand
            shape = tuple([1 if d in axes else n for d, n in enumerate(x.shape)])
            x = apply(CONCAT, broadcast_to(start, shape), x, axis=axes[0])
            return self.reduce(x, axis, keepdims)
        return Array(self._combine(start, self.reduce(x, axis, keepdims).node))

    def _reduce_selected(
        self, x: Node, axis: Axis, keepdims: bool, start: Node, mask: Node
    ) -> Array:
        (d,) = self._one_axis(axis, x)
        x = e.where(mask, x, constant(1, x.dtype))  # the others make no gradient nan
        result = broadcast_to(start, reduced_shape(x.shape, (d,), True))
        for i in range(x.shape[d]):
            joined = self._combine(result, slice_along(x, d, i, i + 1))
            result = e.where(slice_along(mask, d, i, i + 1), joined, result)
        return Array(reshape(result, reduced_shape(x.shape, (d,), keepdims)))

    def _one_axis(self, axis: Axis, x: Node) -> tuple[int, ...]:
        """Return the axis of a reduction by a function that is not associative."""
        name = self._name
        axes = normalize_axes(name, axis, x.ndim)
        if len(axes) != 1:
            raise OptionError(
                f"{name}.reduce: the order of {len(axes)} axes matters, since the function is not "
                f"associative; reduce them one after another"
            )
        return axes

    def accumulate(self, x: Node, axis: int) -> Array:
        """Return the combined elements up to each one along an axis."""
        name = self._name
        d = normalize_axis(name, axis, x.ndim)
        if name in CUMULATIVE_FUNCTIONS and not self._is_complex_extremum(x):
            return Array(apply(CUMULATIVE_FUNCTIONS[name], x, axis=d, line=user_line()))
        if not self._is_associative:
            if x.shape[d] < 2:
                return Array(x)
            return Array(apply(CONCAT, *self._stepwise(x, d), axis=d, line=user_line()))
        step, extent = 1, x.shape[d]
        while step < extent:
            later = slice_along(x, d, step, extent)
            joined = self._combine(slice_along(x, d, 0, extent - step), later)
            x = apply(CONCAT, slice_along(x, d, 0, step), joined, axis=d, line=user_line())
            step *= 2
        return Array(x)

    def reduceat(self, x: Node, starts: np.ndarray[Any, Any], axis: int) -> Array:
        """Return the combined elements of segments of an axis, which begin at these positions."""
        name = self._name
        d = normalize_axis(name, axis, x.ndim)
        extent = x.shape[d]
        if starts.ndim != 1 or (starts.size and starts.dtype.kind not in "iu"):
            raise ShapeError(
                f"{name}.reduceat: indices are 1-D integers, was given {starts.dtype} of shape "
                f"{starts.shape}"
            )
        if not starts.size:
            return Array(slice_along(x, d, 0, 0))
        if starts.min() < 0 or starts.max() >= extent:
            raise PositionError(
                f"{name}.reduceat: an index is out of range for the extent {extent} of axis {d}; "
                f"indices are from 0 to {extent - 1}"
            )
        starts = starts.astype(np.int64)  # differences of unsigned integers wrap
        positions = leaf_of_values(starts)
        if name in REDUCTIONS and not self._is_complex_extremum(x) and (np.diff(starts) > 0).all():
            reduction = reduction_of(REDUCTIONS[name], x.dtype)
            return Array(reduced_segments(reduction, x, positions, d))
        segments = combined_segments if self._is_associative else stepwise_segments
        return Array(segments(self._combine, x, positions, d))
