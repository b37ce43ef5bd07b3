"""Ranks as threads of one process: simulated pools, and pools launched as threads.

A `LocalGroup` holds the common state of the ranks: barrier memory, mailboxes and shared windows,
which here are ordinary buffers. With `shares_memory=False` it sends all data as messages, so that
one process can test the code path between hosts.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np
import torch
from torch import Tensor

from magmath.comm.barrier_memory import ABORT, Flags, allocate_flags, raise_if_aborted
from magmath.comm.communicator import Communicator
from magmath.comm.host_memory import Bytes, SharedWindowTable
from magmath.comm.message_collectives import MessageCollectives
from magmath.core.cpu import CACHE_LINE
from magmath.core.resources import processor_count
from magmath.errors import ShapeError

if TYPE_CHECKING:
    from magmath.comm.barrier import SpinBarrier
    from magmath.comm.shared_collectives import SharedCollectives

_POLL_SECONDS = 0.1  # seconds between two looks at the abort flag, which compiled code may set
_EAGER_BYTES = 1 << 14
"""Size of the largest message that is copied when it is sent, so that its sender does not wait."""


@final
class LocalGroup:
    """`size` ranks in one process; each thread uses its `communicator(rank)`.

    With `shares_memory=False`, shared windows are refused and all data is sent as messages.
    `first`: the group of which this one is a duplicate. `hosts`: the simulated host of each rank,
    by default one for all.
    """

    def __init__(
        self,
        size: int,
        shares_memory: bool = True,
        first: LocalGroup | None = None,
        *,
        hosts: Sequence[int] | None = None,
    ) -> None:
        if size < 1:
            raise ShapeError(f"LocalGroup needs 1 or more ranks, not {size}")
        self.size = size
        self.shares_memory = shares_memory
        self.hosts = (0,) * size if hosts is None else tuple(hosts)
        self.processors = processor_count()
        self.flags: Flags = allocate_flags(size)
        self.table = SharedWindowTable()
        self._lock = threading.Lock()
        # One for each rank: a sender wakes the receiver, and a receiver wakes the sender.
        self._changes = [threading.Condition() for _ in range(size)]
        self._mail: defaultdict[tuple[int, int], deque[_Message]] = defaultdict(deque)
        self._windows: dict[int, _Window] = {}
        self._duplicates: dict[int, _Duplicate] = {}
        self._related: list[LocalGroup] = [] if first is None else first._related
        """The groups that an abort of one of them wakes: those that are not closed."""
        self._closed_ranks = 0
        self._related.append(self)
        # After this group is in the list of an abort, which may set the flag at any time.
        if first is not None and first.flags[ABORT]:
            self.flags[ABORT] = 1
        self._ranks = [_LocalCommunicator(self, rank) for rank in range(size)]

    def communicator(self, rank: int) -> Communicator:
        """Return the communicator of one rank, always the same object."""
        return self._ranks[rank]

    def abort(self) -> None:
        """Wake every rank with WorkerLost, in this group and those that are related by
        duplication."""
        woken: list[LocalGroup] = []
        while groups := [x for x in tuple(self._related) if x not in woken]:  # some may be new
            for group in groups:
                group.flags[ABORT] = 1
                for change in group._changes:
                    with change:
                        change.notify_all()
            woken += groups

    def duplicate(self, number: int) -> LocalGroup:
        """Return the `number`-th duplicate of this group; the first caller makes it, and each rank
        asks for it once."""
        with self._lock:
            duplicate = self._duplicates.get(number)
            if duplicate is None:
                group = LocalGroup(self.size, self.shares_memory, self, hosts=self.hosts)
                duplicate = self._duplicates[number] = _Duplicate(group)
            duplicate.rank_count += 1
            if duplicate.rank_count == self.size:
                del self._duplicates[number]
            return duplicate.group

    def close_rank(self) -> None:
        """Forget the group when all of its ranks have called this."""
        with self._lock:
            self._closed_ranks += 1
            if self._closed_ranks == self.size:
                self._related.remove(self)

    def shared_window(self, call: int, nbytes: int) -> list[Tensor]:
        """Return the buffers of the `call`-th shared window; the first caller allocates them."""
        with self._lock:
            window = self._windows.get(call)
            if window is None:
                memory = [_allocate_aligned(nbytes) for _ in range(self.size)]
                for array in memory:
                    self.table.add(array, array.ctypes.data, nbytes)
                tensors = [torch.from_numpy(array) for array in memory]
                window = self._windows[call] = _Window(tensors, nbytes)
            if window.nbytes != nbytes:
                raise ShapeError(
                    f"shared_window is collective: one rank asks for {nbytes} bytes, another for "
                    f"{window.nbytes}; every rank must request the same"
                )
            window.rank_count += 1
            if window.rank_count == self.size:
                del self._windows[call]
            return list(window.tensors)

    def post(self, sender: int, receiver: int, tensor: Tensor) -> _Message:
        """Put a tensor into a mailbox. The caller must not change it until it has been fetched."""
        is_copied = tensor.nbytes <= _EAGER_BYTES
        message = _Message(tensor.clone() if is_copied else tensor, fetched=is_copied)
        change = self._changes[receiver]
        with change:
            self._mail[sender, receiver].append(message)
            change.notify_all()
        return message

    def fetch(self, sender: int, receiver: int, out: Tensor) -> None:
        """Wait for a tensor in a mailbox and copy the oldest one into `out`."""
        change = self._changes[receiver]
        with change:
            mailbox = self._mail[sender, receiver]
            while not mailbox:
                raise_if_aborted(self.flags)
                change.wait(_POLL_SECONDS)
            message = mailbox.popleft()
        if message.tensor.nbytes != out.nbytes:
            raise ShapeError(
                f"exchange: rank {sender} sends {message.tensor.nbytes} bytes to rank {receiver}, "
                f"which expects {out.nbytes}"
            )
        if out.dtype == message.tensor.dtype and out.shape == message.tensor.shape:
            out.copy_(message.tensor)
        elif out.nbytes:
            _bytes(out).copy_(_bytes(message.tensor))
        if not message.fetched:
            change = self._changes[sender]
            with change:
                message.fetched = True
                change.notify_all()

    def wait_for_sender(self, receiver: int) -> int:
        """Return a rank with a tensor in a mailbox of this rank, when there is one."""
        change = self._changes[receiver]
        with change:
            while True:
                raise_if_aborted(self.flags)
                for sender in range(self.size):
                    if self._mail.get((sender, receiver)):
                        return sender
                change.wait(_POLL_SECONDS)

    def wait_until_fetched(self, sender: int, message: _Message) -> None:
        """Return when a message of this rank has been fetched, or copied by `post`."""
        if message.fetched:
            return
        change = self._changes[sender]
        with change:
            while not message.fetched:
                raise_if_aborted(self.flags)
                change.wait(_POLL_SECONDS)


@final
@dataclass(slots=True)
class _Message:
    tensor: Tensor
    fetched: bool


@final
@dataclass(slots=True)
class _Window:
    tensors: list[Tensor]
    nbytes: int
    rank_count: int = 0


@final
@dataclass(slots=True)
class _Duplicate:
    group: LocalGroup
    rank_count: int = 0


@final
class _LocalCommunicator(Communicator):
    """One rank of a `LocalGroup`."""

    def __init__(self, group: LocalGroup, rank: int) -> None:
        hosts = group.hosts
        on_host = hosts.count(hosts[rank])
        super().__init__(rank, group.size, group.shares_memory, on_host, group.processors, hosts)
        self._group = group
        self._flags = group.flags
        self._calls = 0
        self._duplicate_count = 0
        self._is_closed = False
        self._barrier: SpinBarrier | None = None
        self._shared: SharedCollectives | None = None
        if group.size > 1:
            # Loads the compiler, so a single rank does not import it.
            from magmath.comm.barrier import SpinBarrier
            from magmath.comm.shared_collectives import SharedCollectives

            self._barrier = SpinBarrier(group.flags, rank, group.size)
            if group.shares_memory:
                self._shared = SharedCollectives(self._barrier, self.shared_window, group.table)
        self._collectives = self._shared or MessageCollectives(rank, group.size, self._exchange)

    @property
    def is_waiting(self) -> bool:
        return self._barrier is not None and self._barrier.is_waiting

    def barrier(self) -> None:
        if self._barrier is None:
            raise_if_aborted(self._group.flags)
        else:
            self._barrier.wait()

    def shared_window(self, nbytes: int) -> list[Tensor]:
        if not self.shares_memory:
            raise self._no_shared_memory()
        raise_if_aborted(self._group.flags)
        self._calls += 1
        return self._group.shared_window(self._calls, nbytes)

    def allreduce_max(self, value: int) -> int:
        if self._barrier is None:
            raise_if_aborted(self._group.flags)
            return value
        return self._barrier.allreduce_max(value)

    def duplicate(self) -> Communicator:
        self._duplicate_count += 1
        return self._group.duplicate(self._duplicate_count).communicator(self.rank)

    def probe(self) -> int:
        return self._group.wait_for_sender(self.rank)

    def abort(self) -> None:
        self._group.abort()

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._shared is not None:
            self._shared.close()
        self._group.close_rank()

    def _exchange(
        self, sends: Sequence[tuple[int, Tensor]], receives: Sequence[tuple[int, Tensor]]
    ) -> None:
        raise_if_aborted(self._group.flags)
        messages = [self._group.post(self.rank, peer, tensor) for peer, tensor in sends]
        for peer, tensor in receives:
            self._group.fetch(peer, self.rank, tensor)
        for message in messages:
            self._group.wait_until_fetched(self.rank, message)

    def _allreduce(self, tensor: Tensor, reduction: str) -> None:
        self._collectives.allreduce(tensor, reduction)

    def _allgather(self, out: Tensor, tensor: Tensor) -> None:
        self._collectives.allgather(out, tensor)

    def _reduce_scatter(self, out: Tensor, tensor: Tensor, reduction: str) -> None:
        self._collectives.reduce_scatter(out, tensor, reduction)

    def _all_to_all(self, out: Tensor, tensor: Tensor) -> None:
        self._collectives.all_to_all(out, tensor)


def _allocate_aligned(nbytes: int) -> Bytes:
    """Return memory that is aligned to a cache line."""
    memory = np.empty(nbytes + CACHE_LINE, np.uint8)
    begin = -memory.ctypes.data % CACHE_LINE
    return memory[begin : begin + nbytes]


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.view(-1).view(torch.uint8)
