"""What a computed array was made from, as far as somebody still holds it.

The expression of an array is let go when the array is computed, so nothing can be differentiated
through it any more. But it is remembered which arrays it was made from, for as long as they exist,
so that a gradient with respect to one of them is refused instead of being zero.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING
from weakref import ref

if TYPE_CHECKING:
    from magmath.graph.node import Line, Node


class Past:
    """The nodes from which an array was made; `line` is the user's that built it.

    Nodes are referred to weakly. Of earlier pasts those are kept of which a node is still there, so
    a loop that replaces its array in each step does not grow a chain. Without `chained` none are
    kept: they are found through the nodes while these are there.
    """

    __slots__ = ("_before", "_made", "_nodes", "_remade", "line")
    _clock = 0  # how often arrays have been made again

    def __init__(self, nodes: Iterable[Node], line: Line, *, chained: bool = True) -> None:
        self.line = line
        self._made, self._remade = Past._clock, 0
        found: dict[Node, None] = {}
        before: dict[Past, None] = {}
        for node in nodes:
            leaf = node.known
            found[node] = found[leaf] = None
            if chained and leaf.past is not None:
                before[leaf.past] = None
        self._nodes = [ref(node) for node in found]
        self._before = tuple(_living(before))

    def holds(self, nodes: Collection[Node]) -> bool:
        """True if the array was made from one of these nodes."""
        seen, stack = {self}, [self]
        while stack:
            past = stack.pop()
            made_of = [node for known in past._nodes if (node := known()) and past._precedes(node)]
            if any(node in nodes for node in made_of):
                return True
            earlier = [*past._before, *[x.past for x in made_of if x.past is not None]]
            stack += [before for before in earlier if before not in seen]
            seen.update(earlier)
        return False

    def again(self) -> None:
        """Note that the array was made again, in its own memory: what was made from it before was
        made from another array."""
        Past._clock += 1
        self._made = self._remade = Past._clock

    def _precedes(self, node: Node) -> bool:
        """True unless a node's array was made again after it was used here."""
        return node.past is None or node.past._remade <= self._made

    def begins_with(self, nodes: Sequence[Node]) -> bool:
        """True if these are the first of the nodes."""
        if len(self._nodes) < len(nodes):
            return False
        for known, node in zip(self._nodes, nodes):  # noqa: B905, SIM110  in each compiled call
            if known() is not node:
                return False
        return True

    @property
    def is_gone(self) -> bool:
        """True if nobody holds any of the nodes."""
        return all(node() is None for node in self._nodes)


def _living(pasts: Iterable[Past]) -> Iterator[Past]:
    """Those of which a node is still there, and for the others the same of what came before."""
    stack = list(pasts)
    seen = set(stack)
    while stack:
        past = stack.pop()
        if past.is_gone:
            stack += [before for before in past._before if before not in seen]
            seen.update(past._before)
        else:
            yield past
