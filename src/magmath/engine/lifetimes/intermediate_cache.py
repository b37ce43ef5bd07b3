"""The cache of values of intermediate nodes, which pending expressions read instead of computing
them again.

An evaluation also computes nodes that user code still refers to. Such a node keeps its value for a
while. If the run fails, the value is dropped, so that the node is computed again on use.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from typing import final
from weakref import ref

from magmath.engine.lifetimes.live_references import is_sole_owner
from magmath.engine.remote_array import remote_array_of
from magmath.graph import Node, set_value
from magmath.runtime.pool import Pool

MAX_INTERMEDIATES = 16
"""Number of nodes whose values no array owns."""
_MAX_PENDING = 1000


@final
class IntermediateCache:
    """The nodes of one pool whose values are kept, the oldest first."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._kept: deque[ref[Node]] = deque()
        self._pending: list[ref[Node]] = []
        """Nodes whose values have other owners, and whose runs can still fail."""

    def add(self, node: Node) -> None:
        """Keep the value of a node; drop the oldest value, unless an array owns it."""
        self._kept.append(ref(node))
        if len(self._kept) <= MAX_INTERMEDIATES:
            return
        reference = self._kept.popleft()
        oldest = reference()
        if oldest is None or self._drop_failed(oldest, []):
            return
        if is_sole_owner(oldest):
            set_value(oldest, None)
        elif _has_pending_run(oldest):
            self._pending.append(reference)
            if len(self._pending) > _MAX_PENDING:
                self._pending = [x for x in self._pending if _has_pending_run(x())]

    def pin(self, nodes: Container[Node]) -> None:
        """Never drop the values of these nodes, which cannot be computed again."""
        self._kept = deque([x for x in self._kept if x() not in nodes])

    def forget_failed(self) -> list[Node]:
        """Drop the values of failed runs; return their nodes.

        These nodes are not kept any more: what computes them next may write into the memory of its
        operands, so that they could not be computed once more.
        """
        if not self._pool.has_failures:
            return []
        forgotten: list[Node] = []
        remaining = [x for x in self._kept if not self._drop_failed(x(), forgotten)]
        pending = [x for x in self._pending if not self._drop_failed(x(), forgotten)]
        self._kept, self._pending = (
            deque(remaining),
            [x for x in pending if _has_pending_run(x())],
        )
        return forgotten

    def _drop_failed(self, node: Node | None, forgotten: list[Node]) -> bool:
        """Drop the value of a node if its run has failed; return True if it has no value then."""
        if node is None or node.value is None:
            return True
        failed = self._pool.has_failed(remote_array_of(node.value).array_id)
        if failed:
            set_value(node, None)
            forgotten.append(node)
        return failed


def _has_pending_run(node: Node | None) -> bool:
    """Return True if the run that computes a node's value is not known to have succeeded."""
    if node is None or node.value is None:
        return False
    run = remote_array_of(node.value).origin
    return run is not None and run.is_pending
