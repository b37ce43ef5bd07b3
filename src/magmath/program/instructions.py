"""The program: slots and typed instructions, the same list on every worker.

A slot is an array that the program touches, with its layout; a worker derives the shape of its own
tile from the layout and its rank. An instruction computes one slot (`Call`), redistributes a slot
into another layout (`Redistribute`), synchronizes the workers (`Barrier`) or reports a scalar
(`Emit`). Programs contain no code, and are sent as msgpack (`program/encoding.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import prod, sqrt
from typing import Any, Literal, TypeAlias, final

import msgspec

from magmath.core.dtypes import DType
from magmath.layout import Layout

SlotKind: TypeAlias = Literal["input", "output", "scalar", "constant", "temporary"]


@final
class Slot(msgspec.Struct, frozen=True):
    """An array of a program.

    kind             input: given with each run; output: returned to the caller; scalar: a Python
                     number given with each run; constant: `value`; temporary: in the program's
                     arena, private, or readable by peers (`is_peer_readable`)
    alias            the slot in whose memory this one is stored (its own tile of it, as a view)
    start            of a slice of `alias`: the index in it at which this slot begins
    is_at_beginning  the slot is stored in the first bytes of `alias`, which has another shape
    order            of a temporary: its dimensions in memory, outermost first; None: row-major
    first, last      the positions of the instructions between which a temporary is alive
    """

    shape: tuple[int, ...]
    dtype: DType
    layout: Layout
    kind: SlotKind
    alias: int | None = None
    is_peer_readable: bool = False
    value: bool | int | float | complex | None = None
    start: tuple[int, ...] | None = None
    is_at_beginning: bool = False
    order: tuple[int, ...] | None = None
    first: int = 0
    last: int = 0

    @property
    def local_bytes(self) -> int:
        """The bytes of its elements on the worker that stores most of them."""
        return self.layout.max_local_size * self.dtype.itemsize

    @property
    def has_arena_memory(self) -> bool:
        """True for a temporary that is not stored in the memory of another slot."""
        return self.kind == "temporary" and self.alias is None


class _SlotAccess(msgspec.Struct, frozen=True):
    """What an instruction reads and writes: slots, which may be views in others."""

    @property
    def reads(self) -> tuple[int, ...]:
        """The slots that are read."""
        return ()

    @property
    def writes(self) -> tuple[int, ...]:
        """The slots that are written, the result first."""
        return ()

    @property
    def touches(self) -> tuple[int, ...]:
        """The slots that are read or written."""
        return (*self.reads, *self.writes)


@final
class Call(_SlotAccess, frozen=True):
    """Compute slot `out` from slots `inputs` by the operation of this name (`ops.OPERATIONS`).

    With a `workspace`, which is another slot, all workers compute it by the collective kernel.
    `is_recomputation`: another call has computed the same value before, which was not stored until
    now.
    """

    operation: str
    attributes: Mapping[str, Any]
    inputs: tuple[int, ...]
    out: int
    line: tuple[str, int] | None = None
    workspace: int | None = None
    is_recomputation: bool = False

    @property
    def reads(self) -> tuple[int, ...]:
        return self.inputs

    @property
    def writes(self) -> tuple[int, ...]:
        return (self.out,) if self.workspace is None else (self.out, self.workspace)


@final
class Redistribute(_SlotAccess, frozen=True):
    """Redistribute slot `source` into the layout of slot `target`.

    The move may run concurrently with the next `overlapped` instructions, which do not touch the
    target.
    """

    source: int
    target: int
    line: tuple[str, int] | None = None
    overlapped: int = 0

    @property
    def reads(self) -> tuple[int, ...]:
        return (self.source,)

    @property
    def writes(self) -> tuple[int, ...]:
        return (self.target,)


@final
class Barrier(_SlotAccess, frozen=True):
    """Wait until every worker has reached this instruction."""


@final
class Emit(_SlotAccess, frozen=True):
    """Report a replicated 0-d slot to the controller."""

    slot: int

    @property
    def reads(self) -> tuple[int, ...]:
        return (self.slot,)


Instruction = Call | Redistribute | Barrier | Emit


LONG_ELEMENTS = 1 << 22
"""Number of elements that a worker processes in a few milliseconds."""


def roots_of(slots: Sequence[Slot]) -> list[int]:
    """Return for each slot the slot in whose memory it is stored: itself, unless it is a view.

    A chain of views, such as results that are each computed in the buffer of the one before, may
    be as long as the program: each slot is passed once.
    """
    roots = [-1] * len(slots)
    for slot in range(len(slots)):
        chain: list[int] = []
        while roots[slot] < 0:
            chain.append(slot)
            alias = slots[slot].alias
            if alias is None:
                roots[slot] = slot
            else:
                slot = alias
        for view in chain:
            roots[view] = roots[slot]
    return roots


@final
class WorkerProgram(msgspec.Struct, frozen=True):
    """A program for one worker within a program of all, on slots and scalars of the latter.

    `inputs` and `outputs` are slots of the enclosing program, `scalars` positions in its
    scalars, in the order in which a run of `program` passes them.
    """

    program: Program
    inputs: list[int]
    outputs: list[int]
    scalars: list[int]


@final
class AsynchronousStep(msgspec.Struct, frozen=True):
    """The step of a program that each worker runs on its own, on arrays that all share.

    A worker takes the number of a step, copies the shared arrays, computes, and updates the shared
    arrays of one server after the other. No update uses a copy that more than `staleness` other
    updates have changed.

    compute          computes the emitted scalars, and what the updates need
    updates          for each server, computes the next values of its arrays in place
    copies           for each server, pairs of a shared slot and of the slot of its private copy
    steps_counted    pairs of the slot of a count and of the private slot of a step's number
    updates_counted  the same for the numbers of updates
    advance          computes the next values of the arrays that depend on the number of steps alone
    advanced         pairs of the slot of such an array and of the private slot of its value in a
                     step
    """

    compute: WorkerProgram
    updates: list[WorkerProgram]
    copies: list[list[tuple[int, int]]]
    steps_counted: list[tuple[int, int]]
    updates_counted: list[tuple[int, int]]
    staleness: int
    advance: WorkerProgram
    advanced: list[tuple[int, int]]


@final
class Program(msgspec.Struct, frozen=True, dict=True):
    """The program that the workers run.

    `inputs`, `outputs` and `scalars` are slots, in the order in which a run passes them.
    `donated` maps the position of an output to that of the input whose buffer it reuses.
    `reads_peers` is true if workers read one another's memory, so that runs need barriers. `team`,
    of a program for one worker, is the same program for the threads of that worker, with the same
    order of inputs, outputs and scalars. The first `prologue` instructions depend on nothing
    that a step changes: a run of many steps executes them once. With `flushes_denormals`, denormal
    numbers count as zero in a run. With `reports_late`, a GPU may overwrite variables before it
    reports invalid data, since the caller restores them then. A program with an
    `asynchronous` step has no instructions, and its temporary slots are private memory of a
    worker.
    """

    slots: list[Slot]
    instructions: list[Instruction]
    inputs: list[int]
    outputs: list[int]
    scalars: list[int]
    donated: dict[int, int]
    workers: int
    reads_peers: bool = False
    prologue: int = 0
    team: Program | None = None
    flushes_denormals: bool = False
    reports_late: bool = False
    asynchronous: AsynchronousStep | None = None

    @property
    def new_outputs(self) -> list[int]:
        """The outputs that do not reuse the memory of an input."""
        return [slot for i, slot in enumerate(self.outputs) if i not in self.donated]

    @cached_property
    def is_abandonable(self) -> bool:
        """True if a run may be stopped between two instructions: it takes long and overwrites
        nothing."""
        return not self.donated and any(map(self.is_long, self.instructions))

    def is_long(self, instruction: Instruction) -> bool:
        """Return True for an instruction that may take some milliseconds; the same on all
        workers."""
        if not isinstance(instruction, Call):
            return False
        slots = [self.slots[i] for i in (*instruction.inputs, instruction.out)]
        sizes = sorted([prod(slot.shape) for slot in slots])
        # sizes of m × k, k × n and m × n give m · k · n; one n × n matrix gives n³
        work = sqrt(prod(sizes[-3:])) if len(sizes) > 2 else sizes[-1] ** 1.5
        return sum(sizes) + work / 64 > LONG_ELEMENTS * self.workers

    def writer(self, slot: int) -> Call | Redistribute | None:
        """Return the first instruction that writes into the memory of a slot."""
        for instruction in self.instructions:
            is_writer = any(self._is_inside(written, slot) for written in instruction.writes)
            if is_writer and isinstance(instruction, Call | Redistribute):
                return instruction
        return None

    def _is_inside(self, slot: int, outer: int) -> bool:
        """Return True if a slot is another one, or is stored in its memory."""
        while slot != outer and (alias := self.slots[slot].alias) is not None:
            slot = alias
        return slot == outer

    def accessed(self, instruction: Instruction) -> set[int]:
        """Return the slots in whose memory an instruction reads or writes: those that views alias,
        not the views."""
        return {self.root(slot) for slot in instruction.touches}

    def root(self, slot: int) -> int:
        """Return the slot in whose memory a slot is stored: itself, unless it is a view."""
        return self._roots[slot]

    @cached_property
    def _roots(self) -> list[int]:
        return roots_of(self.slots)

    def __str__(self) -> str:
        return "\n".join(self._describe(i) for i in self.instructions)

    def _format_slot(self, index: int) -> str:
        slot = self.slots[index]
        alias = f" in %{slot.alias}" if slot.alias is not None else ""
        stored = slot
        while stored.alias is not None and stored.shape == slot.shape:
            stored = self.slots[stored.alias]
        has_order = stored.order is not None and stored.shape == slot.shape
        order = f" order {stored.order}" if has_order else ""
        return f"%{index}:{slot.dtype}{list(slot.shape)} {slot.layout}{order}{alias}"

    def _describe(self, instruction: Instruction) -> str:
        match instruction:
            case Call(operation, attributes, inputs, out, _, workspace, is_recomputation):
                arguments = [f"%{i}" for i in inputs] + [f"{k}={v}" for k, v in attributes.items()]
                text = f"{self._format_slot(out)} = {operation}({', '.join(arguments)})"
                text += "" if workspace is None else f" collectively in %{workspace}"
                return f"{text} again" if is_recomputation else text
            case Redistribute(source, target, _, overlapped):
                while_next = f", concurrently with the next {overlapped}" if overlapped else ""
                return f"{self._format_slot(target)} <- {self._format_slot(source)}{while_next}"
            case Emit(slot):
                return f"emit %{slot}"
            case _:
                return "barrier"
