"""The values that lines like `x[i] = v` write into stored arrays."""

from __future__ import annotations

from collections.abc import Hashable
from math import prod
from typing import Any, NamedTuple, final

import numpy as np

from magmath.arrays.indexing.number_items import part_of
from magmath.arrays.inputs.operands import written_operand
from magmath.arrays.lazy_array import LazyArray
from magmath.core.dtypes import convert_number
from magmath.engine import session
from magmath.graph import Node


@final
class WrittenValue(NamedTuple):
    """A value that is written into an array as it is.

    form     what is the same for values that are written by the same operations: the class of a
             number, the shape of an array
    arrays   the leaf of an array
    numbers  a number
    """

    form: Hashable
    arrays: tuple[Node, ...] = ()
    numbers: tuple[float, ...] = ()


def written_value(leaf: Node, value: Any) -> WrittenValue | None:
    """Return the array or the number that is written into the array of a leaf; None if the value
    must be converted or computed."""
    kind: Any = type(value)
    leaf_kind = leaf.dtype.kind
    if kind is float or kind is int:
        if leaf_kind == "float":
            return WrittenValue(kind, (), (convert_number(value, leaf.dtype),))
        if kind is int and leaf_kind == "int" and value.bit_length() < 8 * leaf.dtype.itemsize:
            return WrittenValue(kind, (), (value,))
    elif kind is bool:
        return WrittenValue(kind, (), (value,)) if leaf_kind == "bool" else None
    elif isinstance(value, LazyArray) and not value.is_weak and not value.is_variable:
        node = value._node
        if node is value._leaf and node is not leaf and node.dtype is leaf.dtype:
            return WrittenValue(node.shape, (node,))
    return None


def small_operand(array: LazyArray, value: Any) -> Node | None:
    """Return the node of a small value of another class or type, converted to the type of the
    array, or made of numbers alone and pending; None for other values. Raises DTypeError as
    `written_operand`.

    So the written elements are stored here, as those of an evaluated array of the same type.
    """
    kind: Any = type(value)
    if kind is float or kind is int or (eager := session.eager_indexing()) is None:
        return None
    if kind is not np.ndarray and (not isinstance(value, LazyArray) or value.is_weak):
        return None
    if value.nbytes > eager.max_eager_bytes:
        return None
    if kind is not np.ndarray:
        if value._leaf is None and value._node.is_of_numbers:
            value.evaluated_leaf()
        elif value.dtype is array.dtype or value._leaf is not value._node or value.is_variable:
            return None
    return written_operand(array.dtype, value)


def is_small_write_into_new(array: LazyArray, key: Any) -> bool:
    """Return True if a key selects a small part of a pending array of numbers alone, such as
    `mm.zeros(…)`, in this process. It is computed then, and this part and later ones are written in
    its memory."""
    node, eager = array._node, session.eager_indexing()
    if eager is None or not node.is_of_numbers or not eager.pool.is_inline:
        return False
    part = part_of(node, key)[1]
    return part is not None and prod(part.shape) * node.dtype.itemsize <= eager.max_eager_bytes
