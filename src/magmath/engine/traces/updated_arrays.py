"""In-place updates of arrays while a function is traced.

They happen once, during tracing, so those of arrays that exist outside of the function are errors.
"""

from __future__ import annotations

import gc
from sys import getrefcount
from typing import final

from magmath.engine.array_handle import ArrayHandle
from magmath.errors import TracingError
from magmath.graph import Node


@final
class Updates:
    """The arrays that a traced function updates in place, and their former nodes."""

    def __init__(self) -> None:
        self._updated: list[tuple[ArrayHandle, Node]] = []

    def add(self, array: ArrayHandle, former: Node) -> None:
        """Record the in-place update of an array."""
        self._updated.append((array, former))

    def undo(self) -> None:
        """Restore the former values of all arrays."""
        while self._updated:
            array, former = self._updated.pop()
            array.replace_node(former)

    def _are_outside(self) -> bool:
        """Return True if an array has references other than those of its updates."""
        return any(
            getrefcount(array) > ALONE + sum(other is array for other, _ in self._updated)
            for array, _ in self._updated
        )

    def check(self, function: str) -> None:
        """Raise TracingError if one of the arrays exists outside of the function: if anything else
        refers to it, after a collection of cycles.

        Restores the former values of all arrays.
        """
        if self._are_outside():
            gc.collect()  # a function that calls itself refers to its arrays in a cycle
        outside = None
        updated, self._updated = self._updated, []
        while updated:
            array, former = updated.pop()
            count = sum(other is array for other, _ in updated)
            if getrefcount(array) > ALONE + count:
                array.replace_node(former)
                outside = array
        if outside is not None:
            raise TracingError(
                f"{function}: the function updates an array of shape {outside.shape} that was made "
                f"outside of it, which happens only while it is traced; return the new value, or "
                f"make the array a variable: mm.variable(name, value)"
            )


def _alone() -> int:
    value, _ = object(), None
    return getrefcount(value)


ALONE = _alone()  # reference count of an object with a single local name
