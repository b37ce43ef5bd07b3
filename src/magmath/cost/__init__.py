"""The cost model: one description of the machine, and predictions of the time for arithmetic and
messages."""

from __future__ import annotations

from magmath.cost.link import Link, redistribution_seconds
from magmath.cost.machine import DEFAULT_MACHINE, GemmRate, Machine, current_machine, keep_machine

__all__ = [
    "DEFAULT_MACHINE",
    "GemmRate",
    "Link",
    "Machine",
    "current_machine",
    "keep_machine",
    "redistribution_seconds",
]
