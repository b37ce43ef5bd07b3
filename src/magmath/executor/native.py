"""Native code of programs: the source of compiled functions, for a whole loop or for segments.

Every slot becomes an address in the same memory that the replayed calls use, so both executors can
alternate. Neighbouring element-wise instructions become one loop, and values that are read only
inside it are never stored; products are calls of `codegen/runtime_library.py`. Each loop or product
is a separate function, written once for all instructions of the same form and shape, so a deep
network compiles as fast as a shallow one. The source, in the language of `codegen/compiler.py`,
depends only on shapes and strides, so workers with equal tiles share one compilation.

`write_loop` writes all steps of a program as one function, in which barriers and reads of peers'
memory are plain loads and stores. `write_segments` writes each maximal run of instructions that
have a native form and do not synchronise workers; the others remain ready calls between the
segments (`executor/segments.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from magmath.codegen import runtime_library
from magmath.codegen.emit import (
    IndexMap,
    NativeCall,
    Operand,
    Places,
    View,
    Writer,
    Writing,
    combine,
    literal,
)
from magmath.core.index_set import IndexSet, Tile
from magmath.executor.dependence import Access, insert, next_loop
from magmath.executor.tensors import Tensors
from magmath.executor.user_line import attach_user_line
from magmath.layout import plan
from magmath.layout.moves import Move as Part
from magmath.memory.torch_dtypes import from_torch
from magmath.ops import OPERATIONS
from magmath.program.instructions import Barrier, Call, Emit, Instruction, Move, Program

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

def run(segment: int64, {names}) -> int64:
{body}
    return 0
"""
LEAST_CALLS = 2
"""Minimum instructions of a segment: a compiled function that replaces one call saves nothing."""
ARGUMENTS = re.compile(r"\ba\d+\b|\boffsets\[\d+\]")


@dataclass(frozen=True)
class Fault:
    """The record in which native code reports invalid data of an instruction."""

    noted: torch.Tensor
    error: Callable[[int], Exception]
    instruction: Instruction

    def take(self) -> Exception | None:
        """Return the error if native code has reported one since the last call, otherwise None."""
        found, what = self.noted.tolist()
        if not found:
            return None
        self.noted.zero_()
        error = self.error(what)
        attach_user_line(error, self.instruction)
        return error


Find = Callable[[Tensors], torch.Tensor]
"""Returns a tensor of a binding."""


@dataclass(frozen=True)
class NativeSource:
    """The source of a native function, and how a binding finds the arguments of its calls.

    The function of a loop takes the number of steps, the address of the barrier memory, rank and
    number of ranks, the addresses of the results it emits and of `offsets`, and those of the
    tensors. The function of `segments`, which are ranges of positions, takes the number of a
    segment, the address of `offsets`, and those of the tensors. `faults` are those of each segment.
    """

    source: str
    find: list[Find]
    offsets: list[int]
    emits: int
    faults: list[list[Fault]]
    segments: list[range]

    def addresses(self, tensors: Tensors) -> list[int]:
        """Return the addresses of the tensors that the function takes."""
        return [find(tensors).data_ptr() for find in self.find]


class NoNativeForm(Exception):
    """An instruction has no native form."""


def write_loop(program: Program, tensors: Tensors) -> NativeSource | None:
    """Return the native form of the program's loop on these tensors; None if an instruction has
    none."""
    if tensors.context.device.type != "cpu":
        return None
    try:
        return _Lowering(program, tensors).loop()
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
    return _Lowering(program, tensors, exact=exact, whole=False).segments(segments)


def _segments(program: Program, tensors: Tensors, exact: bool) -> list[range]:
    """Return the maximal runs of instructions with a native form, by their positions."""
    found: list[range] = []
    probe = _Lowering(program, tensors, exact=exact, whole=False)
    begin, calls = program.prologue, 0
    cuts: set[int] = set()  # positions that wait for an asynchronous move
    end = len(program.instructions)
    for position in range(program.prologue, end + 1):
        instruction = program.instructions[position] if position < end else None
        lines = None
        if instruction is not None:
            lines = probe.length(position)
            if isinstance(instruction, Move) and instruction.overlapped:
                cuts.add(position + instruction.overlapped + 1)
        if lines is None or position in cuts:
            if calls >= LEAST_CALLS:
                found.append(range(begin, position))
            begin, calls = position + (lines is None), 0
        calls += bool(lines)
    return found


@dataclass(frozen=True)
class _Member:
    """An instruction that joins a loop over `shape`: each step computes, reads or writes one
    element. `view` is the array that it reads or writes, if that is not a slot.

    An update of a part has two members: one that `copies` its first operand, and one that writes.
    """

    position: int
    call: Call
    shape: tuple[int, ...]
    accesses: list[Access]
    view: Operand | None = None
    copies: bool = False


MOST_MEMBERS = 128
"""Maximum number of members among which `next_loop` searches."""


class _Lowering:
    """The state of writing source: arrays get names on first use.

    `whole`: the loop over all instructions, in which workers may synchronise. `exact`: only
    instructions whose native form gives the bits of their kernel.
    """

    def __init__(
        self, program: Program, tensors: Tensors, *, exact: bool = False, whole: bool = True
    ) -> None:
        self.program = program
        self.tensors = tensors
        self.exact = exact
        self.whole = whole
        self.lines: list[str] = []
        self.parts: dict[tuple[str, tuple[str, ...]], str] = {}
        self.names: dict[tuple[int, int], str] = {}
        self.find: list[Find] = []
        self.types: list[str] = []
        self.offsets: list[int] = []
        self.emits = 0
        self.faults: list[Fault] = []
        self.readers = _readers(program)
        self.group: list[_Member] = []

    def loop(self) -> NativeSource:
        """Return the source of the loop over all instructions after the prologue."""
        steps = range(self.program.prologue, len(self.program.instructions))
        self._range(steps)
        loop = LOOP.format(
            names=", ".join([f"emitted: float64[{max(self.emits, 1)}, 1]", *self._arguments()]),
            body="\n".join(self.lines or ["        pass"]),
        )
        return self._source(loop, [self.faults], [steps])

    def segments(self, segments: list[range]) -> NativeSource:
        """Return the source of a function that executes one of these ranges of instructions."""
        body, faults = list[str](), list[list[Fault]]()
        for number, positions in enumerate(segments):
            self.lines, self.faults = [], []
            self._range(positions)
            body += [f"    if segment == {number}:", *(self.lines or ["        pass"])]
            faults.append(self.faults)
        text = SEGMENTS.format(names=", ".join(self._arguments()), body="\n".join(body))
        return self._source(text, faults, segments)

    def length(self, position: int) -> int | None:
        """Return the number of lines of the native form of one instruction; None if it has none."""
        self.lines, self.group = [], []
        try:
            self._range(range(position, position + 1))
        except NoNativeForm:
            return None
        return len(self.lines)

    def _range(self, positions: range) -> None:
        for position in positions:
            self._instruction(position, self.program.instructions[position])
        self._flush()

    def _arguments(self) -> list[str]:
        return ["offsets: int64[1]", *[f"a{i}: {kind}" for i, kind in enumerate(self.types)]]

    def _source(self, last: str, faults: list[list[Fault]], segments: list[range]) -> NativeSource:
        parts = "".join(
            PART.format(name=name, body=body, parameters=_parameters(types))
            for (body, types), name in self.parts.items()
        )
        source = _imports(parts + last) + parts + last
        return NativeSource(source, self.find, self.offsets, self.emits, faults, segments)

    def _line(self, text: str) -> None:
        self.lines.append("        " + text)

    def _part(self, writer: Writer) -> None:
        """Call a writer's lines as a function, which all equal code on the same types shares."""
        text = "\n".join(writer.lines)
        if not text:
            return
        arguments = list(dict.fromkeys(ARGUMENTS.findall(text)))
        new = {old: f"x{i}" for i, old in enumerate(arguments)}
        body = ARGUMENTS.sub(lambda match: new[match[0]], text)
        types = tuple(self.types[int(a[1:])] if a[0] == "a" else "int64" for a in arguments)
        name = self.parts.setdefault((body, types), f"part{len(self.parts)}")
        self._line(f"{name}({', '.join(arguments)})")

    # instructions -------------------------------------------------------------------------------

    def _instruction(self, position: int, instruction: Instruction) -> None:
        if isinstance(instruction, Call):
            if instruction.workspace is not None:
                raise NoNativeForm(f"{instruction.operation} of all workers together")
            if not self._works(instruction):
                return
            operation = OPERATIONS[instruction.operation]
            if self.exact and not self._gives_same_bits(instruction):
                raise NoNativeForm(f"{instruction.operation} in other bits")
            if operation.elementwise or isinstance(operation.native, (IndexMap, Writing)):
                self._join(position, instruction)
                return
        self._flush()
        if not self.whole and isinstance(instruction, (Barrier, Emit)):
            raise NoNativeForm("it is no computation")
        match instruction:
            case Call():
                self._call(instruction)
            case Move():
                self._move(instruction)
            case Barrier():
                self._line("if wait(flags, rank, size) != 0:")
                self._line("    return 1")
            case Emit(slot):
                value = self._operand(slot).at([])
                self._line(f"emitted[step, {self.emits}] = {value}")
                self.emits += 1

    def _gives_same_bits(self, call: Call) -> bool:
        slots = self.program.slots
        operands = [slots[i].dtype for i in call.inputs]
        return OPERATIONS[call.operation].same_bits(slots[call.out].dtype, operands)

    def _works(self, call: Call) -> bool:
        """Return True if this worker stores a part of the result."""
        layout = self.program.slots[call.out].layout
        return bool(layout.tiles(self.tensors.rank)) and layout.local_size(self.tensors.rank) > 0

    def _call(self, call: Call) -> None:
        native = OPERATIONS[call.operation].native
        emitter = native.emit if isinstance(native, Writing) else native
        if emitter is None or isinstance(emitter, (str, Mapping, IndexMap)):
            raise NoNativeForm(call.operation)
        writer = Writer()
        if emitter(writer, self._native_call(call)) is False:
            raise NoNativeForm(call.operation)
        self._part(writer)

    def _native_call(self, call: Call) -> NativeCall:
        slots = self.program.slots
        return NativeCall(
            self._operand(call.out),
            [self._operand(i) for i in call.inputs],
            call.attributes,
            partial(self._fault, call),
            self._offset,
            self._tile(call.out),
            tuple(self._tile(i) for i in call.inputs),
            slots[call.out].shape,
            tuple(slots[i].shape for i in call.inputs),
        )

    def _tile(self, slot: int) -> Tile:
        """Return this worker's tile of an array."""
        held = self.program.slots[slot]
        tiles = held.layout.tiles(self.tensors.rank)
        tile = tiles[0] if tiles else tuple(IndexSet.range(0, 0) for _ in held.shape)
        if not all(index.is_range for index in tile):
            raise NoNativeForm("a tile in several pieces")
        return tile

    def _fault(self, call: Call, error: Callable[[int], Exception]) -> str:
        if not self.whole and self.program.donated:
            raise NoNativeForm("data that are wrong are found before anything is overwritten")
        noted = torch.zeros(2, dtype=torch.int64)
        self.faults.append(Fault(noted, error, call))
        return self._array(noted, lambda tensors: noted).name

    def _offset(self, value: int) -> str:
        self.offsets.append(value)
        return f"offsets[{len(self.offsets) - 1}]"

    def _move(self, move: Move) -> None:
        have, want = self.program.slots[move.source].layout, self.program.slots[move.target].layout
        stages = plan(have, want).stages
        if len(stages) != 1 or have.boxes or want.boxes or stages[0].identity:
            raise NoNativeForm("move")
        rank, stage, comm = self.tensors.rank, stages[0], self.tensors.context.comm
        if stage.reads_peers and not (self.whole and comm.shares_memory):
            raise NoNativeForm("a meeting of workers")
        for part in stage.moves_to(rank):
            selects = (*part.source_select, *part.target_select)
            if not all(isinstance(s, slice) for s in selects):
                raise NoNativeForm("move by index")
            self._transfer(move, part, stage.reduce if part.combine else None)

    def _transfer(self, move: Move, part: Part, reduce: str | None) -> None:
        if self.exact and reduce is not None:
            raise NoNativeForm("a reduction in other bits")

        def source(tensors: Tensors) -> torch.Tensor:
            return tensors.of(move.source, part.source)[part.source_select]

        def target(tensors: Tensors) -> torch.Tensor:
            return tensors.own(move.target)[part.target_select]

        x, out = (self._array(find(self.tensors), find) for find in (source, target))
        writer = Writer()
        with writer.loops(out.shape) as indices:
            value = x.at(indices)
            if reduce is not None:
                value = combine(reduce, out.at(indices), value)
            writer.line(f"{out.at(indices)} = {value}")
        self._part(writer)

    # instructions that join loops -----------------------------------------------------------------

    def _join(self, position: int, call: Call) -> None:
        """Add an instruction to the group that is written as few loops."""
        native = OPERATIONS[call.operation].native
        if isinstance(native, Writing):
            self._join_update(position, call, native)
        elif isinstance(native, IndexMap):
            self._join_reading(position, call, native)
        elif isinstance(native, (str, Mapping)):
            read = [self._access(slot) for slot in call.inputs if not self._is_literal(slot)]
            self._add(position, call, call.out, read)
        else:
            raise NoNativeForm(call.operation)

    def _join_reading(self, position: int, call: Call, native: IndexMap) -> None:
        source = call.inputs[0]
        if native.view is not None and not self._is_literal(source):
            native_call = self._native_call(call)
            view = native.view(native_call, self.tensors.own(source))
            if view is not None:
                part = self._array(view, _finder(native.view, native_call, source))
                self._add(position, call, call.out, [Access.of(view)], part)
                return
        read = [Access.of(self.tensors.own(slot), elsewhere=True) for slot in call.inputs]
        self._add(position, call, call.out, read)

    def _join_update(self, position: int, call: Call, native: Writing) -> None:
        x, values, *_ = call.inputs
        native_call = self._native_call(call)
        view = native.view(native_call, self.tensors.own(call.out))
        if view is None:
            self._flush()
            self._call(call)
            return
        if self.tensors.own(x).data_ptr() != self.tensors.own(call.out).data_ptr():
            self._add(position, call, call.out, [self._access(x)], copies=True)
        read = [] if self._is_literal(values) else [self._access(values)]
        written = Access.of(view, written=True)
        part = self._array(view, _finder(native.view, native_call, call.out))
        insert(self.group, _Member(position, call, tuple(view.shape), [*read, written], part))

    def _add(
        self,
        position: int,
        call: Call,
        out: int,
        read: list[Access],
        view: Operand | None = None,
        copies: bool = False,
    ) -> None:
        """Add a member that computes all elements of a slot."""
        if len(self.group) >= MOST_MEMBERS:
            self._flush()
        target = self.tensors.own(out)
        accesses = [*read, Access.of(target, written=True)]
        insert(self.group, _Member(position, call, tuple(target.shape), accesses, view, copies))

    def _access(self, slot: int) -> Access:
        return Access.of(self.tensors.own(slot))

    def _is_literal(self, slot: int) -> bool:
        return self.program.slots[slot].kind == "constant"

    def _flush(self) -> None:
        """Write the group as few loops."""
        members, self.group = self.group, []
        while members:
            loop, members = next_loop(members)
            self._loop(loop)

    def _loop(self, members: list[_Member]) -> None:
        """Write members as one loop; results that only these read remain in registers."""
        positions = {member.position for member in members}
        values: dict[int, str] = {}
        writer = Writer()
        places = [self._places(writer, member) for member in members]
        strides = self.tensors.own(members[-1].call.out).stride()
        fits = len(strides) == len(members[0].shape)
        with writer.loops(members[0].shape, strides if fits else ()) as indices:
            for member, place in zip(members, places, strict=True):
                self._member(writer, member, indices, place(indices), values, positions)
        self._part(writer)

    def _member(
        self,
        writer: Writer,
        member: _Member,
        indices: Sequence[str],
        own: Sequence[str],
        values: dict[int, str],
        positions: set[int],
    ) -> None:
        """Write the step of a member at `indices`; its operands are read at their `own` indices."""
        call, out = member.call, member.call.out
        if isinstance(OPERATIONS[call.operation].native, Writing):
            source = call.inputs[0 if member.copies else 1]
            target = self._operand(out) if member.copies or member.view is None else member.view
            value = values.get(source) or self._operand(source).at(indices)
            writer.line(f"{target.at(indices)} = {value}")
            return
        name = writer.name("v")
        text = member.view.at(indices) if member.view else self._expression(call, own, values)
        writer.line(f"{name} = {text}")
        values[out] = name
        if self._is_read_elsewhere(out, member.position, positions):
            writer.line(f"{self._operand(out).at(indices)} = {name}")

    def _places(self, writer: Writer, member: _Member) -> Places:
        """Return the function from loop indices to a member's operand indices; write its
        preparation before the loop."""
        native = OPERATIONS[member.call.operation].native
        if not isinstance(native, IndexMap) or member.view is not None:
            return lambda indices: indices
        places = native.prepare(writer, self._native_call(member.call))
        if places is None:
            raise NoNativeForm(member.call.operation)
        return places

    def _expression(self, call: Call, indices: Sequence[str], values: dict[int, str]) -> str:
        native = OPERATIONS[call.operation].native
        if isinstance(native, IndexMap):
            return self._operand(call.inputs[0]).at(indices)
        kind = self.program.slots[call.out].dtype.kind
        template = native if isinstance(native, str) else native.get(kind)
        if template is None:  # integer powers of integers, which raise errors for some data
            raise NoNativeForm(call.operation)
        arguments = [
            values[i] if i in values else self._operand(i).at(indices) for i in call.inputs
        ]
        dtype = self.program.slots[call.out].dtype
        cast = "bool" if dtype.kind == "bool" else f"np.{dtype.name}"
        text: str = template.format(*arguments, cast=cast, one=literal(1, dtype))
        return f"{cast}({text})" if dtype.kind != "bool" and call.operation != "astype" else text

    def _is_read_elsewhere(self, slot: int, position: int, members: set[int]) -> bool:
        place: int | None = slot
        while place is not None:  # the slot, and those in whose memory it is stored
            own = self.program.slots[place]
            if own.kind != "temporary" or own.window:
                return True
            place = own.alias
        return any(reader < position or reader not in members for reader in self.readers[slot])

    # operands -----------------------------------------------------------------------------------

    def _operand(self, slot: int) -> Operand:
        kind = self.program.slots[slot].kind
        if kind == "constant":
            value, dtype = self.program.slots[slot].value, self.program.slots[slot].dtype
            assert value is not None
            if isinstance(value, complex):
                raise NoNativeForm("a complex number")
            return Operand(literal(value, dtype), (), dtype, scalar=True)
        return self._array(self.tensors.own(slot), lambda tensors: tensors.own(slot))

    def _array(self, tensor: torch.Tensor, find: Find) -> Operand:
        """Return a tensor as an operand of the source; 0-d tensors as one element."""
        dtype = from_torch(tensor.dtype)
        if dtype.name in ("float16", "bfloat16") or dtype.kind == "complex":
            raise NoNativeForm(dtype.name)
        shown = tensor.reshape(1) if tensor.ndim == 0 else tensor
        key = (tensor.data_ptr(), hash((tuple(shown.shape), shown.stride(), tensor.dtype)))
        if key not in self.names:
            self.names[key] = f"a{len(self.find)}"
            self.find.append(find)
            self.types.append(f"{dtype.name}[{', '.join(map(str, shown.stride()))}]")
        name = self.names[key]
        if tensor.ndim == 0:
            return Operand(f"{name}[0]", (), dtype, scalar=True)
        return Operand(
            name,
            tuple(tensor.shape),
            dtype,
            strides=tuple(tensor.stride()),
            address=tensor.data_ptr(),
        )


def _finder(view: View, call: NativeCall, slot: int) -> Find:
    """Return a function that returns a view of a slot, which exists in every binding."""

    def find(tensors: Tensors) -> torch.Tensor:
        found = view(call, tensors.own(slot))
        assert found is not None
        return found

    return find


def _read_in_memory(call: Call) -> Sequence[int]:
    """Return the operands that the native form of a call reads in memory, never in a register."""
    native = OPERATIONS[call.operation].native
    if isinstance(native, IndexMap):
        return call.inputs
    return call.inputs[:1] if isinstance(native, Writing) else ()


def _imports(text: str) -> str:
    """Return the line that imports the library functions that a source calls."""
    called = set(re.findall(r"\b(\w+)\(", text)) & runtime_library.EXPORTS.keys()
    return f"from {runtime_library.__name__} import {', '.join(sorted(called))}\n" if called else ""


def _parameters(types: Sequence[str]) -> str:
    """Return the annotated arguments x0, x1, … of a part."""
    return ", ".join(f"x{i}: {kind}" for i, kind in enumerate(types))


def _readers(program: Program) -> list[list[int]]:
    """Return the positions at which each slot is read; -1 for reads in memory or through a view."""
    readers: list[list[int]] = [[] for _ in program.slots]
    written = set[int]()
    for position, instruction in enumerate(program.instructions):
        for read in _read(instruction):
            readers[read].append(position)
        if isinstance(instruction, Call):
            for read in _read_in_memory(instruction):
                readers[read].append(-1)
        if isinstance(instruction, (Call, Move)):
            written.add(instruction.out if isinstance(instruction, Call) else instruction.target)
    for i, slot in enumerate(program.slots):
        if slot.alias is not None and i not in written:
            base = slot.alias
            while (below := program.slots[base].alias) is not None and base not in written:
                base = below
            readers[base].append(-1)  # read through a view: it must be in memory
    for output in program.outputs:
        readers[output].append(len(program.instructions))
    return readers


def _read(instruction: Instruction) -> Iterable[int]:
    match instruction:
        case Call(inputs=inputs):
            return inputs
        case Move(source):
            return (source,)
        case Emit(slot):
            return (slot,)
    return ()
