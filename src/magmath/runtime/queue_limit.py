"""The limit of pending commands: about those that the workers execute in a second.

The controller runs ahead of the workers, which hides the time of its own work. But what it has sent
is executed before an interrupt takes effect, since later commands read the results. So it does not
run ahead for long.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, final

SECONDS: Final = 1.0
"""Seconds of work that may be pending."""
MAX_COMMANDS: Final = 256
"""At this limit, `submit` also raises the failures of earlier commands."""
MIN_COMMANDS: Final = 32
"""The limit before the speed of the workers is known, and for long commands."""
_INTERVAL_SECONDS: Final = 0.1


@final
class QueueLimit:
    """Counts the replies in intervals of time, in which commands were always pending.

    commands   the maximum number of pending commands
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.commands = MIN_COMMANDS
        self._clock = clock
        self.restart()

    def restart(self) -> None:
        """Begin a new interval."""
        self._start, self._replies = self._clock(), 0

    def count_reply(self) -> None:
        """Count a command to which all workers have replied."""
        self._replies += 1
        seconds = self._clock() - self._start
        if seconds >= _INTERVAL_SECONDS:
            commands = int(self._replies * SECONDS / seconds)
            self.commands = min(max(commands, MIN_COMMANDS), MAX_COMMANDS)
            self.restart()
