"""Element storage: a storage lists the arrays that share elements, each with the steps that derive
it from the first one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, takewhile
from operator import mul
from typing import Any, Protocol, final
from weakref import ref

import numpy as np

from magmath.core.dtypes import DType
from magmath.graph import Node, Shape

MIN_KEPT_REFERENCES = 8
"""Number of references of a storage above which those to arrays that are gone are dropped."""
MAX_WORK: Any = 1000  # NumPy's annotation names two of the values only
"""Steps of the search for an element that two views have in common."""


class ViewStep(Protocol):
    """A part or another arrangement of the elements of an array."""

    def read(self, x: Node, /) -> Node:
        """Return the elements of x that the step selects."""

    def write(self, x: Node, values: Node, /) -> Node:
        """Return x with these elements replaced."""

    @property
    def is_view(self) -> bool:
        """False for a single element, which is a number in NumPy."""

    @property
    def is_fixed(self) -> bool:
        """False if the selected positions are computed."""

    @property
    def is_writable(self) -> bool:
        """False if such views are only read."""

    def strided(self, x: np.ndarray[Any, Any], /) -> np.ndarray[Any, Any]:
        """Return the view of a NumPy array that the step selects. Raises ValueError if NumPy would
        copy the elements."""


Path = tuple[ViewStep, ...]


def read(x: Node, path: Path) -> Node:
    """Return the elements of x at a path."""
    for step in path:
        x = step.read(x)
    return x


def written(x: Node, path: Path, values: Node) -> Node:
    """Return x with the elements at a path replaced; without steps these are all."""
    if not path:  # another name of the same view
        return values
    step, *later_steps = path
    if later_steps:
        values = written(step.read(x), tuple(later_steps), values)
    return step.write(x, values)


class SharingArray(Protocol):
    """The attributes of an array that a storage uses."""

    view_of: ArrayView | None

    @property
    def dtype(self) -> DType:
        """The element type."""

    @property
    def shape(self) -> Shape:
        """The extent of each dimension."""


@final
class ArrayView:
    """The place of an array in a storage: how it is derived from the first array."""

    __slots__ = ("_elements", "_is_contiguous", "path", "storage")

    def __init__(self, storage: ElementStorage, path: Path) -> None:
        self.storage, self.path = storage, path
        self._elements: np.ndarray[Any, Any] | None = None
        self._is_contiguous: bool | None = None

    @property
    def is_contiguous(self) -> bool:
        """True if the elements of the array follow one another in NumPy's memory."""
        if self._is_contiguous is None:
            try:
                self._is_contiguous = not self.path or self.strided(self.path).flags.c_contiguous
            except ValueError:  # such as x.T.flat, which has no strides
                self._is_contiguous = False
        return self._is_contiguous

    @property
    def elements(self) -> np.ndarray[Any, Any]:
        """The elements that the array may share, as a view of a NumPy array that has no memory."""
        fixed = tuple(takewhile(lambda x: x.is_fixed, self.path))
        while self._elements is None:
            try:
                self._elements = self.strided(fixed)
            except ValueError:  # no strides: it may share all elements that the steps before have
                fixed = fixed[:-1]
        return self._elements

    def strided(self, path: Path) -> np.ndarray[Any, Any]:
        """Return the view at a path of a NumPy array that has the storage's shape and no memory.

        Only its address, shape and strides mean something. Raises ValueError if NumPy would copy.
        """
        shape = self.storage.shape
        strides = accumulate([max(extent, 1) for extent in shape[:0:-1]], mul, initial=_BYTES)
        view = np.lib.stride_tricks.as_strided(_ADDRESS, shape, [*strides][: len(shape)][::-1])
        for step in path:
            view = step.strided(view)
        return view

    def path_from(self, base: SharingArray) -> Path:
        """Return the steps that derive this array from another one of its storage."""
        assert base.view_of is not None
        return self.path[len(base.view_of.path) :]

    def overlaps(self, other: ArrayView) -> bool:
        """Return True if another array of the same storage may have elements of this one."""
        return can_overlap(self.elements, other.elements)


def can_overlap(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> bool:
    """Return True if two NumPy arrays share memory, or may do so."""
    try:
        return np.shares_memory(x, y, max_work=MAX_WORK)
    except np.exceptions.TooHardError:
        return True


_ADDRESS = np.empty(1, np.complex64)  # numbers that have parts
_BYTES = _ADDRESS.itemsize


@final
class ElementStorage:
    """Arrays that share elements.

    The paths of all of them begin at the first array, which may be gone: then the array whose path
    begins all the others takes its place.
    """

    __slots__ = ("_max_references", "_references", "dtype", "shape")

    def __init__(self, first: SharingArray) -> None:
        self.shape, self.dtype = first.shape, first.dtype
        self._references: list[ref[SharingArray]] = [ref(first)]
        self._max_references = MIN_KEPT_REFERENCES
        first.view_of = ArrayView(self, ())

    def add(self, array: SharingArray, path: Path) -> None:
        """Record an array that is derived from the first one."""
        if len(self._references) >= self._max_references:
            self._references = [ref(x) for x in self.arrays()]
            self._max_references = max(MIN_KEPT_REFERENCES, 2 * len(self._references))
        self._references.append(ref(array))
        array.view_of = ArrayView(self, path)

    def arrays(self) -> list[Any]:
        """Return the arrays that still exist."""
        existing = [x for reference in self._references if (x := reference()) is not None]
        return [x for x in existing if x.view_of is not None and x.view_of.storage is self]

    def base_of(self, arrays: Sequence[Any]) -> Any | None:
        """Return the array from which all others are derived, None if it is gone."""
        shortest = min(arrays, key=lambda x: len(x.view_of.path))
        path = shortest.view_of.path
        is_base = all(x.view_of.path[: len(path)] == path for x in arrays)
        return shortest if is_base else None
