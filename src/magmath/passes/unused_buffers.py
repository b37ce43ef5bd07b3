"""The buffers that the operations of a loop no longer read.

Neighbouring element-wise operations may be computed in one loop, in which temporaries of the arena
do not share memory (`program/slot_lifetimes.py`). So a chain of a thousand operations would need a
thousand buffers. An operation takes a buffer that the operations before it have read for the last
time: of its own chain, so that a loop has no other arrays in common than those that it has anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, final

from magmath.graph import Node
from magmath.ops.joinable_loops import can_join_loops

MIN_BYTES: Final = 64 << 10
"""Smaller buffers are not searched for."""


@final
class UnusedBuffers:
    """The unused buffers of the present loop.

    root_of   returns the node that owns the memory of a node
    excluded  nodes whose memory no other node may take
    last      the position of the last use of each buffer, by the node that owns it
    """

    def __init__(
        self,
        root_of: Callable[[Node], Node],
        excluded: Collection[Node],
        last: Mapping[Node, int],
    ) -> None:
        self._root_of = root_of
        self._excluded = excluded
        self._last = last
        self._chains: dict[Node, _Chain] = {}  # of the operations of the loop

    def add(self, node: Node, position: int) -> None:
        """Add the buffers that an operation has read for the last time."""
        if not can_join_loops(node.operation):
            self._chains.clear()
        elif node.nbytes >= MIN_BYTES:
            buffers = self._chain(node).buffers
            for root in dict.fromkeys(map(self._root_of, node.inputs)):
                is_temporary = not (root.is_leaf_or_constant or root in self._excluded)
                if is_temporary and self._last[root] == position:
                    buffers.append(root)

    def take(self, node: Node) -> Node | None:
        """Return an unused buffer in which an operation can be computed, if there is one."""
        if not node.operation.is_elementwise or node.nbytes < MIN_BYTES:
            return None
        buffers = self._chain(node).buffers
        found = next((x for x in reversed(buffers) if have_equal_memory(x, node)), None)
        if found is not None:
            buffers.remove(found)
        return found

    def _chain(self, node: Node) -> _Chain:
        """Return the chain of an operation: of all operations of the loop on which it depends."""
        chain = self._chains.get(node)
        if chain is None:
            chain = self._chains[node] = _Chain()
            for operand in node.inputs:
                if operand in self._chains:
                    chain.join(self._chains[operand].whole)
        return chain.whole


@final
class _Chain:
    """Operations that depend on each other, as a part of a larger chain or as a whole."""

    def __init__(self) -> None:
        self.buffers: list[Node] = []
        self._larger: _Chain | None = None

    @property
    def whole(self) -> _Chain:
        """The largest chain that contains this one."""
        whole = self
        while whole._larger is not None:
            whole = whole._larger
        if whole is not self:
            self._larger = whole  # a shortcut for the next search
        return whole

    def join(self, part: _Chain) -> None:
        """Make another chain a part of this one."""
        whole = self.whole
        if part is not whole:
            whole.buffers += part.buffers
            part._larger = whole


def have_equal_memory(x: Node, y: Node) -> bool:
    """Return True for nodes whose values need the same memory."""
    return (x.shape, x.dtype, x.layout) == (y.shape, y.dtype, y.layout)
