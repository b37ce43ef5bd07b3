"""Element storage: a storage lists the arrays that share elements, each with the steps that derive
it from the first one.

A stale array, of which a write has changed elements, is read from its base again when it is used.
Writes visit the current arrays only, so of many views each is visited once between two uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate, takewhile
from operator import mul
from typing import Any, Protocol, final
from weakref import ref

import numpy as np

from magmath.core.dtypes import DType
from magmath.graph import Node, Shape

MIN_KEPT_REFERENCES = 8
"""Number of references of a storage above which those to arrays that are gone are dropped."""
MAX_COMPARED = 64
"""Number of current arrays up to which a write through a view looks for those that share its
elements; of more, all are read again."""
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
    """The place of an array in a storage: how it is derived from the first array.

    stale_base   of a stale array, the base from which it is read again; otherwise None
    """

    __slots__ = ("_bounds", "_elements", "_is_contiguous", "path", "stale_base", "storage")

    def __init__(self, storage: ElementStorage, path: Path) -> None:
        self.storage, self.path = storage, path
        self.stale_base: Any = None
        self._elements: np.ndarray[Any, Any] | None = None
        self._bounds: tuple[int, int] | None = None
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
        (start, end), (other_start, other_end) = self.bounds, other.bounds
        is_apart = end <= other_start or other_end <= start
        return not is_apart and can_overlap(self.elements, other.elements)

    @property
    def bounds(self) -> tuple[int, int]:
        """The addresses of the first byte of `elements`, and of the byte after the last one."""
        if self._bounds is None:
            self._bounds = np.lib.array_utils.byte_bounds(self.elements)
        return self._bounds


def can_overlap(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> bool:
    """Return True if two NumPy arrays share memory, or may do so."""
    try:
        return np.shares_memory(x, y, max_work=MAX_WORK)
    except np.exceptions.TooHardError:
        return True


_ADDRESS = np.empty(1, np.complex64)  # numbers that have parts
_BYTES = _ADDRESS.itemsize


References = dict[int, ref[SharingArray]]
"""References to arrays by their identity, in the order in which they were added."""


@final
class ElementStorage:
    """Arrays that share elements.

    The paths of all of them begin at the first array, which may be gone: then the array whose path
    begins all the others takes its place.
    """

    __slots__ = ("_base", "_current", "_max_references", "_stale", "dtype", "shape")

    def __init__(self, first: SharingArray) -> None:
        self.shape, self.dtype = first.shape, first.dtype
        self._current: References = {}
        self._stale: References = {}
        self._max_references = MIN_KEPT_REFERENCES
        self._base: Callable[[], Any] = ref(first)
        self.add(first, ())

    def add(self, array: SharingArray, path: Path) -> None:
        """Record an array that is derived from the first one."""
        if len(self._current) + len(self._stale) >= self._max_references:
            self._current, self._stale = map(self._of_existing, (self._current, self._stale))
            kept = len(self._current) + len(self._stale)
            self._max_references = max(MIN_KEPT_REFERENCES, 2 * kept)
        array.view_of = ArrayView(self, path)
        self.set_current(array)

    def set_current(self, array: SharingArray) -> None:
        """Record that an array has its current elements."""
        self._stale.pop(id(array), None)
        self._current[id(array)] = ref(array)

    def set_stale(self, array: SharingArray) -> None:
        """Record that an array is stale."""
        self._current.pop(id(array), None)
        self._stale[id(array)] = ref(array)

    def arrays(self) -> list[Any]:
        """Return the arrays that still exist."""
        return [*self.current_arrays(), *self._existing(self._stale)]

    def current_arrays(self) -> list[Any]:
        """Return the arrays that still exist and are not stale."""
        return list(self._existing(self._current))

    def has_other_arrays(self, array: SharingArray) -> bool:
        """Return True if arrays other than this one still exist."""
        arrays = (x for refs in (self._current, self._stale) for x in self._existing(refs))
        return any(x is not array for x in arrays)

    def base(self) -> Any | None:
        """Return the array from which all others are derived, None if it is gone."""
        base = self._base()
        if base is None or base.view_of is None or base.view_of.storage is not self:
            base = self._find_base()
            self._base = _no_base if base is None else ref(base)
        return base

    def _find_base(self) -> Any | None:
        arrays = self.arrays()
        if not arrays:
            return None
        shortest = min(arrays, key=lambda x: len(x.view_of.path))
        path = shortest.view_of.path
        is_base = all(x.view_of.path[: len(path)] == path for x in arrays)
        return shortest if is_base else None

    def _existing(self, references: References) -> Iterator[Any]:
        for reference in list(references.values()):
            array: Any = reference()
            if array is not None and array.view_of is not None and array.view_of.storage is self:
                yield array

    def _of_existing(self, references: References) -> References:
        return {id(array): ref(array) for array in self._existing(references)}


def _no_base() -> None:
    return None
