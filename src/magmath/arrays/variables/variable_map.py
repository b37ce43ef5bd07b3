"""A mapping from variables to values; an entry is removed when its variable is deleted."""

from __future__ import annotations

from typing import Generic, TypeVar, final
from weakref import ref

from magmath.arrays.variables.variable import Variable

MappedValue = TypeVar("MappedValue")


@final
class VariableMap(Generic[MappedValue]):
    """Values by variable.

    Variables compare element by element, so they cannot be the keys of a dictionary. Their
    identities can, but another variable may get the identity of a deleted one.
    """

    def __init__(self) -> None:
        self._entries: dict[int, tuple[ref[Variable], MappedValue]] = {}

    def find(self, v: Variable) -> MappedValue | None:
        """Return the value of a variable, or None."""
        entry = self._entries.get(id(v))
        return entry[1] if entry is not None and entry[0]() is v else None

    def __getitem__(self, v: Variable) -> MappedValue:
        value = self.find(v)
        if value is None:
            raise KeyError(v.name)
        return value

    def __setitem__(self, v: Variable, value: MappedValue) -> None:
        key, reference = id(v), ref(self)  # no cycle: values end with the map

        def remove(owner: ref[Variable]) -> None:
            values = reference()
            if values is not None and key in values._entries and values._entries[key][0] is owner:
                del values._entries[key]

        self._entries[key] = ref(v, remove), value

    def __contains__(self, v: Variable) -> bool:
        return self.find(v) is not None

    def __getstate__(self) -> dict[str, object]:
        """Return an empty map for pickle: variables belong to a pool."""
        return {"_entries": {}}
