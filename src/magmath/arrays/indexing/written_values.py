"""The values that lines like `x[i] = v` write into small stored arrays."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from magmath.arrays.lazy_array import LazyArray
from magmath.core.dtypes import convert_number
from magmath.graph import Node


def written_value(
    leaf: Node, value: Any
) -> tuple[tuple[Node, ...], tuple[float, ...], Hashable | None]:
    """Return the array, or the number, that is written into the array of a leaf, and its part of
    the key of the call; None as that part if the value must be converted or computed."""
    kind: Any = type(value)
    if kind is float or kind is int:
        if leaf.dtype.kind == "float":
            return (), (convert_number(value, leaf.dtype),), kind
        if kind is int and leaf.dtype.kind == "int" and -128 <= value < 128:
            return (), (value,), kind
    elif isinstance(value, LazyArray) and not value.is_weak and not value.is_variable:
        node = value._node
        if node is value._leaf and node is not leaf and node.dtype is leaf.dtype:
            return (node,), (), node.shape
    return (), (), None
