"""Nested modules that give converted variables the paths of their originals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from magmath.nn import Buffer, Module, Parameter


class NamedParts(Module):
    """A module that only holds variables, and is not called.

    `parts` has them by name, and attributes those whose names are not those of methods.
    """

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}

    def parts(self) -> Sequence[tuple[str, Any]]:
        """Return the parts by the names that they have in the other library."""
        return list(self._named.items())

    def __getattr__(self, name: str) -> Any:
        """Return a part as an attribute."""
        named = self.__dict__.get("_named", {})
        if name not in named:
            raise AttributeError(f"{type(self).__name__} has no part or attribute {name!r}")
        return named[name]


def add_variables(module: NamedParts, variables: Mapping[str, Parameter | Buffer]) -> None:
    """Store variables under their paths, in parts that have the names of the paths.

    A name that another path continues, as "a" where there is "a.b", gets underscores until it
    differs from all paths.
    """
    continued = {p[:i] for p in variables for i, letter in enumerate(p) if letter == "."}
    paths = set(variables)
    for path, variable in variables.items():
        unique_path = path
        while unique_path in continued or (unique_path != path and unique_path in paths):
            unique_path += "_"
        paths.add(unique_path)
        *owners, name = unique_path.split(".")
        owner = module
        for part in owners:
            owner = owner._named.setdefault(part, NamedParts())
        owner._named[name] = variable
