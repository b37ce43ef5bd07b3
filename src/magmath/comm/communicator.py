"""The interface of communication between workers, independent of the transport.

`Communicator` checks arguments and copies device tensors to host memory for every implementation;
an implementation moves contiguous host tensors. Every method except `abort` is collective or has a
matching call on another rank, and every rank must make the same sequence of collective calls.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeAlias

from torch import Tensor

from magmath.comm.barrier_memory import Flags
from magmath.comm.device_staging import copy_back, host_buffer, host_copy
from magmath.comm.reduction_checks import check_reduction
from magmath.errors import DeviceError, DTypeError, ShapeError

_Collective: TypeAlias = Callable[..., None]  # of (out, tensor), and a reduction if it has one


class Communicator(ABC):
    """The connection of one rank of a pool to the other ranks.

    rank            this rank, from 0
    size            the number of ranks
    shares_memory   True if every rank can map every other's shared windows: all are on one host
    ranks_on_host   the number of ranks on the host of this one, itself included
    processors      the number of processors on which the ranks of this host can run
    hosts           the host of each rank, numbered in the order of their first ranks; by default
                    all ranks are on one host

    A call that waits for other ranks raises WorkerLost after any rank has called `abort`.
    """

    rank: int
    size: int
    shares_memory: bool
    ranks_on_host: int
    processors: int
    hosts: tuple[int, ...]
    _flags: Flags
    """The barrier memory, if the ranks share memory."""

    def __init__(
        self,
        rank: int,
        size: int,
        shares_memory: bool,
        on_host: int,
        processors: int,
        hosts: Sequence[int] | None = None,
    ) -> None:
        self.rank = rank
        self.size = size
        self.shares_memory = shares_memory
        self.ranks_on_host = on_host
        self.processors = processors
        self.hosts = (0,) * size if hosts is None else tuple(hosts)

    @property
    def is_hierarchical(self) -> bool:
        """True if collectives have two levels, so that they send fewer bytes between hosts than
        messages between all pairs of ranks."""
        return False

    @property
    def is_waiting(self) -> bool:
        """True if a thread of this rank is known to wait for another rank, here or on a duplicate,
        without use of the processor; for another thread that watches it."""
        return False

    @property
    def flags(self) -> Flags:
        """The barrier memory, uint64, for compiled code that calls `magmath.comm.barrier.wait`.

        Raises DeviceError if the ranks do not share memory.
        """
        if not self.shares_memory:
            raise self._no_shared_memory()
        return self._flags

    @abstractmethod
    def barrier(self) -> None:
        """Return once every rank has called it."""

    @abstractmethod
    def shared_window(self, nbytes: int) -> list[Tensor]:
        """Allocate shared memory: one uint8 tensor of `nbytes` per rank, entry r for rank r.

        Collective, with equal `nbytes` on every rank. The memory is released with the last tensor
        that views it. Raises DeviceError if the ranks do not share memory.
        """

    @abstractmethod
    def allreduce_max(self, value: int) -> int:
        """Return the largest of the small non-negative integers that the ranks pass."""

    @abstractmethod
    def duplicate(self) -> Communicator | None:
        """Return a second communicator of the same ranks, for another thread; None if the library
        supports only one thread per process.

        Collective. Calls on the two communicators are independent; an abort of either wakes both.
        The duplicate has no shared windows. Close it before this one.
        """

    @abstractmethod
    def abort(self) -> None:
        """Wake every rank: its current wait, or its next call, raises WorkerLost. Never blocks."""

    @abstractmethod
    def close(self) -> None:
        """Release the resources of the communicator. Collective, unless a rank has aborted."""

    @abstractmethod
    def probe(self) -> int:
        """Return a rank whose message can be received, when there is one. Not collective; no other
        thread may receive from this communicator."""

    def exchange(
        self, sends: Sequence[tuple[int, Tensor]], receives: Sequence[tuple[int, Tensor]]
    ) -> None:
        """Send and receive contiguous tensors, given as (rank, tensor); this rank may be a peer.

        Every send needs a receive of equal bytes, in the same order for each pair of ranks. Never
        deadlocks: all sends and receives of a call progress concurrently.
        """
        outgoing = [
            (self._peer(rank), host_copy(_require_contiguous("exchange", t))) for rank, t in sends
        ]
        incoming = [
            (self._peer(rank), host_buffer(_require_contiguous("exchange", t)))
            for rank, t in receives
        ]
        self._exchange(outgoing, incoming)
        for (_, tensor), (_, buffer) in zip(receives, incoming, strict=True):
            copy_back(tensor, buffer)

    def allreduce(self, tensor: Tensor, reduction: str = "sum") -> None:
        """Replace a contiguous `tensor` by its reduction over the ranks, bitwise equal on each.

        `reduction`: sum, prod, max, min (of numbers; NaN wins), any, all (of bools). Half types are
        reduced in float32 and rounded once.
        """
        check_reduction("allreduce", tensor.dtype, reduction)
        buffer = host_copy(_require_contiguous("allreduce", tensor))
        if self.size > 1 and tensor.numel():
            self._allreduce(buffer, reduction)
        copy_back(tensor, buffer)

    def allgather(self, out: Tensor, tensor: Tensor) -> None:
        """Fill block r of `out`, of `size` equal blocks, with rank r's `tensor`."""
        if _check_blocks("allgather", out, tensor, self.size):
            self._run_collective(self._allgather, out, tensor)

    def reduce_scatter(self, out: Tensor, tensor: Tensor, reduction: str = "sum") -> None:
        """Fill `out` with the reduction over the ranks of block `rank` of `tensor`.

        `tensor` has `size` blocks of the size of `out`; `reduction` as for `allreduce`.
        """
        check_reduction("reduce_scatter", tensor.dtype, reduction)
        if _check_blocks("reduce_scatter", tensor, out, self.size):
            self._run_collective(self._reduce_scatter, out, tensor, reduction)

    def all_to_all(self, out: Tensor, tensor: Tensor) -> None:
        """Fill block r of `out` with block `rank` of rank r's `tensor`, both of `size` blocks."""
        if tensor.numel() % self.size:
            raise ShapeError(
                f"all_to_all over {self.size} ranks needs tensors of {self.size} equal blocks, "
                f"not {tensor.numel()} elements; pad them, or use exchange"
            )
        if _check_blocks("all_to_all", out, tensor, 1):
            self._run_collective(self._all_to_all, out, tensor)

    def _run_collective(
        self, collective: _Collective, out: Tensor, tensor: Tensor, *reduction: str
    ) -> None:
        if self.size == 1:
            out.view(-1).copy_(tensor.view(-1))
        elif out.is_cpu and tensor.is_cpu:
            collective(out, tensor, *reduction)
        else:
            target = host_buffer(out)
            collective(target, host_copy(tensor), *reduction)
            copy_back(out, target)

    def _peer(self, rank: int) -> int:
        if not 0 <= rank < self.size:
            raise ShapeError(
                f"exchange names rank {rank}, the ranks are 0 to {self.size - 1}"
                "; pass a rank of the communicator"
            )
        return rank

    def _no_shared_memory(self) -> DeviceError:
        return DeviceError(
            f"the {self.size} ranks do not share memory: they have no shared window and no barrier "
            f"memory; move data with exchange and the collectives"
        )

    # The methods of an implementation. They receive checked, contiguous host tensors; collectives
    # receive non-empty tensors and have more than one rank.

    @abstractmethod
    def _exchange(
        self, sends: Sequence[tuple[int, Tensor]], receives: Sequence[tuple[int, Tensor]]
    ) -> None: ...

    @abstractmethod
    def _allreduce(self, tensor: Tensor, reduction: str) -> None: ...

    @abstractmethod
    def _allgather(self, out: Tensor, tensor: Tensor) -> None: ...

    @abstractmethod
    def _reduce_scatter(self, out: Tensor, tensor: Tensor, reduction: str) -> None: ...

    @abstractmethod
    def _all_to_all(self, out: Tensor, tensor: Tensor) -> None: ...


def _require_contiguous(operation: str, tensor: Tensor) -> Tensor:
    if not tensor.is_contiguous():
        raise ShapeError(
            f"{operation} needs contiguous tensors, not strides {tensor.stride()} for shape "
            f"{tuple(tensor.shape)}; call .contiguous() first"
        )
    return tensor


def _check_blocks(operation: str, whole: Tensor, block: Tensor, count: int) -> int:
    """Return the number of elements of a block. Raises if the two tensors do not match."""
    if not (whole.is_contiguous() and block.is_contiguous()):
        _require_contiguous(operation, whole)
        _require_contiguous(operation, block)
    if whole.dtype is not block.dtype:
        raise DTypeError(
            f"{operation} needs tensors of one dtype, not {whole.dtype} and {block.dtype}"
        )
    elements = block.numel()
    if whole.numel() != count * elements:
        raise ShapeError(
            f"{operation} needs one tensor {count} times as large as the other, not of shapes "
            f"{tuple(whole.shape)} and {tuple(block.shape)}"
        )
    return elements
