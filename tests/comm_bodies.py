"""Test bodies for every communicator, which run on each rank, on threads and on MPI.

`tests/sim` calls them in the threads of a `LocalGroup`; `tests/mpi` starts this file as a program
under mpiexec. A body receives the communicator of its rank and raises if a result is wrong. Random
input comes from seeds that all ranks share, so each rank can compute the contributions of the
others.
"""

from __future__ import annotations

import gc
import resource
import sys
import time
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from importlib import import_module
from threading import Lock
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from counting_communicator import CountingCommunicator
from magmath.codegen.aot_cache import AotModule
from magmath.codegen.memory_copy import CACHE_BYTES
from magmath.comm import Communicator, barrier, futex_wait
from magmath.comm.progress_thread import ProgressThread
from magmath.core.dtypes import DTYPES
from magmath.errors import DeviceError, DTypeError, MagmathError, ShapeError, WorkerLost
from magmath.memory import Block, Heap, SharedWindowSource, to_torch

Body = Callable[[Communicator], None]

LENGTHS = (0, 1, 2, 63, 4096, 10_007, 40_009)
"""Below and above the sizes at which the collectives change their ways, and odd ones."""
LONG = dict.fromkeys(("bool", "bfloat16", "float32", "complex128"), 300001)
"""For some dtypes a length of several pieces, too."""


def once(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Ranks that are threads share what the first of them computes; it is not to be written to."""
    lock, known = Lock(), lru_cache(maxsize=64)(function)

    def shared(*arguments: object) -> Tensor:
        with lock:
            return known(*arguments)

    return shared


@once
def contribution(dtype: torch.dtype, length: int, rank: int, seed: int) -> Tensor:
    """What `rank` puts in: small whole numbers, whose reductions are exact in every dtype."""
    rng = np.random.default_rng([seed, rank])
    if dtype is torch.bool:
        return torch.from_numpy(rng.integers(0, 2, length).astype(bool))
    low = 0 if not dtype.is_signed else -2
    values = torch.from_numpy(rng.integers(low, 3, length)).to(dtype)
    return values * (1 + 1j) if dtype.is_complex else values


def reduced(parts: list[Tensor], op: str) -> Tensor:
    """The reduction, by NumPy in wide types."""
    dtype = parts[0].dtype
    half = dtype in (torch.float16, torch.bfloat16)
    stack = np.stack([(part.float() if half else part).numpy() for part in parts])
    with np.errstate(all="ignore"):
        result = getattr(np, op)(stack, axis=0)
    return torch.from_numpy(np.asarray(result)).to(dtype)


@once
def whole(dtype: torch.dtype, length: int, size: int, seed: int, op: str) -> Tensor:
    """The reduction of the contributions of all ranks."""
    return reduced([contribution(dtype, length, rank, seed) for rank in range(size)], op)


def reductions(dtype: torch.dtype) -> tuple[str, ...]:
    if dtype is torch.bool:
        return ("any", "all")
    return ("sum", "prod") if dtype.is_complex else ("sum", "prod", "max", "min")


def cases() -> Iterator[tuple[torch.dtype, int, int]]:
    """Every dtype, and some with every length, the others with a few: (dtype, length, seed)."""
    for number, dtype in enumerate(DTYPES.values()):
        every = dtype.name in LONG
        for length in (*LENGTHS, LONG[dtype.name]) if every else LENGTHS[number % 3 :: 3]:
            yield to_torch(dtype), length, 100 * number + length


def blocks(size: int) -> Iterator[tuple[torch.dtype, int, int]]:
    """As `cases`, for tensors of `size` blocks: (dtype, length of a block, seed)."""
    for dtype, length, seed in cases():
        yield dtype, -(-length // size), seed


def same(actual: Tensor, expected: Tensor) -> None:
    assert actual.dtype == expected.dtype
    # The message is built only if it is needed: that takes longer than most collectives.
    assert torch.equal(actual.cpu(), expected), f"{tuple(actual.shape)}: {actual} is not {expected}"


def allreduce(comm: Communicator) -> None:
    for dtype, length, seed in cases():
        own = contribution(dtype, length, comm.rank, seed)
        for op in reductions(dtype):
            tensor = own.clone()
            comm.allreduce(tensor, op)
            same(tensor, whole(dtype, length, comm.size, seed, op))


def allreduce_shapes(comm: Communicator) -> None:
    scalar = torch.tensor(comm.rank + 1.0)
    comm.allreduce(scalar)
    same(scalar, torch.tensor(comm.size * (comm.size + 1) / 2))
    grid = torch.full((3, 4, 5), 2.0, dtype=torch.float64)
    comm.allreduce(grid, "prod")
    same(grid, torch.full((3, 4, 5), 2.0**comm.size, dtype=torch.float64))


def nan_wins(comm: Communicator) -> None:
    for length in (8, 40_000):
        for op in ("max", "min", "sum"):
            tensor = torch.zeros(length)
            tensor[comm.rank] = float("nan")
            comm.allreduce(tensor, op)
            assert torch.isnan(tensor[: comm.size]).all()
            assert not torch.isnan(tensor[comm.size :]).any()


def half_types_accumulate_wide(comm: Communicator) -> None:
    # Added one by one in bfloat16, 1/256 is lost next to 1; in float32 it is kept until the end.
    for length in (3, 40_000):
        tensor = torch.full((length,), 1.0 if comm.rank == 0 else 2**-8, dtype=torch.bfloat16)
        comm.allreduce(tensor)
        total = torch.tensor(1 + (comm.size - 1) * 2**-8).to(torch.bfloat16)
        same(tensor, total.expand(length).clone())


def allgather(comm: Communicator) -> None:
    for dtype, length, seed in cases():
        parts = [contribution(dtype, length, rank, seed) for rank in range(comm.size)]
        out = torch.empty(comm.size * length, dtype=dtype)
        comm.allgather(out, parts[comm.rank])
        same(out, torch.cat(parts))


def reduce_scatter(comm: Communicator) -> None:
    for dtype, length, seed in blocks(comm.size):
        total = comm.size * length
        own = slice(comm.rank * length, (comm.rank + 1) * length)
        for op in reductions(dtype):
            out = torch.empty(length, dtype=dtype)
            comm.reduce_scatter(out, contribution(dtype, total, comm.rank, seed), op)
            same(out, whole(dtype, total, comm.size, seed, op)[own])


def all_to_all(comm: Communicator) -> None:
    for dtype, length, seed in blocks(comm.size):
        total = comm.size * length
        parts = [contribution(dtype, total, rank, seed) for rank in range(comm.size)]
        own = slice(comm.rank * length, (comm.rank + 1) * length)
        out = torch.empty(total, dtype=dtype)
        comm.all_to_all(out, parts[comm.rank])
        same(out, torch.cat([part[own] for part in parts]))


def inputs_survive(comm: Communicator) -> None:
    """Operands that are only read do not change, and may be overwritten immediately: no rank reads
    them late."""
    for step in range(60):
        length = (5, 9000, 30_000)[step % 3]
        block = torch.full((length,), float(comm.rank + step))
        out = torch.empty(length * comm.size)
        comm.allgather(out, block)
        assert (block == comm.rank + step).all()
        block.fill_(-1.0)
        expected = torch.arange(comm.size).float() + step
        same(out.view(comm.size, -1), expected[:, None].expand(-1, length))


def random_exchange(comm: Communicator) -> None:
    """Rounds of messages between random pairs, several a pair, large and empty, to itself too."""
    rng = np.random.default_rng(7)
    dtypes = [torch.float32, torch.bfloat16, torch.bool, torch.int64, torch.complex64]
    for number in range(25):
        sends, receives, expected = [], [], []
        for message in range(int(rng.integers(0, 4 * comm.size))):
            sender, receiver = (int(r) for r in rng.integers(0, comm.size, 2))
            length = int(rng.choice([0, 1, 5, 1000, 50_000]))
            dtype = dtypes[int(rng.integers(len(dtypes)))]
            tensor = contribution(dtype, length, sender, 1000 * number + message)
            if comm.rank == sender:
                sends.append((receiver, tensor))
            if comm.rank == receiver:
                receives.append((sender, torch.empty_like(tensor)))
                expected.append(tensor)
        comm.exchange(sends, receives)
        for (_, actual), wanted in zip(receives, expected, strict=True):
            same(actual, wanted)


def everyone_to_everyone(comm: Communicator) -> None:
    """Large messages in both directions at once, which blocking sends would not survive."""
    sends = [(r, torch.full((300_000,), comm.rank * 10 + r)) for r in range(comm.size)]
    receives = [(r, torch.empty(300_000, dtype=torch.int64)) for r in reversed(range(comm.size))]
    comm.exchange(sends, receives)
    for peer, tensor in receives:
        assert (tensor == peer * 10 + comm.rank).all()


def agreement(comm: Communicator) -> None:
    rng = np.random.default_rng(3)
    for values in rng.integers(0, 1 << 40, (60, comm.size)):
        assert comm.allreduce_max(int(values[comm.rank])) == values.max()


def barriers_meet(comm: Communicator) -> None:
    """No rank leaves a barrier before all have entered it."""
    counts = [memory.view(torch.int64) for memory in comm.shared_window(8)]
    for step in range(1, 200):
        counts[comm.rank].fill_(step)
        if step % 3:
            comm.barrier()
        else:
            comm.allreduce_max(step)
        assert all(int(count) in (step, step + 1) for count in counts)


MANY_BARRIERS = AotModule(
    barrier.BARRIER_SOURCE
    + """
def many_barriers(flags: uint64[1], rank: int64, size: int64, count: int64) -> int64:
    status = 0
    for i in range(count):
        status = status | wait(flags, rank, size)
    return status
""",
    ["many_barriers"],
    constants=barrier.CONSTANTS,
)


def compiled_code_joins(comm: Communicator) -> None:
    """Compiled code on some ranks and Python on others enter the same barriers."""
    for turn in range(comm.size):
        if comm.rank == turn:
            many_barriers = MANY_BARRIERS.function("many_barriers")
            place = comm.flags.ctypes.data
            assert many_barriers(place, comm.rank, comm.size, 50) == barrier.DONE
        else:
            for _ in range(50):
                comm.barrier()


def who_waits_sleeps(comm: Communicator) -> None:
    """Ranks that wait for long are not woken before they have what they wait for."""
    if not futex_wait.CONSTANTS["HAS_FUTEX"]:
        pytest.skip("this system has no futexes: a waiting rank polls with pauses")
    comm.barrier()
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    if comm.rank == comm.size - 1:
        time.sleep(0.25)
    comm.barrier()
    assert resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before < 100


def in_every_state_of_waiting(comm: Communicator) -> None:
    """A rank may enter late, in any waiting state of the others."""
    random = np.random.default_rng(0)
    for _ in range(60):
        seconds = random.choice([0, 1e-5, 1e-4, 1e-3, 3e-3], comm.size)[comm.rank]
        time.sleep(seconds)
        assert comm.allreduce_max(comm.rank) == comm.size - 1
        comm.barrier()


def windows(comm: Communicator) -> None:
    for nbytes in (1, 100, 5000, 1 << 20):
        memory = comm.shared_window(nbytes)
        assert [tensor.nbytes for tensor in memory] == [nbytes] * comm.size
        assert all(tensor.data_ptr() % 64 == 0 for tensor in memory)
        memory[comm.rank].fill_(comm.rank + 1)
        comm.barrier()
        for rank, tensor in enumerate(memory):
            assert (tensor == rank + 1).all()
        comm.barrier()


def window_collectives(comm: Communicator) -> None:
    """Tensors in windows, also at different places on each rank, mixed with tensors outside."""
    first, second = comm.shared_window(4 << 20), comm.shared_window(4 << 20)
    length = 200_000
    for kind in range(4):
        places = [
            first[comm.rank][:800_000],
            second[comm.rank][64 * comm.rank : 64 * comm.rank + 800_000],
            (first if comm.rank % 2 else second)[comm.rank][128:800_128],
            torch.empty(800_000, dtype=torch.uint8) if comm.rank else first[0][:800_000],
        ]
        parts = [contribution(torch.float32, length, r, kind) for r in range(comm.size)]
        tensor = places[kind].view(torch.float32)
        tensor.copy_(parts[comm.rank])
        out = torch.empty(comm.size * length)
        comm.allgather(out, tensor)
        same(out, torch.cat(parts))
        comm.allreduce(tensor)
        same(tensor, reduced(parts, "sum"))


def windows_past_the_cache(comm: Communicator) -> None:
    """All collectives of tensors in windows, as large as fits into the cache, and larger."""
    size = comm.size
    fitting = CACHE_BYTES // (2 * size * size * 8)
    windows = comm.shared_window(16 * size * fitting)  # kept, because the others read its memory
    window = windows[comm.rank]
    for count in (fitting // 2 + 3, fitting + 13):
        parts = [contribution(torch.float64, size * count, r, count) for r in range(size)]
        tensor = window[: size * count * 8].view(torch.float64)
        tensor.copy_(parts[comm.rank])
        total = whole(torch.float64, size * count, size, count, "sum")
        gathered, own = torch.empty_like(tensor), torch.empty(count, dtype=torch.float64)
        block = slice(comm.rank * count, (comm.rank + 1) * count)
        comm.all_to_all(gathered, tensor)
        same(gathered, torch.cat([part[block] for part in parts]))
        comm.reduce_scatter(own, tensor)
        same(own, total[block])
        comm.allgather(gathered, tensor[block])
        same(gathered, torch.cat([p[r * count : (r + 1) * count] for r, p in enumerate(parts)]))
        comm.allreduce(tensor)
        same(tensor, total)


def late_ranks(comm: Communicator) -> None:
    """A rank that waits long returns to Python in between, and then continues to wait."""
    length = 150_000 * comm.size
    parts = [contribution(torch.float32, length, rank, 11) for rank in range(comm.size)]
    block = slice(comm.rank * 150_000, (comm.rank + 1) * 150_000)
    whole, own = torch.empty(length), torch.empty(150_000)
    gathered = [part[150_000 * r : 150_000 * (r + 1)] for r, part in enumerate(parts)]
    calls: list[tuple[Callable[[], None], Tensor, Tensor]] = [
        (lambda: comm.allgather(whole, gathered[comm.rank]), whole, torch.cat(gathered)),
        (
            lambda: comm.reduce_scatter(own, parts[comm.rank]),
            own,
            reduced([part[block] for part in parts], "sum"),
        ),
        (
            lambda: comm.all_to_all(whole, parts[comm.rank]),
            whole,
            torch.cat([part[block] for part in parts]),
        ),
        (lambda: comm.allreduce(parts[comm.rank]), parts[comm.rank], reduced(parts, "sum")),
    ]
    for number, (call, actual, expected) in enumerate(calls):
        if comm.rank == number % comm.size:
            time.sleep(0.4)
        call()
        same(actual, expected)


def outlived_window(comm: Communicator) -> None:
    """Memory stays as long as a tensor views it."""
    tensor = comm.shared_window(1 << 16)[comm.rank][100:200]
    tensor.fill_(comm.rank)
    comm.shared_window(1 << 16)[comm.rank].fill_(77)
    assert (tensor == comm.rank).all()


def symmetric_heap(comm: Communicator) -> None:
    """Random allocations, the same on each rank; every peer's copy is where it should be."""
    heap = Heap(SharedWindowSource(comm), chunk_bytes=1 << 16)
    rng = np.random.default_rng(5)
    held: list[tuple[Block, int]] = []
    for number in range(60):
        if held and rng.random() < 0.4:
            heap.free(held.pop(int(rng.integers(len(held))))[0])
        else:
            block = heap.allocate(int(rng.integers(1, 40_000)))
            heap.local(block).fill_((number * 7 + comm.rank) % 251)
            held.append((block, number))
    comm.barrier()
    for block, number in held:
        for rank in range(comm.size):
            assert (heap.peer(block, rank) == (number * 7 + rank) % 251).all()
        assert heap.shared_memory_of(block).data_ptr() == heap.peer(block, 0).data_ptr()
    comm.barrier()


def two_threads(comm: Communicator) -> None:
    """A progress thread's calls, on the duplicate communicator, never match those of the rank's own
    thread, in any order."""
    second = comm.duplicate()
    assert second is not None
    assert (second.rank, second.size, second.shares_memory) == (
        comm.rank,
        comm.size,
        comm.shares_memory,
    )
    progress_thread = ProgressThread(second)
    rng = np.random.default_rng([9, comm.rank])
    after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size

    def ring(other: Communicator, value: int, out: Tensor) -> None:
        time.sleep(float(rng.random()) * 1e-3)
        other.barrier()
        sent = torch.full((10_000,), value + other.rank)
        other.exchange([(after, sent)], [(before, out)])

    outs = [torch.empty(10_000, dtype=torch.int64) for _ in range(20)]
    tasks = [
        progress_thread.submit(partial(ring, second, 100 * step, out))
        for step, out in enumerate(outs)
        if step % 2
    ]
    for step, out in enumerate(outs):
        if step % 2 == 0:
            ring(comm, 100 * step, out)
    for task in tasks:
        task.wait()
        assert task.is_done
    for step, out in enumerate(outs):
        assert (out == 100 * step + before).all()
    progress_thread.close()


def nested_duplicates(comm: Communicator) -> None:
    """The duplicates of a duplicate are communicators of their own: what is sent by one arrives at
    that one."""
    if comm.size == 1:
        return  # MPI may keep a message to oneself until it is received
    second = comm.duplicate()
    assert second is not None
    levels = [comm, second]
    for number in (0, 1, 1, 2):
        duplicate = levels[number].duplicate()
        assert duplicate is not None
        levels.append(duplicate)
    after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for number, level in enumerate(levels):
        level.exchange([(after, torch.tensor([number]))], [])
    for number, level in reversed([*enumerate(levels)]):
        received = torch.empty(1, dtype=torch.int64)
        level.exchange([], [(before, received)])
        assert int(received) == number
    for level in reversed(levels[1:]):
        level.close()


def closed_duplicates(comm: Communicator) -> None:
    """Communicators end when all ranks have closed them."""

    def existing() -> int:
        for _ in range(2):  # threads do not collect concurrently
            comm.barrier()
            gc.collect()
        comm.barrier()
        count = sum(issubclass(type(x), Communicator) for x in gc.get_objects())
        comm.barrier()
        return count

    before = existing()
    for _ in range(3):
        second = comm.duplicate()
        assert second is not None
        second.barrier()
        second.close()
        del second
    assert existing() == before


def requests_of_all(comm: Communicator) -> None:
    """A thread of each rank receives messages of all ranks as they come, those of a rank in the
    order in which it has sent them."""
    requests = comm.duplicate()
    assert requests is not None
    rng = np.random.default_rng([11, comm.rank])
    received: list[list[int]] = [[] for _ in range(comm.size)]

    def serve() -> None:
        for _ in range(20 * comm.size):
            sender = requests.probe()
            header, long = torch.empty(1, dtype=torch.int64), torch.empty(9_000, dtype=torch.int64)
            requests.exchange([], [(sender, header), (sender, long)])
            assert (long == header).all()
            received[sender].append(int(header))

    server = ProgressThread(requests)
    task = server.submit(serve)
    for number in range(20):
        for peer in rng.permutation(comm.size).tolist():
            header = torch.tensor([100 * number + comm.rank])
            requests.exchange([(peer, header), (peer, header.repeat(9_000))], [])
    task.wait()
    assert received == [[100 * n + rank for n in range(20)] for rank in range(comm.size)]
    server.close()


def failed_errand_wakes(make: Callable[[], Communicator]) -> None:
    """What one progress thread cannot do wakes all the others, and their ranks' own threads."""
    comm = make()
    if comm.size == 1:
        return
    second = comm.duplicate()
    assert second is not None
    progress_thread = ProgressThread(second)

    def fail() -> None:
        raise ValueError("mine")

    task = progress_thread.submit(fail if comm.rank == 0 else second.barrier)
    with pytest.raises(ValueError, match="mine") if comm.rank == 0 else pytest.raises(WorkerLost):
        task.wait()
    for later in _waits().values():
        with pytest.raises(WorkerLost):
            later(comm)
    progress_thread.close()
    comm.close()


def no_shared_memory(comm: Communicator) -> None:
    with pytest.raises(DeviceError, match="do not share memory"):
        comm.shared_window(100)
    with pytest.raises(DeviceError, match="do not share memory"):
        _ = comm.flags


def refusals(comm: Communicator) -> None:
    """Mistakes are reported before anything is sent, so the ranks stay in step."""
    strided = torch.zeros(4, 4).t()
    with pytest.raises(ShapeError, match="contiguous"):
        comm.allreduce(strided)
    with pytest.raises(ShapeError, match="contiguous"):
        comm.exchange([(0, strided)], [])
    with pytest.raises(ShapeError, match="ranks are 0 to"):
        comm.exchange([(comm.size, torch.zeros(1))], [])
    with pytest.raises(DTypeError, match="supports the reductions"):
        comm.allreduce(torch.zeros(1), "mean")
    with pytest.raises(DTypeError, match="needs tensors of bool"):
        comm.allreduce(torch.zeros(1), "any")
    with pytest.raises(DTypeError, match="number type"):
        comm.reduce_scatter(torch.zeros(1, dtype=torch.bool), torch.zeros(9, dtype=torch.bool))
    with pytest.raises(DTypeError, match="no order"):
        comm.allreduce(torch.zeros(1, dtype=torch.complex64), "max")
    with pytest.raises(DTypeError, match="one dtype"):
        comm.allgather(torch.zeros(comm.size), torch.zeros(1, dtype=torch.float64))
    with pytest.raises(ShapeError, match="times as large"):
        comm.allgather(torch.zeros(comm.size + 1), torch.zeros(1))
    with pytest.raises(ShapeError, match="times as large"):
        comm.reduce_scatter(torch.zeros(2), torch.zeros(comm.size))
    if comm.size > 1:
        with pytest.raises(ShapeError, match="equal blocks"):
            comm.all_to_all(torch.zeros(comm.size + 1), torch.zeros(comm.size + 1))
    assert comm.allreduce_max(1) == 1


def counted(inner: Communicator) -> None:
    """The counts are those of the best algorithms: 2 (P - 1) / P · n for an allreduce."""
    comm = CountingCommunicator(inner)
    peers = comm.size - 1
    comm.allreduce(torch.ones(comm.size * 12))
    assert (comm.messages, comm.bytes) == (2 * peers, 2 * peers * 48)
    comm.reset()
    comm.allgather(torch.empty(comm.size * 3), torch.ones(3))
    comm.reduce_scatter(torch.empty(3), torch.ones(comm.size * 3))
    comm.all_to_all(torch.empty(comm.size * 3), torch.ones(comm.size * 3))
    assert (comm.messages, comm.bytes) == (3 * peers, 3 * peers * 12)
    comm.reset()
    after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    received = [torch.empty(5), torch.empty(2)]
    comm.exchange(
        [(after, torch.ones(5)), (comm.rank, torch.zeros(2))],
        [(before, received[0]), (comm.rank, received[1])],
    )
    assert (comm.messages, comm.bytes) == ((1, 20) if peers else (0, 0))
    comm.barrier()
    comm.barrier()
    assert comm.calls == {"exchange": 1, "barrier": 2}
    assert comm.allreduce_max(comm.rank) == peers


def device_tensors(comm: Communicator) -> None:
    """Tensors on a GPU, where there is one, go through pinned host memory."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    tensor = torch.full((1000,), comm.rank + 1.0, device=device)
    comm.allreduce(tensor)
    same(tensor, torch.full((1000,), comm.size * (comm.size + 1) / 2))
    sent, received = torch.full((7,), comm.rank, device=device), torch.empty(7, device=device)
    received = received.to(torch.int64)
    comm.exchange([((comm.rank + 1) % comm.size, sent)], [((comm.rank - 1) % comm.size, received)])
    same(received, torch.full((7,), (comm.rank - 1) % comm.size))


def _waits() -> dict[str, Body]:
    """Calls that cannot return while a rank stays away."""
    return {
        "barrier": lambda comm: comm.barrier(),
        "agree": lambda comm: _discard(comm.allreduce_max(1)),
        "allreduce": lambda comm: comm.allreduce(torch.ones(5)),
        "large allreduce": lambda comm: comm.allreduce(torch.ones(50_000)),
        "maximum": lambda comm: comm.allreduce(torch.ones(50_000), "max"),
        "exchange": lambda comm: comm.exchange([], [(0, torch.empty(3))]),
        "probe": lambda comm: _discard(comm.probe()),
        "large send": lambda comm: comm.exchange([(0, torch.ones(1 << 20))], []),
    }


def _discard(value: object) -> None:
    del value


def abort_wakes(make: Callable[[], Communicator]) -> None:
    """While all others wait, or just before, rank 0 aborts. `make` makes fresh communicators."""
    for call in _waits().values():
        comm = make()
        if comm.size == 1:
            continue
        if comm.rank == 0:
            time.sleep(0.02)  # most likely the others wait by now; it must work either way
            comm.abort()
            comm.abort()  # once more does no harm
        else:
            with pytest.raises(WorkerLost):
                call(comm)
        for later in _waits().values():
            with pytest.raises(WorkerLost):
                later(comm)
        comm.close()


def lost_window(comm: Communicator) -> None:
    """A tensor in a window that a peer has given back is an error, not a crash. Processes only."""
    first, second = comm.shared_window(1 << 20), comm.shared_window(1 << 20)
    out = torch.empty(comm.size << 20, dtype=torch.uint8)
    if comm.size == 1:
        comm.allgather(out, first[0])
    elif comm.rank == 0:
        with pytest.raises(WorkerLost):
            comm.allgather(out, first[0])
    else:
        del first
        with pytest.raises((MagmathError, WorkerLost)):
            comm.allgather(out, second[comm.rank])
        comm.abort()


BODIES: tuple[Body, ...] = (
    allreduce,
    allreduce_shapes,
    nan_wins,
    half_types_accumulate_wide,
    allgather,
    reduce_scatter,
    all_to_all,
    inputs_survive,
    random_exchange,
    everyone_to_everyone,
    agreement,
    two_threads,
    nested_duplicates,
    closed_duplicates,
    requests_of_all,
    refusals,
    counted,
    device_tensors,
)
SHARED_BODIES: tuple[Body, ...] = (
    barriers_meet,
    compiled_code_joins,
    who_waits_sleeps,
    in_every_state_of_waiting,
    windows,
    window_collectives,
    windows_past_the_cache,
    late_ranks,
    outlived_window,
    symmetric_heap,
)
MESSAGE_BODIES: tuple[Body, ...] = (no_shared_memory,)


def bodies(shares_memory: bool) -> tuple[Body, ...]:
    """The bodies for communicators that share memory, or do not."""
    return BODIES + (SHARED_BODIES if shares_memory else MESSAGE_BODIES)


def main_on_hosts(mpi: Any, communicator: Communicator) -> None:
    """Run every body on a communicator of two levels; say what was run."""
    assert communicator.is_hierarchical
    for body in bodies(False):
        body(communicator)
        communicator.barrier()
        if communicator.rank == 0:
            print("passed hosts", body.__name__, flush=True)
    abort_wakes(lambda: mpi.two_levels(mpi.MPICommunicator(mpi.MPI.COMM_WORLD)))
    if communicator.rank == 0:
        print("passed hosts abort_wakes", flush=True)
    communicator.close()


def main(sizes: list[int]) -> None:
    """Run every body on the communicators of mpiexec, with and without shared memory; print their
    names.

    Of each of `sizes` ranks, one group after the other: lines of several would be mixed. The other
    ranks wait.
    """
    mpi = import_module("magmath.comm.mpi")  # only where mpiexec has started this
    communicator = mpi.world_communicator()
    if any(communicator.hosts):
        main_on_hosts(mpi, communicator)
        return
    assert sizes, "numbers of ranks"
    for size in sizes:
        is_member = communicator.rank < size
        group = mpi.MPI.COMM_WORLD.Split(0 if is_member else mpi.MPI.UNDEFINED)
        if is_member:
            main_on_group(mpi, group)
        communicator.barrier()
    communicator.close()


def main_on_group(mpi: Any, group: Any) -> None:
    """Run every body on the ranks of a communicator of MPI."""

    def passed(shares_memory: bool, name: str) -> None:
        if group.rank == 0:
            print("passed", group.size, shares_memory, name, flush=True)

    for shares_memory in (True, False):
        comm = mpi.MPICommunicator(group, shares_memory)
        assert comm.shares_memory == shares_memory
        for body in bodies(shares_memory):
            body(comm)
            comm.barrier()
            passed(shares_memory, body.__name__)
        comm.close()
        make = partial(mpi.MPICommunicator, group, shares_memory)
        for waking in (abort_wakes, failed_errand_wakes):
            waking(make)
            passed(shares_memory, waking.__name__)
    lost_window(mpi.MPICommunicator(group))
    passed(True, "lost_window")


if __name__ == "__main__":
    gc.freeze()  # collections do not visit what was imported
    main([int(size) for size in sys.argv[1:]])
