"""Bindings that share the bound calls of a former one.

A loop in Python often runs a program on the arrays of its last run and a few others: the next
batch, or a new array for a loss that the program of the user keeps. Only the instructions that
access those are bound; all other calls are the former ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import final

import torch

from magmath.executor.bind import Binding, FormerBinding, bind, blocks_of
from magmath.executor.context import Context
from magmath.memory.heap import Block
from magmath.memory.local_array import LocalArray
from magmath.program.instructions import Program


@final
class Rebinding:
    """Binds a program again and again, to arrays in the order of its inputs and outputs."""

    def __init__(self, program: Program, context: Context) -> None:
        self._program, self._context = program, context
        self._first: Binding | None = None
        self._accesses: dict[int, list[int]] | None = None

    def forget(self) -> None:
        """Bind all instructions next time: the memory of the temporaries changes."""
        self._first = None

    def binding(
        self,
        inputs: Sequence[LocalArray],
        outputs: Sequence[LocalArray],
        scalars: Mapping[int, torch.Tensor],
        block: Block | None,
        offsets: Mapping[int, int],
    ) -> Binding:
        """Return a binding to these arrays, which shares calls with the first one."""
        former = self._former(blocks_of(inputs, outputs))
        binding = bind(
            self._program, self._context, inputs, outputs, scalars, block, offsets, former
        )
        if self._first is None:
            self._first = binding
        return binding

    def _former(self, blocks: Sequence[Block]) -> FormerBinding | None:
        """Return the first binding, and what differs from it; None before there is one."""
        if self._first is None:
            return None
        slots = (*self._program.inputs, *self._program.outputs)
        compared = zip(slots, blocks, self._first.blocks, strict=True)
        changed = frozenset([slot for slot, block, old in compared if block != old])
        if self._accesses is None:
            self._accesses = _accesses(self._program)
        positions = {i for slot in changed for i in self._accesses.get(slot, ())}
        return FormerBinding(self._first, changed, positions)


def _accesses(program: Program) -> dict[int, list[int]]:
    """Return the positions of the instructions that access the memory of each slot."""
    positions: defaultdict[int, list[int]] = defaultdict(list)
    for position, instruction in enumerate(program.instructions):
        for slot in program.accessed(instruction):
            positions[slot].append(position)
    return positions
