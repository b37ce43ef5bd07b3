"""Poisoned arrays and programs: the results of failed commands, which must not be used.

Operations that read a poisoned array fail too, as with LLVM's poison values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from magmath.runtime import messages
from magmath.runtime.messages import Command, Failure


@final
class PoisonTable:
    """The failures that poisoned a worker's arrays and programs.

    A failed command poisons its outputs with its failure. If a kernel failed, possibly on this
    worker only, the worker still completes the program and all later ones, so that it enters every
    barrier with the other workers; results that depend on poisoned arrays are poisoned. After any
    other failure the worker is halted: it executes no run until the controller knows that all
    workers failed at the same place (`Resume`), because otherwise barriers of different runs would
    match.
    """

    def __init__(self) -> None:
        self._arrays: dict[int, Failure] = {}
        self._programs: dict[int, Failure] = {}
        self._halted: Failure | None = None

    def failure_of(self, command: Command) -> Failure | None:
        """Return the failure that prevents a command, or None.

        A failure of all workers takes precedence over a failure of this worker alone.
        """
        if isinstance(command, (messages.Get, messages.Write)):
            return self._arrays.get(command.array_id)
        if not isinstance(command, messages.Run):
            return None
        failed = self._halted or self._programs.get(command.program_id)
        for array_id in command.inputs:
            if failed is None or failed.is_in_step:
                failed = self._arrays.get(array_id, failed)
        return failed

    def poison(self, command: Command, failure: Failure) -> None:
        """Poison the outputs of a command."""
        if isinstance(command, messages.Run):
            self._arrays.update(dict.fromkeys(command.outputs, failure))
        elif isinstance(command, (messages.Put, messages.Read)):
            self._arrays[command.array_id] = failure
        elif isinstance(command, messages.Define):
            self._programs[command.program_id] = failure

    def halt(self, failure: Failure) -> None:
        """Execute no further runs."""
        self._halted = failure

    def resume(self) -> None:
        """Execute runs again, after all workers failed at the same place."""
        self._halted = None

    def forget_arrays(self, array_ids: Sequence[int]) -> None:
        """Remove released arrays."""
        if self._arrays:
            for array_id in array_ids:
                self._arrays.pop(array_id, None)

    def forget_program(self, program_id: int) -> None:
        """Remove a dropped program."""
        self._programs.pop(program_id, None)
