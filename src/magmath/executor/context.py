"""What a worker lends to the programs it runs: communication, memory, a device, and settings."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import torch

from magmath.comm.communicator import Communicator
from magmath.memory.heap import Block, Heap

if TYPE_CHECKING:
    from magmath.comm.progress_thread import ProgressThread


class Memory(Protocol):
    """Where blocks lie: a heap, or what a team's lanes see of it."""

    def peer(self, block: Block, rank: int, /) -> torch.Tensor:
        """A block's memory on a worker."""

    def leader(self, block: Block, /) -> torch.Tensor:
        """The memory in which shared arrays lie."""


def no_progress_thread() -> ProgressThread | None:
    """Where everything is done by one thread."""
    return None


@dataclass
class Context:
    """What a worker lends to the programs it runs."""

    comm: Communicator
    heap: Heap
    device: torch.device
    deterministic: bool = False
    native: bool = True
    lanes: Memory | None = None  # where the blocks of a team's lanes lie
    progress_thread: Callable[[], ProgressThread | None] = no_progress_thread
    """Who moves data beside this worker's own work, made when first asked for, by all workers."""
    failures: list[Exception] = field(default_factory=list)  # of calls, raised when the run is over
    is_abandoned: Callable[[], bool] = bool
    """Whether the results of the run are not wanted any more; asked between long instructions."""

    @property
    def rank(self) -> int:
        """The number of this worker."""
        return self.comm.rank

    @property
    def memory(self) -> Memory:
        """Where blocks lie, this worker's and its peers'."""
        return self.heap if self.lanes is None else self.lanes

    def threads_of_all(self) -> AbstractContextManager[None]:
        """Within, kernels have the threads of all the workers of this host, which wait."""
        from magmath.kernels.threads import more_threads

        return more_threads(self.comm.size if self.comm.shares_memory else 1)

    def gemm(
        self,
        out: torch.Tensor,
        a: torch.Tensor,
        b: torch.Tensor,
        *,
        bias: torch.Tensor | None = None,
        activation: str = "none",
        alpha: torch.Tensor | None = None,
        accumulate: bool = False,
    ) -> Callable[[], object]:
        """A ready product: out = activation(a·b + bias), or out += alpha·a·b."""
        from magmath.kernels.deterministic_gemm import bind_deterministic
        from magmath.kernels.gemm import bind_gemm, tuner_for

        tuner = tuner_for(self.deterministic)
        ready = bind_deterministic if self.deterministic else bind_gemm
        if accumulate:
            assert alpha is not None
            return ready(out, a, b, alpha=alpha.item, beta=1.0, tuner=tuner)
        return ready(out, a, b, bias=bias, activation=activation, tuner=tuner)
