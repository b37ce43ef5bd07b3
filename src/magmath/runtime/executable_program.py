"""The interface of the executable form of programs to their worker.

The executor in `executor/` implements it; tests load fake programs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from magmath.comm import Communicator
from magmath.comm.progress_thread import ProgressThread, Task
from magmath.core.type_aliases import Number, Poll
from magmath.memory.heap import Heap
from magmath.memory.local_array import LocalArray
from magmath.memory.temporaries import Temporaries
from magmath.program.instructions import Program
from magmath.runtime.array_table import ArrayTable
from magmath.runtime.transport_interface import WorkerOptions


class ExecutableProgram(Protocol):
    """A program on a worker, which runs it on arrays of its own."""

    def run(
        self,
        inputs: Sequence[LocalArray],
        outputs: Sequence[LocalArray],
        scalars: Sequence[Number],
        steps: int,
        poll: Poll | None,
    ) -> list[float]:
        """Run the program `steps` times; return the emitted scalars."""

    def prepare_run(
        self, inputs: Sequence[LocalArray], outputs: Sequence[LocalArray]
    ) -> Callable[[Sequence[Number]], object]:
        """Return a call that runs the program once on these arrays, given its scalars."""

    def run_timed(
        self,
        inputs: Sequence[LocalArray],
        outputs: Sequence[LocalArray],
        scalars: Sequence[Number],
        steps: int,
    ) -> tuple[list[float], list[float]]:
        """Run as `run` does; return also the total seconds of each instruction."""

    def start(
        self,
        inputs: Sequence[LocalArray],
        outputs: Sequence[LocalArray],
        progress_thread: ProgressThread,
    ) -> Task:
        """Run the program once on the progress thread, concurrently with this worker's main
        thread."""

    @property
    def nbytes(self) -> int:
        """The bytes that the program has allocated."""

    def close(self) -> None:
        """Release the resources of the program."""


class ProgramWorker(Protocol):
    """The attributes of a worker that its programs use."""

    comm: Communicator
    heap: Heap
    device: torch.device
    temporaries: Temporaries
    options: WorkerOptions
    arrays: ArrayTable
    is_abandoned: Callable[[], bool]
    """Called between two instructions of a run; returns whether the run is abandoned."""


LoadProgram = Callable[[Program, ProgramWorker], ExecutableProgram]


def load_program(program: Program, worker: ProgramWorker) -> ExecutableProgram:
    """Return a program as an executable of this worker."""
    from magmath.executor.context import Context
    from magmath.executor.executable import Executable  # loads the kernels: on first use

    context = Context(
        worker.comm,
        worker.heap,
        worker.device,
        worker.options.deterministic,
        worker.options.winograd,
        worker.options.workspace_limit,
        worker.options.flush_denormals,
        temporaries=worker.temporaries,
        progress_thread=worker.arrays.progress_thread,
        is_abandoned=lambda: worker.is_abandoned(),
    )
    return Executable(program, context)
