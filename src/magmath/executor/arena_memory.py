"""The memory of a program's arena: a part of the block that programs share, or a block of its own
(`memory/temporaries.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import final

from magmath.errors import MemoryLimitError
from magmath.executor.context import Context
from magmath.executor.error_context import attach_user_line
from magmath.memory.heap import Block
from magmath.memory.temporaries import MemoryOwner, Temporaries
from magmath.program.arena import arrange
from magmath.program.instructions import Program


@final
class ArenaMemory:
    """The memory of the arena of one program on a worker.

    block      the current memory; calls that are bound to another block are outdated
    offsets    the offset of each temporary in it
    nbytes     the bytes of the arena
    can_move   the program may share memory with others, so the block may change between runs
    is_shared  it does now
    """

    def __init__(self, program: Program, context: Context) -> None:
        arena = arrange(program)
        self.offsets, self.nbytes = arena.offsets, arena.nbytes
        self._heap = context.heap
        self._common: Temporaries | None = None
        if context.temporaries is not None and self.nbytes >= context.temporaries.min_shared:
            self._common = context.temporaries
        self.can_move = self.is_shared = self._common is not None
        self._owner: MemoryOwner | None = None  # of a block that was taken from the shared ones
        self._program = program
        self.block = self._reserve()

    def _reserve(self) -> Block:
        """Reserve and return memory for the arena."""
        with self._with_line_of_largest():
            if self._common is None:
                return self._heap.allocate(self.nbytes, "the temporaries of a program")
            self._common.reserve(self.nbytes)
            return self._common.block

    @contextmanager
    def _with_line_of_largest(self) -> Iterator[None]:
        """Let a MemoryLimitError carry the user's line of the largest temporary."""
        try:
            yield
        except MemoryLimitError as error:
            attach_user_line(error, self._program.writer(next(iter(self.offsets))))
            raise

    def is_outdated(self) -> bool:
        """Return True if the block that programs share was replaced since the last `update`."""
        return self.is_shared and self.block is not self._shared.block

    def update(self) -> None:
        """Use the block that programs share now, which may become larger."""
        self.block = self._reserve()

    def take_own(self, owner: MemoryOwner) -> None:
        """Give the program a block of its own: between the steps of a run of many, callbacks of the
        user may run other programs."""
        with self._with_line_of_largest():
            self.block, self.is_shared = self._shared.take(self.nbytes, owner), False
        self._owner = owner

    def share_again(self) -> None:
        """Free the block of its own, and share memory with other programs from the next run on."""
        self.close()
        self.block, self.is_shared = self._heap.allocate(0), True

    def close(self) -> None:
        """Free the memory, unless other programs share it."""
        if not self.is_shared:
            self._heap.free(self.block)
        if self._owner is not None:
            del self._shared.owners[self._owner]
            self._owner = None

    @property
    def _shared(self) -> Temporaries:
        assert self._common is not None
        return self._common
