"""Indexing: reading and writing parts of arrays, by all that NumPy takes in brackets.

Positions are operands of the program that reads or writes there: a loop over them runs the same
program again. Only a slice that is more than a worker's share of a dimension is part of it: its
result then lies where those elements of the array lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from magmath.array import session
from magmath.array.array import OPERANDS, Array, as_array, node_of, operand
from magmath.array.creation import SMALL_BYTES, asarray
from magmath.array.keys import NEW, Cut, Key, parse
from magmath.array.lines import user_line
from magmath.array.manipulation import broadcast_to, expand_dims, reshape
from magmath.core.dtypes import DType, int64
from magmath.core.promotion import common_dtype
from magmath.core.shapes import broadcast, can_broadcast_to, normalize_axis
from magmath.errors import DTypeError, ShapeError
from magmath.graph import Node, Shape, apply
from magmath.ops import elementwise as e
from magmath.ops import manipulation
from magmath.ops.along_axis import TAKE_ALONG
from magmath.ops.gathering import PUT, TAKE
from magmath.ops.leaves import parameter
from magmath.ops.slicing import SET_SLICE, SLICE, Bounds
from magmath.ops.windows import SET_WINDOW, WINDOW


def getitem(x: Array, key: Any) -> Array:
    """x[key]. Raises IndexError for indices that do not fit or are out of range."""
    if _is_truth(key):
        return getitem(expand_dims(x, axis=0), reshape(asarray(key), (1,)))
    parsed = parse(x.node, key)
    part = _read(x.node, parsed.cuts)
    if parsed.mask is not None:
        part = parsed.mask.counted.compress(part, parsed.mask.axis)
    elif parsed.indices:
        part = apply(TAKE, part, *parsed.indices.values(), **_places(parsed), line=user_line())
    return Array(manipulation.reshape(part, tuple(n for _, n in parsed.result())))


def setitem(x: Array, key: Any, value: Any) -> Array:
    """x with x[key] replaced by a value of its type, which is broadcast.

    Raises IndexError as `getitem` does, ShapeError or DTypeError where the value does not fit.
    """
    if _is_truth(key):
        return reshape(setitem(expand_dims(x, axis=0), reshape(asarray(key), (1,)), value), x.shape)
    parsed = parse(x.node, key)
    values = _valued(x.dtype, value)
    if values.ndim:
        values = _fitted(values, parsed.result())
    if parsed.mask is not None:
        part = _masked(_read(x.node, parsed.cuts), parsed, values)
    elif parsed.indices:
        place, indices = _places(parsed), parsed.indices.values()
        part = apply(PUT, _read(x.node, parsed.cuts), values, *indices, **place, line=user_line())
    else:
        part = values
    if parsed.cuts or part is values:
        part = _written(x.node, part, parsed.cuts)
    return Array(part)


def _is_truth(key: Any) -> bool:
    """True for a single truth value: it picks all or nothing, in a new dimension."""
    if isinstance(key, (Array, np.ndarray)):
        return key.ndim == 0 and key.dtype.kind in ("bool", "b")
    return isinstance(key, (bool, np.bool_))


def _places(key: Key) -> dict[str, Any]:
    return {"axes": tuple(key.indices), "at": key.at}


# cutting --------------------------------------------------------------------------------------


def _read(x: Node, cuts: Sequence[Cut]) -> Node:
    """The part that the cuts leave."""
    large, small = _sorted(x, cuts)
    if large:
        x = apply(SLICE, x, bounds=_bounds(x.shape, large), line=user_line())
    return apply(WINDOW, x, *_starts(small), **_window(small), line=user_line()) if small else x


def _written(x: Node, values: Node, cuts: Sequence[Cut]) -> Node:
    """x with what the cuts leave replaced."""
    large, small = _sorted(x, cuts)
    if not large:
        return apply(SET_WINDOW, x, values, *_starts(small), **_window(small), line=user_line())
    if small:
        part = apply(SLICE, x, bounds=_bounds(x.shape, large), line=user_line())
        values = apply(SET_WINDOW, part, values, *_starts(small), **_window(small))
    return apply(SET_SLICE, x, values, bounds=_bounds(x.shape, large), line=user_line())


def _sorted(x: Node, cuts: Sequence[Cut]) -> tuple[list[Cut], list[Cut]]:
    """The cuts that leave more than a worker's share of a dimension, of a large array; the rest."""
    if x.size * x.dtype.itemsize <= SMALL_BYTES:
        return [], list(cuts)
    workers = session.engine().environment.workers
    large = [c for c in cuts if (c.extent or 0) * workers > x.shape[c.axis]]
    return large, [c for c in cuts if c not in large]


def _bounds(shape: Shape, cuts: Sequence[Cut]) -> Bounds:
    bounds = [(0, extent, 1) for extent in shape]
    for c in cuts:
        assert isinstance(c.start, int)
        assert c.extent is not None
        bounds[c.axis] = (c.start, c.start + c.step * c.extent, c.step)
    return tuple(bounds)


def _window(cuts: Sequence[Cut]) -> dict[str, Any]:
    return {
        "axes": tuple(c.axis for c in cuts),
        "extents": tuple(c.extent for c in cuts),
        "steps": tuple(c.step for c in cuts),
    }


def _starts(cuts: Sequence[Cut]) -> list[Node]:
    return [parameter(c.start, int64) if isinstance(c.start, int) else c.start for c in cuts]


# values ---------------------------------------------------------------------------------------


def _valued(dtype: DType, value: Any) -> Node:
    """A value that is to be written, in the array's type, which must not change by it."""
    value, kind = operand("indexing", value if isinstance(value, OPERANDS) else asarray(value))
    if (common := common_dtype(dtype, kind)) is not dtype:
        given = kind if isinstance(kind, DType) else common
        raise DTypeError(
            f"indexing: cannot put {given} into an array of {dtype}, whose type must not change; "
            f"convert the value with mm.astype(value, …)"
        )
    return node_of("indexing", value, dtype)


def _fitted(values: Node, result: list[tuple[str, int]]) -> Node:
    """Values for a result of these dimensions, without the new ones and superfluous ones."""
    shape = values.shape
    while len(shape) > len(result) and shape[0] == 1:
        shape = shape[1:]
    extents = tuple(extent for _, extent in result)
    if not can_broadcast_to(shape, extents):
        raise ShapeError(
            f"indexing: values of shape {values.shape} do not broadcast to the part of shape "
            f"{extents} that they are to replace"
        )
    own = result[len(result) - len(shape) :]
    return manipulation.reshape(
        values, tuple(n for n, (part, _) in zip(shape, own, strict=True) if part is not NEW)
    )


def _masked(x: Node, key: Key, values: Node) -> Node:
    """x with the elements that the key's mask picks replaced."""
    assert key.mask is not None
    mask, ndim = key.mask.array.node, key.mask.array.ndim
    behind = x.ndim - key.mask.axis - ndim
    picked = values.ndim - behind - 1  # the dimension that the mask picks, if the values have it
    if picked >= 0 and values.shape[picked] == 1:
        before, after = values.shape[:picked], values.shape[picked + 1 :]
        values = manipulation.reshape(values, (*before, *(1,) * ndim, *after))
    elif picked >= 0:
        counted = key.mask.counted
        mask, values = counted.node, counted.expand(values, picked)
    condition = manipulation.reshape(mask, (*mask.shape, *(1,) * behind))
    return apply(e.WHERE, condition, values, x, line=user_line())


# functions ------------------------------------------------------------------------------------


def take(x: Array, indices: Array, /, *, axis: int | None = None) -> Array:
    """Elements along one axis, at integer positions, which count from the end where negative."""
    x, positions = as_array("take", x), as_array("take", indices)
    if axis is None and x.ndim != 1:
        raise ShapeError(f"take: needs `axis` for an array of {x.ndim} dimensions")
    place = normalize_axis("take", 0 if axis is None else axis, x.ndim)
    return Array(apply(TAKE, x.node, positions.node, axes=(place,), at=place, line=user_line()))


def take_along_axis(x: Array, indices: Array, /, *, axis: int = -1) -> Array:
    """Elements at the places along `axis` that an array of indices has for each of them.

    x and indices have as many dimensions, and broadcast but for the axis.
    """
    x, places = as_array("take_along_axis", x), as_array("take_along_axis", indices)
    if x.ndim != places.ndim:
        raise ShapeError(
            f"take_along_axis: needs as many dimensions of x and indices, was given {x.shape} and "
            f"{places.shape}"
        )
    place = normalize_axis("take_along_axis", axis, x.ndim)
    one = (*x.shape[:place], 1, *x.shape[place + 1 :])
    other = (*places.shape[:place], 1, *places.shape[place + 1 :])
    common = broadcast("take_along_axis", one, other)
    stretched = [
        broadcast_to(a, (*common[:place], a.shape[place], *common[place + 1 :])).node
        for a in (x, places)
    ]
    return Array(apply(TAKE_ALONG, *stretched, axis=place, line=user_line()))
