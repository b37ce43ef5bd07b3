"""The controller and its workers: pools, the messages between them, and what happens on failure."""

from __future__ import annotations

from magmath.runtime.pending import Run
from magmath.runtime.pool import Pool, Topology
from magmath.runtime.start import start_pool

__all__ = ["Pool", "Run", "Topology", "start_pool"]
