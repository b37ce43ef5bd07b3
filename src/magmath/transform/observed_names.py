"""The names by which a function reads objects from outside: globals, variables of enclosing
functions, attributes of objects, classes and Python modules, and items of containers.

A function that is traced reads their objects during tracing. After one of the names is bound to
another object, such as a new network or a new optimizer, it must be traced again. What a function
and the functions that it may call read is found in their bytecode (`code_reads`), and compared at
each call (`observed_entries`), up to a bound.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, final
from weakref import ref

from magmath.transform.code_reads import MergedReads
from magmath.transform.object_walk import ObjectWalk
from magmath.transform.observed_entries import ObservedBuffer, ObservedEntries


@final
class ObservedNames:
    """The names that functions read, and their objects, which are not kept alive.

    functions   the functions, each with those that it may call
    arguments   objects that the functions receive, other than arrays and numbers

    Attributes:

    entries     the objects that the names refer to
    rebound     names and keys that a function reads and afterwards binds, and that none binds first
    used        those that a function reads for more than a count
    generators  generators of random numbers that are not magmath's, by label
    iterators   labels of iterators
    modules     modules of `mm.nn` of which attributes are read
    uncompared  labels of containers that are too large to be compared
    """

    def __init__(self, *functions: Any, arguments: tuple[Any, ...] = ()) -> None:
        reads = MergedReads()
        while True:
            walk = ObjectWalk(reads)
            walk.follow(functions, arguments)
            if walk.found_reads == reads:
                break
            reads = walk.found_reads
        self.rebound, self.used = reads.rebound - reads.initialized, reads.used
        self.generators, self.iterators = walk.generators, walk.iterators
        self.uncompared, self.modules = walk.uncompared, walk.modules
        self._deaths: list[object] = []
        self._references: list[ref[Any]] = []
        self.entries = walk.all_entries()
        for entries in self.entries:
            self._references += entries.observe(self._deaths.append)
        self._observed = self.entries
        self._buffers, self._foreign_arrays = walk.buffers, walk.foreign_arrays
        self._prepare_comparison()

    def _prepare_comparison(self) -> None:
        """Store what `is_unchanged` needs: identities are compared first, since in most calls all
        objects are the same."""
        self._comparisons = [
            (x.read, x.identities, x.order, x.keys, x.is_unchanged) for x in self._observed
        ]

    def drop(self, changed: Mapping[int, set[Hashable]]) -> None:
        """Compare some entries no more: those with these keys, by the identities of their
        owners."""
        remaining = [self._without(x, changed.get(x.owner, set())) for x in self._observed]
        self._observed = [entries for entries in remaining if entries is not None]
        self._prepare_comparison()

    def _without(self, entries: ObservedEntries, changed: set[Hashable]) -> ObservedEntries | None:
        """Return the entries that are not among the changed ones; None if there are none."""
        if not changed:
            return entries
        if entries.select is None:
            return None
        chosen = entries.select([key for key in entries.keys if key not in changed])
        self._references += chosen.observe(self._deaths.append)
        return chosen

    def is_unchanged(self) -> bool:
        """Return True if all names are bound to the same objects."""
        try:
            for read, identities, order, keys, is_unchanged in self._comparisons:
                is_same = [*map(id, read())] == identities and (order is None or [*order] == keys)
                if not (is_same or is_unchanged()):
                    return False
        except (ValueError, RuntimeError):  # a variable was deleted, or a container changes
            return False
        for buffer in self._buffers:
            if not buffer.is_unchanged():
                return False
        return not self._deaths

    def foreign_arrays(self) -> list[Any]:
        """Return the arrays of NumPy and tensors of PyTorch that the functions read, of any
        size."""
        arrays = [reference() for reference in self._foreign_arrays]
        return [x for x in arrays if x is not None]

    def changed_name(self) -> str | None:
        """Return a name that is bound to another object; None if none is."""
        observed: list[ObservedEntries | ObservedBuffer] = [*self._observed, *self._buffers]
        names = (x.changed_name() for x in observed)
        return next((name for name in names if name is not None), None)
