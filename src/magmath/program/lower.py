"""Lowering: converts a planned graph into a program of slots and instructions.

Barriers are inserted exactly where one worker would read data that another may not have written
yet, or overwrite data that another may still read. They are found by following the accesses to
every shared storage through the instruction list, twice, because a program may run in a loop.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import final

import msgspec

from magmath.codegen.emit import IndexMap, Writing
from magmath.core.dtypes import uint8
from magmath.graph import Graph, Node
from magmath.graph.collective_nodes import is_collective
from magmath.graph.operation import MemoryOrder
from magmath.layout import Layout, Mesh
from magmath.ops import OPERATIONS
from magmath.passes.aliasing import is_cross_worker
from magmath.passes.environment import Environment
from magmath.passes.pipeline import Planned
from magmath.passes.storage_sharing import Storage
from magmath.program.instructions import (
    Barrier,
    Call,
    Emit,
    Instruction,
    Program,
    Redistribute,
    Slot,
)


def lower(
    planned: Planned,
    inputs: Sequence[Node],
    scalars: Sequence[Node],
    environment: Environment,
    donated: dict[int, int],
) -> Program:
    """Return the program that computes a planned graph from these leaves, in this order."""
    graph, schedule, storage = planned.graph, planned.schedule, planned.storage
    lowering = _Lowering(graph, storage, planned.orders, environment, planned.originals)
    for node in schedule.order:
        if node not in schedule.invariant and lowering.prologue is None:
            lowering.prologue = len(lowering.instructions)
        lowering.add(node)
    lowering.finish()
    instructions, prologue = lowering.instructions, lowering.prologue or 0
    reads_peers = False
    if environment.shares_memory:
        hazards = _Hazards(lowering, prologue)
        instructions, prologue = hazards.fenced()
        reads_peers = hazards.any_remote
    elif environment.workers > 1:
        instructions = _with_overlap(lowering, prologue, environment.overlap_min_bytes)
    return Program(
        slots=_with_lifetimes(lowering.slots, instructions, prologue),
        instructions=instructions,
        inputs=[lowering.slot[leaf] for leaf in inputs],
        outputs=lowering.output_slots,
        scalars=[lowering.slot[leaf] for leaf in scalars],
        donated=donated,
        workers=environment.workers,
        reads_peers=reads_peers,
        prologue=prologue,
    )


@final
@dataclass
class _Lowering:
    """The state of the lowering: slots and instructions so far."""

    graph: Graph
    storage: Storage
    orders: Mapping[Node, MemoryOrder]
    environment: Environment
    originals: Mapping[Node, Node]
    slots: list[Slot] = field(default_factory=list)
    slot: dict[Node, int] = field(default_factory=dict)
    instructions: list[Instruction] = field(default_factory=list)
    output_slots: list[int] = field(default_factory=list)
    prologue: int | None = None

    def __post_init__(self) -> None:
        self.targets = self.graph.targets or (None,) * len(self.graph.outputs)
        pairs = enumerate(zip(self.graph.outputs, self.targets, strict=True))
        self.own_outputs = {
            output for i, (output, t) in pairs if t is None and i not in self.storage.copied
        }
        for leaf in self.graph.leaves:
            self.slot_of(leaf)

    def slot_of(self, node: Node) -> int:
        """Return the slot of a node; create it, and those of the nodes in whose storage it is, on
        first use."""
        if node not in self.slot:
            alias = self.storage.alias.get(node)
            owner = None if alias is None else self.slot_of(alias)
            self.slot[node] = self._new(node, self._kind(node), owner)
        return self.slot[node]

    def _new(self, node: Node, kind: str, alias: int | None = None) -> int:
        assert node.layout is not None
        value = node.attributes["value"] if node.name == "constant" else None
        window = node in self.storage.window and self.environment.shares_memory
        self.slots.append(
            Slot(
                node.shape,
                node.dtype,
                node.layout,
                kind,
                alias,
                window,
                value=value,
                start=self.storage.start.get(node),
                leading=node in self.storage.leading,
                order=self.orders.get(node) if kind == "temporary" else None,
            )
        )
        return len(self.slots) - 1

    def _kind(self, node: Node) -> str:
        if node.name in ("scalar", "constant"):
            return node.name
        if node.is_leaf:
            return "input"
        return "output" if node in self.own_outputs else "temporary"

    def add(self, node: Node) -> None:
        """Add the instructions that compute a node (none for leaves and views)."""
        given = node.is_leaf_or_constant
        start, alias = self.storage.start, self.storage.alias
        view = node in start and alias[node] is node.inputs[0]  # not a part of a concatenation
        if given or view or node.name == "recompute":
            self.slot_of(node)
        elif node.name == "redistribute":
            self._redistribute(node)
        else:
            inputs = tuple(self.slot_of(source) for source in node.inputs)
            out = self.slot_of(node)
            workspace = self.workspace if _is_collective(node) else None
            is_recomputation = node in self.originals
            call = Call(
                node.name,
                dict(node.attributes),
                inputs,
                out,
                node.line,
                workspace,
                is_recomputation,
            )
            self.instructions.append(call)

    @cached_property
    def workspace(self) -> int:
        """The slot for data that the workers exchange in collective kernels.

        All operations use the same slot, since they run one after the other. Workers that share
        memory read one another's part of it.
        """
        collective = [node for node in self.graph.nodes if _is_collective(node)]
        nbytes = max(map(_workspace_bytes, collective))
        workers, shared = self.environment.workers, self.environment.shares_memory
        mesh = Mesh((workers,), None, self.environment.mesh.workers)
        layout = Layout.even((workers, nbytes), mesh, 0)
        self.slots.append(Slot(layout.shape, uint8, layout, "temporary", window=shared))
        return len(self.slots) - 1

    def _redistribute(self, node: Node) -> None:
        source = node.inputs[0]
        alias = self.storage.alias
        is_view, is_inside = alias.get(node) is source, alias.get(source) is node
        source_slot, slot = self.slot_of(source), self.slot_of(node)
        if not is_view and not is_inside:
            self.instructions.append(Redistribute(source_slot, slot, node.line))

    def finish(self) -> None:
        """Add copies of outputs that cannot be computed in place, and reports of scalars."""
        sources: dict[int, int] = {}
        for i, output in enumerate(self.graph.outputs):
            if i in self.storage.copied:
                sources[i] = self._saved(output)
        emitted = [self._saved(node) for node in self.graph.emitted]
        for i, (output, target) in enumerate(zip(self.graph.outputs, self.targets, strict=True)):
            slot = self.slot_of(output) if target is None else self.slot_of(target)
            if i in self.storage.copied:
                if target is None:
                    slot = self._new(output, "output")
                self.instructions.append(Redistribute(sources[i], slot, output.line))
            self.output_slots.append(slot)
        self.instructions += [Emit(slot) for slot in emitted]

    def _saved(self, output: Node) -> int:
        """Return the slot to copy or report: a fresh one if the original's storage may be
        overwritten first."""
        slot = self.slot_of(output)
        root = self.storage.root(output)
        if root not in {t for t in self.targets if t is not None}:
            return slot
        saved = self._new(output, "temporary")
        self.instructions.append(Redistribute(slot, saved, output.line))
        return saved


def _is_collective(node: Node) -> bool:
    """Return True for a node that a collective kernel computes."""
    if node.operation.collective is None or node.layout is None:
        return False
    inputs = [source.layout for source in node.inputs if source.layout is not None]
    return is_collective(node, inputs, node.layout)


def _workspace_bytes(node: Node) -> int:
    assert node.operation.collective is not None
    assert node.layout is not None
    return node.operation.collective.workspace(node, node.layout.mesh.size).nbytes


@final
@dataclass
class _Access:
    """An instruction's use of one storage: in which layout, and whether it writes."""

    root: int
    layout: Layout | None  # None: all of it, or parts of other workers
    writes: bool


@final
class _Hazards:
    """The barriers that conflicting accesses need."""

    def __init__(self, lowering: _Lowering, prologue: int) -> None:
        self.prologue = prologue
        self.slots = lowering.slots
        self.roots = _roots(lowering.slots)
        self.instructions = lowering.instructions
        self.any_remote = False
        self.remote = self._remote_roots()

    def root(self, slot: int) -> int:
        """Return the slot that owns the memory of `slot`."""
        return self.roots[slot]

    def _remote_roots(self) -> set[int]:
        """Return the storages that more than one worker touches."""
        found = {self.root(i) for i, slot in enumerate(self.slots) if slot.layout.shared}
        for instruction in self.instructions:
            if isinstance(instruction, Redistribute) and self._pulls(instruction):
                found.add(self.root(instruction.source))
        self.any_remote = bool(found)
        return found

    def _pulls(self, move: Redistribute) -> bool:
        return is_cross_worker(self.slots[move.source].layout, self.slots[move.target].layout)

    def _accesses(self, instruction: Instruction) -> Iterable[_Access]:
        match instruction:
            case Call(inputs=inputs, out=out):
                yield from (self._access(slot, False) for slot in inputs)
                yield self._access(out, True)
            case Redistribute(source, target):
                if self._pulls(instruction):
                    yield _Access(self.root(source), None, False)
                else:
                    yield self._access(source, False)
                yield self._move_write(source, target)
            case Emit(slot):
                yield self._access(slot, False)

    def _access(self, slot: int, writes: bool) -> _Access:
        while self._is_part(slot):  # each worker touches its own part of a larger array
            slot = self.slots[slot].alias or 0
        layout = self.slots[slot].layout
        return _Access(self.root(slot), None if layout.shared else layout, writes)

    def _is_part(self, slot: int) -> bool:
        return self.slots[slot].start is not None or self.slots[slot].leading

    def _move_write(self, source: int, target: int) -> _Access:
        """Return the write access of a move; a copy into a shared slot writes each worker's own
        part."""
        have = self.slots[source].layout
        if self.slots[target].layout.shared:
            return _Access(self.root(target), None if have.is_replicated else have, True)
        return self._access(target, True)

    def fenced(self) -> tuple[list[Instruction], int]:
        """Return the instructions with barriers between conflicting accesses, also across the end
        of the loop, and the length of the prologue."""
        once, loop = self.instructions[: self.prologue], self.instructions[self.prologue :]
        state = _Dirty()
        first = self._pass(state, once)
        if first and self.remote:  # the first step begins after all prologues
            first.append(Barrier())
            state.clear()
        self._pass(state, loop)
        return [*first, *self._pass(state, loop)], len(first)

    def _pass(self, state: _Dirty, instructions: list[Instruction]) -> list[Instruction]:
        result: list[Instruction] = []
        for instruction in instructions:
            accesses = [a for a in self._accesses(instruction) if a.root in self.remote]
            if any(state.has_conflict(access) for access in accesses):
                result.append(Barrier())
                state.clear()
            for access in accesses:
                state.note(access)
            result.append(instruction)
        return result


@final
@dataclass
class _Dirty:
    """The accesses since the last barrier: storage → their layouts."""

    written: dict[int, set[Layout | None]] = field(default_factory=dict)
    read: dict[int, set[Layout | None]] = field(default_factory=dict)

    def has_conflict(self, access: _Access) -> bool:
        """Return True if another worker may have touched the data of this access."""
        tables = (self.written, self.read) if access.writes else (self.written,)
        touched = itertools.chain(*[table.get(access.root, ()) for table in tables])
        return any(layout is None or layout != access.layout for layout in touched)

    def note(self, access: _Access) -> None:
        """Record an access."""
        table = self.written if access.writes else self.read
        table.setdefault(access.root, set()).add(access.layout)

    def clear(self) -> None:
        """Drop all accesses, after a barrier."""
        self.written.clear()
        self.read.clear()


def _with_overlap(lowering: _Lowering, prologue: int, min_bytes: int) -> list[Instruction]:
    """Return the instructions, with `overlapped` set on moves that may run concurrently with later
    ones.

    These are moves of at least `min_bytes` between workers that share no memory. `overlapped` is
    the number of following instructions that do not touch the target.
    """
    slots, instructions = lowering.slots, lowering.instructions
    roots = _roots(slots)
    result: list[Instruction] = []
    next_use: dict[int, int] = {}  # storage → position of the next instruction that touches it
    next_call = len(instructions)
    for position in reversed(range(len(instructions))):
        instruction = instructions[position]
        touched = [roots[slot] for slot in _touched(instruction)]
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
    large = want.layout.max_local_size * want.dtype.itemsize >= min_bytes
    return large and is_cross_worker(have.layout, want.layout)


def _roots(slots: Sequence[Slot]) -> list[int]:
    """Return for every slot the slot that owns its memory; an alias precedes the slots that refer
    to it."""
    roots: list[int] = []
    for i, slot in enumerate(slots):
        roots.append(i if slot.alias is None else roots[slot.alias])
    return roots


def _with_lifetimes(
    slots: list[Slot], instructions: list[Instruction], prologue: int
) -> list[Slot]:
    """Return the slots with the positions of their first and last use.

    Other workers may read a window until the barrier after its last use, and write into shared
    memory from the barrier before its first use on. A slot without these barriers has its memory
    throughout, as do results of the prologue that the steps read; barriers of the prologue do not
    count, since later steps do not pass them. Neighbouring instructions that join loops may be
    executed as one: the slots that any of them touches are in use from the first of them to the
    last.
    """
    fences = [i for i, x in enumerate(instructions) if isinstance(x, Barrier) and i >= prologue]
    before, after = [-1, *fences], [*fences, len(instructions)]
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for begin, end in _runs(instructions):
        for instruction in instructions[begin:end]:
            for touched in _touched(instruction):
                first.setdefault(touched, begin)
                last[touched] = end - 1
    for i in reversed(range(len(slots))):  # an alias precedes the slots that refer to it
        alias = slots[i].alias
        if alias is not None and i in first:
            first[alias] = min(first[i], first.get(alias, first[i]))
            last[alias] = max(last[i], last.get(alias, last[i]))
    result = []
    for i, own in enumerate(slots):
        begin, end = first.get(i, 0), last.get(i, 0)
        if own.layout.shared:
            begin = before[bisect_left(fences, begin)]
        if own.window or own.layout.shared:
            end = after[bisect_right(fences, end)]
        throughout = begin < 0 or end == len(instructions) or first.get(i, prologue) < prologue
        lifetime = (0, len(instructions)) if throughout else (begin, end)
        result.append(msgspec.structs.replace(own, first=lifetime[0], last=lifetime[1]))
    return result


def _runs(instructions: list[Instruction]) -> Iterable[tuple[int, int]]:
    """Yield begin and end of every run of instructions that join loops, and of every other single
    one."""
    begin = 0
    for i, instruction in enumerate(instructions):
        follows = i + 1 < len(instructions) and _joins_loops(instructions[i + 1])
        if not (_joins_loops(instruction) and follows):
            yield begin, i + 1
            begin = i + 1


def _joins_loops(instruction: Instruction) -> bool:
    if not isinstance(instruction, Call):
        return False
    operation = OPERATIONS[instruction.operation]
    return operation.elementwise or isinstance(operation.native, (IndexMap, Writing))


def _touched(instruction: Instruction) -> Iterable[int]:
    match instruction:
        case Call(inputs=inputs, out=out, workspace=workspace):
            return (*inputs, out) if workspace is None else (*inputs, out, workspace)
        case Redistribute(source, target):
            return (source, target)
        case Emit(slot):
            return (slot,)
    return ()
