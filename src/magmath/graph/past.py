"""What a computed array was made from, as far as somebody still holds it.

The expression of an array is let go when the array is computed, so nothing can be differentiated
through it any more. But it is remembered which arrays it was made from, for as long as they exist,
so that a gradient with respect to one of them is refused instead of being zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import TYPE_CHECKING, final
from weakref import ref

if TYPE_CHECKING:
    from magmath.graph.node import Line, Node

_Reference = Callable[[], "Node | None"]
FEW = 64  # pasts that may be found behind one another before they are made one


@final
class Awaited:
    """Refers weakly to the leaf with an expression's value, once it has been computed."""

    __slots__ = ("_leaf",)

    def __init__(self) -> None:
        self._leaf: _Reference = _nothing

    def __call__(self) -> Node | None:
        return self._leaf()

    def found(self, leaf: Node) -> None:
        """The expression has been computed."""
        self._leaf = ref(leaf)


def _nothing() -> None:
    return None


@final
class Past:
    """The nodes from which an array was made; `line` is the user's that built it.

    Nodes are referred to weakly. What they were made from is found through the pasts before this
    one, which stay when the nodes are gone. Once there are many of these, what is left of them all
    is taken together, so a loop that replaces its array in each step grows no chain.
    """

    __slots__ = ("_before", "_behind", "_made", "_nodes", "_together", "line")
    _clock = 0  # how often arrays have been made again

    def __init__(self, nodes: Sequence[Node], line: Line) -> None:
        self.line = line
        self._made = Past._clock
        self._behind: int  # how many pasts may be found, this one included
        self._together: int  # how many nodes were left when they were last taken together
        self._take(nodes, [])

    def _take(self, nodes: Sequence[Node], before: list[Past]) -> None:
        """Note that these, and all that is in earlier pasts, are what it was made from."""
        self._nodes = _references(nodes)
        pasts = [past for node in nodes if (past := node.known.past) is not None]
        self._before = [*before, *dict.fromkeys(pasts)]
        self._behind = 1 + sum([past._behind for past in self._before])
        self._together = max([past._together for past in self._before], default=0)
        if self._behind > FEW + self._together:
            self._nodes = _references(list(dict.fromkeys(self.left())))
            self._before = []
            self._behind, self._together = 0, len(self._nodes)

    def left(self) -> Iterator[Node]:
        """All that is left of what the array was made from, this past's own nodes first."""
        seen, stack = {self}, [self]
        while stack:
            past = stack.pop()
            made = min(past._made, self._made)
            for known in past._nodes:
                node = known()
                if node is not None and (node.past is None or node.past._made <= made):
                    yield node  # and not another array, made in the memory of the former
            fresh = [before for before in past._before if before not in seen]
            stack += fresh
            seen.update(fresh)

    def holds(self, nodes: set[Node]) -> bool:
        """True if the array was made from one of these nodes."""
        return not nodes.isdisjoint(self.left())

    def begins_with(self, nodes: Sequence[Node]) -> bool:
        """True if these are the first of the nodes."""
        return self._nodes[: len(nodes)] == list(map(ref, nodes))  # a node has one reference

    def again(self, nodes: Sequence[Node] | None = None) -> None:
        """Note that the array was made again, in its own memory: from the same nodes, or others.

        What was made from it before was made from another array, whose past this one includes.
        """
        if nodes is not None:
            self._take(nodes, [copy(self)])
        Past._clock += 1
        self._made = Past._clock


def _references(nodes: Sequence[Node]) -> list[_Reference]:
    """Weak references to nodes, and then to the leaves with their values."""
    found: list[_Reference] = [ref(node) for node in nodes]
    for node in nodes:
        if node.operation.leaf:
            continue
        if node.known is not node:
            found.append(ref(node.known))
        elif node.awaited is None:
            node.awaited = Awaited()
        if node.awaited is not None:
            found.append(node.awaited)
    return found
