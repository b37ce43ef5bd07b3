"""Single elements of small arrays: `x[i]` and `x[i, j] = v`, for all positions by one call.

A loop over the elements of a table has a new key in each step. So the dispatch cache has one call
for all of them, and the positions are its numbers, as they are of the operations and of the recipe
for gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from magmath.arrays.indexing.window_recipes import with_starts
from magmath.arrays.indexing.written_values import written_value
from magmath.arrays.lazy_array import LazyArray
from magmath.engine import session
from magmath.engine.eager.eager_calls import EagerCall, recipe_of_call
from magmath.engine.user_line import user_line
from magmath.graph import Node
from magmath.ops.indexing.dynamic_slice import SET_WINDOW, WINDOW

METHOD_FRAMES = 2
"""Frames from `user_line` to the caller of functions here, which is a method of the array."""


def read_element(array: LazyArray, key: Any) -> Node | None:
    """Return a leaf with the element of a small stored array that a key of Python integers selects;
    None if an operation reads it."""
    position = _position(array, key)
    if position is None or (eager := session.eager_dispatch()) is None:
        return None
    leaf = array.stored_leaf()
    if leaf is None:
        return None
    call = eager.calls.get(("element", leaf.shape, leaf.dtype.name))
    return None if call is None else call.run(eager, (leaf,), user_line(METHOD_FRAMES), position)


def note_element(array: LazyArray, key: Any, element: LazyArray) -> None:
    """Note how an element of an array was read, for the next ones."""
    position, eager = _position(array, key), session.eager_dispatch()
    source, leaf = array.stored_leaf(), element._leaf
    if position is None or eager is None or source is None or leaf is None:
        return
    call_key = "element", source.shape, source.dtype.name
    if call_key in eager.calls:
        return
    call, known = None, recipe_of_call(leaf, (source,))
    if known is not None:
        recipe = with_starts(known[0], WINDOW, 1, len(position))
        call = None if recipe is None else EagerCall(_ElementRead(), recipe, leaf, (0,))
    eager.note_call(call_key, call)


def write_element(array: LazyArray, key: Any, value: Any) -> Node | None:
    """Return a leaf with the elements of a small stored array, in which a number or a stored array
    of the same type without dimensions replaces one; None if an operation writes it."""
    position = _position(array, key)
    if position is None or (eager := session.eager_dispatch()) is None:
        return None
    leaf = array.stored_leaf()
    if leaf is None:
        return None
    arguments, numbers, kind = written_value(leaf, value)
    call = eager.calls.get(("write element", leaf.shape, leaf.dtype.name, kind))
    if call is None:
        return None
    line = user_line(METHOD_FRAMES)
    written: Node | None = call.run(eager, (leaf, *arguments), line, (*numbers, *position))
    return written


def note_written_element(source: Node | None, key: Any, value: Any, written: LazyArray) -> None:
    """Note how an element of an array was replaced, for the next ones; `source` is its former
    leaf."""
    position, eager = _position(written, key), session.eager_dispatch()
    leaf = written._leaf
    if position is None or eager is None or source is None or leaf is None:
        return
    arguments, numbers, kind = written_value(source, value)
    call_key = "write element", source.shape, source.dtype.name, kind
    if kind is None or any(x.shape for x in arguments) or call_key in eager.calls:
        return
    arguments = source, *arguments
    call, known = None, recipe_of_call(leaf, arguments)
    if known is not None and [*known[1]] == [*range(len(arguments))]:
        first = 1 if numbers else 2  # the number is one of the recipe's
        recipe = with_starts(known[0], SET_WINDOW, first, len(numbers) + len(position))
        call = None if recipe is None else EagerCall(_ElementWrite(), recipe, leaf, known[1])
    eager.note_call(call_key, call)


def _position(array: LazyArray, key: Any) -> tuple[int, ...] | None:
    """Return the position of the element that a key of Python integers selects; None for another
    key, and for one that is out of range."""
    shape = array._node.shape
    items = key if type(key) is tuple else (key,)
    if len(items) != len(shape) or not shape:
        return None
    position: list[int] = []
    for item, extent in zip(items, shape):  # noqa: B905  they are as many
        if type(item) is not int:
            return None
        if item < 0:
            item += extent
        if not 0 <= item < extent:
            return None
        position.append(item)
    return tuple(position)


_Arrays = Sequence["np.ndarray[Any, Any]"]


@final
class _ElementRead:
    """The program that copies an element."""

    __slots__ = ()

    def run(self, arrays: _Arrays, numbers: Sequence[Any]) -> _Arrays:
        """Return the element at these positions, as an array without dimensions."""
        return (arrays[0][(*numbers, ...)].copy(),)


@final
class _ElementWrite:
    """The program that copies an array and writes an element of the copy: the second array, or the
    first number."""

    __slots__ = ()

    def run(self, arrays: _Arrays, numbers: Sequence[Any]) -> _Arrays:
        """Return the array with the element at these positions replaced."""
        values = arrays[0].copy()
        if len(arrays) == 1:
            values[tuple(numbers[1:])] = numbers[0]
        else:
            values[tuple(numbers)] = arrays[1]
        return (values,)
