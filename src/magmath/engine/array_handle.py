"""The base class of arrays: what the engine and the searches for arrays use of them."""

from __future__ import annotations

from magmath.graph import Node, Shape


class ArrayHandle:
    """The base class of arrays, by which searches find them.

    `thread` identifies the thread that has made the expression of a pending array. Other threads do
    not compute the array, since it may be updated meanwhile.
    """

    __slots__ = ("thread",)
    thread: int

    @property
    def node(self) -> Node:
        """The expression, or the leaf with its value if it is evaluated."""
        raise NotImplementedError

    @property
    def shape(self) -> Shape:
        """The extent of each dimension."""
        raise NotImplementedError

    @property
    def has_variable_values(self) -> bool:
        """True if this array references values of variables."""
        raise NotImplementedError

    @property
    def is_computed(self) -> bool:
        """True if the value has been computed."""
        raise NotImplementedError

    @property
    def is_stale(self) -> bool:
        """True if a write into another array has changed elements: it is read again when used."""
        raise NotImplementedError

    def refers_to(self, node: Node) -> bool:
        """Return True if this array refers to a node, and is not stale."""
        raise NotImplementedError

    def set_computed_of(self, node: Node, leaf: Node) -> bool:
        """Set a leaf as the array's value and drop its expression, if the array still refers to the
        node that was computed; return True if it does."""
        raise NotImplementedError

    def forget_values(self) -> None:
        """Release the values of variables that the evaluated expression has read."""
        raise NotImplementedError

    def replace_node(self, node: Node) -> None:
        """Refer to another node with the same value."""
        raise NotImplementedError
