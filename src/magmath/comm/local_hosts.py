"""Ranks as threads of one process on simulated hosts, which exchange messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from magmath.comm.communicator import Communicator
from magmath.comm.local_group import LocalGroup
from magmath.comm.two_level import TwoLevelCommunicator


@final
class LocalHosts:
    """Ranks in one process; each thread uses its `communicator(rank)`.

    `hosts`: the host of each rank, numbered in the order of their first ranks.
    """

    def __init__(self, hosts: Sequence[int]) -> None:
        self.size = len(hosts)
        messages = LocalGroup(self.size, shares_memory=False)
        counts = [hosts.count(number) for number in range(max(hosts) + 1)]
        groups = [LocalGroup(count) for count in counts]
        self._groups = [messages, *groups]
        self._ranks = [
            TwoLevelCommunicator(
                messages.communicator(rank),
                groups[host].communicator(hosts[:rank].count(host)),
                hosts,
            )
            for rank, host in enumerate(hosts)
        ]

    def communicator(self, rank: int) -> Communicator:
        """Return the communicator of one rank, always the same object."""
        return self._ranks[rank]

    def abort(self) -> None:
        """Wake every rank with WorkerLost."""
        for group in self._groups:
            group.abort()
