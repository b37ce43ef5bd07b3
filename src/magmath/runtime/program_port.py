"""What a worker asks of a program that is bound to it.

The executor in `program/` meets this; tests bind programs of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from magmath.comm.progress_thread import ProgressThread, Task
from magmath.memory.local_array import LocalArray
from magmath.program.instructions import Program
from magmath.runtime.messages import Number

if TYPE_CHECKING:
    from magmath.runtime.worker import Worker

Poll = Callable[[int, list[float]], bool]
"""Called between the chunks of a run: steps done, and what they emitted; true asks it to stop."""


class ProgramPort(Protocol):
    """A program, bound to a worker."""

    def run(
        self,
        inputs: Sequence[LocalArray],
        outputs: Sequence[LocalArray],
        parameters: Sequence[Number],
        steps: int,
        poll: Poll | None,
    ) -> list[float]:
        """Run the program `steps` times; the scalars that the steps emitted."""

    def prepare_replay(
        self, inputs: Sequence[LocalArray], outputs: Sequence[LocalArray]
    ) -> Callable[[Sequence[Number]], object]:
        """A call that runs the program once on these arrays, given its numbers."""

    def timed(
        self,
        inputs: Sequence[LocalArray],
        outputs: Sequence[LocalArray],
        parameters: Sequence[Number],
        steps: int,
    ) -> tuple[list[float], list[float]]:
        """The same, and the seconds that each instruction took in all steps together."""

    def start(
        self,
        inputs: Sequence[LocalArray],
        outputs: Sequence[LocalArray],
        progress_thread: ProgressThread,
    ) -> Task:
        """Have the progress thread run the program once, beside what this worker does meanwhile."""

    @property
    def nbytes(self) -> int:
        """The bytes that the binding holds."""

    def close(self) -> None:
        """Give back what the binding holds."""


BindProgram = Callable[[Program, "Worker"], ProgramPort]


def bind_program(program: Program, worker: Worker) -> ProgramPort:
    """The program as the executor runs it."""
    from magmath.program.execute import Context, Executable  # loads the kernels: on first use

    context = Context(
        worker.comm,
        worker.heap,
        worker.device,
        worker.options.deterministic,
        progress_thread=worker.arrays.progress_thread,
        is_abandoned=lambda: worker.is_abandoned(),
    )
    return Executable(program, context)
