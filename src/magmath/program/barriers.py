"""Barriers: where a program must wait until all workers have arrived.

Barriers are inserted exactly where one worker would read data that another may not have written
yet, or overwrite data that another may still read. They are found by following the accesses to
every shared buffer through the instruction list, twice, because a program may run in a loop.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import final

from magmath.layout import Layout
from magmath.passes.aliasing import is_cross_worker
from magmath.program.instructions import (
    Barrier,
    Call,
    Emit,
    Instruction,
    Redistribute,
    Slot,
    roots_of,
)


@final
@dataclass
class _Access:
    """An instruction's use of one buffer: in which layout, and whether it writes."""

    root: int
    layout: Layout | None  # None: all of it, or parts of other workers
    writes: bool


@final
class BarrierInsertion:
    """Finds conflicting accesses of workers, and inserts barriers between them."""

    def __init__(
        self, slots: Sequence[Slot], instructions: list[Instruction], prologue: int
    ) -> None:
        self.slots, self._roots = slots, roots_of(slots)
        self.instructions = instructions
        self.prologue = prologue
        self.shared_roots = self._find_shared_roots()
        """The storages that more than one worker touches."""

    def root(self, slot: int) -> int:
        """Return the slot that owns the memory of `slot`."""
        return self._roots[slot]

    def _find_shared_roots(self) -> set[int]:
        roots = {self.root(i) for i, slot in enumerate(self.slots) if slot.layout.shared}
        for instruction in self.instructions:
            if isinstance(instruction, Redistribute) and self._is_cross_worker_move(instruction):
                roots.add(self.root(instruction.source))
        return roots

    def _is_cross_worker_move(self, move: Redistribute) -> bool:
        return is_cross_worker(self.slots[move.source].layout, self.slots[move.target].layout)

    def _accesses(self, instruction: Instruction) -> Iterable[_Access]:
        match instruction:
            case Call(inputs=inputs, out=out):
                yield from (self._access(slot, False) for slot in inputs)
                yield self._access(out, True)
            case Redistribute(source, target):
                if self._is_cross_worker_move(instruction):
                    yield _Access(self.root(source), None, False)
                else:
                    yield self._access(source, False)
                yield self._move_write(source, target)
            case Emit(slot):
                yield self._access(slot, False)

    def _access(self, slot: int, writes: bool) -> _Access:
        root = self.root(slot)
        if not self.slots[root].layout.shared:  # each worker touches its own memory, in any layout
            return _Access(root, self.slots[root].layout, writes)
        while self._is_part(slot):  # each worker touches its own part of a larger array
            slot = self.slots[slot].alias or 0
        layout = self.slots[slot].layout
        return _Access(root, None if layout.shared else layout, writes)

    def _is_part(self, slot: int) -> bool:
        return self.slots[slot].start is not None or self.slots[slot].is_at_beginning

    def _move_write(self, source: int, target: int) -> _Access:
        """Return the write access of a move; a copy into a shared slot writes each worker's own
        part."""
        have = self.slots[source].layout
        if self.slots[target].layout.shared:
            return _Access(self.root(target), None if have.is_replicated else have, True)
        return self._access(target, True)

    def with_barriers(self) -> tuple[list[Instruction], int]:
        """Return the instructions with barriers between conflicting accesses, also across the end
        of the loop, and the length of the prologue."""
        once, loop = self.instructions[: self.prologue], self.instructions[self.prologue :]
        state = _PendingAccesses()
        first = self._add_barriers(state, once)
        if first and self.shared_roots:  # the first step begins after all prologues
            first.append(Barrier())
            state.clear()
        self._add_barriers(state, loop)  # the accesses at the end of the step before
        return [*first, *self._add_barriers(state, loop)], len(first)

    def _add_barriers(
        self, state: _PendingAccesses, instructions: list[Instruction]
    ) -> list[Instruction]:
        result: list[Instruction] = []
        for instruction in instructions:
            accesses = [a for a in self._accesses(instruction) if a.root in self.shared_roots]
            if any(state.has_conflict(access) for access in accesses):
                result.append(Barrier())
                state.clear()
            for access in accesses:
                state.add(access)
            result.append(instruction)
        return result


@final
@dataclass
class _PendingAccesses:
    """The accesses since the last barrier: buffer → their layouts."""

    written: dict[int, set[Layout | None]] = field(default_factory=dict)
    read: dict[int, set[Layout | None]] = field(default_factory=dict)

    def has_conflict(self, access: _Access) -> bool:
        """Return True if another worker may have touched the data of this access."""
        tables = (self.written, self.read) if access.writes else (self.written,)
        touched = itertools.chain(*[table.get(access.root, ()) for table in tables])
        return any(layout is None or layout != access.layout for layout in touched)

    def add(self, access: _Access) -> None:
        """Record an access."""
        table = self.written if access.writes else self.read
        table.setdefault(access.root, set()).add(access.layout)

    def clear(self) -> None:
        """Drop all accesses, after a barrier."""
        self.written.clear()
        self.read.clear()
