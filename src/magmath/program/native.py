"""Lowering a program's loop to one native function: straight-line code that is compiled.

Every slot becomes an address in the same memory that the replayed calls use, so the two ways of
execution can take turns. Neighbouring element-wise instructions become one loop, and what is only
read inside it never reaches memory; products are calls of `kernels/library.py`; barriers and reads
of peers' memory are plain loads and stores. Each loop or product is a function of its own, written
once for all instructions of the same form and shape, so a deep network compiles as fast as a
shallow one. The source, in the language of `codegen/compiler.py`, depends on shapes and strides
alone, so workers with equal tiles share one compilation. A program with an instruction that cannot
be written is replayed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import torch

from magmath.core.index_set import IndexSet, Tile
from magmath.kernels import library
from magmath.layout import plan
from magmath.memory.torch_dtypes import from_torch
from magmath.ops import OPERATIONS
from magmath.ops.native_emit import NativeCall, Operand, Places, Reading, Writer, combine, literal
from magmath.program.bind import blame
from magmath.program.dependence import Access, undisturbed
from magmath.program.instructions import Barrier, Call, Emit, Instruction, Move, Program

if TYPE_CHECKING:
    from magmath.program.bind import Tensors

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
ARGUMENTS = re.compile(r"\ba\d+\b|\boffsets\[\d+\]")


@dataclass(frozen=True)
class Fault:
    """Where native code leaves what was wrong with the data of an instruction."""

    noted: torch.Tensor
    error: Callable[[int], Exception]
    instruction: Instruction

    def take(self) -> Exception | None:
        """The error, if there was one since this was last asked."""
        found, what = self.noted.tolist()
        if not found:
            return None
        self.noted.zero_()
        error = self.error(what)
        blame(error, self.instruction)
        return error


@dataclass(frozen=True)
class NativeSource:
    """A native function's source, and the arguments this worker calls it with.

    The function takes the number of steps, the address of the barrier memory, rank and number of
    ranks, the addresses of the results it emits and of `offsets`, and those of the tensors.
    """

    source: str
    tensors: list[torch.Tensor]
    offsets: list[int]
    emits: int
    faults: list[Fault]


class Unwritable(Exception):
    """An instruction has no native form."""


def write(program: Program, tensors: Tensors) -> NativeSource | None:
    """The native form of the program's loop on these tensors; None if it has none."""
    if tensors.context.device.type != "cpu":
        return None
    try:
        return _Lowering(program, tensors).write()
    except Unwritable:
        return None


@dataclass
class _Group:
    """Element-wise instructions over one shape, to be written as one loop."""

    shape: tuple[int, ...] = ()
    calls: list[tuple[int, Call]] = field(default_factory=list)


class _Lowering:
    """The source as it grows: arrays get names when they are first used."""

    def __init__(self, program: Program, tensors: Tensors) -> None:
        self.program = program
        self.tensors = tensors
        self.lines: list[str] = []
        self.parts: dict[tuple[str, tuple[str, ...]], str] = {}
        self.names: dict[tuple[int, int], str] = {}
        self.arrays: list[torch.Tensor] = []
        self.types: list[str] = []
        self.offsets: list[int] = []
        self.emits = 0
        self.faults: list[Fault] = []
        self.readers = _readers(program)
        self.group = _Group()

    def write(self) -> NativeSource:
        for position, instruction in enumerate(self.program.instructions):
            if position >= self.program.prologue:
                self._instruction(position, instruction)
        self._flush()
        parts = "".join(
            PART.format(name=name, body=body, parameters=_parameters(types))
            for (body, types), name in self.parts.items()
        )
        loop = LOOP.format(
            names=", ".join(
                [f"emitted: float64[{max(self.emits, 1)}, 1]", "offsets: int64[1]"]
                + [f"a{i}: {kind}" for i, kind in enumerate(self.types)]
            ),
            body="\n".join(self.lines or ["        pass"]),
        )
        source = _imports(parts + loop) + parts + loop
        return NativeSource(source, self.arrays, self.offsets, self.emits, self.faults)

    def _line(self, text: str) -> None:
        self.lines.append("        " + text)

    def _part(self, writer: Writer) -> None:
        """Call what a writer holds as a function, one for all equal code on the same types."""
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
                raise Unwritable(f"{instruction.operation} of all workers together")
            if not self._works(instruction):
                return
            operation = OPERATIONS[instruction.operation]
            if operation.elementwise or isinstance(operation.native, Reading):
                self._elementwise(position, instruction)
                return
        self._flush()
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

    def _works(self, call: Call) -> bool:
        """True if this worker has a part of the result."""
        layout = self.program.slots[call.out].layout
        return bool(layout.tiles(self.tensors.rank)) and layout.local_size(self.tensors.rank) > 0

    def _call(self, call: Call) -> None:
        emitter = OPERATIONS[call.operation].native
        if emitter is None or isinstance(emitter, (str, Mapping, Reading)):
            raise Unwritable(call.operation)
        writer = Writer()
        if emitter(writer, self._native_call(call)) is False:
            raise Unwritable(call.operation)
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
        """This worker's part of an array."""
        held = self.program.slots[slot]
        tiles = held.layout.tiles(self.tensors.rank)
        tile = tiles[0] if tiles else tuple(IndexSet.range(0, 0) for _ in held.shape)
        if not all(index.is_range for index in tile):
            raise Unwritable("a tile in several pieces")
        return tile

    def _fault(self, call: Call, error: Callable[[int], Exception]) -> str:
        noted = torch.zeros(2, dtype=torch.int64)
        self.faults.append(Fault(noted, error, call))
        return self._array(noted).name

    def _offset(self, value: int) -> str:
        self.offsets.append(value)
        return f"offsets[{len(self.offsets) - 1}]"

    def _move(self, move: Move) -> None:
        have, want = self.program.slots[move.source].layout, self.program.slots[move.target].layout
        stages = plan(have, want).stages
        if len(stages) != 1 or have.boxes or want.boxes or stages[0].identity:
            raise Unwritable("move")
        rank, stage, comm = self.tensors.rank, stages[0], self.tensors.context.comm
        if stage.reads_peers and not comm.shares_memory:
            raise Unwritable("a message")
        for part in stage.moves_to(rank):
            selects = (*part.source_select, *part.target_select)
            if not all(isinstance(s, slice) for s in selects):
                raise Unwritable("move by index")
            source = self.tensors.of(move.source, part.source)[part.source_select]
            target = self.tensors.own(move.target)[part.target_select]
            self._transfer(source, target, stage.reduce if part.combine else None)

    def _transfer(self, source: torch.Tensor, target: torch.Tensor, reduce: str | None) -> None:
        x, out, writer = self._array(source), self._array(target), Writer()
        with writer.loops(out.shape) as indices:
            value = x.at(indices)
            if reduce is not None:
                value = combine(reduce, out.at(indices), value)
            writer.line(f"{out.at(indices)} = {value}")
        self._part(writer)

    # element-wise groups ------------------------------------------------------------------------

    def _elementwise(self, position: int, call: Call) -> None:
        if not isinstance(OPERATIONS[call.operation].native, (str, Mapping, Reading)):
            raise Unwritable(call.operation)
        shape = tuple(self.tensors.own(call.out).shape)
        if shape != self.group.shape:
            self._flush()
        self.group.shape = shape
        self.group.calls.append((position, call))

    def _flush(self) -> None:
        """Write the group as one loop, or as few as it takes."""
        group, self.group = self.group, _Group()
        calls = group.calls
        while calls:
            count = self._together(calls)
            self._loop(group.shape, calls[:count])
            calls = calls[count:]

    def _together(self, calls: Sequence[tuple[int, Call]]) -> int:
        """How many calls can share a loop, counted from the first."""
        count = len(calls)
        while (fit := undisturbed(self._accesses(calls[:count]))) < count:
            count = fit  # of fewer calls, more results are read by others and must be stored
        return count

    def _accesses(self, calls: Sequence[tuple[int, Call]]) -> list[list[Access]]:
        """What each call of a loop reads and writes in memory."""
        members = {position for position, call in calls if not _reads_elsewhere(call)}
        computed: set[int] = set()
        accesses = []
        for position, call in calls:
            elsewhere = _reads_elsewhere(call)
            read = [i for i in call.inputs if self.program.slots[i].kind != "constant"]
            if not elsewhere:
                read = [i for i in read if i not in computed]
            own = [Access.of(self.tensors.own(i), elsewhere=elsewhere) for i in read]
            if self._is_read_elsewhere(call.out, position, members):
                own.append(Access.of(self.tensors.own(call.out), written=True))
            computed.add(call.out)
            accesses.append(own)
        return accesses

    def _loop(self, shape: tuple[int, ...], calls: Sequence[tuple[int, Call]]) -> None:
        """Write calls as one loop; results that only these read stay in registers."""
        members = {position for position, _ in calls}
        values: dict[int, str] = {}
        writer = Writer()
        places = {call.out: self._places(writer, call) for _, call in calls}
        with writer.loops(shape) as indices:
            for position, call in calls:
                name = writer.name("v")
                own = places[call.out](indices)
                writer.line(f"{name} = {self._expression(call, own, values)}")
                values[call.out] = name
                if self._is_read_elsewhere(call.out, position, members):
                    writer.line(f"{self._operand(call.out).at(indices)} = {name}")
        self._part(writer)

    def _places(self, writer: Writer, call: Call) -> Places:
        """Where a member of a group reads its operands; what that takes comes before the loop."""
        native = OPERATIONS[call.operation].native
        if not isinstance(native, Reading):
            return lambda indices: indices
        places = native.prepare(writer, self._native_call(call))
        if places is None:
            raise Unwritable(call.operation)
        return places

    def _expression(self, call: Call, indices: Sequence[str], values: dict[int, str]) -> str:
        native = OPERATIONS[call.operation].native
        if isinstance(native, Reading):
            return self._operand(call.inputs[0]).at(indices)
        kind = self.program.slots[call.out].dtype.kind
        template = native if isinstance(native, str) else native.get(kind)
        if template is None:  # integers to integer powers, of which data can be refused
            raise Unwritable(call.operation)
        arguments = [
            values[i] if i in values else self._operand(i).at(indices) for i in call.inputs
        ]
        dtype = self.program.slots[call.out].dtype
        cast = "bool" if dtype.kind == "bool" else f"np.{dtype.name}"
        text: str = template.format(*arguments, cast=cast, one=literal(1, dtype))
        return f"{cast}({text})" if dtype.kind != "bool" and call.operation != "astype" else text

    def _is_read_elsewhere(self, slot: int, position: int, members: set[int]) -> bool:
        place: int | None = slot
        while place is not None:  # the slot, and those in whose memory it lies
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
            assert not isinstance(value, complex)
            return Operand(literal(value, dtype), (), dtype, scalar=True)
        return self._array(self.tensors.own(slot))

    def _array(self, tensor: torch.Tensor) -> Operand:
        """The name under which a tensor is passed; 0-d tensors as one element."""
        dtype = from_torch(tensor.dtype)
        if dtype.name in ("float16", "bfloat16") or dtype.kind == "complex":
            raise Unwritable(dtype.name)
        shown = tensor.reshape(1) if tensor.ndim == 0 else tensor
        key = (tensor.data_ptr(), hash((tuple(shown.shape), shown.stride(), tensor.dtype)))
        if key not in self.names:
            self.names[key] = f"a{len(self.arrays)}"
            self.arrays.append(shown)
            self.types.append(f"{dtype.name}[{', '.join(map(str, shown.stride()))}]")
        name = self.names[key]
        if tensor.ndim == 0:
            return Operand(f"{name}[0]", (), dtype, scalar=True)
        return Operand(name, tuple(tensor.shape), dtype, strides=tuple(tensor.stride()))


def _reads_elsewhere(call: Call) -> bool:
    return isinstance(OPERATIONS[call.operation].native, Reading)


def _imports(text: str) -> str:
    """The line that names the functions of the library which a source calls."""
    called = set(re.findall(r"\b(\w+)\(", text)) & library.EXPORTS.keys()
    return f"from {library.__name__} import {', '.join(sorted(called))}\n" if called else ""


def _parameters(types: Sequence[str]) -> str:
    """The annotated arguments x0, x1, … of a part."""
    return ", ".join(f"x{i}: {kind}" for i, kind in enumerate(types))


def _readers(program: Program) -> list[list[int]]:
    """The positions at which each slot is read; -1 where it is read through a view of it."""
    readers: list[list[int]] = [[] for _ in program.slots]
    written = set[int]()
    for position, instruction in enumerate(program.instructions):
        for read in _read(instruction):
            readers[read].append(position)
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
