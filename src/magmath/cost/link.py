"""The cost model of redistributions, in seconds, by which planners compare plans.

Messages cost latency plus bytes over bandwidth. Workers that share memory read one another's tiles
in place, which costs a barrier and the bytes that the busiest worker reads.
"""

from __future__ import annotations

from dataclasses import dataclass

from magmath.layout.redistribution import Redistribution, Stage


@dataclass(frozen=True)
class Link:
    """The connection between workers.

    `latency`: seconds per message. `bandwidth`: bytes per second into, and out of, one worker.
    `shared_memory`: every worker can read the memory of all others. `barrier`: seconds per barrier.
    """

    latency: float
    bandwidth: float
    shared_memory: bool
    barrier: float


def redistribution_seconds(redistribution: Redistribution, itemsize: int, link: Link) -> float:
    """Return the seconds that a redistribution takes, for elements of `itemsize` bytes.

    Copies within a worker count as free.
    """
    return sum([_stage_seconds(stage, itemsize, link) for stage in redistribution.stages])


def _stage_seconds(stage: Stage, itemsize: int, link: Link) -> float:
    if stage.kind in ("nothing", "local"):
        return 0.0
    traffic = stage.traffic.values()
    if link.shared_memory:
        read = max([one.received for one in traffic], default=0)
        return link.barrier + read * itemsize / link.bandwidth
    return max(
        [
            max(one.received, one.sent) * itemsize / link.bandwidth
            + max(one.messages_in, one.messages_out) * link.latency
            for one in traffic
        ],
        default=0.0,
    )
