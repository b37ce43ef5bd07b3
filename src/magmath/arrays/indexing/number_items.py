"""Numbers in indices: NumPy's integers, and arrays without dimensions whose values are stored here.

`for i, j in zip(starts, ends): x[i:j]` has such bounds. As Python integers they give the index that
is parsed once and repeated. Arrays that are pending, traced or stored by workers stay operands.
"""

from __future__ import annotations

from operator import is_not
from typing import Any

import numpy as np

from magmath.arrays.indexing.subscripts import Part, known_part
from magmath.arrays.lazy_array import LazyArray
from magmath.arrays.leaf_values import small_local_array
from magmath.engine import session
from magmath.graph import Node


def part_of(x: Node, key: Any) -> tuple[Any, Part | None]:
    """Return an index with Python integers in place of such numbers, and the part of x that it
    selects; None for an index with arrays."""
    part = known_part(x, key)
    if part is not None:
        return key, part
    numbers = _with_python_numbers(key)
    return numbers, None if numbers is key else known_part(x, numbers)


def _with_python_numbers(key: Any) -> Any:
    """Return an index with Python integers in place of such numbers; the index itself if it has
    none."""
    if type(key) is not tuple:
        return _item(key)
    items = [_item(item) for item in key]
    return tuple(items) if any(map(is_not, items, key)) else key


def _item(item: Any) -> Any:
    if type(item) is not slice:
        return _number(item)
    bounds = _number(item.start), _number(item.stop), _number(item.step)
    if bounds[0] is item.start and bounds[1] is item.stop and bounds[2] is item.step:
        return item
    return slice(*bounds)


def _number(value: Any) -> Any:
    """Return the Python integer for such a number; other objects as they are."""
    if isinstance(value, np.integer):
        return int(value)
    if not isinstance(value, LazyArray) or value.shape or value.dtype.kind not in ("int", "uint"):
        return value
    if session.eager_indexing() is None or (leaf := value.stored_leaf()) is None:
        return value
    values = small_local_array(leaf)
    return value if values is None else int(values)
