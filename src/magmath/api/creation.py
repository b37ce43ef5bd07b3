"""Creation functions of the array API, with an additional `layout` parameter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np

from magmath.arrays.array import Array, as_array, copy_of
from magmath.arrays.inputs.conversion import LayoutLike, bind_layout, leaf_of_values
from magmath.arrays.inputs.number_list import LISTS, has_elements_of, is_number, number_list
from magmath.arrays.inputs.operands import stacked_node
from magmath.arrays.lazy_array import LazyArray
from magmath.arrays.protocols.cached_functions import dispatch_cached
from magmath.arrays.traced_scalar import NumberNeeded, TracedScalar, TypedScalar
from magmath.arrays.variables.variable import Variable
from magmath.arrays.views import as_memory
from magmath.core.dtypes import (
    DType,
    as_dtype,
    bool_,
    convert_number,
    float64,
    int64,
    uint64,
)
from magmath.core.integers import is_integer
from magmath.core.keyword_hints import keyword_hints
from magmath.core.promotion import (
    common_dtype,
    get_default_dtype,
)
from magmath.core.shared_docstrings import F, with_paragraph
from magmath.core.shown_value import shown
from magmath.core.type_aliases import Number
from magmath.engine.devices import check_device
from magmath.engine.remote_array import remote_array_of
from magmath.engine.user_line import user_line
from magmath.errors import DTypeError, RangeError, ShapeError
from magmath.graph import Node, Shape, apply
from magmath.ops import creation, sums
from magmath.ops import elementwise as e
from magmath.ops.leaves import scalar
from magmath.ops.redistribute import redistribute

DTypeLike = DType | str | type | None
_EXACT_BITS = {"bfloat16": 8, "float16": 11, "float32": 24, "float64": 53}
"""Types, and the bits of the integers that they represent exactly."""


@keyword_hints
def asarray(
    a: Any,
    dtype: DTypeLike = None,
    order: str | None = None,
    *,
    layout: LayoutLike = None,
    copy: bool | None = None,
    device: object = None,
) -> Array:
    """Return an array from nested sequences, Python numbers, NumPy arrays, torch tensors or an
    Array.

    layout: a Layout or a rule such as `Layout.split(0)`; by default small arrays are replicated
    and larger ones split along their first dimension. Python integers become int64, floats and
    complex numbers the default types (`set_default_dtype`), also in lists; other elements keep
    their types, NumPy scalars in a list too. An Array that already has the requested properties is
    returned itself unless `copy` is True, or it is a number, such as a sum; other values are copied
    to the workers. Arrays in a list are joined, as by `stack`, and gradients pass through them. A
    copy of a variable is its value, a constant for `grad` and `minimize`. Raises DTypeError for
    element types that magmath lacks, LayoutError for a layout that does not fit, ShapeError for
    elements of several shapes, ValueError if `copy` is False and a copy is needed, DeviceError for
    a device other than the pool's.
    """
    check_device("asarray", device)
    if isinstance(a, Array):
        return _converted(a.converted(), dtype, layout, copy)
    if has_elements_of(a, LazyArray) and copy is not False:
        return _converted(Array(stacked_node("asarray", a)), dtype, layout, copy=None)
    if copy is False:
        raise ValueError(
            f"asarray: copy=False, but the values of a {type(a).__name__} must be copied to the "
            f"workers; leave `copy` out"
        )
    element = None if dtype is None else as_dtype(dtype)
    return as_memory(Array(leaf_of_values(a, element, layout)))


def _converted(array: Array, dtype: DTypeLike, layout: LayoutLike, copy: bool | None) -> Array:
    """Return an array in another type and layout; `copy` as for `asarray`."""
    if copy and isinstance(array, Variable):
        array = array.snapshot()
    result = array
    if dtype is not None and as_dtype(dtype) != array.dtype:
        result = Array(apply(e.ASTYPE, array.node, dtype=as_dtype(dtype), line=user_line()))
    if layout is not None:
        result = result.redistribute(layout)
    if copy is False and result is not array:
        changed = "type" if result.dtype != array.dtype else "layout"
        raise ValueError(
            f"asarray: copy=False, but a change of {changed} needs a copy; leave `copy` out"
        )
    if copy and result is array:
        result = copy_of(array)
    if copy is None and result is array and _is_number(array):
        return as_memory(Array(array.node))  # a write into it leaves the number as it is
    return as_memory(result) if copy else result


def _is_number(array: Array) -> bool:
    """Return True for what NumPy returns as a scalar, such as a sum."""
    return not array.shape and array.view_of is None and not isinstance(array, Variable)


@keyword_hints
def variable(
    name: str,
    value: Any,
    *,
    shape: int | Sequence[int] | None = None,
    dtype: DTypeLike = None,
    layout: LayoutLike = None,
) -> Variable:
    """Return a variable with this initial value, which optimizers can update.

    The value may be an initializer (`mm.nn.initializers`), a function that is called with `shape`,
    `dtype=` and `layout=`. The variable is stored in `layout`, by default in that of the value (see
    `asarray`). Real Python numbers, also in lists, give the default floating point type, unless
    `dtype` is given. Raises RangeError for an integer that this type rounds.
    """
    if not isinstance(name, str):
        raise TypeError(
            f"variable: the first argument is the name, a text, was given {type(name).__name__}; "
            f'write mm.variable("w", value)'
        )
    if callable(value) != (shape is not None):
        raise TypeError(
            f"variable: an initializer and a shape are given both or not at all, as in "
            f"mm.variable({name!r}, mm.nn.initializers.glorot, shape=(3, 2)); was "
            f"given {value!r} and shape={shape}"
        )
    if callable(value):
        value = value(shape, dtype=dtype, layout=layout)
    element = dtype
    if is_converted := dtype is None and _is_real(value):
        element = get_default_dtype()
    array = asarray(value, dtype=element, layout=layout)
    if is_converted:
        _check_exact(name, value, array.dtype)
    return Variable(name, remote_array_of(copy_of(array, array.node.layout).evaluated_leaf()))


def constant(value: Any, *, dtype: DTypeLike = None, layout: LayoutLike = None) -> Array:
    """Return an array that is not a variable; like `asarray`, with real Python numbers, also in
    lists, as floats."""
    element = get_default_dtype() if dtype is None and _is_real(value) else dtype
    return asarray(value, dtype=element, layout=layout)


def _check_exact(name: str, value: Any, dtype: DType) -> None:
    """Raise RangeError for an integer that a floating point type rounds."""
    listed = number_list(value if isinstance(value, LISTS) else [value])
    if listed is None or listed.kind is not int:
        return
    largest = max(listed.bounds, key=abs)
    if abs(largest) > 1 << _EXACT_BITS[dtype.name]:
        raise RangeError(
            f"variable: {name!r} would be {dtype.name}, in which {largest} may be rounded; pass "
            f"dtype=mm.int64 for an integer variable"
        )


def _is_real(value: Any) -> bool:
    """Return True for Python numbers, and nested lists of them, that are not complex."""
    listed = number_list(value if isinstance(value, LISTS) else [value])
    return listed is not None and listed.kind is not complex


def _floating(dtype: DTypeLike) -> DType:
    """Return `dtype`, or the default floating point type for None."""
    return get_default_dtype() if dtype is None else as_dtype(dtype)


def created_array(node: Node, layout: LayoutLike = None, device: object = None) -> Array:
    """Return the new array of a node, in a layout and at the user's line."""
    return _in_layout(node.at_line(user_line()), layout, device)


def _in_layout(node: Node, layout: LayoutLike, device: object) -> Array:
    check_device(node.name, device)
    if layout is None:
        return as_memory(Array(node))
    return as_memory(Array(redistribute(node, bind_layout(node.name, layout, node.shape))))


def normal_shape(operation: str, shape: int | Sequence[int]) -> Shape:
    """Return a shape as a tuple of Python integers.

    Raises ShapeError for negative extents, TypeError for other objects; the messages name the
    operation.
    """
    try:
        extents = (index(shape),) if is_integer(shape) else tuple(map(index, shape))
    except TypeError:
        raise TypeError(
            f"{operation}: a shape is an integer or a sequence of integers, such as (2, 3), was "
            f"given {shown(shape)}"
        ) from None
    if any(n < 0 for n in extents):
        raise ShapeError(
            f"{operation}: extents must be at least 0, was given {extents}; write such as (2, 3)"
        )
    return extents


_CREATION = """
layout   a Layout or a rule such as `Layout.split(0)`; None lets the plan choose
device   the pool's device, or None
order    has no effect, since arrays have no order in memory

Raises ShapeError for negative extents, LayoutError for a layout that does not fit, DeviceError for
a device other than the pool's.
"""


def _documented(function: F) -> F:
    return with_paragraph(function, _CREATION)


@_documented
@keyword_hints
@dispatch_cached
def full(
    shape: int | Sequence[int],
    fill_value: Number | Array,
    dtype: DTypeLike = None,
    order: str = "C",
    *,
    layout: LayoutLike = None,
    device: object = None,
) -> Array:
    """Return an array filled with one number, or with values that broadcast to its shape."""
    if isinstance(fill_value, (Array, np.ndarray, *LISTS)):
        values = as_array("full", fill_value, dtype)
        if values.ndim:
            stretched = sums.broadcast_to(values.node, normal_shape("full", shape))
            return _in_layout(stretched, layout, device)
        fill_value = values
    if isinstance(fill_value, Array):
        element = fill_value.dtype if dtype is None else as_dtype(dtype)
        value = e.astype(fill_value.node, element)
    else:
        if not isinstance(fill_value, (bool, int, float, complex, np.generic)):
            raise TypeError(
                f"full: needs a number or an array, was given {fill_value!r}; convert it first"
            )
        element = common_dtype(number_kind(fill_value)) if dtype is None else as_dtype(dtype)
        value = scalar(python_number(fill_value), element, "full")
    filled = creation.full(normal_shape("full", shape), value, user_line())
    return _in_layout(filled, layout, device)


@_documented
@keyword_hints
@dispatch_cached
def zeros(
    shape: int | Sequence[int],
    dtype: DTypeLike = None,
    order: str = "C",
    *,
    layout: LayoutLike = None,
    device: object = None,
) -> Array:
    """Return an array of zeros, of the default floating point type unless `dtype` is given."""
    return _filled("zeros", shape, 0, dtype, layout, device)


@_documented
@keyword_hints
@dispatch_cached
def ones(
    shape: int | Sequence[int],
    dtype: DTypeLike = None,
    order: str = "C",
    *,
    layout: LayoutLike = None,
    device: object = None,
) -> Array:
    """Return an array of ones, of the default floating point type unless `dtype` is given."""
    return _filled("ones", shape, 1, dtype, layout, device)


@_documented
@keyword_hints
def empty(
    shape: int | Sequence[int],
    dtype: DTypeLike = None,
    order: str = "C",
    *,
    layout: LayoutLike = None,
    device: object = None,
) -> Array:
    """Return an array whose values are unspecified (now zeros)."""
    return _filled("empty", shape, 0, dtype, layout, device)


def _filled(
    name: str,
    shape: int | Sequence[int],
    number: int,
    dtype: DTypeLike,
    layout: LayoutLike,
    device: object,
) -> Array:
    """Return an array of one number, of the default type for None. Raises DTypeError for a second
    extent in place of the type, as in PyTorch's `zeros(3, 4)`."""
    extents = normal_shape(name, shape)
    if isinstance(dtype, (int, np.integer)):
        raise DTypeError(
            f"{name}: the shape is one argument, followed by the type, was given {shape} and "
            f"{dtype}; write mm.{name}({(*extents, int(dtype))})"
        )
    return full(extents, number, dtype=_floating(dtype), layout=layout, device=device)


@_documented
@dispatch_cached
def full_like(
    a: Array,
    fill_value: Number | Array,
    dtype: DTypeLike = None,
    order: str = "K",
    *,
    shape: int | Sequence[int] | None = None,
    layout: LayoutLike = None,
    device: object = None,
) -> Array:
    """Return an array of `a`'s shape (or another) and type, filled with one number."""
    return _like("full_like", a, fill_value, dtype, shape, layout, device)


def _like(
    name: str,
    x: Any,
    fill_value: Number | Array,
    dtype: Any,
    shape: int | Sequence[int] | None,
    layout: LayoutLike,
    device: object,
) -> Array:
    """Return a filled array of x's shape; NumPy arrays are not copied to the workers."""
    like: Any = x if isinstance(x, (np.ndarray, np.generic)) else as_array(name, x)
    element = like.dtype if dtype is None else dtype
    extents = like.shape if shape is None else shape
    return full(extents, fill_value, dtype=element, layout=layout, device=device)


@_documented
@dispatch_cached
def zeros_like(
    a: Array,
    dtype: DTypeLike = None,
    order: str = "K",
    *,
    shape: int | Sequence[int] | None = None,
    layout: LayoutLike = None,
    device: object = None,
) -> Array:
    """Return zeros of `a`'s shape and type."""
    return _like("zeros_like", a, 0, dtype, shape, layout, device)


@_documented
@dispatch_cached
def ones_like(
    a: Array,
    dtype: DTypeLike = None,
    order: str = "K",
    *,
    shape: int | Sequence[int] | None = None,
    layout: LayoutLike = None,
    device: object = None,
) -> Array:
    """Return ones of `a`'s shape and type."""
    return _like("ones_like", a, 1, dtype, shape, layout, device)


@_documented
def empty_like(
    x: Array,
    /,
    dtype: DTypeLike = None,
    order: str = "K",
    *,
    shape: int | Sequence[int] | None = None,
    layout: LayoutLike = None,
    device: object = None,
) -> Array:
    """Return an array of x's shape and type whose values are unspecified (now zeros)."""
    return _like("empty_like", x, 0, dtype, shape, layout, device)


@keyword_hints
@dispatch_cached
def arange(
    start: float | None = None,
    stop: float | None = None,
    step: float = 1,
    dtype: DTypeLike = None,
    *,
    layout: LayoutLike = None,
    device: object = None,
) -> Array:
    """Return start, start + step, … up to but not including stop (or 0 … start).

    The type is int64 for Python integers, the default floating point type if one of the numbers is
    a float; NumPy scalars and 0-d arrays keep their own type.
    """
    require_known("arange", "start + step * mm.arange(n)", start, stop, step)
    if start is None and stop is None:
        raise TypeError("arange: needs a stop; pass the number of integers, or start and stop")
    if stop is None:
        start, stop = None, start
    numbers: Any = (0 if start is None else start, stop, step)
    _check_finite(numbers)
    natural = common_dtype(*map(number_kind, numbers))
    first, last, step = map(python_number, numbers)
    if step == 0:
        raise ShapeError("arange: step must not be 0; give a step such as 1 or -1")
    are_integers = natural.is_integer
    extent = (
        len(range(int(first), int(last), int(step)))
        if are_integers
        else max(0, math.ceil((last - first) / step))
    )
    element = as_dtype(dtype) if dtype is not None else natural
    if element is bool_ and extent > 2:
        raise DTypeError(
            f"arange: {extent} values are more than the 2 truth values; convert a comparison, such "
            "as mm.arange(n) > 0"
        )
    if are_integers and element.is_integer and extent:
        for number in (first, first + (extent - 1) * step):  # the ends of the values
            convert_number(number, element, "arange")
    exact = (uint64 if element is uint64 else int64) if are_integers else float64
    count = creation.iota((extent,), 0, exact)
    if exact is uint64:  # products and sums wrap, so that a negative step is as good
        first, step = first % 2**64, step % 2**64
    values = e.add(e.multiply(count, scalar(step, exact)), scalar(first, exact))
    return created_array(e.astype(values, element), layout, device)


def _check_finite(numbers: Sequence[Any]) -> None:
    """Raise unless the arguments of `arange` are finite numbers."""
    for number in numbers:
        if not hasattr(number, "__float__"):
            raise TypeError(
                f"arange: start, stop and step are numbers, was given {number!r}"
                "; pass Python numbers, or 0-d arrays through float(x)"
            )
        if not math.isfinite(number):
            raise ShapeError(
                f"arange: start, stop and step must be finite, was given {number!r}"
                "; replace nan and inf"
            )


def number_kind(value: Any) -> DType | type:
    """Return a number's input to type promotion: its class for a Python number, otherwise its
    element type."""
    return type(value) if is_number(value) else as_dtype(value.dtype)


def python_number(value: Any) -> Any:
    """Return a number as a Python number."""
    return value if is_number(value) else value.item()


def require_known(operation: str, remedy: str, *numbers: Any) -> None:
    """Raise NumberNeeded for traced numbers: arguments of a traced function, loop counters."""
    if any(isinstance(number, (TracedScalar, TypedScalar)) for number in numbers):
        raise NumberNeeded(
            f"{operation}: needs numbers that are known while the function is traced, was given an "
            f"argument of it; write {remedy} with a fixed n",
            numbers,
        )


@keyword_hints
@dispatch_cached
def eye(
    N: int,
    M: int | None = None,
    k: int = 0,
    dtype: DTypeLike = None,
    order: str = "C",
    *,
    layout: LayoutLike = None,
    device: object = None,
) -> Array:
    """Return ones on the k-th diagonal of N rows and M columns (N for None), zeros elsewhere."""
    shape = normal_shape("eye", (N, N if M is None else M))
    on_diagonal = by_diagonal("equal", shape, k)
    return created_array(e.astype(on_diagonal, _floating(dtype)), layout, device)


def by_diagonal(comparison: str, shape: Shape, k: int) -> Node:
    """Return for each element of a matrix how the number of its diagonal compares with k: 0 for the
    main one, positive above it.

    `shape` may have leading dimensions, which are ignored. Only the comparison has the size of the
    matrix.
    """
    height, width = shape[-2:]
    rows, columns = creation.iota((height, 1), 0), creation.iota((1, width), 1)
    # limited: k beyond the corners, and of any size, selects all diagonals or none
    first = scalar(max(-height, min(index(k), width)), int64)
    return e.call(comparison, columns, e.add(rows, first))
