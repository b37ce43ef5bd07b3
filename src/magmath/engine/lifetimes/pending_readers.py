"""A registry of the expressions that read values of variables.

An expression means the values at the line that wrote it. It keeps the value of each variable that
it reads, so that a gradient can be computed after one assignment of the variable. At the next
assignment, expressions that still read the former value are computed and release that value.
Otherwise a list of losses would keep a copy of the weights for each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, final
from weakref import ref

from magmath.engine.array_handle import ArrayHandle
from magmath.graph import Node, provenance_of, topological
from magmath.graph.provenance.operand_references import VersionReference

MIN_KEPT_READERS = 1024
"""Number of registered references above which those to released arrays, and to arrays that keep no
values, are dropped."""


@final
class _RegisteredReader:
    """A weak reference to an array, and the values that it reads of each variable, found on first
    use."""

    __slots__ = ("_array", "_values")

    def __init__(self, array: ArrayHandle) -> None:
        self._array = ref(array)
        self._values: dict[Node, list[ref[Node]]] | None = None

    def array(self) -> ArrayHandle | None:
        """Return the array if it exists and keeps values of variables, otherwise None."""
        array = self._array()
        return array if array is not None and array.has_variable_values else None

    def reads_former_value(self, current: Mapping[Node, Node]) -> bool:
        """Return True if it reads a former value of one of these variables, whose current values
        are given."""
        if self._values is None:
            array = self._array()
            self._values = {} if array is None else _values_read(array)
        values = self._values
        return any(
            read() is not current[variable]
            for variable in current.keys() & values.keys()
            for read in values[variable]
        )


def _values_read(array: ArrayHandle) -> dict[Node, list[ref[Node]]]:
    """Return weak references to the leaves of values of variables that an expression reads, by
    variable."""
    node = array.node
    provenance = provenance_of(node)
    if provenance is not None:  # it was evaluated
        operands = provenance.direct_operands()
        read = [(x.variable, x.leaf) for x in operands if isinstance(x, VersionReference)]
    else:
        order = topological((node,), pending=True)
        read = [
            (node.inputs[0], ref(node.inputs[1])) for node in order if node.operation.is_version
        ]
    values: dict[Node, list[ref[Node]]] = {}
    for variable, leaf in read:
        values.setdefault(variable, []).append(leaf)
    return values


_readers: list[_RegisteredReader] = []
_max_readers = MIN_KEPT_READERS


def register_reader(array: ArrayHandle) -> None:
    """Register an array whose expression reads the value of a variable."""
    global _max_readers
    _readers.append(_RegisteredReader(array))
    if len(_readers) > _max_readers:
        _drop_released()
        _max_readers = max(MIN_KEPT_READERS, 2 * len(_readers))


def readers_of_former_values(values: Iterable[tuple[Node, Node]]) -> list[Any]:
    """Return the arrays that keep former values of variables.

    Each variable is given by its leaf and the leaf with its current value.
    """
    _drop_released()
    current = dict(values)
    readers = []
    for reader in _readers:
        array = reader.array()
        if array is not None and reader.reads_former_value(current):
            readers.append(array)
    return readers


def _drop_released() -> None:
    _readers[:] = [reader for reader in _readers if reader.array() is not None]
