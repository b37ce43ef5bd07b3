"""The cost model of redistributions, in seconds, by which planners compare plans.

Messages cost latency plus bytes over bandwidth. Workers that share memory read one another's tiles
in place, which costs a barrier and the bytes that the busiest worker reads. Between hosts, the
messages of all workers of a host share its network port, and collectives send the data of a worker
to another host once (`magmath.comm.two_level`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, final

from magmath.cost.collective_costs import Level
from magmath.layout.moves import Move
from magmath.layout.redistribution import Redistribution, Stage


@final
@dataclass(frozen=True)
class Link:
    """The connection between workers.

    `latency`: seconds per message. `bandwidth`: bytes per second into, and out of, one worker.
    `shared_memory`: every worker can read the memory of all others. `barrier`: seconds per barrier.
    `network`: the connection between hosts, if the workers are on several; the link is that of
    workers of one host then.
    """

    latency: float
    bandwidth: float
    shared_memory: bool
    barrier: float
    network: Network | None = None

    @property
    def levels(self) -> tuple[Level, ...]:
        """The levels of the network: that of workers, and if they are on several hosts that of
        hosts."""
        if self.network is None:
            return (Level("host", 0, self.bandwidth, self.latency),)
        return (
            Level("host", self.network.workers_per_host, self.bandwidth, self.latency),
            Level("network", 0, self.network.bandwidth, self.network.latency),
        )

    def workers_per_host(self, workers: int) -> int:
        """Return the largest number of workers of one host, of `workers` that compute."""
        return workers if self.network is None else min(workers, self.network.workers_per_host)


@final
@dataclass(frozen=True)
class Network:
    """The connection between hosts.

    `hosts`: the host of each worker, by number. `latency`: seconds per message. `bandwidth`: bytes
    per second into, and out of, one host.
    """

    hosts: tuple[int, ...]
    latency: float
    bandwidth: float

    @property
    def workers_per_host(self) -> int:
        """The largest number of workers of a host."""
        return max(Counter(self.hosts).values())


ETHERNET: Final = (3e-5, 1.17e9)
"""Latency and bandwidth of a network that is not measured: TCP over 10 Gb/s Ethernet."""


OF_WORKERS, OF_HOSTS = 0, 1
"""The levels of the ports of workers and of hosts."""


@final
class LevelStage(NamedTuple):
    """Messages at one level of the network: the seconds of their latency, then the bytes through
    the port of each unit, which is a worker (`OF_WORKERS`) or a host (`OF_HOSTS`)."""

    level: int
    latency: float
    loads: dict[int, int]


@final
class HostMessage(NamedTuple):
    """Elements that one host sends to another one, once for all of its workers that need them."""

    source: int
    target: int
    elements: int


def redistribution_seconds(redistribution: Redistribution, itemsize: int, link: Link) -> float:
    """Return the seconds that a redistribution takes, for elements of `itemsize` bytes.

    Copies within a worker count as free.
    """
    return sum([_stage_seconds(stage, itemsize, link) for stage in redistribution.stages])


def redistribution_traffic(
    redistribution: Redistribution, itemsize: int, link: Link
) -> tuple[int, int]:
    """Return the bytes and the messages between workers, for elements of `itemsize` bytes.

    Between hosts, what a collective sends once for several workers counts once.
    """
    if link.network is None:
        return redistribution.total_bytes(itemsize), redistribution.messages
    elements = messages = 0
    for stage in redistribution.stages:
        if stage.kind in ("nothing", "local"):
            continue
        between, within = _moves_by_level(stage, link.network)
        elements += sum([message.elements for message in between]) + sum(within.values())
        messages += len(between) + len(within)
    return elements * itemsize, messages


def _stage_seconds(stage: Stage, itemsize: int, link: Link) -> float:
    if stage.kind in ("nothing", "local"):
        return 0.0
    if link.network is not None:
        bandwidths = [level.bandwidth for level in link.levels]
        return sum([
            messages.latency + max(messages.loads.values(), default=0) / bandwidths[messages.level]
            for messages in message_stages(stage, itemsize, link)
        ])  # fmt: skip
    traffic = stage.traffic.values()
    if link.shared_memory:
        read = max([worker.received for worker in traffic], default=0)
        return link.barrier + read * itemsize / link.bandwidth
    return max(
        [
            max(worker.received, worker.sent) * itemsize / link.bandwidth
            + max(worker.messages_in, worker.messages_out) * link.latency
            for worker in traffic
        ],
        default=0.0,
    )


_SENT_ONCE: Final[dict[str, Callable[[Move, tuple[int, ...]], tuple[int, ...]]]] = {
    "allgather": lambda move, hosts: (move.source, hosts[move.target]),
    "reduce_scatter": lambda move, hosts: (hosts[move.source], move.target),
    "allreduce": lambda move, hosts: (hosts[move.source], hosts[move.target]),
}
"""Identifies the moves of a collective between two hosts that one message replaces."""


def _moves_by_level(
    stage: Stage, network: Network
) -> tuple[list[HostMessage], Counter[tuple[int, int]]]:
    """Return the messages of a stage between hosts, and the elements that pass within hosts, by
    source and target worker."""
    hosts, once = network.hosts, _SENT_ONCE.get(stage.kind)
    between: dict[tuple[int, ...], HostMessage] = {}
    within: Counter[tuple[int, int]] = Counter()
    for number, move in enumerate(stage.moves):
        source, target, size = hosts[move.source], hosts[move.target], math.prod(move.shape)
        if source != target:
            key = (number,) if once is None else once(move, hosts)
            between[key] = HostMessage(source, target, size)
        elif move.source != move.target:
            within[move.source, move.target] += size
    return list(between.values()), within


def message_stages(stage: Stage, itemsize: int, link: Link) -> list[LevelStage]:
    """Return the messages of a stage, for elements of `itemsize` bytes: those within the hosts, and
    then those between them.

    Bytes in the two directions of a port do not share its bandwidth.
    """
    if link.network is None:
        traffic = stage.traffic
        count = max([max(x.messages_in, x.messages_out) for x in traffic.values()], default=0)
        loads = {w: max(x.sent, x.received) * itemsize for w, x in traffic.items()}
        return [LevelStage(OF_WORKERS, count * link.latency, loads)] if loads else []
    between, within = _moves_by_level(stage, link.network)
    stages = []
    if within:
        read: Counter[int] = Counter()
        for (_, target), size in within.items():
            read[target] += size
        stages.append(LevelStage(OF_WORKERS, link.latency, _bytes(read, itemsize)))
    if between:
        sent: Counter[int] = Counter()
        received: Counter[int] = Counter()
        messages: Counter[int] = Counter()
        for message in between:
            sent[message.source] += message.elements
            received[message.target] += message.elements
            messages[message.target] += 1
        rounds = -(-max(messages.values()) // link.network.workers_per_host)
        seconds = rounds * link.network.latency
        stages.append(LevelStage(OF_HOSTS, seconds, _bytes(sent | received, itemsize)))
    return stages


def _bytes(elements: Counter[int], itemsize: int) -> dict[int, int]:
    return {unit: size * itemsize for unit, size in elements.items()}
