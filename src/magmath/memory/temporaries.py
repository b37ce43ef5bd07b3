"""The memory of the temporaries of all programs of a worker.

A worker runs one program at a time, and no program reads temporaries of an earlier run, so programs
use one block, as large as the largest of them needs. Otherwise a Python loop in which each step
evaluates an expression of another form holds the temporaries of all these forms. Programs that run
many steps at once have blocks of their own, since callbacks of the user may run others in between.
If memory is short, programs that do not run lose their memory until their next run.
"""

from __future__ import annotations

from typing import Final, Protocol, final

from magmath.errors import MemoryLimitError
from magmath.memory.heap import Block, Heap

MIN_SHARED: Final = 64 << 10
"""Programs whose temporaries take fewer bytes have blocks of their own, at fixed addresses."""


class MemoryOwner(Protocol):
    """A program with a block of its own."""

    def free_idle_memory(self) -> None:
        """Free the block, unless the program is running."""


@final
class Temporaries:
    """A block of memory that programs use one after the other.

    Every worker must reserve the same sizes in the same order. A larger reservation replaces
    `block` by another object. Before each run a program checks whether its calls use this object,
    and otherwise binds them again.

    min_shared  the minimum bytes of temporaries with which a program uses this block
    owners      the programs that have taken a block, in this order
    """

    def __init__(self, heap: Heap, min_shared: int = MIN_SHARED) -> None:
        self._heap = heap
        self.min_shared = min_shared
        self.owners: dict[MemoryOwner, None] = {}
        self.block = heap.allocate(0)
        heap.reclaimers.append(self._free_idle_memory)

    def reserve(self, nbytes: int) -> None:
        """Make the block at least this large. Raises MemoryLimitError, and then keeps the size."""
        before = self.block.nbytes
        if nbytes <= before:
            return
        self._free()
        try:
            self.block = self._allocate(nbytes)
        except MemoryLimitError:
            self.block = self._allocate(before)
            raise

    def take(self, nbytes: int, owner: MemoryOwner) -> Block:
        """Return a block that the owner frees: the shared one, if it has a fitting size."""
        block = self.block
        if nbytes <= block.nbytes <= 2 * nbytes:
            self.block = self._heap.allocate(0)
        else:
            block = self._allocate(nbytes)
        self.owners[owner] = None
        return block

    def _allocate(self, nbytes: int) -> Block:
        return self._heap.allocate(nbytes, "the temporaries of programs")

    def _free(self) -> None:
        freed, self.block = self.block, self._heap.allocate(0)
        self._heap.free(freed)

    def _free_idle_memory(self) -> None:
        self._free()
        for owner in list(self.owners):
            owner.free_idle_memory()
