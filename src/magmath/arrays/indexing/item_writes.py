"""Writes of items, `x[key] = v`: in the memory of the array, into a copy of it, or as an operation.

The first write of a kind is an operation, from which the dispatch cache notes what to repeat.
"""

from __future__ import annotations

from typing import Any

from magmath.arrays.indexing.indexing_cache import (
    note_write,
    repeated_write,
    with_stored_positions,
)
from magmath.arrays.indexing.masked_elements import with_item
from magmath.arrays.indexing.number_items import part_of
from magmath.arrays.indexing.single_elements import write_element
from magmath.arrays.indexing.subscripts import Part
from magmath.arrays.lazy_array import LazyArray
from magmath.arrays.storage.element_storage import ViewStep
from magmath.arrays.value_ownership import has_unshared_value
from magmath.engine import session
from magmath.graph import Node


def written_item(array: LazyArray, key: Any, value: Any) -> Node:
    """Return the node of an array with array[key] replaced: a leaf if this process has written it,
    otherwise a pending node. Raises as `setitem`."""
    in_place = has_unshared_value(array)
    leaf = write_element(array, key, value, in_place=in_place)
    if leaf is not None:
        return leaf
    key, part = part_of(array._node, with_stored_positions(array, key))
    leaf = repeated_write(array, key, part, value, in_place=in_place)
    if leaf is not None:
        return leaf
    node = with_item(array, key, value)
    if note_write(array, key, part, value, node):
        leaf = repeated_write(array, key, part, value, in_place=in_place)
    return leaf or node


def part_written(base: LazyArray, step: ViewStep, view: LazyArray) -> Node | None:
    """Return a leaf with the elements of an array, in which a written view of it, cut by this step,
    replaces its own; None if an operation writes them."""
    eager = session.eager_indexing()
    if eager is None or type(step) is not Part or not view.is_computed:
        return None
    if view._node.nbytes > eager.max_eager_bytes:
        return None
    in_place = has_unshared_value(base)
    leaf = repeated_write(base, step.key, step, view, in_place=in_place)
    if leaf is None and note_write(base, step.key, step, view, step.write(base.node, view.node)):
        leaf = repeated_write(base, step.key, step, view, in_place=in_place)
    return leaf
