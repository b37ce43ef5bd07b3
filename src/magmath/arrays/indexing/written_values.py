"""The values that lines like `x[i] = v` write into small stored arrays."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple, final

from magmath.arrays.lazy_array import LazyArray
from magmath.core.dtypes import convert_number
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
    if kind is float or kind is int:
        if leaf.dtype.kind == "float":
            return WrittenValue(kind, (), (convert_number(value, leaf.dtype),))
        if kind is int and leaf.dtype.kind == "int" and -128 <= value < 128:
            return WrittenValue(kind, (), (value,))
    elif isinstance(value, LazyArray) and not value.is_weak and not value.is_variable:
        node = value._node
        if node is value._leaf and node is not leaf and node.dtype is leaf.dtype:
            return WrittenValue(node.shape, (node,))
    return None
