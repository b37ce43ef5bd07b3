"""Companions: pending arrays that an evaluation of others computes in the same program.

The value of a function and its gradients are computed from the same intermediate results. A loop
reads the value, for a message, before or after the step that needs the gradients, so whichever of
them is computed first, the others are computed with it.

In-place updates are companions of what reads the same arrays. A loop such as

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
MAX_RESULTS = 4
"""Number of the latest differentiated functions whose results are searched."""
MAX_OPERATIONS = 16
"""Maximum number of operations that an update may add to an evaluation."""


class Pending(Protocol):
    """An array, as this module sees it."""

    @property
    def node(self) -> Node:
        """The expression, or the leaf with its value if it is evaluated."""

    def is_known(self) -> bool:
        """True if the value has been computed."""


@final
class Companions:
    """The latest arrays that were updated in place, and the latest results of differentiation."""

    def __init__(self) -> None:
        self._updates: deque[Callable[[], Pending | None]] = deque(maxlen=MAX_UPDATES)
        self._results: deque[list[Callable[[], Pending | None]]] = deque(maxlen=MAX_RESULTS)

    def note_update(self, array: Pending) -> None:
        """Register an array after an update in place."""
        self._updates.append(ref(array))

    def note_results(self, arrays: Sequence[Pending]) -> None:
        """Register the value and the gradients of a function."""
        self._results.append([ref(array) for array in arrays])

    def of(self, order: Sequence[Node]) -> tuple[list[Node], list[Node]]:
        """Return the companions of the nodes in `order`, which are computed: results of
        differentiation, and updates in place."""
        if not (self._updates or self._results):
            return [], []
        pending = {node for node in order if node.value is None and not node.is_leaf}
        return self._results_with(pending), self._updates_of(order, pending)

    def _results_with(self, pending: set[Node]) -> list[Node]:
        """Return the pending results of functions of which one is computed."""
        results, self._results = self._results, deque(maxlen=MAX_RESULTS)
        found: list[Node] = []
        for references in results:
            arrays = [array for reference in references if (array := reference()) is not None]
            nodes = [array.node for array in arrays if not array.is_known()]
            others = [node for node in nodes if node not in pending and node.value is None]
            if nodes and len(others) == len(nodes):  # none of them is computed now
                self._results.append(references)
            else:
                found += others
        return found

    def _updates_of(self, order: Sequence[Node], pending: set[Node]) -> list[Node]:
        """Return the pending updates that read a value which the nodes in `order` compute, and that
        add only element-wise operations, on arrays which are not larger than those that exist."""
        arrays, self._updates = self._updates, deque(maxlen=MAX_UPDATES)
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
                self._updates.append(reference)
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
