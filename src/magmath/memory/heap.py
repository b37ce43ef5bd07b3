"""The symmetric heap: the memory of all arrays of a worker, allocated from large chunks.

Every worker makes the same sequence of allocations and frees with the same sizes, so a block has
the same chunk and offset on every worker, and in shared windows a worker finds a peer's block
without communication. Freed blocks are merged with their neighbours and reused, best fit first;
small blocks are kept for the next allocation of their size until memory is short. In a steady
state, the heap makes no system calls.

If memory is short on a host, the pages of the free ranges are returned to the system, and only
their addresses stay reserved. So every block fits whose bytes the limit allows in addition to those
in use, wherever the free ranges are.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from magmath.core.bounded_memo import store_bounded
from magmath.core.byte_sizes import ALIGNMENT, format_bytes
from magmath.core.debugging import FILL_BYTE
from magmath.core.dtypes import DType
from magmath.errors import DeviceError, MemoryLimitError, StateError
from magmath.memory.chunk_sources import ChunkSource
from magmath.memory.free_ranges import FreeRanges
from magmath.memory.torch_dtypes import NUMPY, to_torch

_MAX_HOLDERS_SHOWN = 5  # number of holders that an out-of-memory error names
# Bytes up to which freed blocks are kept for the next allocation of their size.
_SMALL_BYTES = 64 << 10
_MAX_VIEWS = 1024
CHUNK_BYTES = 64 << 20


@final
class Block(NamedTuple):
    """A block of the heap: `nbytes` at `offset` in chunk number `chunk`; the same on each worker.

    No two chunks of a heap have the same number, so equal blocks are the same memory, even if one
    of them was freed and its chunk returned. A block of no bytes is in no chunk: its number is -1.
    """

    chunk: int
    offset: int
    nbytes: int


@final
class View:
    """A block of memory as a NumPy array, if NumPy has its type, and as a tensor, which is created
    on first use."""

    __slots__ = ("_tensor", "array")

    def __init__(self, array: np.ndarray[Any, Any] | None, tensor: Tensor | None = None) -> None:
        self.array = array
        self._tensor = tensor

    @property
    def tensor(self) -> Tensor:
        """The tensor."""
        if self._tensor is None:
            assert self.array is not None
            self._tensor = torch.from_numpy(self.array)
        return self._tensor


@final
class Heap:
    """A heap over the chunks of `source`.

    alignment     bytes to which blocks are aligned, a power of two
    chunk_bytes   usual size of a chunk; a larger block gets a chunk of its own
    limit         maximum of `reserved`, or None
    should_fill   fill what is allocated with FILL_BYTE (`core/debugging.py`)

    Counters: `allocations` (calls), `chunks` (allocated), and in bytes `in_use`, `peak` (the
    largest that `in_use` has been) and `reserved` (in chunks, without what is returned).
    `reclaimers` are called if memory is short, to free blocks that can be allocated again later.
    """

    def __init__(
        self,
        source: ChunkSource,
        alignment: int = ALIGNMENT,
        chunk_bytes: int = CHUNK_BYTES,
        limit: int | None = None,
        should_fill: bool = False,
    ) -> None:
        self.should_fill = should_fill
        self._source = source
        self._alignment = alignment
        self._chunk_bytes = chunk_bytes
        self._limit = limit
        self._chunks: dict[int, tuple[Tensor | None, ...]] = {}
        self._numbers = count()  # of chunks: never reused, since calls are cached by their blocks
        self._lengths: dict[int, int] = {}
        self._free_ranges = FreeRanges()
        self._returned = FreeRanges()  # ranges whose pages the system has
        self.reclaimers: list[Callable[[], None]] = []
        # By size, the (chunk, begin) of free small blocks, as a priority queue.
        self._free_small: dict[int, list[tuple[int, int]]] = {}
        self._views: dict[tuple[int, int, DType, tuple[int, ...]], View] = {}
        self._bytes: dict[int, np.ndarray[Any, Any]] = {}  # this worker's chunks, as NumPy's arrays
        self._holders: dict[Block, object] = {}
        self._nothing = torch.empty(0, dtype=torch.uint8, device=source.device)
        self.allocations = 0
        self.in_use = 0
        self.peak = 0
        self.reserved = 0

    @property
    def rank(self) -> int:
        """The number of this worker."""
        return self._source.rank

    @property
    def chunks(self) -> int:
        """The number of chunks."""
        return len(self._lengths)

    def statistics(self) -> dict[str, int]:
        """Return the counters by name."""
        names = ("allocations", "chunks", "in_use", "peak", "reserved")
        return {name: getattr(self, name) for name in names}

    def allocate(self, nbytes: int, holder: object = "unnamed") -> Block:
        """Allocate a block of at least `nbytes`, uninitialized; errors name it by `holder`.

        Raises MemoryLimitError, which names the largest holders, if the limit would be exceeded.
        """
        self.allocations += 1
        if nbytes == 0:
            return Block(-1, 0, 0)
        size = self._rounded(nbytes)
        free_blocks = self._free_small.get(size)
        chunk, offset = heappop(free_blocks) if free_blocks else self._take_best_fit(size, holder)
        block = Block(chunk, offset, nbytes)
        self._holders[block] = holder
        self.in_use += size
        if self.in_use > self.peak:
            self.peak = self.in_use
        if self.should_fill:
            self.fill(block)
        return block

    def fill(self, block: Block) -> None:
        """Fill a block before it stores another value (`should_fill`)."""
        self.local(block).fill_(FILL_BYTE)

    def _take_best_fit(self, size: int, holder: object) -> tuple[int, int]:
        """Allocate at the beginning of the smallest sufficient free range."""
        if not self._free_ranges.has_fit(size):
            self._merge_small()
        if not self._free_ranges.has_fit(size):
            self._grow(size, holder)
        return self._free_ranges.take(size)

    def free(self, block: Block) -> None:
        """Free a block. Raises StateError if it is not allocated."""
        if block.nbytes == 0:
            return
        if self._holders.pop(block, None) is None:
            raise StateError(f"the heap cannot free {block}: it is not allocated; free it once")
        chunk, begin, length = block.chunk, block.offset, self._rounded(block.nbytes)
        self.in_use -= length
        if length <= _SMALL_BYTES:
            heappush(self._free_small.setdefault(length, []), (chunk, begin))
        else:
            self._free_ranges.merge(chunk, begin, length)

    def _merge_small(self) -> None:
        """Convert the free small blocks to ordinary free ranges."""
        free_blocks, self._free_small = self._free_small, {}
        for length, positions in free_blocks.items():
            for chunk, begin in positions:
                self._free_ranges.merge(chunk, begin, length)

    def local(self, block: Block) -> Tensor:
        """Return this worker's memory of a block: a uint8 tensor of its `nbytes`."""
        return self.peer(block, self._source.rank)

    def view(self, block: Block, dtype: DType, shape: tuple[int, ...]) -> View:
        """Return the beginning of this worker's memory of a block as an array of a type and
        shape."""
        key = (block.chunk, block.offset, dtype, shape)
        view = self._views.get(key)
        if view is None:
            view = store_bounded(self._views, key, self._new_view(block, dtype, shape), _MAX_VIEWS)
        return view

    def _new_view(self, block: Block, dtype: DType, shape: tuple[int, ...]) -> View:
        if block.nbytes and self._source.device.type == "cpu" and dtype in NUMPY:
            memory = self._bytes.get(block.chunk)
            if memory is None:
                whole = self.peer(Block(block.chunk, 0, self._lengths[block.chunk]), self.rank)
                memory = self._bytes[block.chunk] = whole.numpy()
            array: np.ndarray[Any, Any] = np.ndarray(shape, NUMPY[dtype], memory, block.offset)
            return View(array)
        nbytes = math.prod(shape) * dtype.itemsize
        return View(None, self.local(block)[:nbytes].view(to_torch(dtype)).view(shape))

    def shared_memory_of(self, block: Block) -> Tensor:
        """Return the memory in which a shared array is stored: that of the host's first worker, of
        rank 0. Raises as `peer`."""
        return self.peer(block, 0)

    def peer(self, block: Block, rank: int) -> Tensor:
        """Return the memory of a block on worker `rank`: a uint8 tensor of its `nbytes`.

        Raises DeviceError if the workers do not share memory.
        """
        if block.nbytes == 0:
            return self._nothing
        memory = self._chunks[block.chunk][rank]
        if memory is None:
            raise DeviceError(
                f"worker {self._source.rank} cannot see the memory of worker {rank}: their heap "
                f"is private; exchange messages instead"
            )
        return memory.narrow(0, block.offset, block.nbytes)

    def trim(self) -> None:
        """Return empty chunks to the system: their pages at once, and their addresses with the
        last tensor on them, such as those that cached calls have. The memory of GPUs has no pages
        that can be returned so: there, the last tensor keeps all of a chunk."""
        self._merge_small()
        self._views.clear()
        self._bytes.clear()
        unused: Counter[int] = Counter()
        for length, chunk, _ in (*self._free_ranges, *self._returned):
            unused[chunk] += length
        for chunk, length in unused.items():
            if length == self._lengths[chunk]:
                self.reserved -= self._free_ranges.remove_chunk(chunk)
                self._returned.remove_chunk(chunk)
                self._source.return_unused(self.local(Block(chunk, 0, length)))
                del self._lengths[chunk], self._chunks[chunk]

    def close(self) -> None:
        """Return all memory to the system, including allocated blocks."""
        self._chunks.clear()
        tables = (self._lengths, self._holders, self._free_small, self._views, self._bytes)
        for table in (*tables, self._free_ranges, self._returned):
            table.clear()
        self.in_use = self.reserved = 0

    def _rounded(self, nbytes: int) -> int:
        return (nbytes + self._alignment - 1) & -self._alignment

    def _grow(self, size: int, holder: object) -> None:
        """Provide a free range of `size` bytes."""
        length = max(size, self._rounded(self._chunk_bytes))
        if self._is_over_limit(length):
            self.trim()
            length = size if self._is_over_limit(length) else length
        if self._is_over_limit(size):
            self._make_room(size, holder)
        if self._free_ranges.has_fit(size):
            return
        if self._returned.has_fit(size):
            self._free_ranges.merge(*self._returned.take(size), size)
            self.reserved += size
            return
        memory = self._source.chunk(length)
        number = next(self._numbers)
        self._chunks[number] = memory
        self._lengths[number] = length
        self.reserved += length
        self._free_ranges.add(number, 0, length)

    def _make_room(self, size: int, holder: object) -> None:
        """Call the reclaimers, and return unused chunks and pages, until `size` bytes can be
        reserved or a free range has them. Raises MemoryLimitError if that is impossible."""
        assert self._limit is not None
        if self.in_use + size > self._limit:
            for reclaim in self.reclaimers:
                reclaim()
            self.trim()
        if self._free_ranges.has_fit(size):
            return
        if self._is_over_limit(size) and self.in_use + size <= self._limit:
            self._return_free_ranges()
        if self._is_over_limit(size):
            raise self._too_large(size, holder)

    def _return_free_ranges(self) -> None:
        """Return the pages of all free ranges to the system, if the source can return parts of
        chunks."""
        for length, chunk, begin in list(self._free_ranges):
            if not self._source.return_unused(self.local(Block(chunk, begin, length))):
                return
            self._free_ranges.remove(chunk, begin, length)
            self._returned.merge(chunk, begin, length)
            self.reserved -= length

    def _is_over_limit(self, length: int) -> bool:
        return self._limit is not None and self.reserved + length > self._limit

    def _too_large(self, size: int, holder: object) -> MemoryLimitError:
        largest = sorted(self._holders.items(), key=lambda item: -item[0].nbytes)[
            :_MAX_HOLDERS_SHOWN
        ]
        holders = ", ".join(f"{name} ({format_bytes(block.nbytes)})" for block, name in largest)
        error = MemoryLimitError(
            f"{holder} needs {format_bytes(size)}; the limit is {format_bytes(self._limit or 0)}, "
            f"of which {format_bytes(self.in_use)} are in use ({format_bytes(self.reserved)} "
            f"reserved); largest holders: {holders or 'none'}; free arrays, divide them over "
            f"workers on more hosts, or raise memory_limit"
        )
        error.is_uniform = True
        return error
