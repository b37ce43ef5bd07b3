"""Collective kernels: operations that all workers compute together, each on its parts.

An operation whose index structure allows no division (`.`) may still be computed by all workers at
once, if they exchange data while they compute: a factorisation of one matrix, panel by panel. Its
record says in which layouts, and with how much workspace; the kernel gets the communicator. That is
one more candidate of the place pass.
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
    """Bytes that a collective kernel needs on each worker besides its operands and its result.

    panel    of the largest panel that one worker makes for the others to read
    scratch  of what it needs for itself
    """

    panel: int
    scratch: int = 0

    @property
    def nbytes(self) -> int:
        """All together."""
        return panel_ring_bytes(self.panel) + round_to_cache_lines(self.scratch)


@dataclass(slots=True)
class DistributedCall:
    """One operation on one worker's tensors, to be bound to a ready call that all make together.

    `out` and `inputs` are local tensors, of no elements where this worker holds nothing, `layouts`
    and `layout` how the whole operands and the whole result are divided. `memory[r]` is the
    workspace of worker r, as bytes; None where this worker cannot see it. `ring` passes panels
    through it, and leaves `scratch` to this worker. `seen(i, r)` is operand i of worker r, which
    this one must be able to see, to be read when r has come as far, until the kernel ends.
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
    """Of kernels whose arithmetic uses most of what it reads more than once."""
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DistributedKernel:
    """How the workers of a mesh compute an operation together.

    layouts    (node, mesh of one dimension) → the layouts of its operands and of its result, which
               divide dimensions that the index structure keeps whole; None where they cannot
    kernel     CollectiveCall → ready call. Every worker makes it, also one that holds nothing. What
               data can make fail (LinAlgError) must fail on all workers, or after the last exchange
    workspace  (node, number of workers) → what it needs on each worker
    traffic    (node, number of workers) → the bytes that go between workers, and the messages
    touched    (node, number of workers) → the bytes of its own that a worker goes through, where
               the arithmetic has to wait for them
    spread     what goes between workers is spread over them: all send and receive at once
    reads      workers that share memory send nothing: they meet once, and each reads what the
               others have
    exact      gives the same bits for any number of workers: also in deterministic mode
    """

    layouts: Callable[[Node, Mesh], tuple[tuple[Layout, ...], Layout] | None]
    kernel: Callable[[DistributedCall], Callable[[], object]]
    workspace: Callable[[Node, int], Workspace]
    traffic: Callable[[Node, int], tuple[int, int]]
    touched: Callable[[Node, int], int] = no_traffic
    spread: bool = False
    reads: bool = False
    exact: bool = False
