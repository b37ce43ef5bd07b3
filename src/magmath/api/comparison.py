"""Comparison of whole arrays: equality and closeness, as lazy truth values."""

from __future__ import annotations

from typing import Any

import numpy as np

from magmath.api.creation import asarray
from magmath.api.data_types import astype
from magmath.api.elementwise import (
    abs,
    add,
    equal,
    isfinite,
    isnan,
    less_equal,
    logical_and,
    logical_or,
    multiply,
    subtract,
)
from magmath.api.manipulation import broadcast_shapes
from magmath.api.reductions import all
from magmath.arrays.array import Array, as_arrays
from magmath.arrays.indexing.masked_elements import takes_selected
from magmath.arrays.inputs.operands import promoted_nodes
from magmath.arrays.protocols.cached_functions import dispatch_cached
from magmath.arrays.storage.element_storage import can_overlap
from magmath.arrays.views import can_share_elements
from magmath.core.promotion import floating_dtype
from magmath.errors import ShapeError


@takes_selected
@dispatch_cached
def isclose(a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> Array:
    """Return True where |a - b| ≤ atol + rtol·|b|, and for equal infinities; with `equal_nan` also
    where both are nan."""
    x, y = _pair("isclose", a, b)
    element = floating_dtype(x.dtype)
    x, y = astype(x, element), astype(y, element)
    within = less_equal(abs(subtract(x, y)), add(multiply(abs(y), rtol), atol))
    close = logical_or(logical_and(within, isfinite(y)), equal(x, y))
    return logical_or(close, logical_and(isnan(x), isnan(y))) if equal_nan else close


@dispatch_cached
def allclose(a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> Array:
    """Return True if all elements are close; see `isclose`."""
    return all(isclose(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan))


@dispatch_cached
def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Array:
    """Return True if the shapes and all elements are equal; with `equal_nan` nan equals nan."""
    x, y = as_arrays("array_equal", a1, a2)
    if x.shape != y.shape:
        return asarray(False)
    same = equal(x, y)
    if equal_nan and {x.dtype.kind, y.dtype.kind} & {"float", "complex"}:
        same = logical_or(same, logical_and(isnan(x), isnan(y)))
    return all(same)


@dispatch_cached
def array_equiv(a1: Any, a2: Any) -> Array:
    """Return True if the shapes broadcast and all elements are equal."""
    x, y = as_arrays("array_equiv", a1, a2)
    try:
        broadcast_shapes(x.shape, y.shape)
    except ShapeError:
        return asarray(False)
    return all(equal(x, y))


def _pair(name: str, a: Any, b: Any) -> tuple[Array, Array]:
    """Return two operands of one type, numbers included."""
    x, y = promoted_nodes(name, *as_arrays(name, a, b))
    return Array(x), Array(y)


def may_share_memory(a: Any, b: Any, max_work: Any = None) -> bool:
    """Return True if a write into one array may change the other: the same array, or views of
    it."""
    return shares_memory(a, b)


def shares_memory(a: Any, b: Any, max_work: Any = None) -> bool:
    """Return True if a write into one array can change the other: the same array, or views with
    elements in common."""
    if isinstance(a, Array) and isinstance(b, Array):
        return can_share_elements(a, b)
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return can_overlap(a, b)
    return a is b
