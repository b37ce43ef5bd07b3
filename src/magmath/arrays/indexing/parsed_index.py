"""The parser of the indices that users write (`x[index]`), by NumPy's rules.

Slices and integers select ranges of single dimensions. If an index has an array of integers or a
mask, its integers count as arrays too: all of them broadcast against each other, and the dimensions
of their common shape replace those of the arrays, or come first if the arrays are not adjacent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import index
from typing import Any, final

import numpy as np

from magmath.arrays.indexing.index_checks import check_indices
from magmath.arrays.indexing.masks import MaskIndex
from magmath.arrays.inputs.conversion import leaf_of_values
from magmath.arrays.lazy_array import LazyArray
from magmath.core.dtypes import bool_, int64
from magmath.errors import IndexingError, TracingError
from magmath.graph import Node, Shape
from magmath.layout import Layout
from magmath.ops.creation import full
from magmath.ops.indexing.gather_scatter import common_shape
from magmath.ops.indexing.local_index import out_of_range
from magmath.ops.leaves import constant, scalar

NEW, KEPT, PICKED, BETWEEN = "new", "kept", "picked", "between"


@final
@dataclass(frozen=True)
class AxisRange:
    """The part of a dimension to keep: `extent` elements from `start` on by `step`.

    An extent of None selects one element and removes the dimension.
    """

    axis: int
    start: int | Node
    extent: int | None
    step: int = 1

    @property
    def span(self) -> int:
        """The number of elements from the first to the last element of a slice; 0 for a single
        element or a computed start."""
        if not self.extent or not isinstance(self.start, int):
            return 0
        return (self.extent - 1) * abs(self.step) + 1


@final
@dataclass
class ParsedIndex:
    """A parsed index for arrays of one shape.

    ranges     ranges of single dimensions, in order
    indices    integer arrays by dimension; 0-d arrays for integers in the same index
    mask       the mask, if it is the only array of the index
    order      the dimensions of the result: new ones, kept ones, and one entry for all picked ones
    """

    shape: Shape
    ranges: list[AxisRange] = field(default_factory=list)
    indices: dict[int, Node] = field(default_factory=dict)
    mask: MaskIndex | None = None
    order: list[str] = field(default_factory=list)

    @property
    def at(self) -> int:
        """The number of kept dimensions before the picked ones."""
        return self.order[: self.order.index(PICKED)].count(KEPT)

    def picked(self) -> Shape:
        """Return the extents of the dimensions that index arrays or the mask produce."""
        if self.mask is not None:
            return (self.mask.counted.total,)
        return common_shape(*[node.shape for node in self.indices.values()])

    def remaining(self) -> Shape:
        """Return the extents that the ranges leave, of the dimensions that no array indexes."""
        extents: list[int | None] = list(self.shape)
        for axis_range in self.ranges:
            extents[axis_range.axis] = axis_range.extent
        picked = set(self.indices)
        if self.mask is not None:
            picked = set(range(self.mask.axis, self.mask.axis + self.mask.node.ndim))
        return tuple(n for d, n in enumerate(extents) if n is not None and d not in picked)

    def result(self) -> list[tuple[str, int]]:
        """Return the kind and extent of each dimension of x[index]."""
        extents, dimensions = iter(self.remaining()), []
        for part in self.order:
            if part is PICKED:
                dimensions += [(PICKED, extent) for extent in self.picked()]
            else:
                dimensions.append((part, 1 if part is NEW else next(extents)))
        return dimensions


def parse(x: Node, key: Any) -> ParsedIndex:
    """Parse an index for an array. Raises IndexError for indices that do not fit."""
    items = index_items(key, x.ndim)
    arrays = [item for item in items if isinstance(item, (LazyArray, np.ndarray))]
    masks = [item for item in arrays if is_mask(item)]
    alone = len(masks) == len(arrays) == 1 and not any(isinstance(item, int) for item in items)
    picking = bool(masks) or any(item.ndim for item in arrays)
    parser = _Parser(ParsedIndex(x.shape), x.layout, picking, alone)
    for item in items:
        parser.add(item)
    parser.parsed.order = _with_picked_together(parser.parsed.order)
    return parser.parsed


def index_items(key: Any, ndim: int) -> list[Any]:
    """Return the items of an index, for all dimensions: None, slices, integers and arrays of
    magmath or NumPy, and `...` where it stands for no dimension."""
    return _expanded([_item(item) for item in (key if isinstance(key, tuple) else (key,))], ndim)


def _item(item: Any) -> Any:
    """Return an item as None, `...`, a slice, a Python integer, or a magmath or NumPy array.

    Raises IndexError for other objects and for arrays of other types.
    """
    if item is None or item is Ellipsis or isinstance(item, slice):
        return item
    if isinstance(item, (LazyArray, np.ndarray)):
        array = item
    elif isinstance(item, (bool, np.bool_)) or _is_foreign_array(item):
        array = np.asarray(item)
    elif hasattr(item, "__index__"):
        return index(item)
    elif isinstance(item, Sequence) and not isinstance(item, (str, bytes)):
        array = np.asarray(item, dtype=None if len(item) else np.int64)
    else:
        raise _unfit(type(item).__name__)
    kind = array.dtype.kind
    if kind not in ("bool", "int", "uint", "b", "i", "u"):
        raise _unfit(f"an array of {array.dtype}")
    return array


def _is_foreign_array(item: Any) -> bool:
    """Return True for an array with dimensions of another library, such as PyTorch or pandas."""
    return hasattr(item, "__array__") and bool(getattr(item, "ndim", 0))


def _unfit(description: str) -> IndexingError:
    return IndexingError(
        f"indexing: a dimension takes an integer, a slice, `...`, None, an array of integers or a "
        f"mask, was given {description}"
    )


def item_node(item: LazyArray | np.ndarray[Any, Any]) -> Node:
    """Return the node of an item that is an array."""
    return item.node if isinstance(item, LazyArray) else leaf_of_values(item)


def is_mask(item: Any) -> bool:
    """Return True for an item that is an array of truth values."""
    return isinstance(item, (LazyArray, np.ndarray)) and item.dtype.kind in ("bool", "b")


def indexed_dimensions(item: Any) -> int:
    """Return the number of dimensions of the array that an item indexes."""
    if item is None or item is Ellipsis:
        return 0
    return item.ndim if is_mask(item) else 1


def _expanded(items: list[Any], ndim: int) -> list[Any]:
    """Return the items with full slices for `...` and for missing dimensions.

    A `...` for no dimension stays: arrays on either side of it are not adjacent.
    """
    ellipses = [i for i, item in enumerate(items) if item is Ellipsis]
    if len(ellipses) > 1:
        raise IndexingError("indexing: `...` may occur only once; write : for the other dimensions")
    used = sum(map(indexed_dimensions, items))
    if used > ndim:
        raise IndexingError(
            f"indexing: {used} indices for an array of {ndim} dimensions"
            "; index one dimension less, or add dimensions with mm.expand_dims"
        )
    full_slices: list[Any] = [slice(None)] * (ndim - used)
    if not ellipses:
        return [*items, *full_slices]
    return [*items[: ellipses[0]], *(full_slices or [Ellipsis]), *items[ellipses[0] + 1 :]]


def _with_picked_together(order: list[str]) -> list[str]:
    """Return the order with a single entry for all picked dimensions.

    It replaces the arrays if these are adjacent, otherwise it comes first.
    """
    positions = [i for i, part in enumerate(order) if part is PICKED]
    unpicked = [part for part in order if part in (NEW, KEPT)]
    if not positions:
        return unpicked
    adjacent = positions[-1] - positions[0] == len(positions) - 1
    before = [part for part in order[: positions[0]] if part in (NEW, KEPT)] if adjacent else []
    return [*before, PICKED, *unpicked[len(before) :]]


@final
@dataclass
class _Parser:
    """The state of parsing an index, item by item; `axis` is the next dimension of the array."""

    parsed: ParsedIndex
    layout: Layout | None  # layout of the array, if it is known
    picking: bool  # the index has arrays, so integers count as arrays
    alone: bool  # a mask is the only array of the index
    axis: int = 0

    def add(self, item: Any) -> None:
        if item is None or item is Ellipsis:
            self.parsed.order.append(NEW if item is None else BETWEEN)
        elif isinstance(item, slice):
            self._slice(item)
        elif is_mask(item):
            self._mask(item)
        elif self.picking:
            self._pick(self._position(item))
        else:
            self.parsed.ranges.append(AxisRange(self.axis, self._start(item), None))
            self.axis += 1

    @property
    def _extent(self) -> int:
        return self.parsed.shape[self.axis]

    def _slice(self, item: slice) -> None:
        try:
            start, stop, step = item.indices(self._extent)
        except (TypeError, ValueError) as error:
            raise type(error)(
                f"indexing: a slice takes integers, and steps other than 0, was given {item}"
            ) from None
        except TracingError as error:
            if type(error) is not TracingError:  # the value of an argument, which is known then
                raise
            raise TracingError(
                "indexing: the bounds of a slice must be known while a function is traced, and "
                "these are computed by it; select the elements by an array of positions, as in "
                "x[p + mm.arange(2)] for x[p : p + 2]"
            ) from None
        extent = len(range(start, stop, step))
        if (extent, step) != (self._extent, 1):
            self.parsed.ranges.append(AxisRange(self.axis, start, extent, step))
        self.parsed.order.append(KEPT)
        self.axis += 1

    def _mask(self, item: LazyArray | np.ndarray[Any, Any]) -> None:
        mask = item_node(item)
        indexed_shape = self.parsed.shape[self.axis : self.axis + mask.ndim]
        if mask.size == 0 and _is_equal_or_empty(mask.shape, indexed_shape):
            mask = full(indexed_shape, constant(False, bool_))  # it selects nothing
        if mask.shape != indexed_shape:
            raise IndexingError(
                f"indexing: a mask of shape {mask.shape} does not fit axes {self.axis} to "
                f"{self.axis + mask.ndim - 1} of an array of shape {self.parsed.shape}"
                f"; give a mask of shape {indexed_shape}"
            )
        mask_index = MaskIndex(mask, self.layout, self.axis)
        if self.alone:
            self.parsed.mask = mask_index
            self.parsed.order.append(PICKED)
            self.axis += mask.ndim
        else:
            for node in mask_index.counted.positions():
                self._pick(node)

    def _pick(self, node: Node) -> None:
        self.parsed.indices[self.axis] = node
        self.parsed.order.append(PICKED)
        self.axis += 1

    def _position(self, item: int | LazyArray | np.ndarray[Any, Any]) -> Node:
        """Return an index array or an integer as a node."""
        if isinstance(item, int):
            return scalar(self._checked(item), int64)
        if isinstance(item, np.ndarray):
            self._check_all(item)
        else:
            check_indices(item.node, self.axis, self._extent)
        return item_node(item)

    def _start(self, item: int | LazyArray | np.ndarray[Any, Any]) -> int | Node:
        if isinstance(item, LazyArray):
            check_indices(item.node, self.axis, self._extent)
            return item.node
        return self._checked(int(item))

    def _checked(self, position: int) -> int:
        if not -self._extent <= position < self._extent:
            raise out_of_range(position, self.axis, self._extent)
        return position % self._extent

    def _check_all(self, item: np.ndarray[Any, Any]) -> None:
        outside = (item < -self._extent) | (item >= self._extent)
        if outside.any():
            raise out_of_range(int(item[outside].flat[0]), self.axis, self._extent)


def _is_equal_or_empty(mask: Shape, indexed_shape: Shape) -> bool:
    """Return True if each extent of a mask is that of its dimension or 0, as the standard
    allows."""
    return len(mask) == len(indexed_shape) and all(
        m in (n, 0) for m, n in zip(mask, indexed_shape, strict=True)
    )
