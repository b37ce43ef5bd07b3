"""Which nodes have cotangents."""

from __future__ import annotations

from magmath.graph import Node
from magmath.ops.counted_loops import SCAN
from magmath.ops.custom_gradients import CUSTOM_CALL
from magmath.ops.predication import BRANCH
from magmath.ops.while_loops import WHILE

_OF_SEVERAL_VALUES = (SCAN, WHILE, BRANCH, CUSTOM_CALL)
"""Operations whose nodes stand for several values of any types."""


def has_cotangent(node: Node) -> bool:
    """Return False for integers and truth values: their gradient is zero almost everywhere."""
    return node.dtype.kind in ("float", "complex") or node.operation in _OF_SEVERAL_VALUES
