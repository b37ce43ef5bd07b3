"""The environment of planning: the number of workers, the memory that they share, and the costs of
computation and communication."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import final

from magmath.cost import DEFAULT_MACHINE, Link, Machine
from magmath.layout import Layout, Mesh
from magmath.ops.product.panel_products import PANEL_BYTES


@final
@dataclass(frozen=True)
class Environment:
    """The properties of the pool that the passes read.

    link           latency and bandwidth between workers
    deterministic  results must not depend on the number of workers
    memory_limit   memory limit of a worker in bytes, as the user has set it, or None
    memory_bound   bytes above which a worker refuses to allocate: the user's limit, otherwise its
                   share of the memory, or None. It decides about block reductions and candidates
                   only where a plan comes near it
    is_frugal      operations are computed by the candidates that need least memory, for programs
                   that exceed the memory limit otherwise
    max_moved_bytes   bytes of moved operands that an operation should need on a worker at a time,
                   if it can be computed in parts; with messages, as much again may be in transfer
                   for later operations
    lapack_memory  additional bytes of a worker that computes a matrix by LAPACK for all workers of
                   its host, with their threads
    overlap_min_bytes  minimum bytes of a tile that the progress thread sends and receives, where
                   memory is not shared; like the memory above a limit, and no cost of `machine`
    machine        the constants of the hardware
    threads        number of threads of each worker
    fold_bias      how biases are added to products: "auto" or a name in `passes.fold_bias.FORMS`
    fastest_gradients   measures these forms for the gradients of a layer
                   (`executor/bias_tuner.py`); None if the workers cannot be measured here
    without        names of passes that are omitted (`core/optional_passes.py`)
    """

    mesh: Mesh
    link: Link
    shares_memory: bool
    deterministic: bool = False
    memory_limit: int | None = None
    memory_bound: int | None = None
    is_frugal: bool = False
    max_moved_bytes: int = PANEL_BYTES + PANEL_BYTES // 8  # panels must save at least an eighth
    lapack_memory: int = 1 << 29
    overlap_min_bytes: int = 1 << 16
    machine: Machine = DEFAULT_MACHINE
    threads: int = 1
    fold_bias: str = "auto"
    fastest_gradients: Callable[..., str] | None = None
    without: frozenset[str] = frozenset()

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """The hash of the fields, among which the machine has many rates."""
        return hash(tuple([getattr(self, field.name) for field in fields(self)]))

    @property
    def workers(self) -> int:
        """The number of workers."""
        return self.mesh.size

    @cached_property
    def bandwidth(self) -> float:
        """Bytes of local memory per second for each worker while all workers compute."""
        on_host = self.link.workers_per_host(self.workers)
        return self.machine.worker_bandwidth(on_host, self.threads)

    @cached_property
    def first_worker(self) -> Mesh:
        """The mesh of the first worker, which computes undivided operations with the threads of
        all."""
        return Mesh((1,), None, self.mesh.workers[:1])

    def of_one_worker(self) -> Environment:
        """Return the environment of programs that one of the workers runs on its own."""
        return replace(self, mesh=Mesh.line(1), shares_memory=False)

    def replicated(self, shape: tuple[int, ...], shared: bool = False) -> Layout:
        """Return the layout replicated over all workers; stored once if `shared` and they share
        memory."""
        several = self.workers > 1 and self.shares_memory
        return Layout.replicated_on(shape, self.mesh, shared=shared and several)
