"""Values that a block of code replaces for its thread, such as the trace of a function.

Ctrl-C may strike after the last line of a block, before its context manager runs. Python closes the
generator of the context manager later then, when nothing refers to the exception any more: the
blocks around it have ended by that time. What it restored would be a value of one of these.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import local
from typing import Generic, TypeVar, final

T = TypeVar("T")


@final
class ScopedValue(local, Generic[T]):
    """A value of each thread, which `replaced` replaces within a block.

    value  the present value: an attribute, as operations read it in each call
    """

    def __init__(self, value: T) -> None:
        self.value = value
        self._blocks: tuple[object, ...] = ()

    @contextmanager
    def replaced(self, value: T) -> Iterator[T]:
        """Replace the value within this block; the value before it is back at its end."""
        block, outer_blocks, former = object(), self._blocks, self.value
        self._blocks = (*outer_blocks, block)
        self.value = value
        try:
            yield value
        finally:  # without a call, in which Ctrl-C could strike
            if block in self._blocks:  # not if it is closed after the end of a block around it
                self._blocks = outer_blocks
                self.value = former
