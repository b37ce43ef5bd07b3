"""Single elements of stored arrays, `x[i]` and `x[i, j] = v`: the shortest way to their calls.

The dispatch cache has one call for all elements of arrays of a shape and a type, with the positions
as its numbers; `arrays/indexing/indexing_cache.py` records it. A loop over the elements of a table
has a new index in each step, which this module reads without parsing it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, Final

from magmath.arrays.indexing.subscripts import ELEMENT
from magmath.arrays.indexing.written_values import written_value
from magmath.arrays.lazy_array import LazyArray
from magmath.core.type_aliases import Number
from magmath.engine import session
from magmath.engine.user_line import user_line
from magmath.graph import Node
from magmath.graph.operation import Line

if TYPE_CHECKING:
    from magmath.engine.eager.eager_computation import EagerComputation

MAX_COPIED: Final = 8 << 10
"""Bytes of the largest array that each write copies, which takes no longer than the rest of it."""
METHOD_FRAMES = 2
"""Frames from `user_line` to the caller of functions here, which is a method of the array."""


def read_element(array: LazyArray, key: Any) -> Node | None:
    """Return a leaf with the element of a small stored array that an index of Python integers
    selects; None if it is read as another part."""
    element = _element(array, key)
    if element is None:
        return None
    eager, leaf, position = element
    call_key, line = (ELEMENT, leaf.shape, leaf.dtype.name), user_line(METHOD_FRAMES)
    read: Node | None = eager.dispatch_cache.repeat(eager, call_key, (leaf,), line, position)
    return read


def write_element(array: LazyArray, key: Any, value: Any, *, in_place: bool) -> Node | None:
    """Return a leaf with the elements of a stored array, in which a number or a stored array of the
    same type replaces one; None if it is written as another part.

    in_place  nothing else references the value of the array
    """
    element = _element(array, key)
    if element is None:
        return None
    eager, leaf, position = element
    written = written_value(leaf, value)
    if written is None:
        return None
    form, arrays, numbers = written
    call_key = "write", leaf.shape, leaf.dtype.name, form, ELEMENT
    arguments, line = (leaf, *arrays), user_line(METHOD_FRAMES)
    return written_leaf(eager, call_key, arguments, line, (*numbers, *position), in_place)


def written_leaf(
    eager: EagerComputation,
    call_key: Hashable,
    arguments: Sequence[Node],
    line: Line,
    numbers: Sequence[Number],
    in_place: bool,
) -> Node | None:
    """Return a leaf with the elements that a call writes into the first argument: into a copy of a
    small array, and if nothing else references it, into the memory of a larger one; None if an
    operation writes them."""
    nbytes = arguments[0].nbytes
    if in_place and nbytes > MAX_COPIED:
        return eager.dispatch_cache.write(eager, call_key, arguments, line, numbers)
    if nbytes > eager.max_eager_bytes:
        return None
    written: Node | None = eager.dispatch_cache.repeat(eager, call_key, arguments, line, numbers)
    return written


def _element(array: LazyArray, key: Any) -> tuple[EagerComputation, Node, tuple[int, ...]] | None:
    """Return the calls of small arrays, the leaf of an array and the position of the element that a
    index of Python integers selects; None for another index or array, and a position out of
    range."""
    items = key if type(key) is tuple else (key,)
    shape = array._node.shape
    if not shape or len(items) != len(shape):
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
    eager, leaf = session.eager_indexing(), array.stored_leaf()
    return None if eager is None or leaf is None else (eager, leaf, tuple(position))
