"""Creation functions by NumPy's names. Arrays have no order in memory: `order`, `subok` and `like`
have no effect."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from magmath.api.creation import DTypeLike, asarray
from magmath.api.elementwise import isfinite
from magmath.api.index_functions import indices
from magmath.api.manipulation import reshape
from magmath.api.reductions import all
from magmath.arrays.array import Array, copy_of
from magmath.arrays.inputs.conversion import LayoutLike
from magmath.arrays.views import as_memory
from magmath.core.dtypes import as_dtype, stored_dtype
from magmath.core.keyword_hints import keyword_hints
from magmath.errors import RangeError


@keyword_hints
def array(
    object: Any,
    dtype: DTypeLike = None,
    *,
    copy: bool | None = True,
    order: str | None = None,
    subok: bool = False,
    ndmin: int = 0,
    like: Any = None,
    layout: LayoutLike = None,
) -> Array:
    """Return an array with the values of `object`, with at least `ndmin` dimensions; see `asarray`.
    Nested lists may contain arrays."""
    x = asarray(object, dtype=dtype, copy=copy, layout=layout)
    return x if x.ndim >= ndmin else reshape(x, (1,) * (ndmin - x.ndim) + x.shape)


def asanyarray(
    a: Any, dtype: DTypeLike = None, order: str | None = None, *, copy: bool | None = None
) -> Array:
    """Return `a` as an array; see `asarray`."""
    return asarray(a, dtype=dtype, copy=copy)


def ascontiguousarray(a: Any, dtype: DTypeLike = None) -> Array:
    """Return `a` as an array of one dimension or more.

    Arrays have no order in memory. A view whose elements NumPy would have to copy is copied, such
    as x.T or x[::2], so that later writes into the result do not reach `a`.
    """
    x = array(a, dtype, copy=None, ndmin=1)
    view = x.view_of if x is a else None
    return x if view is None or view.is_contiguous else copy_of(x)


def asfortranarray(a: Any, dtype: DTypeLike = None) -> Array:
    """Return `a` as an array; see `ascontiguousarray`.

    An array of two dimensions or more is copied, unless it is the transpose of another one.
    """
    x = asarray(a, dtype=dtype)
    if x is not a or x.ndim < 2:
        return ascontiguousarray(x) if x.ndim else x
    view = x.T.view_of
    return x if x.is_variable or (view is not None and view.is_contiguous) else copy_of(x)


def asarray_chkfinite(a: Any, dtype: DTypeLike = None, order: str | None = None) -> Array:
    """Return `a` as an array; RangeError if it has nan or infinity, for which its values are
    computed."""
    x = asarray(a, dtype=dtype)
    if x.dtype.kind in ("float", "complex") and not all(isfinite(x)):
        raise RangeError(
            "asarray_chkfinite: the array must have neither nan nor infinity"
            "; replace them with mm.nan_to_num(x)"
        )
    return x


def copy(a: Any, order: str = "K", subok: bool = False) -> Array:
    """Return an array with the values of `a`."""
    return as_memory(copy_of(a)) if isinstance(a, Array) else asarray(a)


def fromfunction(
    function: Callable[..., Any], shape: Any, *, dtype: DTypeLike = float, **options: Any
) -> Any:
    """Return the result of a function of the indices of the elements; it is called once, with one
    array of indices per dimension."""
    return function(*indices(shape, dtype=dtype), **options)


def fromiter(iter: Iterable[Any], dtype: DTypeLike, count: int = -1) -> Array:
    """Return a 1-D array of the numbers of an iterable, which are collected in the controller."""
    return asarray(np.fromiter(iter, as_dtype(dtype).dtype, count))


def frombuffer(buffer: Any, dtype: DTypeLike = float, count: int = -1, offset: int = 0) -> Array:
    """Return a 1-D array of the numbers in a buffer, in the byte order of `dtype`, as ">i2"."""
    return asarray(np.frombuffer(buffer, stored_dtype(dtype), count, offset))


def fromstring(string: str, dtype: DTypeLike = float, count: int = -1, *, sep: str = " ") -> Array:
    """Return a 1-D array of the numbers in a text."""
    return asarray(np.fromstring(string, as_dtype(dtype).dtype, count, sep=sep))
