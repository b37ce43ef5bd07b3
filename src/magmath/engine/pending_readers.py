"""A registry of the expressions that read values of variables.

An expression means the values at the line that wrote it. It keeps the value of each variable that
it reads, so that a gradient can be computed after one assignment of the variable. At the next
assignment, expressions that still read the former value are computed and release that value.
Otherwise a list of losses would keep a copy of the weights for each of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, final
from weakref import ref

from magmath.graph import Node, provenance_of, topological
from magmath.graph.provenance import VersionOperand

FEWEST = 1024
"""Number of registered references above which those to released arrays, and to arrays that keep no
values, are dropped."""


class Reader(Protocol):
    """The attributes of an array that this module uses."""

    @property
    def node(self) -> Node:
        """The expression, or the leaf with its value if it is evaluated."""

    @property
    def keeps_values(self) -> bool:
        """True if this array references values of variables."""

    def is_known(self) -> bool:
        """Return True if the value has been computed."""

    def forget_values(self) -> None:
        """Release the values of variables that the evaluated expression has read."""


@final
class _RegisteredReader:
    """A weak reference to an array, and the values of variables that it reads, found on first
    use."""

    __slots__ = ("_handle", "_values")

    def __init__(self, handle: Reader) -> None:
        self._handle = ref(handle)
        self._values: list[tuple[Node, ref[Node]]] | None = None

    def handle(self) -> Reader | None:
        """Return the array if it exists and keeps values of variables, otherwise None."""
        handle = self._handle()
        return handle if handle is not None and handle.keeps_values else None

    def reads_former_value(self, variable: Node, value: Node) -> bool:
        """Return True if it reads a former value of the variable with this leaf; `value` is
        current."""
        if self._values is None:
            handle = self._handle()
            self._values = [] if handle is None else _values_read(handle)
        return any(read is variable and former() is not value for read, former in self._values)


def _values_read(handle: Reader) -> list[tuple[Node, ref[Node]]]:
    """Return the variables that an expression reads, and weak references to their value leaves."""
    node = handle.node
    provenance = provenance_of(node)
    if provenance is not None:  # it was evaluated
        read = provenance.direct_operands()
        return [(x.variable, x.leaf) for x in read if isinstance(x, VersionOperand)]
    order = topological((node,), cut=True)
    return [(node.inputs[0], ref(node.inputs[1])) for node in order if node.operation.version]


_readers: list[_RegisteredReader] = []
_most = FEWEST


def note_reader(handle: Reader) -> None:
    """Register an array whose expression reads the value of a variable."""
    global _most
    _readers.append(_RegisteredReader(handle))
    if len(_readers) > _most:
        _drop_released()
        _most = max(FEWEST, 2 * len(_readers))


def readers_of_former_values(values: Iterable[tuple[Node, Node]]) -> list[Any]:
    """Return the arrays that keep former values of variables.

    Each variable is given by its leaf and the leaf with its current value.
    """
    _drop_released()
    present = list(values)
    found = []
    for reader in _readers:
        handle = reader.handle()
        if handle is not None and any(reader.reads_former_value(*pair) for pair in present):
            found.append(handle)
    return found


def _drop_released() -> None:
    _readers[:] = [reader for reader in _readers if reader.handle() is not None]
