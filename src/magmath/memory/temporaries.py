"""The memory of the temporaries of all programs of a worker.

A worker runs one program at a time, and no program reads temporaries of an earlier run, so programs
use one block, as large as the largest of them needs. Otherwise a Python loop in which each step
evaluates an expression of another form holds the temporaries of all these forms. Programs that run
many steps at once have blocks of their own, since callbacks of the user may run others in between.
"""

from __future__ import annotations

from typing import Final, final

from magmath.errors import MemoryLimitError
from magmath.memory.heap import Block, Heap

MIN_SHARED: Final = 64 << 10
"""Programs whose temporaries take fewer bytes have blocks of their own, at fixed addresses."""


@final
class Temporaries:
    """A block of memory that programs use one after the other.

    Every worker must reserve the same sizes in the same order. A larger reservation replaces
    `block` by another object. Before each run a program checks whether its calls use this object,
    and otherwise binds them again.
    """

    def __init__(self, heap: Heap) -> None:
        self._heap = heap
        self.block = heap.allocate(0)

    def reserve(self, nbytes: int) -> None:
        """Make the block at least this large. Raises MemoryLimitError, and keeps the size then."""
        before = self.block.nbytes
        if nbytes <= before:
            return
        self._heap.free(self.block)
        try:
            self.block = self._allocated(nbytes)
        except MemoryLimitError:
            self.block = self._allocated(before)
            raise

    def take(self, nbytes: int) -> Block:
        """Return a block that the caller owns: this one, if it has a fitting size."""
        if not nbytes <= self.block.nbytes <= 2 * nbytes:
            return self._allocated(nbytes)
        taken, self.block = self.block, self._heap.allocate(0)
        return taken

    def _allocated(self, nbytes: int) -> Block:
        return self._heap.allocate(nbytes, "the temporaries of programs")
