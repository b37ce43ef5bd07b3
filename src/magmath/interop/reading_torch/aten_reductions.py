"""PyTorch's reductions, scans and sorting."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

import magmath as mm
from magmath.interop.reading_torch.aten_types import (
    Operator,
    binary,
    dtype_of,
    in_type,
    is_exact,
    of_floats,
    promoted,
)


def _axes(axis: Any) -> Any:
    """Return axes as a tuple, and None for none, which PyTorch writes as []."""
    return (tuple(axis) or None) if isinstance(axis, (list, tuple)) else axis


def _reduction(function: Callable[..., Any]) -> Callable[..., Any]:
    def reduced(x: mm.Array, axis: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
        return function(in_type(x, dtype), axis=_axes(axis), keepdims=keepdim)

    return reduced


def _total(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a sum or product, whose type is int64 for integers unless another one is given."""

    def reduced(x: mm.Array, axis: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
        kind = _type_of_total(x, dtype)
        x = in_type(x, kind)
        return function(x, axis=_axes(axis), keepdims=keepdim, dtype=dtype_of(kind))

    return reduced


def _running_total(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a running sum or product, whose type is that of a sum."""

    def running(x: mm.Array, axis: int, *, dtype: Any = None) -> Any:
        kind = _type_of_total(x, dtype)
        return function(in_type(x, kind), axis=axis, dtype=dtype_of(kind))

    return running


def _truth(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `all` or `any`, which is a uint8 for uint8 in PyTorch, otherwise a truth value."""

    def reduced(x: mm.Array, axis: Any = None, keepdim: bool = False) -> Any:
        result = function(x, axis=_axes(axis), keepdims=keepdim)
        return mm.astype(result, x.dtype) if x.dtype == mm.uint8 else result

    return reduced


def _type_of_total(x: mm.Array, dtype: torch.dtype | None) -> torch.dtype | None:
    return torch.int64 if dtype is None and is_exact(x) else dtype


def _extremum(values: Callable[..., Any], positions: Callable[..., Any]) -> Callable[..., Any]:
    """Return `max` or `min`: of all elements, of two arrays, or along an axis with positions."""

    def extremum(x: mm.Array, axis: Any = None, keepdim: bool = False) -> Any:
        if axis is None:
            return values(x)
        if isinstance(axis, mm.Array):
            return binary(mm.maximum if values is mm.max else mm.minimum)(x, axis)
        position = positions(x, axis=axis, keepdims=True)
        value = mm.take_along_axis(x, position, axis=axis)
        if keepdim:
            return value, position
        return mm.squeeze(value, axis=axis), mm.squeeze(position, axis=axis)

    return extremum


def _position(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, axis=None, keepdim=False: function(x, axis=axis, keepdims=keepdim)


def _spread(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `var` or `std`, whose divisor is the number of elements less a correction."""

    def reduced(
        x: mm.Array,
        axis: Any = None,
        unbiased: bool = True,
        keepdim: bool = False,
        *,
        correction: float | None = None,
    ) -> Any:
        if isinstance(axis, bool):  # the form without axes
            axis, unbiased = None, axis
        correction = float(unbiased) if correction is None else float(correction)
        return function(x, axis=_axes(axis), correction=correction, keepdims=keepdim)

    return reduced


def _with_mean(spread: Callable[..., Any]) -> Callable[..., Any]:
    def reduced(
        x: mm.Array, axis: Any = None, unbiased: bool = True, keepdim: bool = False, **options: Any
    ) -> tuple[mm.Array, mm.Array]:
        axes = None if isinstance(axis, bool) else _axes(axis)
        mean = mm.mean(x, axis=axes, keepdims=keepdim)
        return spread(x, axis, unbiased, keepdim, **options), mean

    return reduced


def _running_extremum(function: Any) -> Callable[..., Any]:
    """Return `cummax` or `cummin`: running extrema, and the positions of the last such elements."""

    def running(x: mm.Array, axis: int) -> tuple[mm.Array, mm.Array]:
        extrema = function.accumulate(x, axis=axis)
        numbers = mm.arange(x.shape[axis], dtype=mm.int64)
        numbers = mm.reshape(
            numbers, tuple([-1 if d == axis % x.ndim else 1 for d in range(x.ndim)])
        )
        is_extremum = (x == extrema) | mm.isnan(x)
        positions = mm.maximum.accumulate(mm.where(is_extremum, numbers, 0), axis=axis)
        return mm.take_along_axis(x, positions, axis=axis), positions

    return running


def _vector_norm(
    x: mm.Array, order: Any = 2, axis: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> mm.Array:
    order = 2 if order is None else order
    return mm.linalg.vector_norm(in_type(x, dtype), axis=_axes(axis), keepdims=keepdim, ord=order)


def _order(x: mm.Array, axis: int, descending: bool) -> mm.Array:
    """Return the positions of the elements in order; nan is the largest number, as in PyTorch."""
    if not (descending and x.dtype.is_floating and x.ndim):
        return mm.argsort(x, axis=axis, descending=descending)
    order = mm.flip(mm.argsort(mm.flip(x, axis=axis), axis=axis), axis=axis)
    return x.shape[axis] - 1 - order


def _sort(
    x: mm.Array, dim: int = -1, descending: bool = False, *, stable: bool | None = None
) -> tuple[mm.Array, mm.Array]:
    """Return the elements in order, and their positions; all sorts are stable."""
    order = _order(x, dim, descending)
    return mm.take_along_axis(x, order, axis=dim), order


def _topk(
    x: mm.Array, k: int, axis: int = -1, largest: bool = True, ordered: bool = True
) -> tuple[mm.Array, mm.Array]:
    order = _order(x, axis, largest)
    order = mm.take(order, mm.arange(k), axis=axis)
    return mm.take_along_axis(x, order, axis=axis), order


def _ranked(x: mm.Array, rank: int, axis: int = -1, keepdim: bool = False) -> Any:
    """Return the element of a rank, from 1, in increasing order, and its position."""
    values, order = _sort(x, axis)
    keys = (slice(rank - 1, rank) if keepdim else rank - 1,)
    key = (*[slice(None)] * (axis % x.ndim), *keys)
    return values[key], order[key]


def _searchsorted(
    boundaries: mm.Array, x: Any, *, out_int32: bool = False, right: bool = False, side: Any = None
) -> mm.Array:
    """Return the number of boundaries, along their last axis, that are less than x, or not
    greater."""
    side = side or ("right" if right else "left")
    boundaries, x = promoted(boundaries, mm.asarray(x))
    if boundaries.ndim == 1:
        places = mm.searchsorted(boundaries, x, side=side)
    else:
        compare = operator.le if side == "right" else operator.lt
        places = mm.sum(compare(boundaries[..., None, :], x[..., None]), axis=-1)
    return mm.astype(places, mm.int32 if out_int32 else mm.int64, copy=False)


REDUCTIONS: dict[str, Operator] = {
    "sum": _total(mm.sum),
    "mean": _reduction(mm.mean),
    "prod": _total(mm.prod),
    "amax": _reduction(mm.max),
    "amin": _reduction(mm.min),
    "all": _truth(mm.all),
    "any": _truth(mm.any),
    "logsumexp": _reduction(of_floats(mm.logsumexp)),
    "max": _extremum(mm.max, mm.argmax),
    "min": _extremum(mm.min, mm.argmin),
    "argmax": _position(mm.argmax),
    "argmin": _position(mm.argmin),
    "var": _spread(mm.var),
    "std": _spread(mm.std),
    "var_mean": _with_mean(_spread(mm.var)),
    "std_mean": _with_mean(_spread(mm.std)),
    "nansum": _total(mm.nansum),
    "cummax": _running_extremum(mm.maximum),
    "cummin": _running_extremum(mm.minimum),
    "logcumsumexp": of_floats(lambda x, axis: mm.logaddexp.accumulate(x, axis=axis)),
    "kthvalue": _ranked,
    "searchsorted": _searchsorted,
    "bucketize": lambda x, boundaries, **options: _searchsorted(boundaries, x, **options),
    "cumsum": _running_total(mm.cumsum),
    "cumprod": _running_total(mm.cumprod),
    "linalg_vector_norm": _vector_norm,
    "norm": _vector_norm,
    "sort": _sort,
    "argsort": lambda *args, **options: _sort(*args, **options)[1],
    "topk": _topk,
}
