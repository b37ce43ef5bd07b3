"""Writes of items, `x[key] = v`: in the memory of the array, into a copy of it, or as an operation.

The first write of a kind is an operation, from which the dispatch cache records what to repeat.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from magmath.arrays.indexing.indexing_cache import with_stored_positions, written_part
from magmath.arrays.indexing.masked_elements import with_item
from magmath.arrays.indexing.number_items import part_of
from magmath.arrays.indexing.single_elements import write_element
from magmath.arrays.indexing.subscripts import Part
from magmath.arrays.lazy_array import LazyArray
from magmath.arrays.storage.element_storage import ViewStep
from magmath.arrays.value_ownership import has_unshared_value
from magmath.engine import session
from magmath.graph import Node
from magmath.ops.leaves import INPUT


def written_item(array: LazyArray, key: Any, value: Any) -> Node:
    """Return the node of an array with array[key] replaced: a leaf if this process has written it,
    otherwise a pending node. Raises as `setitem`."""
    in_place = has_unshared_value(array)
    leaf = write_element(array, key, value, in_place=in_place)
    if leaf is not None:
        return leaf
    key, part = part_of(array._node, with_stored_positions(array, key))
    write = partial(with_item, array, key, value)
    return written_part(array, key, part, value, write, in_place=in_place)


def part_written(base: LazyArray, step: ViewStep, view: LazyArray) -> Node | None:
    """Return a leaf with the elements of an array, in which a written view of it, cut by this step,
    replaces its own; None if an operation writes them."""
    eager = session.eager_indexing()
    if eager is None or type(step) is not Part or not view.is_computed:
        return None
    if view._node.nbytes > eager.max_eager_bytes:
        return None
    in_place = has_unshared_value(base)
    node = written_part(
        base, step.key, step, view, lambda: step.write(base.node, view.node), in_place=in_place
    )
    return node if node.operation is INPUT else None
