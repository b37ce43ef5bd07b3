"""The bindings of a program to the arrays of its last runs, and the memory that they share.

A training step, or a compiled function called in a loop, is therefore bound once and then replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

from magmath.core.bounded_memo import RecentlyUsed
from magmath.executor.arena_memory import ArenaMemory
from magmath.executor.bind import Binding
from magmath.executor.context import Context
from magmath.executor.rebinding import Rebinding
from magmath.executor.scalars import Scalars
from magmath.memory.heap import Block
from magmath.memory.local_array import LocalArray
from magmath.memory.temporaries import MemoryOwner
from magmath.program.instructions import Program

KEPT_BINDINGS = 64
"""Bindings of a program that are cached: a loop in Python that replaces arrays in each step uses
the same blocks of memory in turn, which takes some tens of sets."""

ArrayBlocks = tuple[Block, ...]


@final
class Bindings:
    """The bindings of one program on a worker, by the blocks of their arrays.

    memory   the memory of the temporaries
    scalars  the numbers of a run, which are written before it
    dropped  is called with the blocks of each binding that is cached no longer
    """

    def __init__(
        self, program: Program, context: Context, dropped: Callable[[ArrayBlocks], object]
    ) -> None:
        self.memory = ArenaMemory(program, context)
        self.scalars = Scalars(program, context.device)
        self._cached: RecentlyUsed[ArrayBlocks, Binding] = RecentlyUsed(KEPT_BINDINGS)
        self._rebinding = Rebinding(program, context)
        self._dropped = dropped

    def find(
        self, blocks: ArrayBlocks, inputs: Sequence[LocalArray], outputs: Sequence[LocalArray]
    ) -> Binding:
        """Return the binding to these arrays, which have these blocks: a cached or a new one."""
        memory = self.memory
        if memory.is_outdated():
            self.forget()
            memory.update()
        binding = self._cached.find(blocks)
        if binding is None:
            binding = self._rebinding.binding(
                inputs, outputs, self.scalars.tensors, memory.block, memory.offsets
            )
            oldest = self._cached.store(blocks, binding)
            if oldest is not None:
                self._dropped(oldest)
        return binding

    def take_own_memory(self, owner: MemoryOwner) -> None:
        """Use temporaries that no other program shares, for a run of many steps."""
        if self.memory.is_shared:
            self.memory.take_own(owner)
            self.forget()

    def forget(self) -> None:
        """Drop all bindings."""
        for blocks in self._cached:
            self._dropped(blocks)
        self._cached.clear()
        self._rebinding.forget()

    def close(self) -> None:
        """Drop all bindings, and free the memory."""
        self.forget()
        self.memory.close()
