"""The controller and its workers: pools, the messages between them, and failure handling."""

from __future__ import annotations

from magmath.core.paused_gc import paused_gc

with paused_gc():  # torch loads half a million objects that stay
    from magmath.runtime.pool import Pool
    from magmath.runtime.pool_factory import PoolOptions, prepare_pool, start_pool
    from magmath.runtime.run_handle import RunHandle
    from magmath.runtime.topology import Topology

__all__ = ["Pool", "PoolOptions", "RunHandle", "Topology", "prepare_pool", "start_pool"]
