"""The communicator of ranks on several hosts: shared memory within a host, messages between hosts.

It composes two communicators. Collectives run level by level, so that each byte passes the network
port of a host once: a reduction first reduces within each host, then exchanges the hosts' results;
an allgather first exchanges between hosts, then gathers within each (the hierarchical algorithms of
Thakur et al. 2005). The ranks of a host divide its messages among themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import final

from torch import Tensor, float32

from magmath.comm.communicator import Communicator
from magmath.comm.reduction_checks import HALF
from magmath.errors import WorkerLost

_WHOLE_BYTES = 1 << 13
"""Maximum bytes of an allreduce in which hosts exchange whole results, in one round of messages."""


@final
class TwoLevelCommunicator(Communicator):
    """The ranks of several hosts, seen from one of them.

    messages  communicator of all ranks, by messages
    host      communicator of the ranks of this host, which share memory; its ranks are in the order
              of those of `messages`
    hosts     the host of each rank, numbered in the order of their first ranks
    """

    def __init__(self, messages: Communicator, host: Communicator, hosts: Sequence[int]) -> None:
        super().__init__(messages.rank, messages.size, False, host.size, host.processors, hosts)
        self._messages = messages
        self._host = host
        self._members = [
            [rank for rank in range(self.size) if hosts[rank] == number]
            for number in range(max(hosts) + 1)
        ]
        positions = {rank: n for members in self._members for n, rank in enumerate(members)}
        # Rank d of another host exchanges its data with the rank of this host whose position is d's
        # position modulo the number of ranks here. The ranks that one position serves are a column.
        column_of = [positions[rank] % host.size for rank in range(self.size)]
        self._columns = [
            [rank for rank in range(self.size) if column_of[rank] == column]
            for column in range(host.size)
        ]
        self._width = max(len(column) for column in self._columns)
        own_position = positions[self.rank]
        self._partners = [members[own_position % len(members)] for members in self._members]

    @property
    def is_hierarchical(self) -> bool:
        return True

    @property
    def is_waiting(self) -> bool:
        return self._host.is_waiting or self._messages.is_waiting

    def shared_window(self, nbytes: int) -> list[Tensor]:
        raise self._no_shared_memory()

    def barrier(self) -> None:
        with self._waking_host():
            self._messages.barrier()

    def allreduce_max(self, value: int) -> int:
        with self._waking_host():
            return self._messages.allreduce_max(value)

    def duplicate(self) -> TwoLevelCommunicator | None:
        messages = self._messages.duplicate()
        if messages is None:
            return None
        host = self._host.duplicate()
        assert host is not None  # the library supports several threads
        return TwoLevelCommunicator(messages, host, self.hosts)

    def probe(self) -> int:
        with self._waking_host():
            return self._messages.probe()

    def abort(self) -> None:
        self._messages.abort()
        self._host.abort()

    def close(self) -> None:
        self._host.close()
        self._messages.close()

    @contextmanager
    def _waking_host(self) -> Iterator[None]:
        """Wake the ranks of this host if a rank of another host has aborted."""
        try:
            yield
        except WorkerLost:
            self._host.abort()
            raise

    def _exchange(
        self, sends: Sequence[tuple[int, Tensor]], receives: Sequence[tuple[int, Tensor]]
    ) -> None:
        with self._waking_host():
            self._messages._exchange(sends, receives)

    def _all_to_all(self, out: Tensor, tensor: Tensor) -> None:
        with self._waking_host():  # no rank receives what another rank of its host receives too
            self._messages._all_to_all(out, tensor)

    def _allreduce(self, tensor: Tensor, reduction: str) -> None:
        if tensor.dtype in HALF:
            wide = tensor.float()
            self._allreduce(wide, reduction)
            tensor.copy_(wide)
        elif tensor.nbytes <= _WHOLE_BYTES:
            self._host.allreduce(tensor, reduction)
            column = self._columns[self._host.rank]
            self._combine(tensor.view(-1), [(rank, tensor) for rank in column], tensor, reduction)
        else:
            count = tensor.numel()
            block = tensor.new_empty(-(-count // self.size))
            padded = tensor.new_zeros(self.size * block.numel())
            padded[:count] = tensor.view(-1)
            self._reduce_scatter(block, padded, reduction)
            self._allgather(padded, block)
            tensor.view(-1).copy_(padded[:count])

    def _reduce_scatter(self, out: Tensor, tensor: Tensor, reduction: str) -> None:
        if out.dtype in HALF:
            wide = out.new_empty(out.shape, dtype=float32)
            self._reduce_scatter(wide, tensor.float(), reduction)
            out.copy_(wide)
            return
        blocks = tensor.view(self.size, -1)
        column = self._columns[self._host.rank]
        if self._host.size == 1:
            reduced = blocks
        else:
            columns = tensor.new_zeros((self._host.size, self._width, out.numel()))
            for number, ranks in enumerate(self._columns):
                for index, rank in enumerate(ranks):
                    columns[number, index] = blocks[rank]
            reduced = columns.new_empty((self._width, out.numel()))
            self._host.reduce_scatter(reduced.view(-1), columns.view(-1), reduction)
        parts = list(zip(column, reduced, strict=False))
        self._combine(out.view(-1), parts, dict(parts)[self.rank], reduction)

    def _combine(
        self, out: Tensor, sends: Sequence[tuple[int, Tensor]], own_part: Tensor, reduction: str
    ) -> None:
        """Send parts to ranks of other hosts; fill `out` with the reduction, in the order of the
        hosts, of the part of this host and those of the partners of this rank."""
        parts = [
            own_part.view(-1) if partner == self.rank else own_part.new_empty(own_part.numel())
            for partner in self._partners
        ]
        self._exchange(
            [(rank, part) for rank, part in sends if self._is_remote(rank)],
            [
                (partner, part)
                for partner, part in zip(self._partners, parts, strict=True)
                if self._is_remote(partner)
            ],
        )
        from magmath.comm.reduce_kernels import reduce_tensors  # loads the compiler: on first use

        reduce_tensors(out, parts, reduction)

    def _allgather(self, out: Tensor, tensor: Tensor) -> None:
        blocks, own_block = out.view(self.size, -1), tensor.view(-1)
        received = own_block.new_empty((self._width, own_block.numel()))
        receives = []
        for index, rank in enumerate(self._columns[self._host.rank]):
            if self._is_remote(rank):
                receives.append((rank, received[index]))
            else:
                received[index] = own_block
        self._exchange([(r, own_block) for r in self._partners if self._is_remote(r)], receives)
        columns = own_block.new_empty((self._host.size, self._width, own_block.numel()))
        self._host.allgather(columns.view(-1), received.view(-1))
        for number, ranks in enumerate(self._columns):
            for index, rank in enumerate(ranks):
                blocks[rank] = columns[number, index]

    def _is_remote(self, rank: int) -> bool:
        return self.hosts[rank] != self.hosts[self.rank]
