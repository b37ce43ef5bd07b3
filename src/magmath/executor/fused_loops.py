"""Fused loops: neighbouring instructions that compute, read or write one element in each step.

Values that are read only inside of a loop stay in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from magmath.codegen.emit import IndexMap, NativeOperand, Places, Writer, Writing, literal
from magmath.executor.dependence import Access, insert, next_loop
from magmath.executor.native_source import Arguments, NoNativeForm, view_finder
from magmath.ops import OPERATIONS
from magmath.program.instructions import Call, Emit, Instruction, Move, Program


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
    view: NativeOperand | None = None
    copies: bool = False


MOST_MEMBERS = 128
"""Maximum number of members among which `next_loop` searches."""
DIVIDED_ELEMENTS = 1 << 16
"""Minimum elements of a loop that several threads divide."""
SHARE_ELEMENTS = 1 << 14
"""Elements that a thread takes at a time."""


class FusedLoops:
    """The instructions that wait to be written as few loops; `write` receives each loop.

    `divided`: threads may divide long loops.
    """

    def __init__(
        self, arguments: Arguments, write: Callable[[Writer], None], *, divided: bool
    ) -> None:
        self._arguments = arguments
        self._divided = divided
        self._tensors = arguments.tensors
        self._slots = arguments.tensors.program.slots
        self._write = write
        self._readers = _readers(arguments.tensors.program)
        self._group: list[_Member] = []
        self._arrays: list[NativeOperand] = []

    def clear(self) -> None:
        """Drop the instructions that are not written yet."""
        self._group = []

    def join(self, position: int, call: Call) -> bool:
        """Add an instruction; return False if it cannot join a loop.

        Raises NoNativeForm for an instruction without a native form.
        """
        native = OPERATIONS[call.operation].native
        if isinstance(native, Writing):
            return self._join_update(position, call, native)
        if isinstance(native, IndexMap):
            self._join_reading(position, call, native)
        elif isinstance(native, (str, Mapping)):
            read = [self._access(slot) for slot in call.inputs if not self._is_literal(slot)]
            self._add(position, call, call.out, read)
        else:
            raise NoNativeForm(call.operation)
        return True

    def _join_reading(self, position: int, call: Call, native: IndexMap) -> None:
        source = call.inputs[0]
        if native.view is not None and not self._is_literal(source):
            native_call = self._arguments.native_call(call)
            view = native.view(native_call, self._tensors.own(source))
            if view is not None:
                part = self._arguments.array(view, view_finder(native.view, native_call, source))
                self._add(position, call, call.out, [Access.of(view)], part)
                return
        read = [Access.of(self._tensors.own(slot), elsewhere=True) for slot in call.inputs]
        self._add(position, call, call.out, read)

    def _join_update(self, position: int, call: Call, native: Writing) -> bool:
        x, values, *_ = call.inputs
        native_call = self._arguments.native_call(call)
        view = native.view(native_call, self._tensors.own(call.out))
        if view is None:
            return False
        if self._tensors.own(x).data_ptr() != self._tensors.own(call.out).data_ptr():
            self._add(position, call, call.out, [self._access(x)], copies=True)
        read = [] if self._is_literal(values) else [self._access(values)]
        written = Access.of(view, written=True)
        part = self._arguments.array(view, view_finder(native.view, native_call, call.out))
        insert(self._group, _Member(position, call, tuple(view.shape), [*read, written], part))
        return True

    def _add(
        self,
        position: int,
        call: Call,
        out: int,
        read: list[Access],
        view: NativeOperand | None = None,
        copies: bool = False,
    ) -> None:
        """Add a member that computes all elements of a slot."""
        if len(self._group) >= MOST_MEMBERS:
            self.flush()
        target = self._tensors.own(out)
        accesses = [*read, Access.of(target, written=True)]
        insert(self._group, _Member(position, call, tuple(target.shape), accesses, view, copies))

    def _access(self, slot: int) -> Access:
        return Access.of(self._tensors.own(slot))

    def _is_literal(self, slot: int) -> bool:
        return self._slots[slot].kind == "constant"

    def flush(self) -> None:
        """Write the group as few loops."""
        members, self._group = self._group, []
        while members:
            loop, members = next_loop(members)
            self._loop(loop)

    def _loop(self, members: list[_Member]) -> None:
        """Write members as one loop; results that only these read remain in registers."""
        positions = {member.position for member in members}
        values: dict[int, str] = {}
        writer = Writer()
        places = [self._places(writer, member) for member in members]
        shape, strides = members[0].shape, self._tensors.own(members[-1].call.out).stride()
        fits = len(strides) == len(shape)
        arrays = self._accessed(members, positions)
        long = self._divided and arrays is not None and prod(shape) >= DIVIDED_ELEMENTS
        least = SHARE_ELEMENTS if long else 0
        with writer.loops(shape, strides if fits else (), arrays, least) as indices:
            for member, place in zip(members, places, strict=True):
                self._member(writer, member, indices, place(indices), values, positions)
        self._write(writer)

    def _accessed(
        self, members: Sequence[_Member], positions: set[int]
    ) -> list[NativeOperand] | None:
        """Return the arrays that a loop over these members accesses at its own indices; None if it
        accesses others too."""
        self._arrays, values = [], dict[int, str]()
        for member in members:
            native = OPERATIONS[member.call.operation].native
            if isinstance(native, IndexMap) and member.view is None:
                return None
            indices = ["0"] * len(member.shape)
            self._member(Writer(), member, indices, indices, values, positions)
        return self._arrays

    def _at(self, operand: NativeOperand, indices: Sequence[str]) -> str:
        """Return an element of an operand, and note the access."""
        self._arrays.append(operand)
        return operand.at(indices)

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
            target = (
                self._arguments.operand(out)
                if member.copies or member.view is None
                else member.view
            )
            value = values.get(source) or self._at(self._arguments.operand(source), indices)
            writer.line(f"{self._at(target, indices)} = {value}")
            return
        name = writer.name("v")
        text = (
            self._at(member.view, indices) if member.view else self._expression(call, own, values)
        )
        writer.line(f"{name} = {text}")
        values[out] = name
        if self._is_read_elsewhere(out, member.position, positions):
            writer.line(f"{self._at(self._arguments.operand(out), indices)} = {name}")

    def _places(self, writer: Writer, member: _Member) -> Places:
        """Return the function from loop indices to a member's operand indices; write its
        preparation before the loop."""
        native = OPERATIONS[member.call.operation].native
        if not isinstance(native, IndexMap) or member.view is not None:
            return lambda indices: indices
        places = native.prepare(writer, self._arguments.native_call(member.call))
        if places is None:
            raise NoNativeForm(member.call.operation)
        return places

    def _expression(self, call: Call, indices: Sequence[str], values: dict[int, str]) -> str:
        native = OPERATIONS[call.operation].native
        if isinstance(native, IndexMap):
            return self._arguments.operand(call.inputs[0]).at(indices)
        kind = self._slots[call.out].dtype.kind
        template = native if isinstance(native, str) else native.get(kind)
        if template is None:  # integer powers of integers, which raise errors for some data
            raise NoNativeForm(call.operation)
        arguments = [
            values[i] if i in values else self._at(self._arguments.operand(i), indices)
            for i in call.inputs
        ]
        dtype = self._slots[call.out].dtype
        cast = "bool" if dtype.kind == "bool" else f"np.{dtype.name}"
        text: str = template.format(*arguments, cast=cast, one=literal(1, dtype))
        return f"{cast}({text})" if dtype.kind != "bool" and call.operation != "astype" else text

    def _is_read_elsewhere(self, slot: int, position: int, members: set[int]) -> bool:
        place: int | None = slot
        while place is not None:  # the slot, and those in whose memory it is stored
            own = self._slots[place]
            if own.kind != "temporary" or own.window:
                return True
            place = own.alias
        return any(reader < position or reader not in members for reader in self._readers[slot])


def _read_in_memory(call: Call) -> Sequence[int]:
    """Return the operands that the native form of a call reads in memory, never in a register."""
    native = OPERATIONS[call.operation].native
    if isinstance(native, IndexMap):
        return call.inputs
    return call.inputs[:1] if isinstance(native, Writing) else ()


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
