"""Joint evaluation: pending arrays that an evaluation of others computes in the same program.

The gradients of a function and its value are computed from the same intermediate results. A loop
reads them by several statements: it updates one variable after the other, and then prints the
value. So the evaluation of a gradient also computes the other gradients of the same call, and the
value. The evaluation of the value alone does not compute the gradients, which may not be needed.

A pending update in place is computed with other readers of its operands. A loop such as

    x += alpha * p
    r -= alpha * q
    if (r * r).sum() < tolerance: break

evaluates an expression of r in each step, while the update of x stays pending. If x were computed
when it is read, after the loop, every p would be kept until then or be computed once more. So an
evaluation also computes the pending updates that read arrays which it computes anyway.

Only evaluations of their own thread join them, since other threads may be updating theirs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from threading import local
from typing import NamedTuple, final
from weakref import ref

from magmath.engine.array_handle import ArrayHandle
from magmath.engine.fallible_operations import is_pending_and_fallible
from magmath.graph import Node, topological
from magmath.ops.leaves import NUMBERS

MAX_UPDATES = 16
"""Number of the latest updates that are searched."""
MAX_CALLS = 4
"""Number of the latest calls of `grad` whose results are searched."""
MAX_OPERATIONS = 16
"""Maximum number of operations that an update may add to an evaluation."""


@final
class _GradResult(NamedTuple):
    """A result of differentiation: the array, and its node at that time, which an update in place
    replaces."""

    array: Callable[[], ArrayHandle | None]
    original: Callable[[], Node | None]

    @staticmethod
    def of(array: ArrayHandle) -> _GradResult:
        return _GradResult(ref(array), ref(array.node))

    @property
    def node(self) -> Node | None:
        """The node, if the array still exists, refers to it and is pending; otherwise None."""
        array, original = self.array(), self.original()
        if array is None or original is None or not array.refers_to(original):
            return None
        if array.is_computed:
            return None
        return None if original.value is not None or original.is_leaf_or_constant else original


@final
class _GradCall(NamedTuple):
    """The results of a call of `grad`."""

    gradients: list[_GradResult]
    value: _GradResult


@final
class _ThreadState(local):
    """The latest updates and calls of a thread."""

    def __init__(self) -> None:
        self.updates: deque[Callable[[], ArrayHandle | None]] = deque(maxlen=MAX_UPDATES)
        self.calls: deque[_GradCall] = deque(maxlen=MAX_CALLS)


@final
class JointEvaluation:
    """The latest arrays that were updated in place, and the latest gradients."""

    def __init__(self) -> None:
        self._thread_state = _ThreadState()

    def add_update(self, array: ArrayHandle) -> None:
        """Register an array after an update in place."""
        self._thread_state.updates.append(ref(array))

    def add_gradients(self, gradients: Sequence[ArrayHandle], value: ArrayHandle) -> None:
        """Register the gradients that a call returns, and the value that it differentiated."""
        results = [_GradResult.of(x) for x in gradients]
        self._thread_state.calls.append(_GradCall(results, _GradResult.of(value)))

    def nodes_with(self, order: Sequence[Node]) -> tuple[list[Node], list[Node]]:
        """Return the nodes that are computed together with those in `order`: gradients and values,
        and updates in place."""
        thread_state = self._thread_state
        if not (thread_state.updates or thread_state.calls):
            return [], []
        pending = {node for node in order if node.value is None and not node.is_leaf}
        results = self._results_of_calls(thread_state, pending)
        updates = [x for x in self._updates_of(thread_state, order, pending) if x not in results]
        return results, updates

    def _results_of_calls(self, thread_state: _ThreadState, pending: set[Node]) -> list[Node]:
        """Return the results of calls of which a gradient is computed."""
        calls, thread_state.calls = thread_state.calls, deque(maxlen=MAX_CALLS)
        results: dict[Node, None] = {}
        for call in calls:
            nodes = [node for x in call.gradients if (node := x.node) is not None]
            if pending.isdisjoint(nodes):
                if nodes:
                    thread_state.calls.append(call)
                continue
            value = call.value.node
            nodes += [] if value is None else [value]
            additional = [node for node in nodes if node not in pending]
            if not any(
                is_pending_and_fallible(x)
                for x in topological(additional, pending=True)
                if x not in pending
            ):
                results |= dict.fromkeys(additional)
        return list(results)

    def _updates_of(
        self, thread_state: _ThreadState, order: Sequence[Node], pending: set[Node]
    ) -> list[Node]:
        """Return the pending updates that read a value which the nodes in `order` compute, and that
        add only element-wise operations, on arrays which are not larger than those that exist."""
        if not thread_state.updates:
            return []
        arrays, thread_state.updates = thread_state.updates, deque(maxlen=MAX_UPDATES)
        largest = max([node.size for node in order if node not in pending], default=0)
        updates: dict[Node, None] = {}
        for reference in arrays:
            array = reference()
            if array is None or array.is_stale:
                continue
            if array.is_computed or array.node.value is not None:
                continue
            if array.node in pending or array.node in updates:
                continue
            if array.node.size <= largest and _reads_with_few_operations(array.node, pending):
                updates[array.node] = None
            else:
                thread_state.updates.append(reference)
        return list(updates)


def _reads_with_few_operations(node: Node, pending: set[Node]) -> bool:
    """Return True if a node reads one of the pending nodes and needs few other operations, all of
    them element-wise or filled with a number."""
    seen, stack, reads = {node}, [node], False
    while stack:
        current = stack.pop()
        is_filled = NUMBERS.issuperset([x.operation for x in current.inputs])
        if len(seen) > MAX_OPERATIONS or not (current.operation.is_elementwise or is_filled):
            return False
        for source in current.inputs:
            if source in pending:
                reads = True
            elif source.value is None and not source.is_leaf and source not in seen:
                seen.add(source)
                stack.append(source)
    return reads
