"""The plan of one layer, as a network plan lists it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from magmath.parallel.planner.layer_options import Option


@final
@dataclass(frozen=True)
class LayerPlan:
    """The plan of one layer: the choice for each mesh axis, and seconds and bytes on a worker.

    exchange  seconds of redistributions, pending sums and the like, if nothing hides them
    gradient  seconds of the exchange of gradients, if nothing hides it
    received  bytes that a worker receives in a step
    """

    name: str
    kind: str
    option: Option
    compute: float
    exchange: float
    gradient: float
    received: float
    memory: float
