"""PyTorch's operators that read and write chosen elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import magmath as mm
from magmath.interop.aten_types import Operator


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
    result[(*[slice(None)] * (axis % x.ndim), slice(start, stop, step))] = values
    return result


def _select_scatter(x: mm.Array, values: mm.Array, axis: int, index: int) -> mm.Array:
    result = mm.copy(x)
    result[(*[slice(None)] * (axis % x.ndim), index)] = values
    return result


def _scatter(x: mm.Array, axis: int, index: mm.Array, source: Any) -> mm.Array:
    result = mm.copy(x)
    mm.put_along_axis(result, index, source, axis)
    return result


ELEMENTS: dict[str, Operator] = {
    "index_select": lambda x, axis, index: mm.take(x, index, axis=axis),
    "gather": lambda x, axis, index, sparse_grad=False: mm.take_along_axis(x, index, axis=axis),
    "index": _index,
    "index_put": _index_put,
    "slice_scatter": _slice_scatter,
    "select_scatter": _select_scatter,
    "scatter": _scatter,
}
