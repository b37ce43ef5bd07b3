"""Memory that only a pending expression references, which may be much for a small value.

`x += a * p` in a loop that computes another `p` in each step would keep every `p`, if `x` were not
computed from time to time.
"""

from __future__ import annotations

from typing import final
from weakref import ref

from magmath.engine.lifetimes.live_references import held_alone
from magmath.engine.lifetimes.pending_arrays import MAX_HELD_RATIO
from magmath.graph import Node, topological


@final
class PendingMemory:
    """Examines pending expressions of one pool."""

    def __init__(self) -> None:
        self._examined: ref[Node] | None = None
        """The deepest operand of the expression that was examined last."""

    def has_excess(self, node: Node) -> bool:
        """Return True if an expression references much more memory than its value needs.

        Each examination walks along the whole expression, so several that are based on the same
        operand, as eight rolls of one board, are examined once.
        """
        operand = max(node.inputs, key=_depth)
        if self._examined is not None and self._examined() is operand:
            return False
        self._examined = ref(operand)
        exclusive_nodes = held_alone(topological((node,), pending=True))
        return sum([x.nbytes for x in exclusive_nodes]) > MAX_HELD_RATIO * node.nbytes


def _depth(node: Node) -> int:
    return node.depth
