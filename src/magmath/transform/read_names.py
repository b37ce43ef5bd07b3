"""The names by which a function reads objects from outside: globals, variables of enclosing
functions, attributes of objects, classes and Python modules, and items of containers.

A function that is traced reads their objects during tracing. After one of the names is bound to
another object, such as a new network or a new optimizer, it must be traced again. What a function
and the functions that it may call read is found in their bytecode (`code_reads`), and compared at
each call (`held_entries`), up to a bound.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, final
from weakref import ref

from magmath.transform.held_entries import HeldBuffer, HeldEntries
from magmath.transform.object_walk import NameReads, ObjectWalk


@final
class ReadNames:
    """The names that functions read, and their objects, which are not kept alive.

    arguments   objects that the functions receive, other than arrays and numbers
    rebound     names and keys that a function reads and afterwards binds, and that none binds first
    used        those that a function reads for more than a count
    generators  generators of random numbers that are not magmath's, by label
    iterators   labels of iterators
    modules     modules of `mm.nn` of which attributes are read
    uncompared  the label of a container that is too large to be compared; None if there is none
    """

    def __init__(self, *functions: Any, arguments: tuple[Any, ...] = ()) -> None:
        reads = NameReads()
        while True:
            walk = ObjectWalk(reads)
            walk.follow(functions, arguments)
            if walk.found == reads:
                break
            reads = walk.found
        self.rebound, self.used = reads.rebound - reads.initialized, reads.used
        self.generators, self.iterators = walk.generators, walk.iterators
        self.uncompared, self.modules = walk.uncompared, walk.modules
        self._deaths: list[object] = []
        self._references: list[ref[Any]] = []
        self.entries = walk.all_entries()
        for entries in self.entries:
            self._references += entries.hold(self._deaths.append)
        self._checks: list[HeldEntries] = self.entries
        self._buffers = walk.buffers
        self._add_quick()

    def _add_quick(self) -> None:
        """Note what is compared first: in most calls all objects are the same."""
        self._quick = [
            (one.read, one.identities, one.order, one.keys, one.is_unchanged)
            for one in self._checks
        ]

    def without(self, changed: Mapping[int, set[Hashable]]) -> ReadNames:
        """Return these names without the entries, by the identities of their owners, that the
        function itself has changed."""
        checks = [self._kept(one, changed.get(one.owner, set())) for one in self._checks]
        self._checks = [one for one in checks if one is not None]
        self._add_quick()
        return self

    def _kept(self, one: HeldEntries, changed: set[Hashable]) -> HeldEntries | None:
        """Return the entries that are not among the changed ones; None if there are none."""
        if not changed or one.select is None:
            return None if changed else one
        chosen = one.select([key for key in one.keys if key not in changed])
        self._references += chosen.hold(self._deaths.append)
        return chosen

    def is_unchanged(self) -> bool:
        """Return True if all names are bound to the same objects."""
        try:
            for read, identities, order, keys, is_unchanged in self._quick:
                is_same = [*map(id, read())] == identities and (order is None or [*order] == keys)
                if not (is_same or is_unchanged()):
                    return False
        except (ValueError, RuntimeError):  # a variable was deleted, or a container changes
            return False
        for buffer in self._buffers:
            if not buffer.is_unchanged():
                return False
        return not self._deaths

    def changed_name(self) -> str | None:
        """Return a name that is bound to another object; None if none is."""
        compared: list[HeldEntries | HeldBuffer] = [*self._checks, *self._buffers]
        names = (one.changed_name() for one in compared)
        return next((name for name in names if name is not None), None)
