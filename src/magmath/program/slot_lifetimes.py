"""Lifetimes: between which instructions each slot of a program needs its memory."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

import msgspec

from magmath.ops import OPERATIONS
from magmath.ops.joinable_loops import can_join_loops
from magmath.program.instructions import Barrier, Call, Instruction, Slot


def with_lifetimes(slots: list[Slot], instructions: list[Instruction], prologue: int) -> list[Slot]:
    """Return the slots with the positions of their first and last use.

    Other workers may read a peer-readable slot until the barrier after its last use, and write into
    shared memory from the barrier before its first use on. A slot without these barriers has its
    memory throughout, as do results of the prologue that the steps read; barriers of the prologue
    do not count, since later steps do not pass them. Neighbouring instructions that join loops may
    be executed as one: the slots that any of them touches are in use from the first of them to the
    last.
    """
    fences = [i for i, x in enumerate(instructions) if isinstance(x, Barrier) and i >= prologue]
    before, after = [-1, *fences], [*fences, len(instructions)]
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for begin, end in _runs(instructions):
        for instruction in instructions[begin:end]:
            for touched in instruction.touches:
                first.setdefault(touched, begin)
                last[touched] = end - 1
    for i in reversed(range(len(slots))):  # an alias precedes the slots that refer to it
        alias = slots[i].alias
        if alias is not None and i in first:
            first[alias] = min(first[i], first.get(alias, first[i]))
            last[alias] = max(last[i], last.get(alias, last[i]))
    result = []
    for i, slot in enumerate(slots):
        begin, end = first.get(i, 0), last.get(i, 0)
        if slot.layout.shared:
            begin = before[bisect_left(fences, begin)]
        if slot.is_peer_readable or slot.layout.shared:
            end = after[bisect_right(fences, end)]
        throughout = begin < 0 or end == len(instructions) or first.get(i, prologue) < prologue
        lifetime = (0, len(instructions)) if throughout else (begin, end)
        result.append(msgspec.structs.replace(slot, first=lifetime[0], last=lifetime[1]))
    return result


def _runs(instructions: list[Instruction]) -> Iterable[tuple[int, int]]:
    """Yield begin and end of every run of instructions that join loops, and of every other single
    one."""
    begin = 0
    for i, instruction in enumerate(instructions):
        follows = i + 1 < len(instructions) and _can_join_loops(instructions[i + 1])
        if not (_can_join_loops(instruction) and follows):
            yield begin, i + 1
            begin = i + 1


def _can_join_loops(instruction: Instruction) -> bool:
    return isinstance(instruction, Call) and can_join_loops(OPERATIONS[instruction.operation])
