"""The topology of a pool: the hosts of its workers, and what each worker has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from magmath.comm.network_speed import NetworkSpeed
from magmath.runtime import messages


@final
@dataclass(frozen=True)
class Topology:
    """The hosts of the workers, by number, and the resources of each worker.

    `network`: the speed between hosts; None if all workers are on one host, or the pool is
    simulated.
    """

    hosts: tuple[int, ...]
    shares_memory: bool
    threads: int
    device: str
    network: NetworkSpeed | None = None

    @staticmethod
    def of(hellos: Sequence[messages.Hello]) -> Topology:
        """Summarize the Hello messages of the workers."""
        return Topology(
            hosts=tuple([hello.host_number for hello in hellos]),
            shares_memory=all(hello.shares_memory for hello in hellos),
            threads=hellos[0].threads,
            device=hellos[0].device.partition(":")[0],
            network=hellos[0].network,
        )
