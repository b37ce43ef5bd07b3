"""Variables at paths such as "encoder.0.weight", in parts that have the names of the path."""

from __future__ import annotations

from magmath.nn import Buffer, Module, Parameter


def add_variable(module: Module, path: str, variable: Parameter | Buffer) -> None:
    """Store a variable under its path."""
    *owners, name = path.split(".")
    owner = module
    for part in owners:
        if part not in vars(owner):
            setattr(owner, part, NamedPart())
        owner = vars(owner)[part]
    setattr(owner, name, variable)


class NamedPart(Module):
    """A part of a converted module, which has its parameters and is not called."""
