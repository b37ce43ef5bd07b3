"""An array as a worker stores it: a block of the heap, and the worker's tile as a tensor in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from magmath.core.dtypes import DType
from magmath.layout import Layout
from magmath.memory.heap import Block, Heap
from magmath.memory.tensors import to_torch


class _Holder(NamedTuple):
    """An array as errors about memory name it; written out only when one is raised."""

    dtype: DType
    layout: Layout

    def __str__(self) -> str:
        return f"{self.dtype} array of shape {self.layout.shape} in {self.layout}"


@dataclass(slots=True, eq=False)
class Stored:
    """A worker's part of an array.

    block    its memory, the same piece of the heap on every worker
    tensor   this worker's tile, of the layout's local shape: for a layout of boxes flat; for a
             shared layout the whole array, in the leader's memory
    """

    block: Block
    tensor: Tensor
    layout: Layout
    dtype: DType

    @staticmethod
    def allocate(heap: Heap, layout: Layout, dtype: DType, rank: int) -> Stored:
        """Memory for the tile of worker `rank`, its content undefined.

        Every worker allocates for the largest tile, which keeps the heap symmetric. Raises
        MemoryLimitError as `Heap.allocate`.
        """
        block = heap.allocate(layout.max_local_size * dtype.itemsize, _Holder(dtype, layout))
        return Stored(block, tile_tensor(heap, block, layout, dtype, rank), layout, dtype)

    def free(self, heap: Heap) -> None:
        """Give the memory back; the tensor must not be used any more."""
        heap.free(self.block)


def tile_tensor(heap: Heap, block: Block, layout: Layout, dtype: DType, rank: int) -> Tensor:
    """The tile of worker `rank` as a tensor in its memory of `block`, wherever that worker is.

    Raises DeviceError where `rank` is another worker whose memory cannot be seen.
    """
    if rank == heap.rank and not layout.shared:
        return heap.tensor(block, to_torch(dtype), layout.local_shape(rank))
    memory = heap.leader(block) if layout.shared else heap.peer(block, rank)
    nbytes = layout.local_size(rank) * dtype.itemsize
    return memory[:nbytes].view(to_torch(dtype)).view(layout.local_shape(rank))
