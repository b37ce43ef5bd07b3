"""What a worker remembers of failed commands, so that nobody computes with what is not there."""

from __future__ import annotations

from collections.abc import Sequence

from magmath.runtime import messages
from magmath.runtime.messages import Command, Failure


class PoisonTable:
    """Marks a worker's arrays and programs with the failures that they come from.

    A failed command leaves the arrays that it should have made marked with its failure. Where a
    kernel has failed, on data that only this worker has perhaps, the worker has gone through the
    program all the same, and goes through every later one too, so that the others, which know
    nothing of it, meet it at each barrier; what is computed from marked arrays is marked. After any
    other failure the worker is halted: no run is executed until the controller knows that all
    workers failed alike (`Resume`), since a worker that went on alone would meet the others at the
    wrong barrier.
    """

    def __init__(self) -> None:
        self._arrays: dict[int, Failure] = {}
        self._programs: dict[int, Failure] = {}
        self._halted: Failure | None = None

    def failure_of(self, command: Command) -> Failure | None:
        """The failure because of which a command cannot be carried out, if there is one.

        One that is the same on all workers comes before one that the others know nothing of.
        """
        if isinstance(command, (messages.Get, messages.Write)):
            return self._arrays.get(command.array)
        if not isinstance(command, messages.Run):
            return None
        failed = self._halted or self._programs.get(command.program)
        for array in command.inputs:
            if failed is None or failed.in_step:
                failed = self._arrays.get(array, failed)
        return failed

    def poison(self, command: Command, failure: Failure) -> None:
        """Mark what the command should have made."""
        if isinstance(command, messages.Run):
            self._arrays.update(dict.fromkeys(command.outputs, failure))
        elif isinstance(command, (messages.Put, messages.Read)):
            self._arrays[command.array] = failure
        elif isinstance(command, messages.Define):
            self._programs[command.program] = failure

    def halt(self, failure: Failure) -> None:
        """Execute no run from now on."""
        self._halted = failure

    def resume(self) -> None:
        """All workers failed alike: go on."""
        self._halted = None

    def forget_arrays(self, arrays: Sequence[int]) -> None:
        """These arrays have been released."""
        if self._arrays:
            for array in arrays:
                self._arrays.pop(array, None)

    def forget_program(self, program: int) -> None:
        """The program has been dropped."""
        self._programs.pop(program, None)
