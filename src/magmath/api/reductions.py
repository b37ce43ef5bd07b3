"""Reductions of the array API: sums, products, extrema, truth values and counts."""

from __future__ import annotations

from typing import Any

import numpy as np

from magmath.api.complex_order import complex_extremum
from magmath.api.creation import full
from magmath.api.data_types import astype
from magmath.api.elementwise import add, maximum, minimum, multiply, truth_values
from magmath.arrays.array import Array, as_array
from magmath.arrays.indexing.masked_elements import reduces_selected
from magmath.arrays.inputs.number_list import is_number
from magmath.arrays.inputs.operands import promoted_nodes
from magmath.arrays.protocols.cached_functions import dispatch_cached
from magmath.arrays.ufuncs.output import mask_of, stored
from magmath.core.dtypes import accumulator_dtype, as_dtype, bool_, is_same_kind
from magmath.core.keyword_hints import keyword_hints
from magmath.core.shapes import Axis, reduced_axes, size_of
from magmath.core.shared_docstrings import F, with_paragraph
from magmath.engine.user_line import user_line
from magmath.errors import ShapeError
from magmath.graph import apply
from magmath.ops import elementwise as e
from magmath.ops import reductions
from magmath.ops.sums import check_extremum

_AXIS = "axis      one axis, or a tuple of them; None, the default, for all\n"
_DTYPE = "dtype     the type of the result, to which the elements are converted first\n"
_OUT = """out       an array that takes the result and is returned
keepdims  if True, the reduced axes remain, with extent 1
"""
_INITIAL = "initial   a value that is combined with the elements\n"
_WHERE = (
    "where     truth values that broadcast to `a`; elements where they are false do not count\n"
)
_FITS = "\nRaises AxisError for an axis that `a` lacks, ShapeError for arrays that do not fit"
_NEUTRAL_ELEMENTS = {"sum": 0, "prod": 1, "any": False, "all": True}
_ACCUMULATE = {"sum": add, "prod": multiply}
_EXTREMA = {"max": maximum, "min": minimum}
"""The functions of two operands by which an initial value takes part."""


def _of_sum(function: F) -> F:
    return with_paragraph(function, f"{_AXIS}{_DTYPE}{_OUT}{_INITIAL}{_WHERE}{_FITS}.")


def _of_extremum(function: F) -> F:
    needs = ", for no\nelements without `initial`, and for `where` without `initial`."
    return with_paragraph(function, f"{_AXIS}{_OUT}{_INITIAL}{_WHERE}{_FITS}{needs}")


def _of_truths(function: F) -> F:
    return with_paragraph(function, f"{_AXIS}{_OUT}{_WHERE}{_FITS}.")


def _reduction(
    name: str,
    x: Array,
    axis: Axis,
    keepdims: bool,
    dtype: Any = None,
    out: Any = None,
    initial: Any = None,
    where: Any = None,
) -> Array:
    x = as_array(name, x, dtype)
    if name in _EXTREMA and initial is not None:
        initial = _initial_value(name, x, initial)
    if where is not None and where is not True:
        x = _masked(name, x, where, initial)
    axes = reduced_axes(name, axis, x.ndim)
    if name in _EXTREMA:
        if initial is None:
            check_extremum(name, x.shape, axes)
        else:
            x, axes = _with_initial(name, x, axes, initial)
        if x.dtype.kind == "complex":
            return stored(name, Array(complex_extremum(name, x.node, axes, keepdims)), out)
    record = reductions.REDUCTIONS[reductions.reduction_of(name, x.dtype)]
    node = apply(record, x.node, axis=axes, keepdims=keepdims, line=user_line())
    if dtype is not None:
        node = e.astype(node, as_dtype(dtype))
    elif name in ("sum", "prod"):
        node = e.astype(node, accumulator_dtype(x.dtype))
    result = Array(node)
    if initial is not None and name in _ACCUMULATE:
        result = _ACCUMULATE[name](result, _initial_value(name, result, initial))
    return result if out is None else stored(name, result, out)


def _masked(name: str, x: Array, where: Any, initial: Any) -> Array:
    """Return x with the neutral element of the reduction where the mask is false."""
    neutral = _NEUTRAL_ELEMENTS.get(name, initial)
    if neutral is None:
        raise ShapeError(
            f"{name}: a reduction with `where` needs an initial value"
            "; pass initial=…, the result for no elements"
        )
    mask = mask_of(name, where, x.shape)
    _, filling = promoted_nodes(name, x, neutral)
    elements = e.astype(x.node, filling.dtype)
    return Array(apply(e.WHERE, mask, elements, filling, line=user_line()))


def _initial_value(name: str, x: Array, initial: Any) -> Any:
    """Return the initial value of a reduction in the type of x, which is that of the result, unless
    the value is of a more general kind."""
    if isinstance(initial, np.generic):
        initial = initial.item()
    if is_number(initial):
        if x.dtype is bool_:
            return bool(initial)
        is_whole = isinstance(initial, float) and initial.is_integer()
        return int(initial) if is_whole and x.dtype.is_integer else initial
    value = as_array(name, initial)
    are_integers = value.dtype.is_integer and x.dtype.is_integer
    is_converted = x.dtype is bool_ or are_integers or is_same_kind(value.dtype, x.dtype)
    return astype(value, x.dtype) if is_converted else value


def _with_initial(
    name: str, x: Array, axes: tuple[int, ...], initial: Any
) -> tuple[Array, tuple[int, ...]]:
    """Return x and an initial value that takes part in an extremum, also that of no elements."""
    if size_of(x.shape[d] for d in axes) == 0:
        shape = tuple(1 if d in axes else n for d, n in enumerate(x.shape))
        _, value = promoted_nodes(name, x, initial)  # of the type that elements would give
        return full(shape, initial, dtype=value.dtype), axes
    return _EXTREMA[name](x, initial), axes


@_of_sum
@dispatch_cached
@keyword_hints
@reduces_selected
def sum(
    a: Array,
    axis: Axis = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Array:
    """Return the sum over `axis`; small integers accumulate in 64 bits."""
    return _reduction("sum", a, axis, keepdims, dtype, out, initial, where)


@_of_sum
@dispatch_cached
@keyword_hints
@reduces_selected
def prod(
    a: Array,
    axis: Axis = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Array:
    """Return the product over `axis`; small integers and truth values accumulate in 64 bits."""
    return _reduction("prod", a, axis, keepdims, dtype, out, initial, where)


@_of_extremum
@dispatch_cached
@keyword_hints
@reduces_selected
def max(
    a: Array,
    axis: Axis = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Array:
    """Return the largest element along `axis`; true is larger than false."""
    return _reduction("max", a, axis, keepdims, None, out, initial, where)


@_of_extremum
@dispatch_cached
@keyword_hints
@reduces_selected
def min(
    a: Array,
    axis: Axis = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Array:
    """Return the smallest element along `axis`; false is smaller than true."""
    return _reduction("min", a, axis, keepdims, None, out, initial, where)


@_of_truths
@dispatch_cached
@keyword_hints
@reduces_selected
def any(
    a: Array, axis: Axis = None, out: Any = None, keepdims: bool = False, *, where: Any = None
) -> Array:
    """Return True where an element along `axis` is true or not zero."""
    return _reduction("any", truth_values("any", a), axis, keepdims, None, out, None, where)


@_of_truths
@dispatch_cached
@keyword_hints
@reduces_selected
def all(
    a: Array, axis: Axis = None, out: Any = None, keepdims: bool = False, *, where: Any = None
) -> Array:
    """Return True where every element along `axis` is true or not zero."""
    return _reduction("all", truth_values("all", a), axis, keepdims, None, out, None, where)


@dispatch_cached
@keyword_hints
def count_nonzero(a: Array, axis: Axis = None, *, keepdims: bool = False) -> Array:
    """Return the number of elements along `axis` that are true or not zero, as int64."""
    truths = truth_values("count_nonzero", as_array("count_nonzero", a))
    axes = reduced_axes("count_nonzero", axis, truths.ndim)
    return sum(truths, axis=axes, keepdims=keepdims)
