"""The 0-d node whose type yields to the types of nodes with which it is combined."""

from __future__ import annotations

from typing import final

from magmath.core.dtypes import DType
from magmath.graph import Node
from magmath.graph.arithmetic import Arithmetic


@final
class WeakScalar(Arithmetic):
    """A real 0-d node in float64 that combines with nodes as a Python number does.

    `node_functions.call` and Python's operators convert it to the type of the nodes. What they
    compute from weak scalars and numbers alone is weak too, and has the precision of float64.
    """

    __slots__ = ("node",)

    def __init__(self, node: Node) -> None:
        self.node = node

    def __repr__(self) -> str:
        return f"WeakScalar({self.node!r})"

    @property
    def dtype(self) -> DType:
        """float64."""
        return self.node.dtype
