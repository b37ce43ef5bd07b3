"""Stored parts: slices and elements of small arrays, which NumPy reads and writes in this process.

The operations of `x[i]` and `x[i] = v` are known by the key and the forms of the arrays: they are
built once, and later calls share the recipe.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, final

import numpy as np

from magmath.arrays.element_storage import ViewStep
from magmath.arrays.lazy_array import LazyArray
from magmath.arrays.subscripts import Part
from magmath.core.bounded_memo import store_bounded
from magmath.core.dtypes import convert_number
from magmath.engine import session
from magmath.engine.eager_calls import EagerCall, recipe_of_call
from magmath.engine.user_line import user_line
from magmath.graph import Node

MAX_PARTS = 4096
WRITE_FRAMES = 2
"""Frames from `user_line` to the caller of `stored_write`, which is the array's method."""
PART_FRAMES = 3
"""Frames from `user_line` to the caller of the array's method or of the function."""
_calls: dict[Hashable, EagerCall | None] = {}
"""How parts are read, by the step, shape and type; None for those that are not read here."""
_writes: dict[Hashable, EagerCall | None] = {}
"""How parts are written, also by the form of the value."""


def stored_part(array: LazyArray, step: ViewStep) -> Node | None:
    """Return a leaf with the elements that a step selects from a small stored array; None if they
    are read by an operation."""
    leaf = array._leaf
    if leaf is None or leaf is not array._node:
        return None
    call = _calls.get((step, leaf.shape, leaf.dtype.name))
    if call is None or (eager := session.dispatching()) is None:
        return None
    return call.run(eager, (leaf,), user_line(PART_FRAMES))


def note_part(array: LazyArray, step: ViewStep, selected: LazyArray) -> None:
    """Note how an array was selected by a step, for the next ones."""
    source, leaf = array._leaf, selected._leaf
    if source is None or source is not array._node or leaf is None:
        return
    key = step, source.shape, source.dtype.name
    if key not in _calls:
        found = recipe_of_call(leaf, (source,))
        call = None if found is None else EagerCall(_Reading(step), found[0], leaf, (0,))
        store_bounded(_calls, key, call, MAX_PARTS)


def stored_write(array: LazyArray, part: Part, value: Any) -> Node | None:
    """Return a leaf with the elements of a small stored array, in which a part is replaced by a
    number or a stored array of the same type; None if they are written by an operation."""
    leaf = array._leaf
    if leaf is None or leaf is not array._node:
        return None
    arguments, numbers, form = _written_value(leaf, value)
    if form is None:
        return None
    call = _writes.get((part, leaf.shape, leaf.dtype.name, form))
    if call is None or (eager := session.dispatching()) is None:
        return None
    return call.run(eager, arguments, user_line(WRITE_FRAMES), numbers)


def note_write(source: Node | None, part: Part, value: Any, written: LazyArray) -> None:
    """Note how a part of an array was replaced, for the next ones; `source` is its former leaf."""
    leaf = written._leaf
    if source is None or leaf is None:
        return
    arguments, numbers, form = _written_value(source, value)
    key = part, source.shape, source.dtype.name, form
    if form is None or key in _writes:
        return
    found = recipe_of_call(leaf, arguments)
    call = None
    if found is not None and found[1] == [*range(len(arguments))]:
        recipe = found[0]
        if numbers:  # the first number is the written one; positions follow
            recipe = recipe.with_numbers((len(arguments),))
        call = EagerCall(_Writing(part.key), recipe, leaf, found[1])
    store_bounded(_writes, key, call, MAX_PARTS)


def _written_value(
    leaf: Node, value: Any
) -> tuple[tuple[Node, ...], tuple[float, ...], Hashable | None]:
    """Return the arguments and numbers of a write into the array of a leaf, and the form of the
    value; None as its form if it must be converted or computed."""
    if type(value) is float and leaf.dtype.kind == "float":
        return (leaf,), (convert_number(value, leaf.dtype),), float
    if isinstance(value, LazyArray) and not value.is_weak and not value.is_variable:
        node = value._node
        if node is value._leaf and node is not leaf and node.dtype is leaf.dtype:
            return (leaf, node), (), node.shape
    return (), (), None


@final
class _Writing:
    """The program that copies an array and writes a part of the copy."""

    __slots__ = ("_key",)

    def __init__(self, key: tuple[Any, ...]) -> None:
        self._key = key

    def run(
        self, arrays: Sequence[np.ndarray[Any, Any]], numbers: Sequence[Any]
    ) -> Sequence[np.ndarray[Any, Any]]:
        """Return the array with the part replaced."""
        values = arrays[0].copy()
        values[self._key] = numbers[0] if numbers else arrays[1]
        return (values,)


@final
class _Reading:
    """The program that copies the elements which a step selects."""

    __slots__ = ("_strided",)

    def __init__(self, step: ViewStep) -> None:
        self._strided = step.strided

    def run(
        self, arrays: Sequence[np.ndarray[Any, Any]], numbers: Sequence[Any]
    ) -> Sequence[np.ndarray[Any, Any]]:
        """Return the copy."""
        return (np.array(self._strided(arrays[0])),)
