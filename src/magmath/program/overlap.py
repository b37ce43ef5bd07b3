"""Overlap: which moves between workers may run concurrently with later instructions."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from magmath.passes.aliasing import is_cross_worker
from magmath.program.instructions import Call, Instruction, Redistribute, Slot, roots_of


def with_overlap(
    slots: Sequence[Slot], instructions: Sequence[Instruction], prologue: int, min_bytes: int
) -> list[Instruction]:
    """Return the instructions, with `overlapped` set on moves that may run concurrently with later
    ones.

    These are moves of at least `min_bytes` bytes between workers that share no memory. `overlapped`
    is the number of following instructions that do not touch the target.
    """
    result: list[Instruction] = []
    next_use: dict[int, int] = {}  # buffer → position of the next instruction that touches it
    next_call, roots = len(instructions), roots_of(slots)
    for position in reversed(range(len(instructions))):
        instruction = instructions[position]
        touched = [roots[slot] for slot in instruction.touches]
        if isinstance(instruction, Redistribute) and _is_long(instruction, slots, min_bytes):
            end = prologue if position < prologue else len(instructions)
            end = min(end, next_use.get(roots[instruction.target], end))
            if next_call < end:
                following = end - position - 1
                instruction = msgspec.structs.replace(instruction, overlapped=following)
        next_use.update(dict.fromkeys(touched, position))
        if isinstance(instruction, Call):
            next_call = position
        result.append(instruction)
    return result[::-1]


def _is_long(move: Redistribute, slots: Sequence[Slot], min_bytes: int) -> bool:
    have, want = slots[move.source], slots[move.target]
    return want.local_bytes >= min_bytes and is_cross_worker(have.layout, want.layout)
