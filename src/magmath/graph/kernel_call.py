"""The arguments of kernels: what the executor gives to a kernel that makes a bound call.

A kernel of one worker receives a `KernelCall`, and a collective kernel a `CollectiveCall`. Neither
contains nodes: a kernel computes on local tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, final

from magmath.core.block_cyclic import panel_ring_bytes, round_to_cache_lines
from magmath.core.index_set import Tile
from magmath.core.shapes import Shape
from magmath.layout import Layout

if TYPE_CHECKING:
    import torch

    from magmath.comm import Communicator
    from magmath.comm.panel_broadcast import PanelBroadcast


class KernelContext(Protocol):
    """The services of the executor that binds a kernel."""

    deterministic: bool
    winograd: bool
    """Whether convolutions may use Winograd's algorithms and Fourier transforms."""
    workspace_limit: int
    """The bytes of temporary memory that an algorithm for a convolution may need."""

    @property
    def rank(self) -> int:
        """The number of this worker."""

    def failure_record(
        self, error: Callable[[int], Exception], check_number: int = 0
    ) -> torch.Tensor | None:
        """Return a record in the memory of a GPU, (found, number), in which the kernel that is
        being bound reports invalid data that one of several checks finds; None if it must raise the
        error of a number itself."""


@final
@dataclass(slots=True)
class KernelCall:
    """One operation on one worker's tensors, from which a kernel makes a bound call.

    `out` and `inputs` are local tensors (0-d tensors for Python numbers, on a GPU at most one of
    them in host memory). For operations that count elements, `tile` and `tiles` are the tiles of
    the whole arrays that they hold, and `shape` and `shapes` the shapes of the whole arrays.
    `repeated`: other workers compute the same elements.
    """

    out: torch.Tensor
    inputs: list[torch.Tensor]
    attributes: Mapping[str, Any]
    tile: Tile
    tiles: list[Tile]
    shape: Shape
    shapes: list[Shape]
    context: KernelContext
    repeated: bool = False


@final
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


@final
@dataclass(slots=True)
class CollectiveCall:
    """The arguments of a collective kernel on one worker; each worker makes a bound call of them,
    and all make the calls collectively.

    `out` and `inputs` are local tensors, empty if this worker stores nothing; `layout` and
    `layouts` are the layouts of the whole result and the whole operands. `memory[r]` is the
    workspace of worker r, as bytes; None if this worker cannot access it. `ring` passes panels
    through it, and `scratch` is the private part of this worker. `operand_on(i, r)` is operand i of
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
    operand_on: Callable[[int, int], torch.Tensor]
