"""Views: arrays that share elements with another array, as NumPy's slices do.

`x[1:]`, `x.T` and `x.reshape(…)` are views of `x`. No reference sees a value change, so a view has
no memory in common with `x`: a storage records which arrays share elements, and how each is derived
from the first one. After a write into one of them the others are stale: each is derived from
the base again when it is used next. An unreferenced array is not updated, so views of temporary
values cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, final
from weakref import ref

import numpy as np

from magmath.arrays.indexing.item_writes import part_written
from magmath.arrays.indexing.subscripts import getitem, setitem
from magmath.arrays.lazy_array import LazyArray
from magmath.arrays.storage.element_storage import (
    MAX_COMPARED,
    ArrayView,
    ElementStorage,
    Path,
    ViewStep,
    read,
    written,
)
from magmath.arrays.storage.failed_updates import Rewrite, ViewWrite, view_record
from magmath.core import expression_lock
from magmath.engine.traces import tracing
from magmath.errors import ReadOnlyError
from magmath.graph import Node, Shape
from magmath.ops import elementwise as e
from magmath.ops.creation import full
from magmath.ops.leaves import constant
from magmath.ops.linalg import matrix_algebra
from magmath.ops.manipulation import permute, reshape
from magmath.ops.sums import broadcast_to

AnyArray = TypeVar("AnyArray", bound=LazyArray)


@final
@dataclass(frozen=True)
class Permuted:
    """The axes in another order."""

    order: tuple[int, ...]
    is_fixed: ClassVar[bool] = True
    is_view: ClassVar[bool] = True
    is_writable: ClassVar[bool] = True

    def read(self, x: Node) -> Node:
        """Return x with its axes in this order."""
        return permute(x, self.order)

    def write(self, x: Node, values: Node) -> Node:
        """Return the values with the axes of x."""
        return permute(values, tuple(map(self.order.index, range(len(self.order)))))

    def strided(self, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return a NumPy array with its axes in this order."""
        return x.transpose(self.order)


@final
@dataclass(frozen=True)
class Reshaped:
    """The elements in another shape, in the same order."""

    shape: Shape
    is_fixed: ClassVar[bool] = True
    is_view: ClassVar[bool] = True
    is_writable: ClassVar[bool] = True

    def read(self, x: Node) -> Node:
        """Return x in this shape."""
        return reshape(x, self.shape)

    def write(self, x: Node, values: Node) -> Node:
        """Return the values in the shape of x."""
        return reshape(values, x.shape)

    def strided(self, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return a NumPy array in this shape. Raises ValueError if NumPy would copy it."""
        return np.reshape(x, self.shape, copy=False)


@final
@dataclass(frozen=True)
class ComplexPart:
    """The real or the imaginary parts of complex numbers."""

    part: str
    is_fixed: ClassVar[bool] = True
    is_view: ClassVar[bool] = True
    is_writable: ClassVar[bool] = True

    def read(self, x: Node) -> Node:
        """Return the parts of x."""
        return e.call(self.part, x)

    def write(self, x: Node, values: Node) -> Node:
        """Return complex numbers with these parts, and the other parts of x."""
        other_part = e.call("imag" if self.part == "real" else "real", x)
        return e.call(
            "complex", *((values, other_part) if self.part == "real" else (other_part, values))
        )

    def strided(self, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return every other element of a NumPy array of bytes: strides of such parts."""
        return x.real if self.part == "real" else x.imag


@final
@dataclass(frozen=True)
class Diagonal:
    """The elements (i, i + offset) of matrices, the last two axes, as the last axis.

    Only main diagonals of square matrices may be writable.
    """

    offset: int = 0
    is_writable: bool = False
    is_fixed: ClassVar[bool] = True
    is_view: ClassVar[bool] = True

    def read(self, x: Node) -> Node:
        """Return the diagonals of x."""
        return matrix_algebra.diagonal(x, self.offset)

    def write(self, x: Node, values: Node) -> Node:
        """Return x with other diagonals."""
        rows, columns = x.shape[-2:]
        if not self.offset and rows == columns:
            return matrix_algebra.with_diagonal(x, values)
        positions = np.arange(values.shape[-1])
        key = positions + max(-self.offset, 0), positions + max(self.offset, 0)
        return setitem(x, (..., *key), values)

    def strided(self, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return the diagonals of a NumPy array."""
        return np.diagonal(x, self.offset, -2, -1)


@final
@dataclass(frozen=True)
class Stretched:
    """The elements repeated in a larger shape."""

    shape: Shape
    is_fixed: ClassVar[bool] = True
    is_view: ClassVar[bool] = True
    is_writable: ClassVar[bool] = False

    def read(self, x: Node) -> Node:
        """Return x in the larger shape."""
        return broadcast_to(x, self.shape)

    def write(self, x: Node, values: Node) -> Node:
        """Return the elements of x, of which the values are copies."""
        if not values.size:
            return x
        pairs = zip(x.shape, values.shape[values.ndim - x.ndim :], strict=True)
        key = [
            slice(None) if source_extent == extent else slice(1) for source_extent, extent in pairs
        ]
        return getitem(values, (*(0,) * (values.ndim - x.ndim), *key))[0]

    def strided(self, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return a NumPy array in the larger shape."""
        return np.broadcast_to(x, self.shape)


def _read_only(shape: Shape) -> ReadOnlyError:
    return ReadOnlyError(
        f"update in place: the array of shape {shape} is a view that is only read, made by "
        f"broadcast_to, diagonal or a similar function; copy it first: x = x.copy()"
    )


def _part_of_variable(shape: Shape) -> ReadOnlyError:
    return ReadOnlyError(
        f"update in place: the array of shape {shape} is a part of a variable; write "
        f"v[i] = … for the variable v, or copy the part first: x = v[i].copy()"
    )


def _view_of(array: LazyArray) -> ArrayView:
    assert array.view_of is not None
    return array.view_of


def as_memory(array: AnyArray) -> AnyArray:
    """Return an array; without dimensions it becomes one that updates in place change, not a
    number, which they replace: NumPy's creation functions make such arrays."""
    if array.view_of is None and not array.shape:
        ElementStorage(array)
    return array


def link(base: LazyArray, view: LazyArray, step: ViewStep) -> None:
    """Record that `view` is derived from `base` by a step; a number shares nothing."""
    if base.view_of is None and not base.shape and not base.is_variable:
        return
    with expression_lock.lock:  # one storage, whichever threads link views
        view_of_base = base.view_of
        if view_of_base is None:
            ElementStorage(base).add(view, (step,))
        else:
            view_of_base.storage.add(view, (*view_of_base.path, step))
    if base.pending_update is not None and not view.is_computed:
        view.pending_update = view_record(base, (step,))


def base_of(view: LazyArray) -> LazyArray | None:
    """Return the array from which a view is derived, None if it is gone or the array is no view."""
    view_of = view.view_of
    base = None if view_of is None else view_of.storage.base()
    return None if base is view else base


def check_writable(array: LazyArray) -> None:
    """Raise ReadOnlyError for a view that is only read."""
    view = array.view_of
    if view is not None and not all(step.is_writable for step in view.path):
        raise _read_only(array.shape)


def check_not_read_only(array: LazyArray) -> None:
    """Raise ReadOnlyError for views that are only read, and for views of variables."""
    check_writable(array)
    base = base_of(array)
    if base is not None and base.is_variable:
        raise _part_of_variable(array.shape)


def prepare_shared_write(array: LazyArray) -> Callable[[], None] | None:
    """Prepare a write into an array; return a function that updates the arrays which share
    elements with it, None if there are none.

    Raises ReadOnlyError for views that are only read, and for views of variables.
    """
    check_writable(array)
    view = _view_of(array)
    storage = view.storage
    if not storage.has_other_arrays(array):
        if view.is_contiguous and array.shape:  # `reshape` must know that NumPy would copy
            array.view_of = None
        return None
    base = storage.base()
    others = [x for x in storage.current_arrays() if x is not array and x is not base]
    if array is not base and (base is None or len(others) <= MAX_COMPARED):
        others = [x for x in others if view.overlaps(_view_of(x))]
    if base is None:
        return (lambda: _share_without_base(array, others)) if others else None
    if base.is_variable:
        raise _part_of_variable(array.shape)
    if tracing.current() is not None:  # which restores them, so it must know their nodes
        others = [x for x in storage.arrays() if x is not array and x is not base]
        for other in others:
            other.read_again()
    return lambda: _share(array, base, others)


def _share(array: LazyArray, base: LazyArray, others: Sequence[LazyArray]) -> None:
    """Update the base of a written array, and the others that share elements with it."""
    if array is not base:
        path_from_base = _view_of(array).path_from(base)
        leaf = part_written(base, path_from_base[0], array) if len(path_from_base) == 1 else None
        if leaf is None:
            _rewrite(base, array, lambda x, values: written(x, path_from_base, values))
        else:
            base.refer_to_updated(leaf)
    is_traced = tracing.current() is not None
    for other in others:
        if is_traced:
            path = _view_of(other).path_from(base)
            other.refer_to_updated(read(base.node, path), source=view_record(base, path))
        else:
            other.set_stale(base)


def _share_without_base(array: LazyArray, overlapping: Sequence[LazyArray]) -> None:
    """Update the arrays that share elements with a written one, if their base is gone.

    All elements that another array needs are its own or the written ones. So they are put into an
    array of the shape of the base, from which it is read again.
    """
    view = _view_of(array)
    for sharing in overlapping:
        _rewrite(sharing, array, _patch(view.storage, view.path, _view_of(sharing).path))


def _patch(storage: ElementStorage, path: Path, array_path: Path) -> Rewrite:
    """Return the function that puts elements written at a path into an array at its own path."""

    def patched(x: Node, values: Node) -> Node:
        base = full(storage.shape, constant(0, storage.dtype))
        return read(written(written(base, array_path, x), path, values), array_path)

    return patched


def _rewrite(array: LazyArray, source: LazyArray, rewrite: Rewrite) -> None:
    """Update an array by the elements of another one that was written."""
    node = rewrite(array.node, source.node)
    array.refer_to_updated(node, write=ViewWrite(ref(source.node), rewrite))


def sharing_arrays(array: LazyArray) -> list[LazyArray]:
    """Return the array, and all others that share elements with it or may do so."""
    if array.view_of is None:
        return [array]
    return [x for x in array.view_of.storage.arrays() if can_share_elements(array, x)]


def can_share_elements(x: LazyArray, y: LazyArray) -> bool:
    """Return True if two arrays share elements, or may do so."""
    if x is y:
        return True
    if x.view_of is None or y.view_of is None or x.view_of.storage is not y.view_of.storage:
        return False
    return x.view_of.overlaps(y.view_of)


def is_reshaped_in_place(array: LazyArray, shape: Shape) -> bool:
    """Return True if NumPy's `reshape` of an array that was made in this way would be a view.

    NumPy copies the elements if no strides lead from each one to the next, as in the transpose of a
    matrix.
    """
    view = array.view_of
    if view is None or not view.path or array.ndim == 1:
        return True
    if [n for n in array.shape if n != 1] == [n for n in shape if n != 1]:
        return True
    try:
        view.strided((*view.path, Reshaped(shape)))
    except ValueError:
        return False
    return True


def is_contiguous(array: LazyArray) -> bool:
    """Return True if the elements of an array that was made in this way follow one another in
    NumPy's memory."""
    view = array.view_of
    return view is None or view.is_contiguous
