"""PyTorch's reductions, scans and sorting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import magmath as mm
from magmath.interop.reading_torch.aten_types import Operator, binary, in_type


def _axes(axis: Any) -> Any:
    """Return axes as a tuple, and None for none, which PyTorch writes as []."""
    return (tuple(axis) or None) if isinstance(axis, (list, tuple)) else axis


def _reduction(function: Callable[..., Any]) -> Callable[..., Any]:
    def reduced(x: mm.Array, axis: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
        return function(in_type(x, dtype), axis=_axes(axis), keepdims=keepdim)

    return reduced


def _extremum(values: Callable[..., Any], positions: Callable[..., Any]) -> Callable[..., Any]:
    """Return `max` or `min`: of all elements, of two arrays, or along an axis with positions."""

    def found(x: mm.Array, axis: Any = None, keepdim: bool = False) -> Any:
        if axis is None:
            return values(x)
        if isinstance(axis, mm.Array):
            return binary(mm.maximum if values is mm.max else mm.minimum)(x, axis)
        at = positions(x, axis=axis, keepdims=True)
        largest = mm.take_along_axis(x, at, axis=axis)
        if keepdim:
            return largest, at
        return mm.squeeze(largest, axis=axis), mm.squeeze(at, axis=axis)

    return found


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
        less = float(unbiased) if correction is None else float(correction)
        return function(x, axis=_axes(axis), correction=less, keepdims=keepdim)

    return reduced


def _var_mean(x: mm.Array, axis: Any = None, **options: Any) -> tuple[mm.Array, mm.Array]:
    keepdim = options.get("keepdim", False)
    return _spread(mm.var)(x, axis, **options), mm.mean(x, axis=_axes(axis), keepdims=keepdim)


def _vector_norm(
    x: mm.Array, order: float = 2, axis: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> mm.Array:
    return mm.linalg.vector_norm(in_type(x, dtype), axis=_axes(axis), keepdims=keepdim, ord=order)


def _norm(x: mm.Array, order: Any = 2, axis: Any = None, keepdim: bool = False) -> mm.Array:
    return _vector_norm(x, 2 if order is None else order, axis, keepdim)


def _cumulative(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, axis, dtype=None: function(in_type(x, dtype), axis=axis)


def _sort(x: mm.Array, axis: int = -1, descending: bool = False) -> tuple[mm.Array, mm.Array]:
    order = mm.argsort(x, axis=axis, descending=descending)
    return mm.take_along_axis(x, order, axis=axis), order


def _topk(
    x: mm.Array, k: int, axis: int = -1, largest: bool = True, ordered: bool = True
) -> tuple[mm.Array, mm.Array]:
    order = mm.argsort(x, axis=axis, descending=largest)
    order = mm.take(order, mm.arange(k), axis=axis)
    return mm.take_along_axis(x, order, axis=axis), order


REDUCTIONS: dict[str, Operator] = {
    "sum": _reduction(mm.sum),
    "mean": _reduction(mm.mean),
    "prod": _reduction(mm.prod),
    "amax": _reduction(mm.max),
    "amin": _reduction(mm.min),
    "all": _reduction(mm.all),
    "any": _reduction(mm.any),
    "logsumexp": _reduction(mm.logsumexp),
    "max": _extremum(mm.max, mm.argmax),
    "min": _extremum(mm.min, mm.argmin),
    "argmax": _position(mm.argmax),
    "argmin": _position(mm.argmin),
    "var": _spread(mm.var),
    "std": _spread(mm.std),
    "var_mean": _var_mean,
    "cumsum": _cumulative(mm.cumsum),
    "cumprod": _cumulative(mm.cumprod),
    "linalg_vector_norm": _vector_norm,
    "norm": _norm,
    "sort": _sort,
    "argsort": lambda x, axis=-1, descending=False: mm.argsort(x, axis=axis, descending=descending),
    "topk": _topk,
}
