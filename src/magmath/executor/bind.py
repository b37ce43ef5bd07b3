"""Binding: converts every slot of a program to this worker's tensor, and every instruction to bound
calls.

A bound program runs without further look-ups (`executor/executable.py`): a step is a list of calls
(`executor/call_list.py`).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple, final

import torch

from magmath.core.type_aliases import BoundCall
from magmath.executor.call_list import NO_SEGMENTS, CallList
from magmath.executor.context import Context
from magmath.executor.numpy_fast_path import without_fp_warnings
from magmath.executor.tensors import Tensors
from magmath.memory.heap import Block
from magmath.memory.local_array import LocalArray
from magmath.memory.torch_dtypes import to_torch
from magmath.program.instructions import Emit, Program


@final
class FormerBinding(NamedTuple):
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
    inputs: Sequence[LocalArray]
    outputs: Sequence[LocalArray]
    former: FormerBinding | None = None
    compiled: CallList | None = None
    """The calls of a step that runs alone, with native segments; None before they are compiled.
    Runs of many steps have other segments."""
    runs: int = 0
    """On a GPU: the number of runs of one step before it is recorded."""
    recording: Any = None
    """On a GPU: the recording of a step, a `cuda_graphs.Recording`; None before there is one."""

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks of the arrays, on which the calls depend."""
        return blocks_of(self.inputs, self.outputs)

    @cached_property
    def signature(self) -> Hashable:
        """Which of the arrays are the same: bindings of one program with equal signatures have the
        same native code."""
        return tuple(map(self.blocks.index, self.blocks))

    @cached_property
    def prologue(self) -> CallList:
        """The calls that a run of many steps makes once."""
        former = None if self.former is None else self.former.binding.prologue
        return self._calls(range(self.tensors.program.prologue), former)

    @cached_property
    def step(self) -> CallList:
        """The calls of every step."""
        return self._calls(self._steps, None if self.former is None else self.former.binding.step)

    def with_segments(
        self, segments: Mapping[range, BoundCall], former: CallList | None = None
    ) -> CallList:
        """Return the calls of every step, with native segments; `former` are those of the former
        binding, if it has the same native code."""
        return self._calls(self._steps, former, segments)

    @property
    def _steps(self) -> range:
        program = self.tensors.program
        return range(program.prologue, len(program.instructions))

    def _calls(
        self,
        positions: range,
        former: CallList | None,
        segments: Mapping[range, BoundCall] = NO_SEGMENTS,
    ) -> CallList:
        """Return the calls of the instructions at these positions; `former` are those of the former
        binding, if it has some with the same segments."""
        if former is not None and self.former is not None:
            touched = [i for i in self.former.positions if i in positions]
            rebound = former.rebound(touched, self.tensors, segments)
            if rebound is not None:
                return rebound
        return CallList(positions, self.tensors, segments)

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

    def run_once(self, calls: CallList) -> list[float]:
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
        """Run the prologue and some steps, and add the seconds of each instruction to its entry;
        return the emitted scalars."""
        timed = partial(_timed, seconds, self.tensors.context.device)
        without_fp_warnings(self.prologue.run_each, timed)
        values: list[float] = []
        for _ in range(steps):
            without_fp_warnings(self.step.run_each, timed)
            values += self.emitted_now()
        return values

    def replay(self, steps: int, calls: CallList) -> list[float]:
        """Run the calls of a step `steps` times; return the emitted scalars, step by step."""
        return without_fp_warnings(self._replay, steps, calls)

    def _replay(self, steps: int, step: CallList) -> list[float]:
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


@contextmanager
def _timed(seconds: list[float], device: torch.device, position: int) -> Iterator[None]:
    """Add the seconds of this block, until the device is done, to the entry of an instruction."""
    start = time.perf_counter()
    try:
        yield
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    finally:
        seconds[position] += time.perf_counter() - start


def bind(
    program: Program,
    context: Context,
    inputs: Sequence[LocalArray],
    outputs: Sequence[LocalArray],
    scalars: Mapping[int, torch.Tensor],
    block: Block | None,
    offsets: Mapping[int, int],
    former: FormerBinding | None = None,
) -> Binding:
    """Return a binding of a program to these arrays.

    `former`: a binding to some of these arrays, with the same scalars, block and offsets.
    """
    stored = dict(zip(program.outputs, outputs, strict=True))
    stored.update(zip(program.inputs, inputs, strict=True))
    if former is None:
        numbers = {**scalars, **_constants(program)}
        tensors = Tensors(program, context, stored, numbers, block, offsets)
        return Binding(tensors, inputs, outputs)
    same = former.binding.tensors
    tensors = Tensors(program, context, stored, same.scalars, block, offsets, same, former.changed)
    return Binding(tensors, inputs, outputs, former)


def blocks_of(inputs: Sequence[LocalArray], outputs: Sequence[LocalArray]) -> tuple[Block, ...]:
    """Return the blocks of arrays, on which a binding depends."""
    return tuple([stored.block for stored in (*inputs, *outputs)])


def _constants(program: Program) -> dict[int, torch.Tensor]:
    return {
        i: torch.tensor(slot.value, dtype=to_torch(slot.dtype))
        for i, slot in enumerate(program.slots)
        if slot.kind == "constant"
    }
