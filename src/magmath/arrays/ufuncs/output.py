"""`out=` and `where=`: NumPy's arguments for the array that takes a result, and for the elements
that are computed.

`out` becomes a handle on the result, as `out[...] = result` makes it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any

from magmath.arrays.array import Array, as_array
from magmath.arrays.indexing.masked_elements import takes_selected
from magmath.core.dtypes import DType, as_dtype, is_same_kind
from magmath.core.shapes import broadcast
from magmath.errors import DTypeError, ShapeError
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


def stored(operation: str, result: Array, out: Any = None) -> Array:
    """Return `result`, or `out` with the values of `result` if `out` is given. Raises TypeError if
    `out` is not an Array, ShapeError for another shape, DTypeError where the
    element type of `out` is of a lower kind.
    """
    if isinstance(out, tuple) and len(out) == 1:
        (out,) = out
    if out is None:
        return result
    if not isinstance(out, Array):
        raise TypeError(
            f"{operation}: out, the argument after the operands, must be a magmath array, was "
            f"given {type(out).__name__}; leave it out, or make one with mm.empty(shape)"
        )
    if out.shape != result.shape:
        raise ShapeError(
            f"{operation}: out must have the shape of the result, {result.shape}, was given "
            f"{out.shape}"
        )
    return out.replace_value(_as_kind_allows(operation, result, out.dtype))


def _as_kind_allows(operation: str, result: Array, dtype: DType) -> Any:
    if not is_same_kind(result.dtype, dtype):
        raise DTypeError(
            f"{operation}: out has type {dtype}, the result is {result.dtype} and would lose "
            f"information; give an out of that type"
        )
    return e.astype(result.node, dtype)


def masked(operation: str, result: Array, where: Any, out: Array | None = None) -> Array:
    """Return `result` where the mask is true; elsewhere the values of `out`, or 0 without `out`.

    With `out`, the result has its element type, in which the other elements keep their values.
    """
    if where is True:
        return result
    mask = as_array(operation, where).node
    shape = broadcast(operation, result.shape, mask.shape)
    node = result.node
    if isinstance(out, Array):
        node = _as_kind_allows(operation, result, out.dtype)
    unmasked = out.node if isinstance(out, Array) else constant(0, node.dtype)
    return Array(e.where(broadcast_to(mask, shape), broadcast_to(node, shape), unmasked))


def takes_out(function: Callable[..., Array]) -> Callable[..., Array]:
    """Return an element-wise function, composed of others, that accepts `out`, also after the
    operands, `where` and `dtype`, and the elements that a mask selects."""
    operands = len(signature(function).parameters)
    function = takes_selected(function)

    @wraps(function)
    def with_options(
        *arguments: Any, out: Any = None, where: Any = True, dtype: Any = None, **options: Any
    ) -> Array:
        if len(arguments) == operands + 1 and out is None:
            *first, out = arguments
            arguments = tuple(first)
        if dtype is not None:
            element = as_dtype(dtype)
            arguments = tuple(
                Array(e.astype(as_array(function.__name__, x).node, element)) for x in arguments
            )
        result = function(*arguments, **options)
        if out is None and where is True:
            return result
        if isinstance(out, tuple) and len(out) == 1:
            (out,) = out
        array = as_array(function.__name__, result)
        return stored(function.__name__, masked(function.__name__, array, where, out), out)

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
            results = function(*arguments[:operands])
            if first is None and second is None and where is True:
                return results
            arrays = [as_array(name, x) for x in results]
            pairs = zip(arrays, (first, second), strict=True)
            masked_results = [(masked(name, x, where, one), one) for x, one in pairs]
            one, other = [stored(name, x, target) for x, target in masked_results]
            return one, other

        described: Any = with_options
        described.nin, described.nout, described.nargs = operands, 2, operands + 2
        described.identity = None
        return described

    return decorated
