"""Pending arrays of numbers alone, such as `arange(5)`, as operands of stored arrays: they are
computed before the operation, which then finds stored operands only."""

from __future__ import annotations

from magmath.arrays.lazy_array import LazyArray
from magmath.engine.eager.eager_computation import EagerComputation
from magmath.graph import Node


def number_leaf(eager: EagerComputation, array: LazyArray) -> Node | None:
    """Return the leaf with the value of a pending array of numbers alone, which is computed now;
    None for others, and for large ones."""
    node = array._node
    if array._leaf is not None or array.pending_update is not None or not node.is_of_numbers:
        return None
    leaf = eager.leaf_of_needed_node(node)
    return leaf if leaf is not None and array.set_computed_of(node, leaf) else None
