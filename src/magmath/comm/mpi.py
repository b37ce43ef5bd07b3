"""The communicator of MPI processes: the only module that imports mpi4py.

If all ranks are on one host and can map each other's memory, barriers and collectives use shared
windows, and MPI only implements `exchange`. On several hosts, a communicator of two levels composes
such a communicator for each host with one in which MPI implements everything
(`magmath.comm.two_level`). Nothing is pickled. Waiting calls poll MPI instead of blocking in it, so
that an aborting rank can wake the others.
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Sequence
from typing import Any, final

import mpi4py
import numpy as np
import torch
from torch import Tensor

from magmath.comm.barrier import SpinBarrier
from magmath.comm.barrier_memory import (
    ABORT,
    ADDRESSES,
    LINE,
    Flags,
    aborted_error,
    allocate_flags,
    flags_length,
    prepare_flags,
    raise_if_aborted,
)
from magmath.comm.communicator import Communicator
from magmath.comm.host_memory import (
    Bytes,
    HostMemory,
    SharedWindowTable,
    attach,
    is_file_size_limited,
)
from magmath.comm.message_collectives import MessageCollectives
from magmath.comm.mpich_files import unlink_startup_files
from magmath.comm.reduction_checks import HALF
from magmath.comm.shared_collectives import SharedCollectives
from magmath.comm.shared_counters import is_waiting_for_counter
from magmath.comm.two_level import TwoLevelCommunicator
from magmath.core.byte_sizes import round_up
from magmath.core.cpu import PAGE
from magmath.core.resources import limit_to_quota
from magmath.errors import MemoryLimitError, WorkerLost

mpi4py.rc.initialize = False
mpi4py.rc.finalize = False
from mpi4py import MPI  # noqa: E402  (it reads the settings above when it is imported)

_DATATYPES = {
    torch.bool: MPI.C_BOOL,
    torch.int8: MPI.INT8_T,
    torch.int16: MPI.INT16_T,
    torch.int32: MPI.INT32_T,
    torch.int64: MPI.INT64_T,
    torch.uint8: MPI.UINT8_T,
    torch.uint16: MPI.UINT16_T,
    torch.uint32: MPI.UINT32_T,
    torch.uint64: MPI.UINT64_T,
    torch.float32: MPI.FLOAT,
    torch.float64: MPI.DOUBLE,
    torch.complex64: MPI.C_FLOAT_COMPLEX,
    torch.complex128: MPI.C_DOUBLE_COMPLEX,
}
_OPERATIONS = {
    "sum": MPI.SUM,
    "prod": MPI.PROD,
    "max": MPI.MAX,
    "min": MPI.MIN,
    "any": MPI.LOR,
    "all": MPI.LAND,
}
_EMPTY = bytearray()
_NO_HANDLE = (0, 0)
_BUSY_POLLS = 200  # polls of MPI before each poll yields the processor
_YIELDING_POLLS = 2000  # polls of MPI before each poll is followed by a sleep
_SLEEP_SECONDS = 5e-5  # seconds
_MAX_SLEEP_SECONDS = 1e-3  # seconds of sleep of a thread that has waited long for any message
_POLLS_PER_ALARM = 16  # polls of MPI per poll of the alarm of other hosts

_abandoned: list[object] = []
"""Requests of aborted communicators and their tensors: MPI may still access them, so they must stay
allocated until the process ends."""


def world_communicator(shares_memory: bool = True) -> Communicator:
    """Return the communicator of all processes that mpiexec (or srun) started. Collective; call it
    once.

    With `shares_memory=False` MPI implements everything, also within a host. At exit, MPI is
    finalized if the communicator was closed; otherwise it is aborted, so that no rank waits.
    """
    MPI.Init_thread(MPI.THREAD_MULTIPLE)  # duplicates are used by another thread
    MPI.COMM_WORLD.Barrier()
    unlink_startup_files()
    world = MPICommunicator(MPI.COMM_WORLD, shares_memory)
    communicator: Communicator = world
    if shares_memory and 0 < max(world.hosts) < world.size - 1:
        communicator = two_levels(world)
    atexit.register(_finalize, world, communicator)
    return communicator


def two_levels(world: MPICommunicator) -> Communicator:
    """Return the communicator of all ranks that shares memory within each host; `world` if the
    ranks of a host cannot map each other's memory. Collective."""
    host = world.split_hosts()
    if world.allreduce_max(int(not host.shares_memory)):
        host.close()
        return world
    return TwoLevelCommunicator(world, host, world.hosts)


@final
class MPICommunicator(Communicator):
    """The connection of one process of an MPI communicator to the others. The constructor is
    collective."""

    def __init__(
        self,
        comm: MPI.Intracomm,
        shares_memory: bool = True,
        first: MPICommunicator | None = None,
    ) -> None:
        hosts, processors = _hosts_and_processors(comm)
        memory = _map_flags(comm, processors) if shares_memory and not any(hosts) else None
        on_host = hosts.count(hosts[comm.rank])
        super().__init__(comm.rank, comm.size, memory is not None, on_host, processors, hosts)
        self._flags = allocate_flags(1) if memory is None else memory
        self._comm = comm.Dup()
        self._alarm = comm.Dup()
        self._windows = SharedWindowTable()
        self._barrier = SpinBarrier(self._flags, self.rank, self.size)
        self.closed = False
        self._duplicates: list[MPICommunicator] = [] if first is None else first._duplicates
        """Those that are not closed, of which an abort of one wakes all."""
        self._duplicates.append(self)
        self._shared = SharedCollectives(self._barrier, self.shared_window, self._windows)
        self._messages = MessageCollectives(self.rank, self.size, self._exchange)

    @property
    def is_aborted(self) -> bool:
        """True if a rank is known to have aborted."""
        return bool(self._flags[ABORT])

    @property
    def is_waiting(self) -> bool:
        if not self.shares_memory:  # waits poll MPI, and use the processor
            return False
        barriers = [communicator._barrier for communicator in tuple(self._duplicates)]
        return is_waiting_for_counter() or any(barrier.is_waiting for barrier in barriers)

    def barrier(self) -> None:
        if self.shares_memory:
            self._barrier.wait()
        else:
            raise_if_aborted(self._flags)
            self._complete([self._comm.Ibarrier()])

    def allreduce_max(self, value: int) -> int:
        if self.shares_memory:
            return self._barrier.allreduce_max(value)
        raise_if_aborted(self._flags)
        result = np.array([value])
        self._complete([self._comm.Iallreduce(MPI.IN_PLACE, result, MPI.MAX)], result)
        return int(result[0])

    def shared_window(self, nbytes: int) -> list[Tensor]:
        if not self.shares_memory:
            raise self._no_shared_memory()
        stride = round_up(max(nbytes, 1), PAGE)
        whole = self._map(stride * self.size)
        self._windows.add(whole, whole.ctypes.data, len(whole))
        starts = [rank * stride for rank in range(self.size)]
        return [torch.from_numpy(whole[start : start + nbytes]) for start in starts]

    def duplicate(self) -> MPICommunicator | None:
        if MPI.Query_thread() < MPI.THREAD_MULTIPLE and not self.shares_memory:
            return None
        return MPICommunicator(self._comm, self.shares_memory, self)

    def probe(self) -> int:
        raise_if_aborted(self._flags)
        status, start = MPI.Status(), time.perf_counter()
        while not self._comm.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG, status):
            self._look_at_alarm()
            raise_if_aborted(self._flags)
            idle = time.perf_counter() - start
            time.sleep(min(max(idle / 16, _SLEEP_SECONDS), _MAX_SLEEP_SECONDS))
        return status.Get_source()

    def split_hosts(self) -> MPICommunicator:
        """Return a communicator of the ranks of this host. Collective."""
        ranks = self._comm.Split(self.hosts[self.rank], self.rank)
        assert isinstance(ranks, MPI.Intracomm)
        host = MPICommunicator(ranks)
        ranks.Free()
        return host

    def abort(self) -> None:
        for communicator in tuple(self._duplicates):  # another thread may close one
            communicator._wake()

    def _wake(self) -> None:
        if self.is_aborted or self.closed:
            return
        self._flags[ABORT] = 1
        if not self.shares_memory:
            other_ranks = [rank for rank in range(self.size) if rank != self.rank]
            _abandoned.extend([self._alarm.Isend([_EMPTY, MPI.BYTE], r) for r in other_ranks])

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._shared.close()
        try:
            self.barrier()
        except WorkerLost:
            return  # Freeing MPI communicators is collective, which is impossible after an abort.
        self._duplicates.remove(self)
        self._alarm.Free()
        self._comm.Free()

    def _map(self, nbytes: int) -> Bytes:
        """Allocate memory shared by all ranks; rank 0 creates it, the others attach."""
        memory = HostMemory.create(nbytes) if self.rank == 0 else None
        handle = self._publish(memory.handle if memory else _NO_HANDLE)[0]
        array = memory.array if memory else attach(handle, nbytes)
        failed = self._barrier.allreduce_max(int(array is None))
        if memory:
            memory.seal()
        if failed or array is None:
            raise MemoryLimitError(
                f"shared_window: the system has no {nbytes / 1e6:.3g} MB of shared memory for "
                f"{self.size} workers, or a worker has too many open files (ulimit -n); free "
                f"arrays, use fewer workers, or raise that limit"
            )
        return array

    def _publish(self, handle: tuple[int, int]) -> list[tuple[int, int]]:
        """Publish two numbers to all ranks; return the numbers of all. Enters one barrier.

        Two pairs of words are used alternately: before a rank reuses a pair, it has passed a
        barrier that all ranks entered after they had read the pair.
        """
        word = ADDRESSES + 2 * self._shared.next_word_pair()
        lines = self._flags.reshape(-1, LINE)[1:, word : word + 2]
        lines[self.rank] = handle
        self._barrier.wait()
        return [(int(first), int(second)) for first, second in lines]

    def _look_at_alarm(self) -> None:
        """Record that a rank without common memory has aborted."""
        if not self.shares_memory and self._alarm.Iprobe():
            self._flags[ABORT] = 1

    def _complete(self, requests: list[MPI.Request], *buffers: object) -> None:
        """Wait for requests on `buffers`. Raises WorkerLost if a rank has aborted."""
        looks = 0
        while not MPI.Request.Testall(requests):
            looks += 1
            if looks % _POLLS_PER_ALARM == 0:
                self._look_at_alarm()
            if self.is_aborted:
                _abandoned.extend([requests, buffers])
                raise aborted_error()
            if looks > _YIELDING_POLLS:
                time.sleep(_SLEEP_SECONDS)
            elif looks > _BUSY_POLLS:
                os.sched_yield()

    def _exchange(
        self, sends: Sequence[tuple[int, Tensor]], receives: Sequence[tuple[int, Tensor]]
    ) -> None:
        raise_if_aborted(self._flags)
        requests = [self._comm.Irecv(_byte_buffer(tensor), peer) for peer, tensor in receives]
        requests += [self._comm.Isend(_byte_buffer(tensor), peer) for peer, tensor in sends]
        self._complete(requests, sends, receives)

    def _allreduce(self, tensor: Tensor, reduction: str) -> None:
        if self.shares_memory:
            self._shared.allreduce(tensor, reduction)
        elif tensor.dtype in HALF:
            wide = tensor.float()
            self._allreduce(wide, reduction)
            tensor.copy_(wide)
        elif _can_lose_nan(tensor.dtype, reduction):
            self._messages.allreduce(tensor, reduction)
        else:
            self._run(self._comm.Iallreduce, MPI.IN_PLACE, tensor, _OPERATIONS[reduction])

    def _reduce_scatter(self, out: Tensor, tensor: Tensor, reduction: str) -> None:
        if self.shares_memory:
            self._shared.reduce_scatter(out, tensor, reduction)
        elif tensor.dtype in HALF:
            wide = torch.empty_like(out, dtype=torch.float32)
            self._reduce_scatter(wide, tensor.float(), reduction)
            out.copy_(wide)
        elif _can_lose_nan(tensor.dtype, reduction):
            self._messages.reduce_scatter(out, tensor, reduction)
        else:
            self._run(self._comm.Ireduce_scatter_block, tensor, out, _OPERATIONS[reduction])

    def _allgather(self, out: Tensor, tensor: Tensor) -> None:
        if self.shares_memory:
            self._shared.allgather(out, tensor)
        else:
            self._run(self._comm.Iallgather, tensor, out)

    def _all_to_all(self, out: Tensor, tensor: Tensor) -> None:
        if self.shares_memory:
            self._shared.all_to_all(out, tensor)
        else:
            self._run(self._comm.Ialltoall, tensor, out)

    def _run(self, collective: Any, source: Any, target: Tensor, *operation: MPI.Op) -> None:
        """Run an MPI collective from `source` (a tensor, or MPI.IN_PLACE) to `target`."""
        raise_if_aborted(self._flags)
        buffer = _typed_buffer(source) if isinstance(source, Tensor) else source
        request = collective(buffer, _typed_buffer(target), *operation)
        self._complete([request], source, target)


def _hosts_and_processors(comm: MPI.Intracomm) -> tuple[list[int], int]:
    """Return the host of each rank, by number, and the processors that the ranks of this host may
    use."""
    host = comm.Split_type(MPI.COMM_TYPE_SHARED)
    first = np.array([comm.rank])
    host.Bcast(first)
    processors = _count_processors(host)
    host.Free()
    firsts = np.zeros(comm.size, first.dtype)
    comm.Allgather(first, firsts)
    known = list(dict.fromkeys(firsts.tolist()))
    return [known.index(rank) for rank in firsts.tolist()], processors


def _map_flags(comm: MPI.Intracomm, processors: int) -> Flags | None:
    """Map barrier memory shared by all ranks of one host; None on every rank if one cannot map
    it."""
    nbytes = flags_length(comm.size) * np.dtype(np.uint64).itemsize
    memory = HostMemory.create(nbytes) if comm.rank == 0 else None
    if memory:
        prepare_flags(memory.array.view(np.uint64), comm.size, processors)
    handle = np.array(memory.handle if memory else _NO_HANDLE)
    comm.Bcast(handle)
    array = memory.array if memory else attach((int(handle[0]), int(handle[1])), nbytes)
    attached = np.array([array is not None and not is_file_size_limited()])
    comm.Allreduce(MPI.IN_PLACE, attached, MPI.LAND)
    if memory:
        memory.seal()
    return array.view(np.uint64) if array is not None and attached[0] else None


def _count_processors(comm: MPI.Comm) -> int:
    """Return the number of processors for the ranks of one host: the union of their affinity masks,
    limited by the quota of their control group."""
    own = list(os.sched_getaffinity(0))
    length = np.array([max(own) + 1])  # containers may hide processors, but not renumber them
    comm.Allreduce(MPI.IN_PLACE, length, MPI.MAX)
    processors = np.zeros(int(length[0]), np.uint8)
    processors[own] = 1
    comm.Allreduce(MPI.IN_PLACE, processors, MPI.MAX)
    return limit_to_quota(int(processors.sum()))


def _finalize(world: MPICommunicator, communicator: Communicator) -> None:
    if world.closed and not world.is_aborted:
        MPI.Finalize()
    else:
        communicator.abort()


def _can_lose_nan(dtype: torch.dtype, reduction: str) -> bool:
    """Return True for reductions in which MPI may lose NaN: maximum and minimum of floating
    point."""
    return dtype.is_floating_point and reduction in ("max", "min")


# Buffer specifications for mpi4py. Without a count, since mpi4py derives it, for each rank's block
# if the call has blocks; an explicit count would be the count of one block.


def _typed_buffer(tensor: Tensor) -> tuple[MPI.buffer, MPI.Datatype]:
    # The table lacks half types: MPI moves them as bytes and does not reduce them.
    return _buffer(tensor), _DATATYPES.get(tensor.dtype, MPI.BYTE)


def _byte_buffer(tensor: Tensor) -> tuple[MPI.buffer, MPI.Datatype]:
    return _buffer(tensor), MPI.BYTE


def _buffer(tensor: Tensor) -> MPI.buffer:
    return MPI.buffer.fromaddress(tensor.data_ptr(), tensor.nbytes)
