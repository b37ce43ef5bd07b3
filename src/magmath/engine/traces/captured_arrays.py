"""Arrays that compiled functions capture: arrays that a function reads and that are not arguments.

A traced function reads the value that an array has during tracing. An in-place update of the array
marks the capture as stale, and the function is traced again at its next call.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import get_ident
from typing import TYPE_CHECKING, Any, final
from weakref import WeakSet, finalize

from magmath.graph import Graph, Node

if TYPE_CHECKING:
    from magmath.engine.traces.tracing import ObservedState, Trace

_readers: dict[int, WeakSet[Captures]] = {}  # by the id of the nodes, which the captures keep alive
_open_traces: list[_OpenTrace] = []


@final
class _OpenTrace:
    """The trace of a function whose captures are not made yet."""

    def __init__(self) -> None:
        self.thread = get_ident()
        self.replaced: dict[int, object] = {}
        """The nodes of arrays that other threads have updated meanwhile, and objects that they have
        changed, by their ids."""


@contextmanager
def watching_updates() -> Iterator[None]:
    """Within this block a function is traced, and its `Captures` are made: what other threads
    update meanwhile makes them stale."""
    trace = _OpenTrace()
    _open_traces.append(trace)
    try:
        yield
    finally:
        _open_traces.remove(trace)


def _forget_traces_of_others() -> None:
    """Forget traces of threads that a forked process does not have: they would grow for ever."""
    _open_traces[:] = [x for x in _open_traces if x.thread == get_ident()]


os.register_at_fork(after_in_child=_forget_traces_of_others)


@final
class Captures:
    """The arrays and variables that a traced function reads in addition to its arguments.

    placeholders   the leaves of the arguments
    movable        the leaves of variables whose move to another layout is no update
    """

    def __init__(
        self,
        traced: Graph,
        placeholders: Collection[Node | None],
        movable: Iterable[Node] = (),
    ) -> None:
        self.is_stale = False
        self._movable_ids = frozenset(map(id, movable))
        self._nodes: list[object] = []
        self._observed_states: Sequence[ObservedState] = ()
        self._identities: set[int] = set()
        for node in _read(traced, placeholders):
            self.add(node)
        finalize(self, _forget, self._identities)

    def add_state(self, trace: Trace) -> None:
        """Record that the function depends on the Python objects on which its trace depends."""
        for owner in trace.state_owners:
            self.add(owner)
        self._observed_states = trace.observed_states

    @property
    def is_current(self) -> bool:
        """True if nothing that the function reads was updated."""
        if self.is_stale or not self._observed_states:
            return not self.is_stale
        for state in self._observed_states:  # noqa: SIM110  `all` takes longer
            if not state.is_unchanged():
                return False
        return True

    def changed_name(self) -> str | None:
        """Return a name that the function reads and that is bound to another object, if one is."""
        names = [state.changed_name() for state in self._observed_states]
        return next((name for name in names if name is not None), None)

    def foreign_arrays(self) -> list[Any]:
        """Return the arrays of other libraries that the function reads."""
        return [x for state in self._observed_states for x in state.foreign_arrays()]

    def contains(self, node: object) -> bool:
        """Return True if the function reads a node."""
        return id(node) in self._identities

    def can_move(self, leaf: Node) -> bool:
        """Return True if a move of the variable with this leaf to another layout is no update."""
        return id(leaf) in self._movable_ids

    def add(self, node: object) -> None:
        """Record that the function reads a node, or the state of a Python object."""
        self._nodes.append(node)
        self._identities.add(id(node))
        _readers.setdefault(id(node), WeakSet()).add(self)
        if _is_replaced(node):
            self.is_stale = True
        leaf = node.value if isinstance(node, Node) else None
        if isinstance(leaf, Node):  # to which the arrays refer since another thread has computed it
            self.add(leaf)


def _is_replaced(node: object) -> bool:
    """Return True if another thread has updated what this thread reads in an open trace."""
    thread = get_ident()
    return any(id(node) in x.replaced for x in list(_open_traces) if x.thread == thread)


def _read(traced: Graph, placeholders: Collection[Node | None]) -> list[Node]:
    """Return the variables of a function, and its nodes that do not depend on arguments, current
    values of variables, or random numbers.

    A version is the value that a variable had at a line outside of the function.
    """
    varying: set[Node] = set()
    for node in traced.nodes:
        if node.operation.is_version and node.value is not None:
            continue
        varies = node in placeholders or node.name == "variable"
        varies = varies or (node.name == "scalar" and node.value is None)
        if varies or not varying.isdisjoint(node.inputs):
            varying.add(node)
    variables = [node for node in varying if node.name == "variable"]
    fixed = [node for node in traced.nodes if node not in varying and node.name != "scalar"]
    return variables + fixed


def _forget(identities: Collection[int]) -> None:
    for identity in identities:
        if not _readers.get(identity, True):
            del _readers[identity]


def add_leaf_to_captures(node: Node, leaf: Node) -> None:
    """Record that a node was evaluated; its arrays refer to `leaf` from now on."""
    if _readers:
        readers = _readers.get(id(node))
        if readers:
            for captures in list(readers):
                captures.add(leaf)


def invalidate_captures(node: object) -> None:
    """Mark captures as stale after an in-place update of an array that referred to this node, or a
    change of an object's state."""
    if _open_traces:
        _record_update(node)
    if _readers:
        for captures in _readers.pop(id(node), ()):
            captures.is_stale = True


def invalidate_layouts(leaf: Node) -> None:
    """Mark captures as stale after the move of a variable with this leaf to another layout."""
    if _open_traces:
        _record_update(leaf)
    for captures in list(_readers.get(id(leaf), ())):
        if not captures.can_move(leaf):
            captures.is_stale = True


def _record_update(node: object) -> None:
    """Record an update in the open traces of other threads."""
    for trace in list(_open_traces):
        if trace.thread != get_ident():
            trace.replaced[id(node)] = node
