"""Calls that fill temporaries with bytes which no program writes (`core/debugging.py`).

A temporary is filled when its lifetime begins. Memory that other workers access has the lifetime of
the program: it is filled at the beginning of a step, between two barriers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from magmath.core.debugging import FILL_BYTE
from magmath.core.type_aliases import BoundCall
from magmath.executor.tensors import Tensors
from magmath.program.instructions import Instruction, Program


def fills_of(
    tensors: Tensors, positions: range, segments: Mapping[int, range]
) -> tuple[list[BoundCall], dict[int, list[BoundCall]]]:
    """Return the calls before the instructions at these positions: at the beginning, the same on
    all workers, and by the position of the instruction.

    `segments`: the segment of each position inside one. Temporaries whose lifetime begins within a
    segment are not filled.
    """
    if not tensors.context.heap.should_fill or not positions:
        return [], {}
    program, comm = tensors.program, tensors.context.comm
    in_prologue = _touched(program, program.instructions[: program.prologue])
    first: list[BoundCall] = []
    later: dict[int, list[BoundCall]] = {}
    for index, slot in enumerate(program.slots):
        if not slot.has_arena_memory:
            continue
        lasting = slot.is_peer_readable or slot.layout.shared or index in in_prologue
        if lasting and (index in in_prologue) == (positions.start < program.prologue):
            first.append(_fill(tensors, index))
        elif not lasting and slot.first in positions:
            segment = segments.get(slot.first)
            if segment is None or segment[0] == slot.first:
                later.setdefault(slot.first, []).append(_fill(tensors, index))
    if first and comm.size > 1 and comm.shares_memory:
        first = [comm.barrier, *first, comm.barrier]
    return first, later


def _fill(tensors: Tensors, slot: int) -> BoundCall:
    memory = tensors.memory_of(slot)
    return lambda: memory.fill_(FILL_BYTE)


def _touched(program: Program, instructions: Sequence[Instruction]) -> set[int]:
    """Return the slots in whose memory these instructions read or write."""
    return {slot for instruction in instructions for slot in program.accessed(instruction)}
