"""The resources that a worker provides to its programs: communication, memory, a device,
settings."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Protocol, final

import torch

from magmath.comm.communicator import Communicator
from magmath.core.byte_sizes import WORKSPACE_LIMIT
from magmath.executor.run_failures import RunFailures
from magmath.memory.heap import Block, Heap
from magmath.memory.temporaries import Temporaries
from magmath.program.instructions import Instruction

if TYPE_CHECKING:
    from magmath.comm.progress_thread import ProgressThread


class Memory(Protocol):
    """The memory of blocks: a heap, or the view that a team's lanes have of it."""

    def peer(self, block: Block, rank: int, /) -> torch.Tensor:
        """Return a block's memory on a worker."""

    def shared_memory_of(self, block: Block, /) -> torch.Tensor:
        """Return the memory in which a shared array is stored: that of the host's first worker."""


def no_progress_thread() -> ProgressThread | None:
    """Return None, for a worker without a progress thread."""
    return None


@final
@dataclass
class Context:
    """The resources that a worker provides to its programs, and its settings.

    deterministic    results must not depend on the number of workers
    winograd         convolutions may use Winograd's algorithms and Fourier transforms
    workspace_limit  bytes of temporary memory that an algorithm for a convolution may need
    flush_denormals  denormal numbers count as 0 in training steps
    native           programs may be compiled to native code
    lanes            the memory of blocks as the lanes of a team see it
    temporaries      memory that programs share, which run one after the other; None if they may run
                     at once
    progress_thread  returns the thread for concurrent moves, which all workers create on first use
    failures         failures that are raised after the run
    instruction      the instruction that was bound last; None where kernels must raise errors
                     themselves
    is_abandoned     returns True if the run is abandoned; polled between long instructions
    """

    comm: Communicator
    heap: Heap
    device: torch.device
    deterministic: bool = False
    winograd: bool = True
    workspace_limit: int = WORKSPACE_LIMIT
    flush_denormals: bool = True
    native: bool = True
    lanes: Memory | None = None
    temporaries: Temporaries | None = None
    progress_thread: Callable[[], ProgressThread | None] = no_progress_thread
    failures: RunFailures = field(default_factory=RunFailures)
    instruction: Instruction | None = None
    is_abandoned: Callable[[], bool] = bool

    @property
    def rank(self) -> int:
        """The number of this worker."""
        return self.comm.rank

    @property
    def memory(self) -> Memory:
        """The memory of blocks, this worker's and its peers'."""
        return self.heap if self.lanes is None else self.lanes

    def on_device(self, operands: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return operands as kernels of the device take them: those of a GPU take at most one
        number in host memory; all others are on the device."""
        if self.device.type == "cpu":
            return operands
        numbers = [x.device.type == "cpu" for x in operands].count(True)
        if numbers <= min(1, len(operands) - 1):
            return operands
        return [x.to(self.device) for x in operands]

    def failure_record(
        self, error: Callable[[int], Exception], check_number: int = 0
    ) -> torch.Tensor | None:
        """Return the record for invalid data that one of several checks of the instruction that is
        being bound finds: whether there are some, and a number, of which `error` makes the
        exception.

        Returns None if the kernel must raise the error itself.
        """
        if self.instruction is None:
            return None
        return self.failures.record_of(self.instruction, error, check_number)

    @property
    def should_record_graphs(self) -> bool:
        """True if CUDA graphs execute steps: on a GPU, in the main thread, because what the
        recorder watches belongs to the process."""
        return self.native and self.device.type == "cuda" and current_thread() is main_thread()

    def threads_of_all(self) -> AbstractContextManager[None]:
        """Return a context manager within which kernels use the threads of all workers of this
        host, which wait."""
        from magmath.kernels.thread_count import more_threads

        return more_threads(self.comm.size if self.comm.shares_memory else 1)
