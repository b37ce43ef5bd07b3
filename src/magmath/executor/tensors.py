"""The tensors of a program: the memory behind its slots, this worker's and its peers'."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import final

import torch

from magmath.core.index_set import shift_tile
from magmath.executor.context import Context
from magmath.memory.heap import Block
from magmath.memory.local_array import LocalArray
from magmath.memory.torch_dtypes import to_torch
from magmath.program.instructions import Program


@final
@dataclass(frozen=True)
class Tensors:
    """The tensors of slots, this worker's and its peers'.

    `former`: tensors that are the same, except those of the slots in `changed` and their views.
    """

    program: Program
    context: Context
    stored: Mapping[int, LocalArray]
    scalars: Mapping[int, torch.Tensor]
    block: Block | None
    offsets: Mapping[int, int]
    former: Tensors | None = None
    changed: Collection[int] = ()

    @cached_property
    def _cache(self) -> dict[tuple[int, int], torch.Tensor]:
        return {}

    @property
    def rank(self) -> int:
        """The number of this worker."""
        return self.context.comm.rank

    def own(self, slot: int) -> torch.Tensor:
        """Return this worker's tensor of a slot."""
        return self.of(slot, self.rank)

    def of(self, slot: int, rank: int) -> torch.Tensor:
        """Return worker `rank`'s tensor of a slot (a peer's through shared memory)."""
        key = (slot, rank)
        tensor = self._cache.get(key)
        if tensor is None:
            if self.former is None or self.program.root(slot) in self.changed:
                tensor = self._make(slot, rank)
            else:
                tensor = self.former.of(slot, rank)
            self._cache[key] = tensor
        return tensor

    def _make(self, index: int, rank: int) -> torch.Tensor:
        slot = self.program.slots[index]
        if index in self.scalars:
            return self.scalars[index]
        if slot.alias is not None:
            return self._view(index, slot.alias, rank)
        if index in self.stored:
            return self._typed(index, rank, self.stored[index].block, 0)
        assert self.block is not None
        return self._typed(index, rank, self.block, self.offsets[index])

    def _typed(self, index: int, rank: int, block: Block, offset: int) -> torch.Tensor:
        """Return bytes of a block, at an offset, as the tensor of a slot."""
        slot, blocks = self.program.slots[index], self.context.memory
        memory = blocks.shared_memory_of(block) if slot.layout.shared else blocks.peer(block, rank)
        shape = slot.layout.local_shape(rank)
        nbytes = torch.Size(shape).numel() * slot.dtype.itemsize
        values = memory[offset : offset + nbytes].view(to_torch(slot.dtype))
        if not slot.order:  # () for no dimensions, where an absent part has shape (0,)
            return values.view(shape)
        stored = values.view([shape[d] for d in slot.order])
        return stored.permute([slot.order.index(d) for d in range(len(shape))])

    def memory_of(self, index: int) -> torch.Tensor:
        """Return the bytes of a temporary that owns memory. If all workers share them, only worker
        0 gets them, the others no bytes."""
        assert self.block is not None
        slot = self.program.slots[index]
        memory, offset = self.context.memory.peer(self.block, self.rank), self.offsets[index]
        nbytes = slot.local_bytes if not slot.layout.shared or self.rank == 0 else 0
        return memory[offset : offset + nbytes]

    def _view(self, index: int, alias: int, rank: int) -> torch.Tensor:
        """Return this slot's tile as a view of the tensor in whose memory it is stored."""
        owner: int | None = alias
        chain: list[int] = []
        while owner is not None and (owner, rank) not in self._cache:  # as long as a loop of writes
            chain.append(owner)
            owner = self.program.slots[owner].alias
        for x in reversed(chain):
            self.of(x, rank)
        base = self.of(alias, rank)
        layout = self.program.slots[index].layout
        if self.program.slots[index].is_at_beginning:
            shape = torch.Size(layout.local_shape(rank))
            return base.view(-1)[: shape.numel()].view(shape)
        start = self.program.slots[index].start
        inner, outer = layout.tiles(rank), self.program.slots[alias].layout.tiles(rank)
        if start is not None and inner:
            inner = (shift_tile(inner[0], start),)
        if not inner or not outer:
            return base.new_empty(layout.local_shape(rank))
        if inner == outer:
            return base
        located = [whole.locate(part) for whole, part in zip(outer[0], inner[0], strict=True)]
        for d, positions in enumerate(located):
            selector = positions.selector()
            assert isinstance(selector, slice)
            base = base[(slice(None),) * d + (selector,)]
        return base
