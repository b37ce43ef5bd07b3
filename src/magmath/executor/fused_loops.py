"""Fused loops: neighbouring instructions that compute, read or write one element in each step.

Values that are read only inside of a loop stay in registers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

from magmath.codegen.emit import (
    IndexMap,
    IndexVariables,
    NativeOperand,
    PartUpdate,
    Writer,
    literal,
    loop_order,
)
from magmath.executor.loop_dependence import Access, connected, insert, next_loop
from magmath.executor.loop_nests import (
    PartLoop,
    Registers,
    joined,
    joined_dimensions,
    offset_of,
    write_rectangles,
)
from magmath.executor.native_source import Arguments, NoNativeForm, require_native_type, view_finder
from magmath.ops import OPERATIONS
from magmath.program.instructions import Call, Program, Slot


@final
@dataclass(frozen=True)
class _Member:
    """An instruction that joins a loop over `shape`: each step computes, reads or writes one
    element. `view` is the array that it reads or writes, if that is not a slot.

    An update of a part has two members: one that `copies` its first operand, and one that writes.
    The latter has the shape of the `whole` array, and the index in it at which the part begins. If
    the part is no block of it, `whole` is None, and the loop covers the part alone.
    """

    position: int
    call: Call
    shape: tuple[int, ...]
    accesses: list[Access]
    view: NativeOperand | None = None
    copies: bool = False
    whole: tuple[int, ...] | None = None
    offset: tuple[int, ...] = ()


@final
@dataclass(frozen=True)
class _StepCode:
    """The code of one step of a nest, during its writing: the registers of elements and of slots,
    and the positions of the members, without copies."""

    writer: Writer
    registers: Registers
    values: dict[int, str]
    positions: set[int]


IN_MEMORY = -1
"""The position of a reader that needs the value in memory: before those of all writers."""
MAX_MEMBERS = 128
"""Maximum number of members among which `next_loop` searches."""
MIN_DIVIDED = 1 << 16
"""Minimum number of elements of a loop that several threads divide."""
DIVIDED_RANGE = ("first", "last")
"""The limits of the outermost loop in a function that computes a part of a divided loop."""


@final
class FusedLoops:
    """The instructions that wait to be written as few loops.

    `write` receives each loop. If it can be divided, its outermost loop has the limits
    `DIVIDED_RANGE`, and the second argument is the extent of that dimension, otherwise 0.
    """

    def __init__(
        self, arguments: Arguments, write: Callable[[Writer, int], None], *, divides: bool
    ) -> None:
        self._arguments = arguments
        self._divides = divides
        self._tensors = arguments.tensors
        self._slots = arguments.tensors.program.slots
        self._write = write
        self._readers = _readers(arguments.tensors.program)
        self._is_read_outside = read_outside(self._slots)
        self._group: list[_Member] = []

    def clear(self) -> None:
        """Drop the instructions that are not written yet."""
        self._group = []

    def join(self, position: int, call: Call) -> bool:
        """Add an instruction; return False if it cannot join a loop.

        Raises NoNativeForm for an instruction without a native form.
        """
        for slot in (*call.inputs, call.out):  # some exist in registers only
            require_native_type(self._slots[slot].dtype)
        native = OPERATIONS[call.operation].native
        if isinstance(native, PartUpdate):
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

    def _join_update(self, position: int, call: Call, native: PartUpdate) -> bool:
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
        shape, out = tuple(view.shape), self._tensors.own(call.out)
        member = _Member(position, call, shape, [*read, written], part)
        offset = offset_of(view, out)
        if offset is not None:
            member = replace(member, whole=tuple(out.shape), offset=offset)
        self._insert(member)
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
        target = self._tensors.own(out)
        accesses = [*read, Access.of(target, written=True)]
        self._insert(_Member(position, call, tuple(target.shape), accesses, view, copies))

    def _insert(self, member: _Member) -> None:
        if len(self._group) >= MAX_MEMBERS:
            self.flush()
        insert(self._group, member)

    def _access(self, slot: int) -> Access:
        return Access.of(self._tensors.own(slot))

    def _is_literal(self, slot: int) -> bool:
        return self._slots[slot].kind == "constant"

    def flush(self) -> None:
        """Write the group as few loops."""
        members, self._group = self._group, []
        loops: list[PartLoop[_Member]] = []
        while members:
            loop, members = next_loop(members)
            if math.prod(loop[0].shape):
                loops += map(_part_loop, connected(loop))
        for nest in joined(loops):
            self._nest(nest)

    def _nest(self, loops: Sequence[PartLoop[_Member]]) -> None:
        """Write loops as one nest; results that only these read remain in registers."""
        members = [member for loop in loops for member in loop.members]
        # The copy that precedes an update has its position, and does not read its values.
        positions = {member.position for member in members if not member.copies}
        writer = Writer()
        local = {id(member): self._local_indices(writer, member) for member in members}
        strides = self._tensors.own(members[-1].call.out).stride()
        ndim = len(loops[0].whole)
        order: Sequence[int] = loop_order(loops[0].whole, strides if len(strides) == ndim else ())
        extents: dict[int, int] = {}
        operands = [self._operands(member) for member in members]
        if None not in operands:
            accessed = [x for of_member in operands for x in of_member or ()]
            order, extents = joined_dimensions(order, loops, accessed)
        indices = [writer.name("i") if d in order else "0" for d in range(ndim)]

        def step(active: Sequence[PartLoop[_Member]]) -> None:
            code = _StepCode(writer, Registers(writer), {}, positions)
            for loop in active:
                loop_indices = [
                    f"({i} - {o})" if o else i for i, o in zip(indices, loop.offset, strict=True)
                ]
                for member in loop.members:
                    self._member(code, loop, member, loop_indices, local[id(member)])
            code.registers.store()

        extent = self._divided_extent(loops, order, extents)
        limits = DIVIDED_RANGE if extent else None
        write_rectangles(writer, order, indices, loops, step, extents, limits)
        self._write(writer, extent)

    def _operands(self, member: _Member) -> list[tuple[tuple[int, ...], tuple[int, ...]]] | None:
        """Return shapes and strides of the arrays that a member accesses at the indices of its
        loop; None if it computes other indices."""
        call = member.call
        native, slots = OPERATIONS[call.operation].native, [*call.inputs, call.out]
        if isinstance(native, PartUpdate):
            slots = [call.inputs[0], call.out] if member.copies else [call.inputs[1]]
        elif isinstance(native, IndexMap):
            if member.view is None:
                return None
            slots = [call.out]
        tensors = [self._tensors.own(x) for x in slots if not self._is_literal(x)]
        accessed = [(tuple(x.shape), x.stride()) for x in tensors]
        if member.view is not None:
            accessed.append((tuple(member.view.shape), member.view.strides))
        return accessed

    def _divided_extent(
        self, loops: Sequence[PartLoop[_Member]], order: Sequence[int], extents: Mapping[int, int]
    ) -> int:
        """Return the extent of the outermost loop if several threads may divide it, otherwise 0.

        The steps of a fused loop are independent, so the division changes no bits.
        """
        if not self._divides or max([math.prod(x.shape) for x in loops]) < MIN_DIVIDED:
            return 0
        extent = extents.get(order[0], loops[0].whole[order[0]])
        return extent if extent > 1 else 0

    def _member(
        self,
        code: _StepCode,
        loop: PartLoop[_Member],
        member: _Member,
        indices: Sequence[str],
        local: IndexVariables,
    ) -> None:
        """Write the step of a member at `indices`; it reads an operand at the `local` indices if
        its operation maps indices."""
        call, out = member.call, member.call.out
        name = code.writer.name("v")
        if isinstance(OPERATIONS[call.operation].native, PartUpdate):
            source = call.inputs[0 if member.copies else 1]
            code.writer.line(f"{name} = {self._value(code, loop, source, indices)}")
            whole = member.copies or member.view is None
            target = self._arguments.operand(out) if whole else member.view
            assert target is not None
            code.registers.write(target, loop, indices, name)
            return
        if member.view is not None:
            text = code.registers.read(member.view, loop, indices)
        elif isinstance(OPERATIONS[call.operation].native, IndexMap):
            text = self._arguments.operand(call.inputs[0]).at(local(indices))
        else:
            values = [self._value(code, loop, slot, indices) for slot in call.inputs]
            text = self._expression(call, values)
        code.writer.line(f"{name} = {text}")
        code.values[out] = name
        if self._is_read_elsewhere(out, member.position, code.positions):
            code.registers.write(self._arguments.operand(out), loop, indices, name)

    def _value(
        self, code: _StepCode, loop: PartLoop[_Member], slot: int, indices: Sequence[str]
    ) -> str:
        """Return the expression for the element of a slot at the indices of a loop."""
        if slot in code.values:
            return code.values[slot]
        return code.registers.read(self._arguments.operand(slot), loop, indices)

    def _local_indices(self, writer: Writer, member: _Member) -> IndexVariables:
        """Return the function from loop indices to a member's operand indices; write its
        preparation before the loop."""
        native = OPERATIONS[member.call.operation].native
        if not isinstance(native, IndexMap) or member.view is not None:
            return lambda indices: indices
        local = native.prepare(writer, self._arguments.native_call(member.call))
        if local is None:
            raise NoNativeForm(member.call.operation)
        return local

    def _expression(self, call: Call, values: Sequence[str]) -> str:
        """Return the expression for an element of the result, of those of the operands."""
        native = OPERATIONS[call.operation].native
        kind = self._slots[call.out].dtype.kind
        template = native.get(kind) if isinstance(native, Mapping) else native
        if not isinstance(template, str):  # integer powers, which raise errors for some data
            raise NoNativeForm(call.operation)
        dtype = self._slots[call.out].dtype
        cast = "bool" if dtype.kind == "bool" else f"np.{dtype.name}"
        text = template.format(*values, cast=cast, one=literal(1, dtype))
        return f"{cast}({text})" if dtype.kind != "bool" and call.operation != "astype" else text

    def _is_read_elsewhere(self, index: int, position: int, members: set[int]) -> bool:
        """Return True if an element of a slot must be stored: it is read outside of the program, by
        another loop or step, or before it is computed."""
        if self._is_read_outside[index]:
            return True
        return any(reader < position or reader not in members for reader in self._readers[index])


def _part_loop(members: Sequence[_Member]) -> PartLoop[_Member]:
    """Return members of one shape as a loop over the part that their updates write, or over a whole
    if they update none, or several."""
    shape = members[0].shape
    parts = {(member.whole, member.offset) for member in members if member.whole is not None}
    if len(parts) == 1:
        whole, offset = parts.pop()
        assert whole is not None
        return PartLoop(members, shape, whole, offset)
    return PartLoop(members, shape, shape, (0,) * len(shape))


def _read_in_memory(call: Call) -> Sequence[int]:
    """Return the operands that the native form of a call reads in memory, never in a register."""
    native = OPERATIONS[call.operation].native
    if isinstance(native, IndexMap):
        return call.inputs
    return call.inputs[:1] if isinstance(native, PartUpdate) else ()


def read_outside(slots: Sequence[Slot]) -> list[bool]:
    """Return for each slot whether its memory is read outside of the program: that of an array, or
    of a temporary that peers read, or of a slot in whose memory it is stored.

    Each slot is passed once, as in `roots_of`.
    """
    known: list[bool | None] = [None] * len(slots)
    for index in range(len(slots)):
        chain: list[int] = []
        stored: int | None = index
        while stored is not None and known[stored] is None:
            chain.append(stored)
            stored = slots[stored].alias
        is_read = stored is not None and bool(known[stored])
        for position in reversed(chain):
            slot = slots[position]
            is_read = is_read or slot.kind != "temporary" or slot.is_peer_readable
            known[position] = is_read
    return [bool(x) for x in known]


def _readers(program: Program) -> list[list[int]]:
    """Return the positions at which each slot is read; IN_MEMORY for reads in memory or through a
    view."""
    readers: list[list[int]] = [[] for _ in program.slots]
    written = set[int]()
    for position, instruction in enumerate(program.instructions):
        for read in instruction.reads:
            readers[read].append(position)
        if isinstance(instruction, Call):
            for read in _read_in_memory(instruction):
                readers[read].append(IN_MEMORY)
        written.update(instruction.writes)
    for i, slot in enumerate(program.slots):
        if slot.alias is not None and i not in written:
            base = slot.alias
            while (below := program.slots[base].alias) is not None and base not in written:
                base = below
            readers[base].append(IN_MEMORY)  # through a view
    for output in program.outputs:
        readers[output].append(len(program.instructions))
    return readers
