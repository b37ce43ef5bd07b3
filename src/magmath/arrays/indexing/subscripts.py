"""Subscripts: reading and writing parts of arrays, with all of NumPy's indices.

Positions are operands of the program, so a loop over positions runs the same program repeatedly.
Only the bounds of a slice that is larger than a worker's share of a dimension are part of the
program; the layout of its result then follows that of the array.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, final

import numpy as np

from magmath.arrays.indexing.parsed_index import (
    NEW,
    AxisRange,
    ParsedIndex,
    index_items,
    indexed_dimensions,
    parse,
)
from magmath.arrays.inputs.conversion import leaf_of_values
from magmath.arrays.lazy_array import LazyArray
from magmath.core.bounded_memo import store_bounded
from magmath.core.dtypes import int64
from magmath.core.shapes import can_broadcast_to
from magmath.engine import session
from magmath.engine.array_sizes import MAX_BYTES_WITH_WORKERS
from magmath.engine.traces import tracing
from magmath.engine.user_line import user_line
from magmath.errors import ShapeError
from magmath.graph import Node, Shape, apply, apply_to
from magmath.graph.operation import Line
from magmath.ops import elementwise as e
from magmath.ops.indexing.dynamic_slice import DYNAMIC_SLICE, DYNAMIC_UPDATE_SLICE
from magmath.ops.indexing.gather_scatter import PUT, TAKE
from magmath.ops.leaves import scalar
from magmath.ops.manipulation import reshape
from magmath.ops.slicing import SET_SLICE, SLICE, Bounds

REGION_FRAMES = 2
"""Frames from `user_line` to the caller of `_read` or `_written`, which is in this package."""


def getitem(x: Node, key: Any) -> tuple[Node, Part | None]:
    """Return x[index], and the part of x that it is, None for a copy of elements.

    Raises IndexError for indices that do not fit or are out of range.
    """
    part = known_part(x, key)
    if part is not None:
        return part.read(x), part
    if _has_truth(key):
        wide, key = _with_masks(x, key)
        return getitem(wide, key)[0], None
    parsed = parse(x, key)
    if parsed.mask is None and not parsed.indices:
        part = _part(x, parsed, key)
        return part.read(x), part
    selected = _read(x, _region(x, parsed.ranges))
    if parsed.mask is not None:
        selected = parsed.mask.counted.compress(selected, parsed.mask.axis)
    else:
        indices = parsed.indices.values()
        selected = apply(TAKE, selected, *indices, **_index_attributes(parsed), line=user_line())
    return reshape(selected, tuple(n for _, n in parsed.result())), None


def setitem(x: Node, key: Any, values: Node) -> Node:
    """Return x with x[index] replaced by values of its type, which are broadcast.

    Raises IndexError as `getitem` does, ShapeError if the values do not fit.
    """
    static_part = known_part(x, key)
    if static_part is not None:
        return static_part.write(x, values)
    if _has_truth(key):
        wide, key = _with_masks(x, key)
        return reshape(setitem(wide, key, values), x.shape)
    parsed = parse(x, key)
    region = _region(x, parsed.ranges)
    if values.ndim:
        values = _fitted(values, parsed.result())
    if parsed.mask is not None:
        part = _written_by_mask(_read(x, region), parsed, values)
    elif parsed.indices:
        attributes, indices = _index_attributes(parsed), parsed.indices.values()
        part = apply(PUT, _read(x, region), values, *indices, **attributes, line=user_line())
    else:
        part = values
    if parsed.ranges or part is values:
        part = _written(x, part, region)
    return part


def _has_truth(key: Any) -> bool:
    """Return True for an index with a single truth value, which selects all or nothing of a new
    dimension."""
    return any(map(_is_truth, key)) if type(key) is tuple else _is_truth(key)


def _is_truth(item: Any) -> bool:
    if isinstance(item, (LazyArray, np.ndarray)):
        return item.ndim == 0 and item.dtype.kind in ("bool", "b")
    return isinstance(item, (bool, np.bool_))


def _with_masks(x: Node, key: Any) -> tuple[Node, tuple[Any, ...]]:
    """Return the array with a dimension of extent 1 for each truth value of the index, and the
    index with a mask of one element in place of it."""
    shape: list[int] = []
    items, axis = [], 0
    for item in index_items(key, x.ndim):
        if _is_truth(item):
            shape.append(1)
            items.append(_as_mask(item))
        else:
            indexed = indexed_dimensions(item)
            shape += x.shape[axis : axis + indexed]
            items.append(item)
            axis += indexed
    return reshape(x, tuple(shape)), tuple(items)


def _as_mask(truth: Any) -> LazyArray:
    """Return a single truth value as a mask of one element."""
    node = truth.node if isinstance(truth, LazyArray) else leaf_of_values(truth)
    return LazyArray(reshape(node, (1,)))


def _index_attributes(key: ParsedIndex) -> dict[str, Any]:
    """Return the attributes of the operations that read and write at positions."""
    return {"axes": tuple(key.indices), "at": key.at}


# cutting --------------------------------------------------------------------------------------


@final
class _Region(NamedTuple):
    """The part of an array that ranges select: attributes of a dynamic slice, its first positions,
    and attributes of a slice of it. The small part is selected first, so that a row of a large
    array is read without the others."""

    dynamic_slice: dict[str, Any] | None
    starts: list[int | Node]
    slice: dict[str, Any] | None


ELEMENT = "element"
"""In call keys, in place of the form of one element."""


@final
@dataclass(frozen=True, eq=False, slots=True)
class SliceForm:
    """The form of a dynamic slice: the dimensions of the array, and for each range its axis, its
    extent (None for one element, without the dimension) and its step. `slice_form_of` returns the
    same object for the same form, so that call keys need not compare the fields."""

    ndim: int
    axes: tuple[int, ...]
    extents: tuple[int | None, ...]
    steps: tuple[int, ...]

    @property
    def is_element(self) -> bool:
        """True for one element of the array."""
        return len(self.axes) == self.ndim and all(extent is None for extent in self.extents)

    @property
    def numpy_index(self) -> Callable[[Sequence[int]], tuple[Any, ...]]:
        """The function that returns NumPy's index of the elements from first positions on."""
        return tuple if self.is_element else self._key_from

    def _key_from(self, starts: Sequence[int]) -> tuple[Any, ...]:
        items: list[Any] = [slice(None)] * self.ndim
        for axis, extent, step, start in zip(self.axes, self.extents, self.steps, starts):  # noqa: B905
            if extent is None:
                items[axis] = start
            else:
                stop = start + step * extent
                items[axis] = slice(start, None if stop < 0 else stop, step)
        return tuple(items)


@lru_cache(maxsize=4096)
def slice_form_of(
    ndim: int, axes: tuple[int, ...], extents: tuple[int | None, ...], steps: tuple[int, ...]
) -> SliceForm:
    """Return the form with these fields."""
    return SliceForm(ndim, axes, extents, steps)


@final
@dataclass(frozen=True, eq=False, slots=True)
class Part:
    """The part of an array that an index without arrays selects, a step of `views`.

    ranges     the ranges of single dimensions, in order
    result     the kind and extent of each dimension of the result
    shape      the shape of the result
    fitting    the shape of written values that fit as they are: the same, if no dimension is new
    key        the index, with 0 for computed positions
    is_view    False for a single element, which is a number in NumPy
    form       of the part as a dynamic slice; None if bounds are attributes of an operation, or
               dimensions are new
    selection  in call keys, the form or `ELEMENT`: what slices that differ only in their
               first positions have in common
    starts     these first positions
    """

    region: _Region
    ranges: tuple[AxisRange, ...]
    result: list[tuple[str, int]]
    shape: Shape
    fitting: Shape | None
    key: tuple[Any, ...]
    is_view: bool
    form: SliceForm | None
    selection: SliceForm | str | None
    starts: tuple[int, ...]

    def read(self, x: Node) -> Node:
        """Return this part of x."""
        selected = _read(x, self.region)
        return selected if selected.shape == self.shape else reshape(selected, self.shape)

    def write(self, x: Node, values: Node) -> Node:
        """Return x with this part replaced by values, which are broadcast. Raises ShapeError if
        they do not fit."""
        if values.shape and values.shape != self.fitting:
            values = _fitted(values, self.result)
        return _written(x, values, self.region)

    @property
    def is_writable(self) -> bool:
        """True: all parts can be written."""
        return True

    @property
    def is_fixed(self) -> bool:
        """False if selected positions are operands of the program, unknown in this process."""
        return all(isinstance(x.start, int) for x in self.ranges)

    def strided(self, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return this part of a NumPy array."""
        part: np.ndarray[Any, Any] = x[self.key]
        return part


_MAX_PARTS = 4096
_parts: dict[Hashable, Part] = {}


def _part(x: Node, parsed: ParsedIndex, key: Any) -> Part:
    """Return the part that a parsed index without arrays selects."""
    result = parsed.result()
    shape = tuple([extent for _, extent in result])
    fitting = None if any(kind is NEW for kind, _ in result) else shape
    items = [_without_node(item) for item in (key if isinstance(key, tuple) else (key,))]
    ranges = tuple(parsed.ranges)
    is_view = bool(shape) or Ellipsis in items
    region, form = _region(x, ranges), None
    has_form = region.slice is None and region.dynamic_slice is not None and 0 not in shape
    if has_form and fitting is not None and all(type(start) is int for start in region.starts):
        form = slice_form_of(x.ndim, **region.dynamic_slice)  # type: ignore[arg-type]
    selection = ELEMENT if form is not None and form.is_element else form
    starts: Any = () if form is None else tuple(region.starts)
    return Part(
        region, ranges, result, shape, fitting, tuple(items), is_view, form, selection, starts
    )


def _without_node(item: Any) -> Any:
    is_static = item is None or item is Ellipsis or isinstance(item, slice)
    return item if is_static or type(item) is int else 0


def known_part(x: Node, key: Any) -> Part | None:
    """Return the part that an index of Python integers, slices of these, `...` and None selects;
    None for other indices. It is the same for all arrays of a shape, and parsed once."""
    items: list[Hashable] = []
    for item in key if type(key) is tuple else (key,):
        if type(item) is slice:
            bounds = fixed_bounds(item)
            if bounds is None:
                return None
            items.append(bounds)
        elif type(item) is int or item is None or item is Ellipsis:
            items.append(item)
        else:
            return None
    memo_key = (x.shape, x.dtype.itemsize, session.engine().environment.workers, *items)
    part = _parts.get(memo_key)
    if part is None:
        part = _part(x, parse(x, key), key)
        store_bounded(_parts, memo_key, part, _MAX_PARTS)
    return part


def fixed_bounds(item: slice) -> Hashable:
    """Return the bounds of a slice of Python integers; None for others: arrays may change."""
    start, stop, step = item.start, item.stop, item.step
    if (
        (start is None or type(start) is int)
        and (stop is None or type(stop) is int)
        and (step is None or type(step) is int)
    ):
        return start, stop, step
    return None


def _region(x: Node, ranges: Sequence[AxisRange]) -> _Region:
    """Return the region that ranges of an array select."""
    large, small = _large_and_small(x, ranges)
    extents = {c.axis: c.extent for c in small}
    kept_dims = [d for d in range(x.ndim) if extents.get(d, 0) is not None]
    bounds = _bounds(x.shape, large)
    whole = tuple([(0, extents[d], 1) if d in extents else bounds[d] for d in kept_dims])
    return _Region(
        _slice_attributes(small) if small else None,
        [c.start for c in small],
        {"bounds": whole} if large else None,
    )


def _read(x: Node, region: _Region) -> Node:
    """Return the part of x in a region."""
    line = user_line(REGION_FRAMES)
    if region.dynamic_slice is not None:
        fixed = None
        if tracing.current() is not None and session.engine().environment.workers == 1:
            fixed = _fixed_part(x, region, line)
        x = fixed or apply_to(DYNAMIC_SLICE, (x, *_starts(region)), line, region.dynamic_slice)
    return x if region.slice is None else apply_to(SLICE, (x,), line, region.slice)


def _fixed_part(x: Node, region: _Region, line: Line) -> Node | None:
    """Return the part of a dynamic slice as a slice, or None if it begins where a run decides.

    A traced function has one program anyway, so the positions need not be its scalars, and
    loops read a slice without a copy.
    """
    assert region.dynamic_slice is not None
    bounds = [(0, extent, 1) for extent in x.shape]
    picked: set[int] = set()
    columns = (region.dynamic_slice[name] for name in ("axes", "extents", "steps"))
    for start, axis, extent, step in zip(region.starts, *columns, strict=True):
        if not isinstance(start, int):
            return None
        bounds[axis] = (start, start + step * (1 if extent is None else extent), step)
        if extent is None:
            picked.add(axis)
    part = apply_to(SLICE, (x,), line, {"bounds": tuple(bounds)})
    return reshape(part, tuple([n for d, n in enumerate(part.shape) if d not in picked]))


def _written(x: Node, values: Node, region: _Region) -> Node:
    """Return x with the part in a region replaced."""
    line = user_line(REGION_FRAMES)
    if region.dynamic_slice is None and region.slice is not None:
        return apply_to(SET_SLICE, (x, values), line, region.slice)
    attributes, starts = region.dynamic_slice or _NO_SLICE, _starts(region)
    if region.slice is not None:
        part = apply_to(DYNAMIC_SLICE, (x, *starts), line, attributes)
        values = apply_to(SET_SLICE, (part, values), line, region.slice)
    return apply_to(DYNAMIC_UPDATE_SLICE, (x, values, *starts), line, attributes)


def _large_and_small(
    x: Node, ranges: Sequence[AxisRange]
) -> tuple[list[AxisRange], list[AxisRange]]:
    """Return the ranges that span more than a worker's share and half of a dimension, and the
    others.

    All ranges are among the others if there are several workers and the array is small, hence
    replicated, or if there is one worker and one of them is: then one slice has them all. On a
    GPU they stay apart, since the position along one axis stays on the device.
    """
    engine = session.engine()
    workers = engine.environment.workers
    if workers > 1 and x.nbytes <= MAX_BYTES_WITH_WORKERS:
        return [], list(ranges)
    large = [c for c in ranges if c.span * max(workers, 2) > x.shape[c.axis]]
    if workers == 1 and engine.pool.is_on_cpu and len(large) < len(ranges):
        return [], list(ranges)
    return large, [c for c in ranges if c not in large]


def _bounds(shape: Shape, ranges: Sequence[AxisRange]) -> Bounds:
    bounds = [(0, extent, 1) for extent in shape]
    for c in ranges:
        assert isinstance(c.start, int)
        assert c.extent is not None
        bounds[c.axis] = (c.start, c.start + c.step * c.extent, c.step)
    return tuple(bounds)


def _slice_attributes(ranges: Sequence[AxisRange]) -> dict[str, Any]:
    return {
        "axes": tuple(c.axis for c in ranges),
        "extents": tuple(c.extent for c in ranges),
        "steps": tuple(c.step for c in ranges),
    }


_NO_SLICE = _slice_attributes(())


def _starts(region: _Region) -> list[Node]:
    return [scalar(x, int64) if isinstance(x, int) else x for x in region.starts]


# values ---------------------------------------------------------------------------------------


def _fitted(values: Node, result: list[tuple[str, int]]) -> Node:
    """Return values reshaped for a result of these dimensions.

    Removes new dimensions and leading dimensions of extent 1.
    """
    shape = values.shape
    while len(shape) > len(result) and shape[0] == 1:
        shape = shape[1:]
    extents = tuple(extent for _, extent in result)
    if not can_broadcast_to(shape, extents):
        raise ShapeError(
            f"indexing: values of shape {values.shape} do not broadcast to the part of shape "
            f"{extents} that they are to replace"
            "; reshape the values with mm.reshape, or slice them"
        )
    dimensions = result[len(result) - len(shape) :]
    return reshape(
        values, tuple(n for n, (part, _) in zip(shape, dimensions, strict=True) if part is not NEW)
    )


def _written_by_mask(x: Node, key: ParsedIndex, values: Node) -> Node:
    """Return x with the elements replaced that the index's mask selects."""
    assert key.mask is not None
    mask, ndim = key.mask.node, key.mask.node.ndim
    behind = x.ndim - key.mask.axis - ndim
    picked = values.ndim - behind - 1  # dimension of the selected elements, if the values have it
    if picked >= 0 and values.shape[picked] == 1:
        before, after = values.shape[:picked], values.shape[picked + 1 :]
        values = reshape(values, (*before, *(1,) * ndim, *after))
    elif picked >= 0:
        counted = key.mask.counted
        mask, values = counted.node, counted.expand(values, picked)
    condition = reshape(mask, (*mask.shape, *(1,) * behind))
    return apply(e.WHERE, condition, values, x, line=user_line())
