"""Element-wise functions of the array API.

Most follow from the records in `ops/elementwise/`: name, documentation, conversions and methods;
`elementwise_names.py` declares them for type checkers. The others are written out below. Each takes
NumPy's `out`, `where` and `dtype`; functions of two operands have `reduce`, `accumulate`, `outer`
and `at` (`arrays/ufuncs/ufunc_methods.py`).
"""

# ruff: noqa: F405 (names of functions that follow from records)
from __future__ import annotations

import builtins
from collections.abc import Callable
from math import factorial
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np

from magmath.arrays.array import Array, as_array, binary, floating, unary
from magmath.arrays.indexing.masked_elements import MaskedElements, takes_selected
from magmath.arrays.inputs.number_list import is_number
from magmath.arrays.inputs.operands import OPERANDS
from magmath.arrays.protocols.cached_functions import dispatch_cached
from magmath.arrays.traced_scalar import TracedScalar, of_numbers
from magmath.arrays.ufuncs.output import (
    evaluated_operands,
    exact_operands,
    require_type,
    stored,
    takes_out,
    typed_operands,
)
from magmath.arrays.ufuncs.ufunc_methods import (
    BinaryFunction,
    UnaryFunction,
    as_ufunc,
    attach_ufunc_methods,
    attach_unary_methods,
)
from magmath.core.dtypes import PYTHON_NUMBERS, as_dtype, bool_, int8, side_of_range
from magmath.core.integers import is_integer, require_integer
from magmath.graph import Operation
from magmath.ops import elementwise as e
from magmath.ops.leaves import constant

_NUMBER_CLASSES = frozenset((*PYTHON_NUMBERS, TracedScalar))


def _unary(operation: Operation) -> UnaryFunction:
    """Return the public function of an operation with one operand."""
    name = operation.name

    def function(x: Array, /, out: Any = None, *, where: Any = True, dtype: Any = None) -> Array:
        if out is None and where is True and dtype is None and isinstance(x, Array):
            return unary(name, x)
        return _with_options(name, (x,), out, where, dtype)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = _documentation(operation, "The result has the shape of x.")
    return attach_unary_methods(name, function)


def _documentation(operation: Operation, shapes: str) -> str:
    """Return the documentation of a function: its first line, shapes and types, and options."""
    converts = operation.public.is_of_floats
    types = " Integers and truth values are converted to floating point." if converts else ""
    return (
        f"{operation.public.summary}\n\n    {shapes}{types}\n"
        f"    `dtype` is the type of the result, to which operands of the same or a less general\n"
        f"    kind are converted first. Elements where `where` is false are those of `out`, or 0.\n"
        f"    Raises DTypeError for types that the function does not take.\n    "
    )


def _part(operation: Operation) -> Callable[..., Array]:
    """Return the public function for a part of complex numbers, a view, as the attribute."""
    name, computed = operation.name, _unary(operation)

    def function(val: Array, out: Any = None, *, where: Any = True, dtype: Any = None) -> Array:
        if out is None and where is True and dtype is None and isinstance(val, Array):
            part: Array = getattr(val, name)
            return part
        return computed(val, out, where=where, dtype=dtype)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = operation.public.summary
    return function


def _binary(operation: Operation) -> BinaryFunction:
    """Return the public function of an operation with two operands."""
    name = operation.name

    def function(
        x1: Any, x2: Any, /, out: Any = None, *, where: Any = True, dtype: Any = None
    ) -> Array:
        if out is None and where is True and dtype is None and not _are_special(x1, x2):
            return binary(name, x1, x2)
        return _with_options(name, (x1, x2), out, where, dtype)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = _documentation(operation, "x1 and x2 broadcast.")
    public = operation.public
    return attach_ufunc_methods(name, function, public.is_associative, public.identity)


def _logical(operation: Operation) -> BinaryFunction:
    """Return the public function of an operation with two truth values; numbers are true where
    they are not zero."""
    name = operation.name

    def function(
        x1: Any, x2: Any, /, out: Any = None, *, where: Any = True, dtype: Any = None
    ) -> Array:
        operands = (x1, x2)
        if not _are_numbers(x1, x2):
            operands = truth_values(name, x1), truth_values(name, x2)
        return _with_options(name, operands, out, where, dtype)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = _documentation(operation, "x1 and x2 broadcast.")
    public = operation.public
    return attach_ufunc_methods(name, function, public.is_associative, public.identity)


def truth_values(name: str, x: Any) -> Any:
    """Return an operand as truth values: True where it is not zero. A number as a Python bool."""
    if not isinstance(x, Array):
        if is_number(x):
            return bool(x)
        if type(x) is MaskedElements:
            return x if x.dtype is bool_ else x._binary("not_equal", 0)
    array = as_array(name, x)
    return array if array.dtype is bool_ else binary("not_equal", array, 0)


def _are_numbers(x: Any, y: Any) -> bool:
    return type(x) in _NUMBER_CLASSES and type(y) in _NUMBER_CLASSES


def _are_special(x: Any, y: Any) -> bool:
    """Return True for two numbers, and if one operand is elements that a mask selects while a
    function is traced."""
    first, second = type(x), type(y)
    if first is MaskedElements or second is MaskedElements:
        return True
    return first in _NUMBER_CLASSES and second in _NUMBER_CLASSES


def _of_masked(operation: str, x: Any, *others: Any) -> Any:
    """Return an element-wise function of elements that a mask selects."""
    if not others:
        return x._unary(operation)
    (y,) = others
    return x._binary(operation, y) if type(x) is MaskedElements else y._reflected(operation, x)


def _with_options(
    operation: str, operands: tuple[Any, ...], out: Any, where: Any, dtype: Any
) -> Array:
    """Return an element-wise operation with NumPy's options. Of Python numbers alone the result is
    a Python number, which takes the type of the arrays that it is combined with."""
    are_plain_numbers = all(map(is_number, operands))
    if out is None and dtype is None and where is True:
        if MaskedElements in map(type, operands):
            return _of_masked(operation, *operands)  # type: ignore[no-any-return]
        if are_plain_numbers:
            with np.errstate(all="ignore"):
                number: Any = np.asarray(e.OPERATIONS[operation].reference(*operands)).item()
            return number  # type: ignore[no-any-return]
        if len(operands) == 2 and _are_numbers(*operands):  # one of them is traced
            return of_numbers(operation, *operands)
    element = None if dtype is None else as_dtype(dtype)
    arrays = evaluated_operands(operation, operands, where)
    if element is not None:
        arrays = typed_operands(operation, arrays, element)
    elif are_plain_numbers:
        arrays = exact_operands(arrays)
    if len(operands) == 1:
        result = unary(operation, as_array(operation, *arrays))
    else:
        result = binary(operation, *arrays)
    return stored(operation, require_type(operation, result, element), out, where)


FUNCTIONS: dict[str, Callable[..., Array]] = {
    **{record.name: _part(record) for record in e.PARTS},
    **{record.name: _unary(record) for record in e.UNARY if record.public.summary},
    **{record.name: _binary(record) for record in e.BINARY if record.public.summary},
    **{record.name: _logical(record) for record in e.LOGICAL},
}
"""The functions that follow from records, by name."""

if TYPE_CHECKING:
    from magmath.api.elementwise_names import *  # noqa: F403
else:  # by names of the module, so that a record is the only place of its function
    globals().update(FUNCTIONS)

pow = power


@takes_selected
def polygamma(n: int, x: Array, /) -> Array:
    """Return the derivative of order n + 1 of lgamma at each element, n ≥ 0; n = 1 is trigamma."""
    order = require_integer("polygamma: n", n, 0)
    if order == 0:
        return digamma(x)
    x = floating("polygamma", x)
    series = binary("zeta", float(order + 1), x)
    return multiply(series, (-1.0) ** (order + 1) * float(factorial(order)))


@as_ufunc(1)
@takes_selected
def logical_not(x: Array, /, out: Any = None, *, where: Any = True, dtype: Any = None) -> Array:
    """Return True where x is false or zero."""
    operand = x if is_number(x) else truth_values("logical_not", x)
    return _with_options("logical_not", (operand,), out, where, dtype)


_inverse = _unary(e.OPERATIONS["reciprocal"])


@as_ufunc(1)
@takes_selected
def reciprocal(x: Array, /, out: Any = None, *, where: Any = True, dtype: Any = None) -> Array:
    """Return 1 / x; of integers that of 1 and -1, and otherwise 0, as NumPy."""
    if type(x) not in _NUMBER_CLASSES:
        element = None if dtype is None else as_dtype(dtype)
        if element is not None:
            (x,) = typed_operands("reciprocal", [x], element)
        array = as_array("reciprocal", x)
        if array.dtype is bool_ or array.dtype.is_integer:
            node = e.astype(array.node, int8) if array.dtype is bool_ else array.node
            is_unit = equal(abs(Array(node)), 1)
            result = Array(e.where(is_unit.node, node, constant(0, node.dtype)))
            return stored("reciprocal", require_type("reciprocal", result, element), out, where)
    return _inverse(x, out, where=where, dtype=dtype)


_rint = _unary(e.OPERATIONS["round"])


@dispatch_cached
@takes_selected
def round(a: Array, decimals: int = 0, out: Any = None) -> Array:
    """Return each element rounded to the nearest multiple of 10**-decimals, ties to even.

    Raises TypeError for decimals that are no integer.
    """
    if decimals == 0 and not (isinstance(a, Array) and a.dtype is bool_):
        return _rint(a, out)
    if not is_integer(decimals):
        raise TypeError(f"round: decimals is an integer, was given {decimals!r}; pass such as 2")
    decimals = index(decimals)  # the powers of a number of NumPy have a type of their own
    if is_number(a):
        number: Any = np.round(a, decimals)
        return number.item()  # type: ignore[no-any-return]
    array = as_array("round", a)
    if array.dtype is bool_:
        return stored("round", floating("round", array), out)
    if array.dtype.kind == "complex":
        parts = [Array(e.call(part, array.node)) for part in ("real", "imag")]
        rounded = [round(part, decimals).node for part in parts]
        return stored("round", Array(e.call("complex", *rounded)), out)
    scale = 10.0 ** builtins.abs(decimals)
    if array.dtype.is_integer:
        if decimals > 0:
            return stored("round", positive(array), out)
        tens = _rint(divide(array, scale))
        return stored("round", Array(e.astype(multiply(tens, scale).node, array.dtype)), out)
    if decimals > 0:
        return stored("round", divide(_rint(multiply(array, scale)), scale), out)
    return stored("round", multiply(_rint(divide(array, scale)), scale), out)


@as_ufunc(1)
@takes_out
def positive(x: Array, /) -> Array:
    """Return the elements of x as they are."""
    return +as_array("positive", x)


@dispatch_cached
@takes_selected
def clip(
    a: Array,
    min: Any = None,
    max: Any = None,
    out: Any = None,
    *,
    a_min: Any = None,
    a_max: Any = None,
) -> Array:
    """Return `a` limited to [min, max], also named a_min and a_max; None leaves a side open.

    The gradient of elements at a limit is 1, as in PyTorch.
    """
    min, max = a_min if min is None else min, a_max if max is None else max
    result = Array(as_array("clip", a).node)
    for name, limit in (("minimum", min), ("maximum", max)):
        if limit is not None and not isinstance(limit, OPERANDS):
            raise TypeError(
                f"clip: the {name} must be a number, an array or a list, was given "
                f"{type(limit).__name__}; None leaves a side open"
            )
    if isinstance(min, int) and side_of_range(min, result.dtype) < 0:  # below all elements
        min = None
    if isinstance(max, int) and side_of_range(max, result.dtype) > 0:
        max = None
    if min is not None:
        result = binary("clamp_min", result, min)
    if max is not None:
        result = binary("clamp_max", result, max)
    return stored("clip", result, out)
