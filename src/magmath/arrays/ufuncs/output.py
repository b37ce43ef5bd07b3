"""`out=` and `where=`: NumPy's arguments for the array that takes a result, and for the elements
that are computed.

`out` becomes a handle on the result, as `out[...] = result` makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from inspect import signature
from typing import Any

import numpy as np

from magmath.arrays.array import Array, as_array
from magmath.arrays.indexing.masked_elements import takes_selected
from magmath.arrays.inputs.number_list import is_number
from magmath.arrays.inputs.operands import same_kind_operand
from magmath.core.dtypes import DType, as_dtype, bool_, is_same_kind
from magmath.core.shapes import Shape, broadcast, can_broadcast_to
from magmath.errors import DTypeError, ShapeError
from magmath.graph import Node
from magmath.ops import elementwise as e
from magmath.ops.leaves import constant
from magmath.ops.sums import broadcast_to


def target(operation: str, x: Any) -> Array:
    """Return the array that an operation writes to. Raises TypeError for other objects."""
    if not isinstance(x, Array):
        raise TypeError(
            f"{operation}: writes to a magmath array, was given {type(x).__name__}; make one with "
            f"mm.asarray(x)"
        )
    return x


def stored(operation: str, result: Array, out: Any = None, where: Any = True) -> Array:
    """Return `result`, or `out`, also as a tuple of one, with the values of `result`.

    Where the mask is false, the elements are those of `out`, or 0 without `out`. Raises TypeError
    if `out` is not an Array, ShapeError for another shape, DTypeError where the element type of
    `out` is of a lower kind.
    """
    if isinstance(out, tuple) and len(out) == 1:
        (out,) = out
    if out is None:
        if where is True:
            return result
        return Array(_masked(operation, result.node, where, constant(0, result.dtype)))
    if not isinstance(out, Array):
        raise TypeError(
            f"{operation}: out, the argument after the operands, must be a magmath array, was "
            f"given {type(out).__name__}; leave it out, or make one with mm.empty(shape)"
        )
    if not is_same_kind(result.dtype, out.dtype):
        raise DTypeError(
            f"{operation}: out has type {out.dtype}, the result is {result.dtype} and would lose "
            f"information; give an out of that type"
        )
    node = e.astype(result.node, out.dtype)  # in which the other elements keep their values
    if where is not True:
        node = _masked(operation, node, where, out.node)
    if out.shape != node.shape:
        raise ShapeError(
            f"{operation}: out must have the shape of the result, {node.shape}, was given "
            f"{out.shape}"
        )
    return out.replace_value(node)


def _masked(operation: str, node: Node, where: Any, others: Node) -> Node:
    """Return the node where the mask is true, elsewhere the others."""
    mask = as_array(operation, where).node
    shape = broadcast(operation, node.shape, mask.shape)
    return e.where(broadcast_to(mask, shape), broadcast_to(node, shape), others)


def mask_of(operation: str, where: Any, shape: Shape) -> Node:
    """Return the truth values that select elements of an array of this shape.

    Raises ShapeError unless they broadcast to it: larger ones would count elements several times.
    """
    mask = as_array(operation, where).node
    if not can_broadcast_to(mask.shape, shape):
        raise ShapeError(
            f"{operation}: where= must broadcast to the shape of the array, {shape}, was given "
            f"{mask.shape}; broadcast the array first, with mm.broadcast_to(x, shape)"
        )
    return mask


def evaluated_operands(operation: str, operands: Sequence[Any], where: Any) -> Sequence[Any]:
    """Return operands of an element-wise function that is evaluated only where a mask is true.

    It computes the other elements too, of operands that are 1 there: the operands of the caller
    neither fail nor make gradients nan.
    """
    if where is True:
        return operands
    return [_or_one(operation, x, where) if _is_array(x) else x for x in operands]


def _is_array(x: Any) -> bool:
    return isinstance(x, np.ndarray) or (isinstance(x, Array) and not x.is_weak)


def _or_one(operation: str, x: Any, where: Any) -> Array:
    """Return an array where a mask is true, elsewhere 1."""
    node = as_array(operation, x).node
    return Array(_masked(operation, node, where, constant(1, node.dtype)))


def typed_operands(operation: str, operands: Sequence[Any], dtype: DType) -> list[Any]:
    """Return the operands of an element-wise function whose result is to have a type, in that type.

    As in NumPy, `dtype` is the type of the result, to which operands are converted if their kind is
    not more general. Results of type bool need no conversion: comparisons have them for operands of
    any type. Complex operands remain complex, since functions such as `abs` are real. DTypeError is
    raised for floats to be converted to integers, and signed integers to unsigned ones.
    """
    if dtype is bool_:
        return exact_operands(operands)
    return [Array(same_kind_operand(operation, x, dtype, stays_complex=True)) for x in operands]


def require_type(operation: str, result: Array, dtype: DType | None) -> Array:
    """Return the result of a function. Raises DTypeError unless it has this type, if one is
    given."""
    if dtype is not None and result.dtype is not dtype:
        raise DTypeError(
            f"{operation}: the result for dtype={dtype} would be {result.dtype}; convert it with "
            f"mm.astype(result, mm.{dtype})"
        )
    return result


def exact_operands(operands: Sequence[Any]) -> list[Any]:
    """Return operands; if all are Python numbers, as arrays of NumPy, which have their digits."""
    are_numbers = all(map(is_number, operands))
    return [np.asarray(x) for x in operands] if are_numbers else list(operands)


def number_result(operation: str, numbers: Sequence[Any]) -> Any:
    """Return NumPy's function of Python numbers alone: a number, or a tuple of numbers."""
    with np.errstate(all="ignore"):
        result = getattr(np, operation)(*numbers)
    return tuple(x.item() for x in result) if isinstance(result, tuple) else result.item()


def takes_out(function: Callable[..., Array]) -> Callable[..., Array]:
    """Return an element-wise function, composed of others, that accepts `out`, also after the
    operands, `where` and `dtype`, and the elements that a mask selects.

    Of Python numbers alone, without these options, it is NumPy's function.
    """
    return _with_options(function, None)


def takes_out_of_first_type(function: Callable[..., Array]) -> Callable[..., Array]:
    """Return a function as `takes_out` does, of which only the first operand has the type of the
    result."""
    return _with_options(function, 1)


def _with_options(function: Callable[..., Array], typed: int | None) -> Callable[..., Array]:
    name, operands = function.__name__, len(signature(function).parameters)
    function = takes_selected(function)

    @wraps(function)
    def with_options(
        *arguments: Any, out: Any = None, where: Any = True, dtype: Any = None, **options: Any
    ) -> Array:
        if len(arguments) == operands + 1 and out is None:
            *first, out = arguments
            arguments = tuple(first)
        arguments = tuple(evaluated_operands(name, arguments, where))
        if dtype is not None:
            element = as_dtype(dtype)
            converted = typed_operands(name, arguments[:typed], element)
            others = () if typed is None else arguments[typed:]
            result = function(*converted, *others, **options)
            return stored(name, require_type(name, result, element), out, where)
        if out is None and where is True:
            is_array = not arguments or isinstance(arguments[0], Array)
            if not is_array and all(map(is_number, arguments)):
                return number_result(name, arguments)  # type: ignore[no-any-return]
            return function(*arguments, **options)
        result = function(*exact_operands(arguments), **options)
        return stored(name, result, out, where)

    return with_options


def takes_two_outs(operands: int) -> Callable[[Callable[..., Any]], Any]:
    """Return the decorator of a function with two results that accepts `out` and `where`.

    Arrays for the results may follow the operands, or be the tuple `out`, as in NumPy.
    """

    def decorated(function: Callable[..., tuple[Array, Array]]) -> Any:
        name: str = function.__name__

        @wraps(function)
        def with_options(
            *arguments: Any, out: Any = None, where: Any = True
        ) -> tuple[Array, Array]:
            outs = tuple(arguments[operands:]) or out or ()
            if not isinstance(outs, tuple) or len(outs) > 2:
                raise TypeError(f"{name}: out is a tuple of two arrays, was given {out!r}")
            first, second = (*outs, None, None)[:2]
            values = arguments[:operands]
            if first is None and second is None and where is True:
                if all(map(is_number, values)):
                    return number_result(name, values)  # type: ignore[no-any-return]
                return function(*values)
            results = function(*exact_operands(evaluated_operands(name, values, where)))
            return (
                stored(name, results[0], first, where),
                stored(name, results[1], second, where),
            )

        described: Any = with_options
        described.nin, described.nout, described.nargs = operands, 2, operands + 2
        described.identity = None
        return described

    return decorated
