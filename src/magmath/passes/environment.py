"""What the passes know of the workers: how many, what they share, what their work costs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from magmath.cost import DEFAULT_MACHINE, Link, Machine
from magmath.layout import Layout, Mesh
from magmath.ops.panel_products import PANEL_BYTES


@dataclass(frozen=True)
class Environment:
    """The pool as the planner sees it.

    link               latency and bandwidth between workers
    deterministic      results must not depend on the number of workers
    memory             bytes that a worker may hold, as the user has set them, or None
    bound              bytes that a worker may hold in any case, or None; plans of what fits
                       comfortably do not depend on it
    workspace          bytes of moved operands that an operation should need on a worker at a time,
                       where it can be computed in parts; by messages, as much again may be
                       under way for what comes next
    lent               bytes that one worker may hold besides, where it computes a matrix by LAPACK
                       for all of its host, with the threads of all
    carried            bytes of a tile from which on it is worth another thread's while to send and
                       receive it, where memory is not shared
    machine            the constants of the hardware
    threads            of each worker
    """

    mesh: Mesh
    link: Link
    shares_memory: bool
    deterministic: bool = False
    memory: int | None = None
    bound: int | None = None
    workspace: int = PANEL_BYTES + PANEL_BYTES // 8  # panels are not worth less than an eighth
    lapack_memory: int = 1 << 29
    carried: int = 1 << 16
    machine: Machine = DEFAULT_MACHINE
    threads: int = 1

    @property
    def most(self) -> int | None:
        """The bytes above which a worker refuses to allocate, whether the user has set them."""
        return self.bound if self.memory is None else self.memory

    @property
    def workers(self) -> int:
        """The number of workers."""
        return self.mesh.size

    @cached_property
    def bandwidth(self) -> float:
        """Bytes of local memory per second for each worker, while all of them work."""
        return self.machine.worker_bandwidth(self.workers, self.threads)

    @property
    def first(self) -> Mesh:
        """The first worker alone: it computes what cannot be divided, with everybody's threads."""
        return Mesh((1,), None, self.mesh.workers[:1])

    def whole(self, shape: tuple[int, ...], shared: bool = False) -> Layout:
        """Replicated over all workers; stored once if `shared` and they share memory."""
        several = self.workers > 1 and self.shares_memory
        return Layout.whole(shape, self.mesh, shared=shared and several)
