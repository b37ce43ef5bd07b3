"""What a worker asks of a program that is bound to it.

The executor in `program/` meets this; tests bind programs of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from magmath.comm.courier import Courier, Errand
from magmath.memory.stored import Stored
from magmath.program.instructions import Program
from magmath.runtime.messages import Number

if TYPE_CHECKING:
    from magmath.runtime.worker import Worker

Poll = Callable[[int, list[float]], bool]
"""Called between the chunks of a run: steps done, and what they emitted; true asks it to stop."""


class Executable(Protocol):
    """A program, bound to a worker."""

    def run(
        self,
        inputs: Sequence[Stored],
        outputs: Sequence[Stored],
        parameters: Sequence[Number],
        steps: int,
        poll: Poll | None,
    ) -> list[float]:
        """Run the program `steps` times; the scalars that the steps emitted."""

    def ready(
        self, inputs: Sequence[Stored], outputs: Sequence[Stored]
    ) -> Callable[[Sequence[Number]], object]:
        """A call that runs the program once on these arrays, given its numbers."""

    def timed(
        self,
        inputs: Sequence[Stored],
        outputs: Sequence[Stored],
        parameters: Sequence[Number],
        steps: int,
    ) -> tuple[list[float], list[float]]:
        """The same, and the seconds that each instruction took in all steps together."""

    def start(
        self, inputs: Sequence[Stored], outputs: Sequence[Stored], courier: Courier
    ) -> Errand:
        """Have the courier run the program once, beside what this worker does meanwhile."""

    @property
    def nbytes(self) -> int:
        """The bytes that the binding holds."""

    def close(self) -> None:
        """Give back what the binding holds."""


Bind = Callable[[Program, "Worker"], Executable]


def bind_program(program: Program, worker: Worker) -> Executable:
    """The program as the executor runs it."""
    from magmath.program.execute import Context, Executable  # loads the kernels: on first use

    context = Context(
        worker.comm,
        worker.heap,
        worker.device,
        worker.options.deterministic,
        courier=worker.holdings.courier,
        is_abandoned=lambda: worker.is_abandoned(),
    )
    return Executable(program, context)
