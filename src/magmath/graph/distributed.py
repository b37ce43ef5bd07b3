"""Collective kernels: operations that all workers compute collectively, each on its parts.

An operation whose index notation allows no division (`.`) can still be computed by all workers at
once, if they exchange data during the computation, for example a factorisation of one matrix, panel
by panel. The operation's record defines the layouts and the workspace; the kernel receives the
communicator. The place pass treats this as one more candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from magmath.core.block_cyclic import panel_ring_bytes, round_to_cache_lines
from magmath.graph.node import Node
from magmath.layout import Layout, Mesh

if TYPE_CHECKING:
    import torch

    from magmath.comm import Communicator
    from magmath.comm.panel_broadcast import PanelBroadcast


@dataclass(frozen=True, slots=True)
class Workspace:
    """Bytes that a collective kernel needs on each worker in addition to its operands and its
    result.

    panel    the largest panel that one worker computes for the others to read
    scratch  private memory
    """

    panel: int
    scratch: int = 0

    @property
    def nbytes(self) -> int:
        """The total bytes."""
        return panel_ring_bytes(self.panel) + round_to_cache_lines(self.scratch)


@dataclass(slots=True)
class DistributedCall:
    """The arguments of a collective kernel on one worker; each worker binds them to a ready call,
    and all make the calls collectively.

    `out` and `inputs` are local tensors, empty if this worker stores nothing; `layout` and
    `layouts` are the layouts of the whole result and the whole operands. `memory[r]` is the
    workspace of worker r, as bytes; None if this worker cannot access it. `ring` passes panels
    through it, and `scratch` is the private part of this worker. `seen(i, r)` is operand i of
    worker r, which this worker must be able to access; it may be read after r has reached the same
    point, until the kernel ends.
    """

    out: torch.Tensor
    inputs: list[torch.Tensor]
    attributes: Mapping[str, Any]
    layout: Layout
    layouts: list[Layout]
    comm: Communicator
    memory: Sequence[torch.Tensor | None]
    ring: PanelBroadcast
    scratch: torch.Tensor
    seen: Callable[[int, int], torch.Tensor]


def no_traffic(node: Node, workers: int) -> int:
    """Return 0, for kernels whose arithmetic reuses most of the data that it reads."""
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DistributedKernel:
    """The collective computation of an operation by the workers of a mesh.

    layouts    (node, mesh of one dimension) → the layouts of its operands and of its result, which
               divide dimensions that the index notation keeps whole; None if they cannot
    kernel     DistributedCall → ready call. Every worker makes it, also one that stores nothing.
               Errors that data can cause (LinAlgError) must occur on all workers, or after the last
               exchange
    workspace  (node, number of workers) → the workspace on each worker
    traffic    (node, number of workers) → bytes between workers, and number of messages
    touched    (node, number of workers) → the bytes of its own memory that a worker touches and for
               which the arithmetic must wait
    spread     the traffic is spread over the workers: all send and receive at once
    reads      workers that share memory send nothing: they synchronise once, and each reads the
               data of the others
    exact      returns the same bits for any number of workers: allowed in deterministic mode
    """

    layouts: Callable[[Node, Mesh], tuple[tuple[Layout, ...], Layout] | None]
    kernel: Callable[[DistributedCall], Callable[[], object]]
    workspace: Callable[[Node, int], Workspace]
    traffic: Callable[[Node, int], tuple[int, int]]
    touched: Callable[[Node, int], int] = no_traffic
    spread: bool = False
    reads: bool = False
    exact: bool = False
