"""Binding: converts every slot of a program to this worker's tensor, and every instruction to ready
calls.

A bound program runs without further look-ups (`executor/executable.py`); `executor/ready_calls.py`
makes the calls. Errors of a call carry the user's line of its instruction.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from copy import copy
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple, final

import torch

from magmath.core.paused_gc import paused_gc
from magmath.core.stage_times import stage
from magmath.core.type_aliases import ReadyCall
from magmath.errors import LinAlgError, WorkerLost
from magmath.executor.context import Context
from magmath.executor.memory_fill import fills_of
from magmath.executor.move import AsyncMove
from magmath.executor.numpy_fast_path import without_fp_warnings
from magmath.executor.ready_calls import overlapped_move, ready_calls, with_user_line
from magmath.executor.tensors import Tensors
from magmath.executor.user_line import attach_user_line
from magmath.memory.heap import Block
from magmath.memory.local_array import LocalArray
from magmath.memory.torch_dtypes import to_torch
from magmath.program.instructions import Call, Emit, Instruction, Program, Redistribute

NO_SEGMENTS: Mapping[range, ReadyCall] = {}


@final
class Calls:
    """Ready calls in order, with the instruction of each for the user's line.

    `segments` are ranges of instructions that one call, a compiled function, replaces.
    """

    __slots__ = (
        "_alone",
        "_failures",
        "_finish",
        "_instructions",
        "_positions",
        "_ready",
        "_spans",
        "_transfers",
    )

    @paused_gc()
    @stage("bind")
    def __init__(
        self,
        first: int,
        instructions: Sequence[Instruction],
        tensors: Tensors,
        segments: Mapping[range, ReadyCall] = NO_SEGMENTS,
    ) -> None:
        self._ready: list[ReadyCall] = []
        self._instructions: list[Instruction] = []
        self._positions: list[int] = []
        self._spans: dict[int, range] | None = None
        self._transfers: list[AsyncMove] = []
        self._alone = tensors.context.comm.size == 1
        self._failures = tensors.context.failures
        device = tensors.context.device
        self._finish = partial(torch.cuda.synchronize, device) if device.type == "cuda" else None
        due: list[tuple[int, int, Redistribute, AsyncMove]] = []  # (last position, start, …)
        program = tensors.program
        inside = {position: segment for segment in segments for position in segment}
        beginning, fills = fills_of(tensors, range(first, first + len(instructions)), inside)
        if beginning:
            self._add(beginning, instructions[0], first)
        for position, instruction in enumerate(instructions, start=first):
            self._add(fills.get(position, ()), instruction, position)
            if program.is_abandonable and program.is_long(instruction):
                self._add((partial(_check_abandoned, tensors.context),), instruction, position)
            segment = inside.get(position)
            if segment is None:
                transfer = self._bind(instruction, position, tensors)
                if transfer is not None and isinstance(instruction, Redistribute):
                    due.append((position + instruction.overlapped, position, instruction, transfer))
            elif position == segment[-1]:
                self._add((segments[segment],), _last_call(segment, program), position)
            last = position + 1 == first + len(instructions)
            for entry in [entry for entry in due if last or entry[0] <= position]:
                _, began, move, transfer = entry
                self._add((transfer.wait,), move, began)
                due.remove(entry)

    def _bind(self, instruction: Instruction, position: int, tensors: Tensors) -> AsyncMove | None:
        """Add the ready calls of an instruction; return the transfer that they start, if any."""
        with with_user_line(instruction):
            transfer = overlapped_move(instruction, tensors)
            ready = ready_calls(instruction, tensors) if transfer is None else (transfer.begin,)
        self._add(ready, instruction, position)
        if transfer is not None:
            self._transfers.append(transfer)
        return transfer

    def rebound(
        self,
        positions: Collection[int],
        tensors: Tensors,
        segments: Mapping[range, ReadyCall] = NO_SEGMENTS,
    ) -> Calls | None:
        """Return these calls, with those of the instructions at some positions on other tensors.

        `segments` are the same ranges as before, on the other tensors. Returns None if the calls
        depend on one another: transfers on the progress thread, and filled memory.
        """
        if self._transfers or tensors.context.heap.fills:
            return None
        program = tensors.program
        ends = {position: segment for segment in segments for position in segment}
        rebound = copy(self)
        rebound._ready = [*self._ready]
        for position in {ends[p][-1] if p in ends else p for p in positions}:
            instruction = program.instructions[position]
            segment = ends.get(position)
            if segment is not None:
                calls: Sequence[ReadyCall] = (segments[segment],)
            else:
                with with_user_line(instruction):
                    calls = ready_calls(instruction, tensors)
            span = self._span(position)
            checked = program.is_abandonable and program.is_long(instruction)
            if len(span) != len(calls) + checked:
                return None
            rebound._ready[span.start + checked : span.stop] = calls
        return rebound

    def _span(self, position: int) -> range:
        """Return the range of the ready calls of an instruction."""
        if self._spans is None:
            self._spans = {}
            for i, of in enumerate(self._positions):
                start = self._spans[of].start if of in self._spans else i
                self._spans[of] = range(start, i + 1)
        return self._spans.get(position, range(0))

    def _add(self, ready: Sequence[ReadyCall], instruction: Instruction, position: int) -> None:
        self._ready += ready
        self._instructions += [instruction] * len(ready)
        self._positions += [position] * len(ready)

    def run(self) -> None:
        """Make all calls; call it in `without_fp_warnings`. An error of a call carries the user's
        line."""
        for position, call in enumerate(self._ready):
            try:
                call()
            except Exception as error:
                self._fail(error, position)

    def _fail(self, error: Exception, position: int) -> None:
        """Raise the error of a call, or record it if the other workers may wait for this one.

        A kernel does not synchronize workers, so a worker on which one fails can continue with an
        undefined result and remain in step. In a collective kernel, data can cause LinAlgError or
        IndexError, on all workers or after the last exchange. The executor raises a recorded error
        at the end of the program.
        """
        instruction = self._instructions[position]
        attach_user_line(error, instruction)
        if isinstance(error, InterruptedError):
            self._wait_for_transfers()
            raise error
        local = isinstance(instruction, Call) and instruction.workspace is None
        lost = isinstance(error, WorkerLost)
        if self._alone or lost or not (local or isinstance(error, LinAlgError | IndexError)):
            self._wait_for_transfers()
            raise error
        self._failures.append(error)

    def _wait_for_transfers(self) -> None:
        """Wait for all pending transfers after a failure, before the memory is freed."""
        for transfer in self._transfers:
            with suppress(Exception):
                transfer.wait()

    def time(self, seconds: list[float]) -> None:
        """Make all calls, and add the seconds of each to the entry of its instruction."""
        for position, call in enumerate(self._ready):
            start = time.perf_counter()
            try:
                without_fp_warnings(call)
                if self._finish is not None:
                    self._finish()
            except Exception as error:
                self._fail(error, position)
            seconds[self._positions[position]] += time.perf_counter() - start

    def run_some(self, positions: Collection[int]) -> None:
        """Make the calls of the instructions at these positions."""
        for position, call in zip(self._positions, self._ready, strict=True):
            if position in positions:
                call()

    def run_range(self, positions: range) -> None:
        """Make the calls of these instructions, like `run`."""
        for i, position in enumerate(self._positions):
            if position in positions:
                try:
                    self._ready[i]()
                except Exception as error:
                    self._fail(error, i)

    def run_each(self, around: Callable[[int], AbstractContextManager[object]]) -> None:
        """Make all calls, each in the context that `around` returns for its instruction."""
        for i, call in enumerate(self._ready):
            try:
                with around(self._positions[i]):
                    call()
            except Exception as error:
                self._fail(error, i)

    def time_some(self, positions: Collection[int], seconds: list[float]) -> None:
        """Make the calls of the instructions at these positions, and add the seconds of each to the
        entry of its instruction."""
        for position, call in zip(self._positions, self._ready, strict=True):
            if position in positions:
                start = time.perf_counter()
                call()
                seconds[position] += time.perf_counter() - start


def _last_call(segment: range, program: Program) -> Instruction:
    """Return the last call of a segment; a failure in the segment concerns this worker alone."""
    instructions = [program.instructions[position] for position in reversed(segment)]
    return next((x for x in instructions if isinstance(x, Call)), instructions[0])


def _check_abandoned(context: Context) -> None:
    """Raise InterruptedError on all workers if the run is abandoned."""
    if context.comm.allreduce_max(int(context.is_abandoned())):
        error = InterruptedError("interrupted between two instructions: the result is not computed")
        error.is_in_step = True  # type: ignore[attr-defined]
        raise error


@final
class Former(NamedTuple):
    """A binding that is equal to another one, except for the memory of the slots in `changed`,
    which the instructions at `positions` access."""

    binding: Binding
    changed: Collection[int]
    positions: Collection[int]


@final
@dataclass
class Binding:
    """A program bound to certain arrays: the calls of its prologue and of every step, created on
    first use, and the tensors of emitted scalars. They are those of a former binding as far as
    these do not differ."""

    tensors: Tensors
    signature: Hashable
    """Which of the arrays are the same: bindings of one program with equal signatures have the same
    native code."""
    former: Former | None = None
    compiled: Calls | None = None
    """The calls of a step with compiled segments; None before they are compiled."""
    recording: Any = 0
    """On a GPU: the number of runs of one step, then its recording, a
    `cuda_graphs.Recording`."""

    @cached_property
    def prologue(self) -> Calls:
        """The calls that a run of many steps makes once."""
        former = None if self.former is None else self.former.binding.prologue
        return self._calls(range(self.tensors.program.prologue), former)

    @cached_property
    def step(self) -> Calls:
        """The calls of every step."""
        return self._calls(self._steps, None if self.former is None else self.former.binding.step)

    def with_segments(self, segments: Mapping[range, ReadyCall]) -> Calls:
        """Return the calls of every step, with compiled segments."""
        former = None if self.former is None else self.former.binding
        same = former is not None and former.signature == self.signature
        return self._calls(self._steps, former.compiled if former and same else None, segments)

    @property
    def _steps(self) -> range:
        program = self.tensors.program
        return range(program.prologue, len(program.instructions))

    def _calls(
        self,
        positions: range,
        former: Calls | None,
        segments: Mapping[range, ReadyCall] = NO_SEGMENTS,
    ) -> Calls:
        """Return the calls of the instructions at these positions; `former` are those of the former
        binding, if it has some of the same form."""
        if former is not None and self.former is not None:
            touched = [i for i in self.former.positions if i in positions]
            found = former.rebound(touched, self.tensors, segments)
            if found is not None:
                return found
        instructions = self.tensors.program.instructions[positions.start : positions.stop]
        return Calls(positions.start, instructions, self.tensors, segments)

    @cached_property
    def is_plain(self) -> bool:
        """True if a run of one step is no more than its calls."""
        return not (self.tensors.program.prologue or self.emitted)

    @cached_property
    def emitted(self) -> list[torch.Tensor]:
        """The scalars that a step reports."""
        instructions = self.tensors.program.instructions
        return [self.tensors.own(i.slot) for i in instructions if isinstance(i, Emit)]

    def emitted_now(self) -> list[float]:
        """Return the scalars that the last step has emitted."""
        return [tensor.item() for tensor in self.emitted]

    def run_prologue(self) -> None:
        """Run the prologue, which the steps of a run share."""
        without_fp_warnings(self.prologue.run)

    def run_once(self, calls: Calls) -> list[float]:
        """Run one step by its calls; return the scalars that it emits.

        Must be called in `without_fp_warnings`.
        """
        if self.is_plain:
            calls.run()
            return []
        self.prologue.run()
        return self._replay(1, calls)

    def prepare(self) -> None:
        """Create the calls now."""
        _ = self.prologue, self.step

    def run_timed(self, steps: int, seconds: list[float]) -> list[float]:
        """Run like `run_prologue` and `replay`, and add to the seconds of each instruction."""
        self.prologue.time(seconds)
        values: list[Any] = []
        for _ in range(steps):
            self.step.time(seconds)
            values += [tensor.item() for tensor in self.emitted]
        return values

    def replay(self, steps: int, calls: Calls) -> list[float]:
        """Run the calls of a step `steps` times; return the emitted scalars, step by step."""
        return without_fp_warnings(self._replay, steps, calls)

    def _replay(self, steps: int, step: Calls) -> list[float]:
        emitted = self.emitted
        if not emitted:
            for _ in range(steps):
                step.run()
            return []
        values: list[Any] = []
        on_cpu = all(tensor.device.type == "cpu" for tensor in emitted)
        for _ in range(steps):
            step.run()
            # all scalars of a device are fetched at the end: no synchronization in each step
            values += [t.item() if on_cpu else t.clone() for t in emitted]
        return values if on_cpu else torch.stack([value.double() for value in values]).tolist()


def bind(
    program: Program,
    context: Context,
    inputs: Sequence[LocalArray],
    outputs: Sequence[LocalArray],
    scalars: Mapping[int, torch.Tensor],
    block: Block | None,
    offsets: Mapping[int, int],
    former: Former | None = None,
) -> Binding:
    """Return a binding of a program to these arrays.

    `former`: a binding to some of these arrays, with the same scalars, block and offsets.
    """
    stored = dict(zip(program.outputs, outputs, strict=True))
    stored.update(zip(program.inputs, inputs, strict=True))
    blocks = [one.block for one in (*inputs, *outputs)]
    signature = tuple([blocks.index(one) for one in blocks])
    if former is None:
        numbers = {**scalars, **_constants(program)}
        tensors = Tensors(program, context, stored, numbers, block, offsets)
        return Binding(tensors, signature)
    known = former.binding.tensors
    tensors = Tensors(
        program, context, stored, known.scalars, block, offsets, known, former.changed
    )
    return Binding(tensors, signature, former)


def _constants(program: Program) -> dict[int, torch.Tensor]:
    return {
        i: torch.tensor(slot.value, dtype=to_torch(slot.dtype))
        for i, slot in enumerate(program.slots)
        if slot.kind == "constant"
    }
