"""Native code of programs: the source of compiled functions, for a whole loop or for segments.

Every slot becomes an address in the same memory that the replayed calls use, so both executors can
alternate. Neighbouring element-wise instructions become one loop, and values that are read only
inside it are never stored; products are calls of `kernels/runtime_library.py`. Each loop or product
is a separate function, written once for all instructions of the same form and shape, so a deep
network compiles as fast as a shallow one. The source, in the language of `codegen/compiler.py`,
depends only on shapes and strides, so workers with equal tiles share one compilation.

`write_loop` writes all steps of a program as one function, in which barriers and reads of peers'
memory are plain loads and stores. `write_segments` writes each maximal run of instructions that
have a native form and do not synchronize workers; the others remain bound calls between the
segments (`executor/native_segments.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np
import torch

from magmath.codegen.emit import IndexMap, PartUpdate, Writer, emit_copy
from magmath.executor.bound_calls import is_awaited
from magmath.executor.fused_loops import FusedLoops
from magmath.executor.move import is_in_place
from magmath.executor.native_source import Arguments, NativeSegment, NativeSource, NoNativeForm
from magmath.executor.tensors import Tensors
from magmath.kernels import runtime_library
from magmath.layout import plan_redistribution
from magmath.layout.moves import Move
from magmath.ops import OPERATIONS
from magmath.program.instructions import Barrier, Call, Emit, Instruction, Program, Redistribute

PART = """

def {name}({parameters}):
{body}
"""
LOOP = """

def run(steps: int64, flags: int64, rank: int64, size: int64, {names}) -> int64:
    for step in range(steps):
{body}
    return 0
"""
SEGMENTS = """

def run(group: int64, work: int64[1], {names}) -> int64:
{body}
    return 0
"""
DIVIDED = """
        first = fetch_add(work, 0, {rows})
        while first < {extent}:
            last = first + {rows} if first + {rows} < {extent} else {extent}
            {call}
            first = fetch_add(work, 0, {rows})"""
SHARES = 16
"""Number of parts of a loop that several threads divide; each takes parts while some are left."""
MIN_CALLS = 2
"""Minimum instructions of a segment: a compiled function that replaces one call saves nothing."""
ARGUMENTS = re.compile(r"\ba\d+\b|\boffsets\[\d+\]")


def write_loop(program: Program, tensors: Tensors) -> NativeSource | None:
    """Return the native form of the program's loop on these tensors; None if an instruction has
    none."""
    if tensors.context.device.type != "cpu":
        return None
    try:
        return _SourceWriter(program, tensors).loop()
    except NoNativeForm:
        return None


def write_segments(program: Program, tensors: Tensors, *, exact: bool) -> NativeSource | None:
    """Return the native form of the runs of instructions in a step that have one; None if there are
    none.

    With `exact`, only instructions whose native form gives the bits of their kernel.
    """
    if tensors.context.device.type != "cpu":
        return None
    segments = _segments(program, tensors, exact)
    if not segments:
        return None
    return _SourceWriter(program, tensors, exact=exact, is_loop=False).segments(segments)


def _segments(program: Program, tensors: Tensors, exact: bool) -> list[range]:
    """Return the maximal runs of instructions with a native form, by their positions."""
    segments: list[range] = []
    probe = _SourceWriter(program, tensors, exact=exact, is_loop=False)
    begin, calls = program.prologue, 0
    waits: set[int] = set()  # positions that wait for an asynchronous move
    end = len(program.instructions)
    for position in range(program.prologue, end + 1):
        instruction = program.instructions[position] if position < end else None
        lines = None
        if instruction is not None:
            lines = probe.line_count(position)
            if isinstance(instruction, Redistribute) and instruction.overlapped:
                waits.add(position + instruction.overlapped + 1)
        if lines is None or position in waits:
            if calls >= MIN_CALLS:
                segments.append(range(begin, position))
            begin, calls = position + (lines is None), 0
        calls += bool(lines)
    return segments


@final
@dataclass
class _LineGroup:
    """Lines of a segment that one thread executes, or that several threads divide."""

    lines: list[str]
    is_divided: bool


@final
class _SourceWriter:
    """Writes the source of a native function.

    exact    only instructions whose native form gives the bits of their kernel
    is_loop  the function is the loop over all steps, in which workers may synchronize; otherwise it
             has segments
    """

    def __init__(
        self, program: Program, tensors: Tensors, *, exact: bool = False, is_loop: bool = True
    ) -> None:
        self.program = program
        self.tensors = tensors
        self.exact = exact
        self.is_loop = is_loop
        self.groups: list[_LineGroup] = []
        self.parts: dict[tuple[str, str], str] = {}
        self.emits = 0
        # Invalid data must be found before anything is overwritten.
        self.arguments = Arguments(tensors, can_report=is_loop or not program.donated)
        self.loops = FusedLoops(self.arguments, self._part, divides=not is_loop)

    def loop(self) -> NativeSource:
        """Return the source of the loop over all instructions after the prologue."""
        steps = range(self.program.prologue, len(self.program.instructions))
        self._range(steps)
        loop = LOOP.format(
            names=", ".join([f"emitted: float64[{max(self.emits, 1)}, 1]", *self._parameters()]),
            body="\n".join(self._lines() or ["        pass"]),
        )
        return self._source(loop, [NativeSegment(steps, self.arguments.reports, ())])

    def segments(self, segments: list[range]) -> NativeSource:
        """Return the source of a function that executes a group of lines of these ranges of
        instructions.

        The groups of all segments are numbered in order.
        """
        body, written = list[str](), list[NativeSegment]()
        count = 0
        for positions in segments:
            self.groups, self.arguments.reports = [], []
            self._range(positions)
            for number, group in enumerate(self.groups, start=count):
                body += [f"    if group == {number}:", *group.lines]
            divided = tuple([group.is_divided for group in self.groups])
            written.append(NativeSegment(positions, self.arguments.reports, divided))
            count += len(divided)
        text = SEGMENTS.format(names=", ".join(self._parameters()), body="\n".join(body))
        return self._source(text, written)

    def line_count(self, position: int) -> int | None:
        """Return the number of lines of the native form of one instruction: 0 for one that does
        nothing on this worker, None if there is no native form."""
        self.groups = []
        self.loops.clear()
        try:
            self._range(range(position, position + 1))
        except NoNativeForm:
            return None
        return len(self._lines())

    def _range(self, positions: range) -> None:
        for position in positions:
            self._instruction(position, self.program.instructions[position])
        self.loops.flush()

    def _parameters(self) -> list[str]:
        types = enumerate(self.arguments.types)
        return ["offsets: int64[1]", *[f"a{i}: {kind}" for i, kind in types]]

    def _source(self, last: str, segments: list[NativeSegment]) -> NativeSource:
        parts = "".join(
            PART.format(name=name, body=body, parameters=parameters)
            for (body, parameters), name in self.parts.items()
        )
        source = _imports(parts + last) + parts + last
        offsets = np.array(self.arguments.offsets or [0], dtype=np.int64)
        return NativeSource(source, self.arguments.finders, offsets, self.emits, segments)

    def _lines(self) -> list[str]:
        return [line for group in self.groups for line in group.lines]

    def _line(self, text: str) -> None:
        if not self.groups or self.groups[-1].is_divided:
            self.groups.append(_LineGroup([], is_divided=False))
        self.groups[-1].lines.append("        " + text)

    def _part(self, writer: Writer, extent: int = 0) -> None:
        """Call a writer's lines as a function, which all equal code on the same types shares.

        With an extent, the function computes the part of it that its last two arguments give.
        """
        text = "\n".join(writer.lines)
        if not text:
            return
        arguments = list(dict.fromkeys(ARGUMENTS.findall(text)))
        new = {old: f"x{i}" for i, old in enumerate(arguments)}
        body = ARGUMENTS.sub(lambda match: new[match[0]], text)
        known = self.arguments.types
        types = tuple(known[int(a[1:])] if a[0] == "a" else "int64" for a in arguments)
        names = [*new.values()]
        if extent:
            arguments, names = [*arguments, "first", "last"], [*names, "first", "last"]
            types = (*types, "int64", "int64")
        parameters = ", ".join([f"{x}: {kind}" for x, kind in zip(names, types, strict=True)])
        name = self.parts.setdefault((body, parameters), f"part{len(self.parts)}")
        call = f"{name}({', '.join(arguments)})"
        if not extent:
            self._line(call)
            return
        rows = -(-extent // SHARES)
        lines = DIVIDED.format(rows=rows, extent=extent, call=call).splitlines()[1:]
        self.groups.append(_LineGroup(lines, is_divided=True))

    # instructions -------------------------------------------------------------------------------

    def _instruction(self, position: int, instruction: Instruction) -> None:
        if isinstance(instruction, Call):
            # On every worker, also on those without a part of the result: all wait for each other.
            if instruction.workspace is not None or is_awaited(instruction, self.tensors):
                raise NoNativeForm(f"{instruction.operation}, in which workers synchronize")
            if not self._has_part(instruction):
                return
            operation = OPERATIONS[instruction.operation]
            if self.exact and not self._has_same_bits(instruction):
                raise NoNativeForm(f"{instruction.operation}, whose native form rounds differently")
            joins = operation.is_elementwise or isinstance(operation.native, (IndexMap, PartUpdate))
            if joins and self.loops.join(position, instruction):
                return
        self.loops.flush()
        if not self.is_loop and isinstance(instruction, (Barrier, Emit)):
            raise NoNativeForm("an instruction that is no computation")
        match instruction:
            case Call():
                self._call(instruction)
            case Redistribute():
                self._move(instruction)
            case Barrier():
                self._line("if wait(flags, rank, size) != 0:")
                self._line("    return 1")
            case Emit(slot):
                value = self.arguments.operand(slot).at([])
                self._line(f"emitted[step, {self.emits}] = {value}")
                self.emits += 1

    def _has_same_bits(self, call: Call) -> bool:
        slots = self.program.slots
        operands = [slots[i].dtype for i in call.inputs]
        return OPERATIONS[call.operation].has_same_bits(slots[call.out].dtype, operands)

    def _has_part(self, call: Call) -> bool:
        """Return True if this worker stores a part of the result."""
        layout = self.program.slots[call.out].layout
        return bool(layout.tiles(self.tensors.rank)) and layout.local_size(self.tensors.rank) > 0

    def _call(self, call: Call) -> None:
        native = OPERATIONS[call.operation].native
        emitter = native.emit if isinstance(native, PartUpdate) else native
        if emitter is None or isinstance(emitter, (str, Mapping, IndexMap)):
            raise NoNativeForm(call.operation)
        writer = Writer()
        if emitter(writer, self.arguments.native_call(call)) is False:
            raise NoNativeForm(call.operation)
        self._part(writer)

    def _move(self, move: Redistribute) -> None:
        have, want = self.program.slots[move.source].layout, self.program.slots[move.target].layout
        stages = plan_redistribution(have, want).stages
        if len(stages) != 1 or have.boxes or want.boxes or stages[0].identity:
            raise NoNativeForm("move")
        rank, stage, comm = self.tensors.rank, stages[0], self.tensors.context.comm
        if stage.reads_peers and not (self.is_loop and comm.shares_memory):
            raise NoNativeForm("a synchronization of workers")
        target = self.tensors.own(move.target)
        for part in stage.moves_to(rank):
            if is_in_place(part, self.tensors.of(move.source, part.source), target):
                continue
            selects = (*part.source_select, *part.target_select)
            if not all(isinstance(s, slice) for s in selects):
                raise NoNativeForm("move by index")
            self._transfer(move, part, stage.reduce if part.combine else None)

    def _transfer(self, move: Redistribute, part: Move, reduce: str | None) -> None:
        if self.exact and reduce is not None:
            raise NoNativeForm("a reduction that rounds differently")

        def source(tensors: Tensors) -> torch.Tensor:
            return tensors.of(move.source, part.source)[part.source_select]

        def target(tensors: Tensors) -> torch.Tensor:
            return tensors.own(move.target)[part.target_select]

        x, out = (self.arguments.array(find(self.tensors), find) for find in (source, target))
        writer = Writer()
        emit_copy(writer, out, x, reduce)
        self._part(writer)


def _imports(text: str) -> str:
    """Return the line that imports the library functions that a source calls."""
    called = set(re.findall(r"\b(\w+)\(", text)) & runtime_library.EXPORTS.keys()
    return f"from {runtime_library.__name__} import {', '.join(sorted(called))}\n" if called else ""
