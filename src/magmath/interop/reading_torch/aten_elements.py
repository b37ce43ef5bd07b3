"""PyTorch's operators that read and write chosen elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import magmath as mm
from magmath.interop.reading_torch.aten_types import Operator


def _index(x: mm.Array, indices: Sequence[Any]) -> mm.Array:
    return x[tuple([slice(None) if i is None else i for i in indices])]


def _index_put(
    x: mm.Array, indices: Sequence[Any], values: mm.Array, accumulate: bool = False
) -> mm.Array:
    result = mm.copy(x)
    key = tuple([slice(None) if i is None else i for i in indices])
    if accumulate:
        mm.add.at(result, key, values)
    else:
        result[key] = mm.astype(values, x.dtype, copy=False)
    return result


def _slice_scatter(
    x: mm.Array,
    values: mm.Array,
    axis: int = 0,
    start: int | None = None,
    stop: int | None = None,
    step: int = 1,
) -> mm.Array:
    result = mm.copy(x)
    key = (*[slice(None)] * (axis % x.ndim), slice(start, stop, step))
    result[key] = mm.astype(values, x.dtype, copy=False)
    return result


def _select_scatter(x: mm.Array, values: mm.Array, axis: int, index: int) -> mm.Array:
    result = mm.copy(x)
    result[(*[slice(None)] * (axis % x.ndim), index)] = mm.astype(values, x.dtype, copy=False)
    return result


def _gather(x: mm.Array, axis: int, index: mm.Array, sparse_grad: bool = False) -> mm.Array:
    return x[_place(index, axis % max(x.ndim, 1))] if x.ndim else x[None][index]


def _scatter(x: mm.Array, axis: int, index: mm.Array, source: Any) -> mm.Array:
    result = mm.copy(x)
    if isinstance(source, mm.Array) and source.ndim:  # of which PyTorch reads the first part
        source = source[tuple([slice(n) for n in index.shape])]
    result[_place(index, axis % x.ndim)] = source
    return result


def _scatter_add(x: mm.Array, axis: int, index: mm.Array, source: mm.Array) -> mm.Array:
    result = mm.copy(x)
    part = source[tuple([slice(n) for n in index.shape])]
    mm.add.at(result, _place(index, axis % x.ndim), part)
    return result


_UPDATES: dict[str, tuple[Any, float]] = {
    "sum": (mm.add, 0),
    "mean": (mm.add, 0),
    "prod": (mm.multiply, 1),
    "amax": (mm.maximum, -mm.inf),
    "amin": (mm.minimum, mm.inf),
}
"""The function that joins elements, and the number that it does not count."""


def _scatter_reduce(
    x: mm.Array,
    axis: int,
    index: mm.Array,
    source: mm.Array,
    reduce: str,
    *,
    include_self: bool = True,
) -> mm.Array:
    function, neutral = _UPDATES[reduce]
    place = _place(index, axis % x.ndim)
    part = source[tuple([slice(n) for n in index.shape])]
    result = mm.copy(x)
    if not include_self:
        if x.dtype.is_integer and neutral:
            neutral = mm.iinfo(x.dtype).min if neutral < 0 else mm.iinfo(x.dtype).max
        result[place] = neutral
    function.at(result, place, part)
    if reduce == "mean":
        counts = mm.full(x.shape, int(include_self), dtype=x.dtype)
        mm.add.at(counts, place, 1)
        counts = mm.maximum(counts, 1)
        return mm.floor_divide(result, counts) if x.dtype.is_integer else result / counts
    return result


def _place(index: mm.Array, axis: int) -> tuple[Any, ...]:
    """Return indices of all axes: those given along one axis, the elements' own along the others,
    which may be fewer than the array has."""
    ranges = [
        mm.reshape(mm.arange(n), tuple([-1 if d == e else 1 for e in range(index.ndim)]))
        for d, n in enumerate(index.shape)
    ]
    return (*ranges[:axis], index, *ranges[axis + 1 :])


ELEMENTS: dict[str, Operator] = {
    "index_select": lambda x, axis, index: mm.take(x, index, axis=axis),
    "gather": _gather,
    "index": _index,
    "index_put": _index_put,
    "slice_scatter": _slice_scatter,
    "select_scatter": _select_scatter,
    "scatter": _scatter,
    "scatter_add": _scatter_add,
    "scatter_reduce": _scatter_reduce,
}
