"""What a redistribution costs on given links, in seconds: what planners compare.

The model is the usual one of latency and bandwidth. Workers that share memory read one another's
tiles in place, so there it is a barrier and the bytes that the busiest of them reads.
"""

from __future__ import annotations

from dataclasses import dataclass

from magmath.layout.redistribution import Redistribution, Stage


@dataclass(frozen=True)
class Link:
    """What joins the workers.

    `latency`: seconds for each message. `bandwidth`: bytes per second into, and out of, one worker.
    `shared_memory`: every worker can read the others' memory. `barrier`: seconds for all to meet.
    """

    latency: float
    bandwidth: float
    shared_memory: bool
    barrier: float


def redistribution_seconds(redistribution: Redistribution, itemsize: int, link: Link) -> float:
    """Seconds that a redistribution takes, for elements of `itemsize` bytes.

    What each worker does with its own memory alone costs nothing here.
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
