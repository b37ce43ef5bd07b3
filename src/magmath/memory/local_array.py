"""The part of an array that a worker stores: a block of the heap, viewed as the worker's tile."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, final

from torch import Tensor

from magmath.core.dtypes import DType
from magmath.layout import Layout
from magmath.memory.heap import Block, Heap, View
from magmath.memory.torch_dtypes import to_torch


@final
@dataclass(slots=True, eq=False)
class LocalArray:
    """A worker's part of an array.

    block    its memory, the same block of the heap on every worker
    view     this worker's tile, of the layout's local shape: for a layout of boxes flat; for a
             shared layout the whole array, in the memory of the host's first worker
    """

    block: Block
    view: View
    layout: Layout
    dtype: DType

    @property
    def tensor(self) -> Tensor:
        """The tile as a tensor."""
        return self.view.tensor

    @staticmethod
    def allocate(heap: Heap, layout: Layout, dtype: DType, rank: int) -> LocalArray:
        """Allocate memory for the tile of worker `rank`: see `TileSpec.allocate`."""
        return tile_spec(layout, dtype, rank).allocate(heap)

    def free(self, heap: Heap) -> None:
        """Free the memory; the tensor must not be used afterwards."""
        heap.free(self.block)


@final
class TileSpec(NamedTuple):
    """The local storage of arrays of one layout and type: the bytes of the largest tile, and the
    shape on this worker. Its string names the array in out-of-memory errors."""

    dtype: DType
    layout: Layout
    nbytes: int
    shape: tuple[int, ...]
    rank: int

    def __str__(self) -> str:
        return f"{self.dtype} array of shape {self.layout.shape} in {self.layout}"

    def allocate(self, heap: Heap) -> LocalArray:
        """Allocate uninitialized memory for the tile.

        Every worker allocates for the largest tile, which keeps the heap symmetric. Raises
        MemoryLimitError as `Heap.allocate`.
        """
        block = heap.allocate(self.nbytes, self)
        if self.layout.shared:
            tensor = tile_tensor(heap, block, self.layout, self.dtype, self.rank)
            return LocalArray(block, View(None, tensor), self.layout, self.dtype)
        view = heap.view(block, self.dtype, self.shape)
        return LocalArray(block, view, self.layout, self.dtype)


@lru_cache(maxsize=4096)
def tile_spec(layout: Layout, dtype: DType, rank: int) -> TileSpec:
    """Return the local storage of an array on worker `rank`."""
    nbytes = layout.max_local_size * dtype.itemsize
    return TileSpec(dtype, layout, nbytes, layout.local_shape(rank), rank)


def tile_tensor(heap: Heap, block: Block, layout: Layout, dtype: DType, rank: int) -> Tensor:
    """Return the tile of worker `rank`, this one or a peer, as a tensor in its memory of `block`.

    Raises DeviceError if `rank` is another worker whose memory is not accessible.
    """
    if rank == heap.rank and not layout.shared:
        return heap.view(block, dtype, layout.local_shape(rank)).tensor
    memory = heap.shared_memory_of(block) if layout.shared else heap.peer(block, rank)
    nbytes = layout.local_size(rank) * dtype.itemsize
    return memory[:nbytes].view(to_torch(dtype)).view(layout.local_shape(rank))
