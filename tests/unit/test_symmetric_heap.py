"""The heap: blocks never overlap, are reused and merged, and are symmetric; and arrays in it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from magmath.comm import LocalGroup
from magmath.core.dtypes import DTYPES, float32
from magmath.errors import DeviceError, MagmathError, MemoryLimitError
from magmath.layout import Layout, Mesh
from magmath.memory import (
    Block,
    ChunkSource,
    Heap,
    LocalArray,
    PrivateSource,
    SharedWindowSource,
    to_torch,
)
from magmath.memory.local_array import tile_tensor

CPU = torch.device("cpu")


class CountingSource(ChunkSource):
    """Private memory that counts its requests."""

    def __init__(self) -> None:
        self.device, self.rank, self.size = CPU, 0, 1
        self.asked: list[int] = []

    def chunk(self, nbytes: int) -> tuple[torch.Tensor | None, ...]:
        self.asked.append(nbytes)
        return PrivateSource(CPU).chunk(nbytes)


class HeapMachine(RuleBasedStateMachine):
    """Random allocations and frees against a model: each block filled with a number of its own."""

    @initialize(alignment=st.sampled_from([1, 16, 64, 256]))
    def start(self, alignment: int) -> None:
        self.alignment = alignment
        self.heap = Heap(PrivateSource(CPU), alignment, chunk_bytes=4096)
        self.held: dict[Block, int] = {}
        self.memory: dict[Block, torch.Tensor] = {}  # of all blocks, also of returned chunks
        self.calls = 0

    @rule(nbytes=st.one_of(st.integers(0, 300), st.integers(0, 10_000), st.just(5000)))
    def allocate(self, nbytes: int) -> None:
        block = self.heap.allocate(nbytes)
        self.calls += 1
        assert block.nbytes == nbytes
        if nbytes:
            assert block not in self.held
            assert block.offset % self.alignment == 0
            self.held[block] = self.calls % 251
            memory = self.heap.local(block).fill_(self.held[block])
            former = self.memory.setdefault(block, memory)
            assert former.data_ptr() == memory.data_ptr(), "equal blocks are the same memory"

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(list(self.held)))
        del self.held[block]
        self.heap.free(block)

    @rule()
    def trim(self) -> None:
        self.heap.trim()

    @invariant()
    def contents_stay(self) -> None:
        for block, number in self.held.items():
            memory = self.heap.local(block)
            assert memory.nbytes == block.nbytes
            assert (memory == number).all()

    @invariant()
    def counters_agree(self) -> None:
        heap = self.heap
        rounded = [-(-b.nbytes // self.alignment) * self.alignment for b in self.held]
        assert heap.in_use == sum(rounded)
        assert heap.allocations == self.calls
        assert heap.in_use <= heap.peak <= heap.allocations * 10_240
        assert heap.in_use <= heap.reserved
        assert heap.statistics()["chunks"] == heap.chunks

    def teardown(self) -> None:
        # Everything freed: each chunk is one free range again, so all can be given back.
        if hasattr(self, "heap"):
            for block in self.held:
                self.heap.free(block)
            self.heap.trim()
            assert (self.heap.in_use, self.heap.reserved, self.heap.chunks) == (0, 0, 0)


TestHeap = HeapMachine.TestCase


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=30))
def test_steady_state_asks_for_nothing(sizes: list[int]) -> None:
    source = CountingSource()
    heap = Heap(source, chunk_bytes=8192)
    for step in range(4):
        blocks = [heap.allocate(size) for size in sizes]
        if step <= 1:
            asked, first = len(source.asked), blocks
        assert blocks == first  # from the second time on, a sequence gets the same memory
        for block in blocks:
            heap.free(block)
    assert len(source.asked) == asked


def test_best_fit() -> None:
    heap = Heap(PrivateSource(CPU), chunk_bytes=16 << 20)
    sizes = [512, 64, 128, 64, 4096, 64, 256, 64]
    blocks = [heap.allocate(size << 10) for size in sizes]
    for block in blocks[::2]:
        heap.free(block)
    for wanted, place in ((100, 2), (200, 6), (300, 0), (2000, 4)):
        assert heap.allocate(wanted << 10).offset == blocks[place].offset


def test_small_blocks_wait_for_their_size_until_memory_is_short() -> None:
    source = CountingSource()
    heap = Heap(source, chunk_bytes=4096)
    blocks = [heap.allocate(1024) for _ in range(4)]
    for block in blocks:
        heap.free(block)
    assert heap.allocate(1000).offset == blocks[0].offset
    assert heap.allocate(2048).offset == blocks[1].offset, "what waited is one free range again"
    assert len(source.asked) == 1


def test_large_blocks_get_chunks_of_their_own() -> None:
    source = CountingSource()
    heap = Heap(source, chunk_bytes=1024)
    heap.allocate(10_000)
    heap.allocate(10)
    assert source.asked == [10_048, 1024]


def test_a_block_is_freed_once() -> None:
    heap = Heap(PrivateSource(CPU))
    block = heap.allocate(10)
    heap.free(block)
    with pytest.raises(MagmathError, match="free it once"):
        heap.free(block)


def test_the_limit_names_the_largest_holders() -> None:
    heap = Heap(PrivateSource(CPU), chunk_bytes=1 << 16, limit=1 << 18)
    for number in range(8):
        heap.allocate((number + 1) << 12, f"array {number}")
    with pytest.raises(MemoryLimitError, match=r"array 7 \(32\.8 KB\), array 6") as caught:
        heap.allocate(1 << 18, "the last straw")
    assert "the last straw needs 262 KB" in str(caught.value)
    assert "array 0" not in str(caught.value)
    assert heap.in_use == sum((number + 1) << 12 for number in range(8))


def test_the_limit_gives_idle_chunks_back_first() -> None:
    heap = Heap(PrivateSource(CPU), chunk_bytes=1000, limit=100_032)
    for _ in range(3):
        block = heap.allocate(60_000)
        heap.free(block)
        heap.free(heap.allocate(90_000))
    assert heap.reserved <= 100_032
    assert heap.allocate(100_000).nbytes == 100_000


@given(
    st.lists(st.tuples(st.integers(1, 40_000), st.integers(0, 100)), max_size=60),
    st.sampled_from([1000, 4096, 1 << 16]),
    st.booleans(),
)
def test_what_the_limit_allows_fits(
    steps: list[tuple[int, int]], chunk_bytes: int, is_shared: bool
) -> None:
    """Wherever the free ranges are, and with contents that stay."""
    limit = 100_032
    source = SharedWindowSource(LocalGroup(1).communicator(0)) if is_shared else PrivateSource(CPU)
    heap = Heap(source, chunk_bytes=chunk_bytes, limit=limit)
    held: list[Block] = []
    for number, (size, freed) in enumerate(steps):
        if held and freed < 50:
            heap.free(held.pop(freed % len(held)))
        before = heap.in_use
        try:
            held.append(heap.allocate(size))
        except MemoryLimitError:
            assert before + (size + 63) // 64 * 64 > limit
            assert heap.in_use == before
            continue
        assert heap.in_use <= heap.reserved <= limit
        heap.local(held[-1]).fill_(number)
    for block in held:
        assert len(set(heap.local(block).tolist())) == 1
    assert len({heap.local(block)[0].item() for block in held}) == len(held)
    for block in held:
        heap.free(block)
    heap.trim()
    assert (heap.in_use, heap.reserved, heap.chunks) == (0, 0, 0)


def test_free_ranges_are_returned_to_the_system() -> None:
    """Of windows and of private memory; so the limit holds for what the process has."""
    for source in (PrivateSource(CPU), SharedWindowSource(LocalGroup(1).communicator(0))):
        heap = Heap(source, chunk_bytes=1 << 22, limit=1 << 22)
        blocks = [heap.allocate(1 << 20) for _ in range(4)]
        for block in blocks:
            heap.local(block).fill_(7)
        kept = heap.local(blocks[0]), heap.local(blocks[1])[4096:-4096]
        heap.free(blocks[1])
        heap.free(blocks[3])
        large = heap.allocate(1 << 21)
        assert kept[0].min() == 7
        assert kept[1].max() == 0, "the system has these pages"
        assert heap.reserved == 1 << 22
        heap.free(large)
        assert heap.local(heap.allocate(1 << 20)).nbytes == 1 << 20


def test_pages_of_removed_chunks_are_returned_while_tensors_refer_to_them() -> None:
    for source in (PrivateSource(CPU), SharedWindowSource(LocalGroup(1).communicator(0))):
        heap = Heap(source, chunk_bytes=1 << 20, limit=1 << 22)
        block = heap.allocate(1 << 20)
        cached = heap.local(block).fill_(7)[4096:-4096]
        heap.free(block)
        heap.allocate(1 << 22)
        assert heap.chunks == 1
        assert cached.max() == 0, "the system has these pages"


def test_reclaimers_free_blocks_before_an_error() -> None:
    heap = Heap(PrivateSource(CPU), chunk_bytes=4096, limit=1 << 20)
    idle = [heap.allocate(1 << 19)]
    heap.reclaimers.append(lambda: heap.free(idle.pop()) if idle else None)
    heap.allocate(1 << 18)
    assert idle
    heap.allocate(3 << 18)
    assert not idle
    with pytest.raises(MemoryLimitError):
        heap.allocate(1)


def test_private_memory_has_no_peers() -> None:
    heap = Heap(PrivateSource(CPU, rank=1, size=3))
    block = heap.allocate(8)
    assert heap.peer(block, 1).data_ptr() == heap.local(block).data_ptr()
    with pytest.raises(DeviceError, match="cannot see the memory of worker 0"):
        heap.shared_memory_of(block)


def test_close_gives_everything_back() -> None:
    heap = Heap(PrivateSource(CPU))
    heap.allocate(100)
    heap.close()
    assert (heap.in_use, heap.reserved, heap.chunks) == (0, 0, 0)
    assert heap.local(heap.allocate(100)).nbytes == 100


def layouts(shape: tuple[int, ...], mesh: Mesh) -> list[Layout]:
    """One of each kind that fits the shape."""
    rules = [Layout.replicated(), Layout.on(1)]
    if shape:
        rules += [Layout.split(0), Layout.cyclic(len(shape) - 1, 2)]
    boxes = [(tuple((0, n) for n in shape), 2)]
    return [rule.bind(shape, mesh) for rule in [*rules, Layout.blocks(boxes)]] + [
        Layout.replicated_on(shape, mesh, shared=True)
    ]


@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 5), (2, 0, 3), (4, 3, 2)])
def test_stored_arrays(shape: tuple[int, ...]) -> None:
    """Each worker's tile has its local shape on all workers, and overlaps no other tile."""
    size = 3
    mesh = Mesh.line(size)
    group = LocalGroup(size)
    # Windows are collective only in size, so one thread may play all ranks in turn.
    heaps = [
        Heap(SharedWindowSource(group.communicator(rank)), chunk_bytes=4096) for rank in range(size)
    ]
    kept: list[tuple[torch.Tensor, torch.Tensor]] = []
    for layout in layouts(shape, mesh):
        for dtype in DTYPES.values():
            stored = [LocalArray.allocate(heaps[r], layout, dtype, r) for r in range(size)]
            assert len({s.block for s in stored}) == 1
            for rank, mine in enumerate(stored):
                assert tuple(mine.tensor.shape) == layout.local_shape(rank)
                assert mine.tensor.dtype == to_torch(dtype)
                mine.tensor.copy_(torch.randint(0, 2, mine.tensor.shape))
                kept.append((mine.tensor, mine.tensor.clone()))
                seen = tile_tensor(heaps[0], mine.block, layout, dtype, rank)
                assert torch.equal(seen, mine.tensor)
            if layout.shared:
                assert len({s.tensor.data_ptr() for s in stored}) == 1
                kept = kept[:-size] + kept[-1:]  # one array, written thrice
    assert all(torch.equal(tensor, value) for tensor, value in kept)
    assert len({heap.in_use for heap in heaps}) == 1


def test_stored_memory_returns() -> None:
    heap = Heap(PrivateSource(CPU))
    layout = Layout.replicated_on((10, 10), Mesh.line(1))
    stored = LocalArray.allocate(heap, layout, float32, 0)
    assert heap.in_use == 448
    stored.free(heap)
    assert heap.in_use == 0


def test_memory_limit_names_the_array() -> None:
    heap = Heap(PrivateSource(CPU), limit=1000)
    layout = Layout.even((10, 1000), Mesh.line(2), 0)
    with pytest.raises(MemoryLimitError, match=r"float32 array of shape \(10, 1000\) in S\(0\)"):
        LocalArray.allocate(heap, layout, float32, 0)
