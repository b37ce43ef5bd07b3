"""Variables that a function makes while it is traced.

It is traced once and runs many times. A variable that only the trace refers to, and that is
assigned, would keep its value from one run to the next, while the code makes a new one each time.
"""

from __future__ import annotations

from collections.abc import Collection
from sys import getrefcount
from typing import Protocol, final
from weakref import ref

from magmath.engine.traces.updated_arrays import ALONE
from magmath.errors import TracingError
from magmath.graph import Node


class MadeVariable(Protocol):
    """A variable."""

    name: str
    leaf: Node


@final
class LocalVariables:
    """The variables that a traced function has made."""

    def __init__(self) -> None:
        self._made: list[ref[MadeVariable]] = []

    def add(self, variable: MadeVariable) -> None:
        """Record a new variable."""
        self._made.append(ref(variable))

    def check(self, function: str, assigned: Collection[Node]) -> None:
        """Raise TracingError if one of the variables is assigned, and exists in the function alone:
        if nothing but the trace refers to it.

        assigned  the leaves of the assigned variables, to which the trace refers
        """
        for reference in self._made:
            variable = reference()
            if variable is None or variable.leaf not in assigned:
                continue
            if getrefcount(variable) == ALONE + 1:
                raise TracingError(
                    f"{function}: the function makes variable {variable.name} and assigns it, but "
                    f"it is traced once, and the variable would keep its value from one run to the "
                    f"next; make the variable outside of the function, or use an array: v = v + x"
                )
