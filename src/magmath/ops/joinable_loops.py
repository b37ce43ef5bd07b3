"""Which operations the executor can compute in one loop with their neighbours."""

from __future__ import annotations

from magmath.codegen.emit import IndexMap, PartUpdate
from magmath.graph import Operation


def can_join_loops(operation: Operation) -> bool:
    """Return True if instructions of this operation and neighbouring ones may be executed as one
    loop."""
    return operation.is_elementwise or isinstance(operation.native, (IndexMap, PartUpdate))
