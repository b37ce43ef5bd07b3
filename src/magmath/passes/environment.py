"""What the passes know of the workers: how many, what they share, what their work costs."""

from __future__ import annotations

from dataclasses import dataclass

from magmath.layout import Layout, Mesh
from magmath.layout.cost import Link


@dataclass(frozen=True)
class Environment:
    """The pool as the planner sees it.

    flops, bandwidth   of one worker: arithmetic operations and bytes of local memory a second
    link               latency and bandwidth between workers
    deterministic      results must not depend on the number of workers
    """

    mesh: Mesh
    link: Link
    shares_memory: bool
    deterministic: bool = False
    flops: float = 1e11
    bandwidth: float = 1e10

    @property
    def workers(self) -> int:
        """The number of workers."""
        return self.mesh.size

    def whole(self, shape: tuple[int, ...], shared: bool = False) -> Layout:
        """Replicated over all workers; stored once if `shared` and they share memory."""
        return Layout.whole(shape, self.mesh, shared=shared and self.shares_memory)
