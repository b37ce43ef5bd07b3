"""The commands that have failed on a worker, until the controller raises their failures.

They decide whether the workers can continue. They are in step if the failed workers continued to
the end of the command, or if all failed at the same place. Otherwise some workers may wait forever
for the failed ones.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from enum import Enum, auto
from itertools import takewhile
from typing import Final, final

from magmath.runtime.failures import exception_from
from magmath.runtime.messages import Failure
from magmath.runtime.run_handle import PendingCommand

FAILURE_GRACE: Final = 2.0
"""Seconds to wait, after a worker has failed, for the same failure of all others, from the moment
when they execute the command."""


@final
class Outcome(Enum):
    """The consequences that the failure of a command can have."""

    UNKNOWN = auto()
    """Other workers have not replied yet."""
    CONTINUES = auto()
    """The failed workers have completed the command, or each worker executes it
    independently."""
    RESUMES = auto()
    """All workers have failed at the same place: they continue with messages.Resume."""
    ENDS = auto()
    """The workers are not in step."""


@final
class FailingCommands:
    """The failing commands, in the order of their first failures."""

    def __init__(self) -> None:
        self._commands: list[PendingCommand] = []
        self._since = 0.0

    def __bool__(self) -> bool:
        return bool(self._commands)

    def add(self, command: PendingCommand) -> None:
        """Add a command after its first primary failure."""
        if command not in self._commands:
            self._commands.append(command)
            self._since = time.monotonic()

    def extend_grace(self, seconds: float) -> None:
        """Wait longer for other failures: this process, and the workers, were stopped."""
        self._since += seconds

    def outcome(self, pending: Iterable[PendingCommand]) -> Outcome:
        """Return the consequence of the failure of the first command.

        `pending`: the commands whose replies are missing, in order. The grace begins when those
        before the failing one have all replies of the other workers, which may be late.
        """
        first = self._commands[0]
        earlier = takewhile(lambda x: x.ticket < first.ticket, pending)
        if any(not first.waiting.isdisjoint(x.waiting) for x in earlier):
            self._since = time.monotonic()
        continues = first.is_independent or first.is_in_step
        if continues or first.has_uniform_failure:
            if first.waiting:
                return Outcome.UNKNOWN
            return Outcome.CONTINUES if continues else Outcome.RESUMES
        if first.waiting and time.monotonic() <= self._since + FAILURE_GRACE:
            return Outcome.UNKNOWN
        return Outcome.ENDS

    def first_error(self) -> Exception:
        """Return the primary failure of the first command, of the worker of the least rank."""
        failures = _primary_failures(self._commands[0])
        return exception_from(min(failures, key=lambda failure: failure.rank))

    def earliest_error(self) -> Exception | None:
        """Return the primary failure that arrived first; None if no command has failed."""
        return exception_from(_primary_failures(self._commands[0])[0]) if self._commands else None

    def remove_first(self) -> PendingCommand:
        """Remove the first command, whose outcome is known, and return it."""
        return self._commands.pop(0)


def _primary_failures(command: PendingCommand) -> list[Failure]:
    """Return the failures of a command that no earlier failure has caused."""
    return [failure for failure in command.failures if not failure.secondary]
