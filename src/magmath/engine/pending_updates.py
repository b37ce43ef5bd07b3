"""Pending in-place updates that an evaluation computes in the same program.

A loop such as

    x += alpha * p
    r -= alpha * q
    if (r * r).sum() < tolerance: break

evaluates an expression of r in each step, while the update of x stays pending. If x were computed
when it is read, after the loop, every p would be kept until then or be computed once more. So an
evaluation also computes the pending updates that read arrays which it computes anyway.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, final
from weakref import ref

from magmath.graph import Node
from magmath.ops.leaves import CONSTANT, PARAMETER

MAX_UPDATES = 16
"""Number of the latest updates that are searched."""
_NUMBERS = frozenset({CONSTANT, PARAMETER})
MAX_OPERATIONS = 16
"""Maximum number of operations that an update may add to an evaluation."""


class Updated(Protocol):
    """An array that was updated in place, as this module sees it."""

    @property
    def node(self) -> Node:
        """The expression, or the leaf with its value if it is evaluated."""

    def is_known(self) -> bool:
        """True if the value has been computed."""


@final
class PendingUpdates:
    """The latest arrays that were updated in place."""

    def __init__(self) -> None:
        self._arrays: deque[Callable[[], Updated | None]] = deque(maxlen=MAX_UPDATES)

    def note(self, array: Updated) -> None:
        """Register an array after an update in place."""
        self._arrays.append(ref(array))

    def reading(self, order: Sequence[Node]) -> list[Node]:
        """Return the pending updates that read a value which the nodes in `order` compute, and that
        add only element-wise operations, on arrays which are not larger than those that exist."""
        if not self._arrays:
            return []
        arrays, self._arrays = self._arrays, deque(maxlen=MAX_UPDATES)
        pending = {node for node in order if node.value is None and not node.is_leaf}
        largest = max([node.size for node in order if node not in pending], default=0)
        found: dict[Node, None] = {}
        for reference in arrays:
            array = reference()
            if array is None or array.is_known() or array.node.value is not None:
                continue
            if array.node in pending or array.node in found:
                continue
            if array.node.size <= largest and _is_small_addition(array.node, pending):
                found[array.node] = None
            else:
                self._arrays.append(reference)
        return list(found)


def _is_small_addition(node: Node, pending: set[Node]) -> bool:
    """Return True if a node reads one of the pending nodes and needs few other operations, all of
    them element-wise or filled with a number."""
    seen, stack, reads = {node}, [node], False
    while stack:
        current = stack.pop()
        fill = _NUMBERS.issuperset([x.operation for x in current.inputs])
        if len(seen) > MAX_OPERATIONS or not (current.operation.elementwise or fill):
            return False
        for source in current.inputs:
            if source in pending:
                reads = True
            elif source.value is None and not source.is_leaf and source not in seen:
                seen.add(source)
                stack.append(source)
    return reads
