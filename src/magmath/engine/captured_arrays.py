"""Arrays that compiled functions read without being given them.

A function that is traced reads an array as it is then. When the array is updated in place, what was
read is marked, and the function is traced again at its next call.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import final
from weakref import WeakSet, finalize

from magmath.graph import Graph, Node

_readers: dict[int, WeakSet[Captured]] = {}  # by the identity of the nodes, which these keep


@final
class Captured:
    """The arrays and variables that a traced function read besides its arguments, which are at
    `places`. A variable counts as updated when it is moved to another layout, unless `moves` is
    False."""

    def __init__(self, traced: Graph, places: Collection[Node | None], moves: bool = True) -> None:
        self.is_current = True
        self._nodes: list[object] = []
        self._identities: list[int] = []
        for node in _read(traced, places):
            if moves or node.name != "variable":
                self.add(node)
        finalize(self, _forget, self._identities)

    def add(self, node: object) -> None:
        """Note that a node, or the state of an object of Python, was read."""
        self._nodes.append(node)
        self._identities.append(id(node))
        _readers.setdefault(id(node), WeakSet()).add(self)


def _read(traced: Graph, places: Collection[Node | None]) -> list[Node]:
    """The nodes of a function that do not depend on its arguments, variables or random numbers."""
    varying: set[Node] = set()
    for node in traced.nodes:
        given = node in places or node.name == "variable"
        given = given or (node.name == "parameter" and node.value is None)
        if given or not varying.isdisjoint(node.inputs):
            varying.add(node)
    variables = [node for node in varying if node.name == "variable"]
    fixed = [node for node in traced.nodes if node not in varying and node.name != "parameter"]
    return variables + fixed


def _forget(identities: Sequence[int]) -> None:
    for identity in identities:
        if not _readers.get(identity, True):
            del _readers[identity]


def follow(node: Node, leaf: Node) -> None:
    """A node was evaluated: arrays that were this node are its leaf from now on."""
    if _readers:
        readers = _readers.get(id(node))
        if readers:
            for captured in readers:
                captured.add(leaf)


def note_update(node: object) -> None:
    """An array was updated in place that was this node before, or an object has another state."""
    for captured in _readers.pop(id(node), ()):
        captured.is_current = False
