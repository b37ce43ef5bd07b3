"""`explain`: the program behind an array or a training step, and what it moves and takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magmath.array import session
from magmath.graph import Graph
from magmath.layout import plan
from magmath.program.arena import arrange
from magmath.program.instructions import Call, Move, Program

if TYPE_CHECKING:
    from magmath.array.array import Array


def explain(array: Array) -> str:
    """The program that computes (or would compute) an array; for one that is there, its layout."""
    engine = session.engine()
    node = array.node
    if node.is_leaf:
        return (
            f"{node.name} of shape {node.shape}, {node.dtype}, layout {node.layout}: "
            f"nothing to compute"
        )
    graph = engine.cut(Graph((node,)))
    return describe(engine.compile(graph).program)


def describe(program: Program) -> str:
    """Every instruction with its user line, bytes and messages; then the totals."""
    lines, moved, messages = [], 0, 0
    for text, instruction in zip(str(program).splitlines(), program.instructions, strict=True):
        note = ""
        if isinstance(instruction, Move):
            have, want = program.slots[instruction.source], program.slots[instruction.target]
            step = plan(have.layout, want.layout)
            nbytes = step.total_bytes(have.dtype.itemsize)
            moved += nbytes
            messages += step.messages
            note = f"  # {step.kind}, {nbytes:,} bytes, {step.messages} messages"
        if isinstance(instruction, (Call, Move)) and instruction.line:
            note += f"  # {instruction.line[0]}:{instruction.line[1]}"
        lines.append(text + note)
    arena = arrange(program).nbytes
    lines.append(
        f"{len(program.instructions)} instructions, {moved:,} bytes moved between workers in "
        f"{messages} messages, {arena:,} bytes of temporaries on a worker"
    )
    return "\n".join(lines)
