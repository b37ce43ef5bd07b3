"""Expressions that read the value of a variable.

An expression means the values at the line that wrote it. It keeps the value of each variable that
it reads, so a gradient can still be taken after the variable was assigned. When the variable is
assigned once more, what still reads a former value is computed and keeps it no more: a list of
losses does not keep a copy of the weights for each of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, final
from weakref import ref

from magmath.graph import Node, topological
from magmath.graph.provenance import VersionOperand

FEWEST = 1024
"""References that are kept before those to arrays that are gone, or keep no values, are dropped."""


class Reader(Protocol):
    """An array, as this module sees it."""

    @property
    def node(self) -> Node:
        """The expression, or the leaf with its value."""

    @property
    def keeps_values(self) -> bool:
        """True if values of variables stay because of this array."""

    def is_known(self) -> bool:
        """True if the value has been computed."""

    def forget_values(self) -> None:
        """Keep values of variables no more that an evaluated expression has read."""


@final
class _Reader:
    """A handle on an expression, and the values of variables that it reads, once they are known."""

    __slots__ = ("_handle", "_values")

    def __init__(self, handle: Reader) -> None:
        self._handle = ref(handle)
        self._values: list[tuple[Node, ref[Node]]] | None = None

    def handle(self) -> Reader | None:
        """The handle, if it exists and keeps values of variables."""
        handle = self._handle()
        return handle if handle is not None and handle.keeps_values else None

    def reads_former_value(self, variable: Node, value: Node) -> bool:
        """True if it reads a value of the variable with this leaf other than the present one."""
        if self._values is None:
            handle = self._handle()
            self._values = [] if handle is None else _values_read(handle)
        return any(read is variable and former() is not value for read, former in self._values)


def _values_read(handle: Reader) -> list[tuple[Node, ref[Node]]]:
    """The variables that an expression reads, and the leaves with their values."""
    node = handle.node
    if node.provenance is not None:  # it was evaluated
        read = node.provenance.read()
        return [(x.variable, x.leaf) for x in read if isinstance(x, VersionOperand)]
    order = topological((node,), cut=True)
    return [(node.inputs[0], ref(node.inputs[1])) for node in order if node.operation.version]


_readers: list[_Reader] = []
_most = FEWEST


def note_reader(handle: Reader) -> None:
    """Note an expression that reads the value of a variable."""
    global _most
    _readers.append(_Reader(handle))
    if len(_readers) > _most:
        _drop_others()
        _most = max(FEWEST, 2 * len(_readers))


def readers_of_former_values(values: Iterable[tuple[Node, Node]]) -> list[Any]:
    """The expressions that keep other values of variables than the present ones; each
    variable is given by its leaf and the leaf with its value."""
    _drop_others()
    present = list(values)
    found = []
    for reader in _readers:
        handle = reader.handle()
        if handle is not None and any(reader.reads_former_value(*pair) for pair in present):
            found.append(handle)
    return found


def _drop_others() -> None:
    _readers[:] = [reader for reader in _readers if reader.handle() is not None]
