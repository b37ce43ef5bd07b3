"""The programs of calls that read and write small parts of arrays: lines of NumPy.

A program gets the arrays of a call, and its numbers: first positions of slices, a written number.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, final

import numpy as np

from magmath.arrays.indexing.subscripts import SliceForm
from magmath.arrays.storage.element_storage import ViewStep

CallArrays = Sequence["np.ndarray[Any, Any]"]


@final
class PartReadProgram:
    """The program that copies the elements which a step selects."""

    __slots__ = ("_strided",)

    def __init__(self, step: ViewStep) -> None:
        self._strided = step.strided

    def run(self, arrays: CallArrays, numbers: Sequence[Any]) -> CallArrays:
        """Return the copy."""
        return (np.array(self._strided(arrays[0]), order="C"),)


@final
class SliceReadProgram:
    """The program that copies a slice from the first positions on that are its numbers."""

    __slots__ = ("_key",)

    def __init__(self, form: SliceForm) -> None:
        self._key = form.numpy_index

    def run(self, arrays: CallArrays, numbers: Sequence[Any]) -> CallArrays:
        """Return the copy."""
        return (np.array(arrays[0][self._key(numbers)], order="C"),)


@final
class ArrayReadProgram:
    """The program that copies the elements of the first array which the others select."""

    __slots__ = ("_array_positions", "_items")

    def __init__(self, items: Sequence[Any], array_positions: Sequence[int]) -> None:
        self._items, self._array_positions = [*items], array_positions

    def run(self, arrays: CallArrays, numbers: Sequence[Any]) -> CallArrays:
        """Return the copy."""
        items = self._items.copy()
        for i, values in zip(self._array_positions, arrays[1:]):  # noqa: B905  they are as many
            items[i] = values
        return (np.array(arrays[0][tuple(items)], order="C"),)


class ElementWrite(ABC):
    """A program that writes elements of an array, or of a copy of it.

    source  the position of the array among the operands
    value   that of the written array; None if it is a number
    """

    __slots__ = ("_source", "_value")

    def __init__(self, source: int, value: int | None) -> None:
        self._source, self._value = source, value

    def run(self, arrays: CallArrays, numbers: Sequence[Any]) -> CallArrays:
        """Return a copy of the array with the elements replaced."""
        copied = arrays[self._source].copy()
        self.write(copied, arrays, numbers)
        return (copied,)

    @abstractmethod
    def write(
        self, target: np.ndarray[Any, Any], arrays: CallArrays, numbers: Sequence[Any]
    ) -> None:
        """Replace the elements of `target`."""


@final
class WriteProgram(ElementWrite):
    """The program that writes the elements which an index selects.

    items   the index, with None in place of arrays
    arrays  where arrays are among the items, each with its position among the operands
    """

    __slots__ = ("_arrays", "_items")

    def __init__(
        self,
        items: Sequence[Any],
        arrays: Sequence[tuple[int, int]],
        source: int,
        value: int | None,
    ) -> None:
        super().__init__(source, value)
        self._items, self._arrays = [*items], arrays

    def write(
        self, target: np.ndarray[Any, Any], arrays: CallArrays, numbers: Sequence[Any]
    ) -> None:
        items = self._items
        if self._arrays:
            items = items.copy()
            for i, operand in self._arrays:
                items[i] = arrays[operand]
        target[tuple(items)] = numbers[0] if self._value is None else arrays[self._value]


@final
class SliceWriteProgram(ElementWrite):
    """The program that writes a slice from the first positions on that are its numbers; a written
    number is the first one, before these."""

    __slots__ = ("_key",)

    def __init__(self, form: SliceForm, source: int, value: int | None) -> None:
        super().__init__(source, value)
        self._key = form.numpy_index

    def write(
        self, target: np.ndarray[Any, Any], arrays: CallArrays, numbers: Sequence[Any]
    ) -> None:
        if self._value is None:
            target[self._key(numbers[1:])] = numbers[0]
        else:
            target[self._key(numbers)] = arrays[self._value]
