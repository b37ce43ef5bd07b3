"""The loop that serves one worker: receive a command, carry it out, answer.

It is the same whether commands come through a queue (threads) or a socket (processes); a `CommandPort` is
the difference. During a run of many steps worker 0 looks into its port between chunks, so that an
interrupt overtakes the commands that wait before it.
"""

from __future__ import annotations

import logging
import sys
from abc import ABC, abstractmethod
from collections import deque

from magmath.errors import ProtocolError
from magmath.runtime.messages import (
    Command,
    Interrupt,
    LongCommand,
    Progress,
    Reply,
    Run,
    Stop,
    decode_command,
)
from magmath.runtime.tiles import Frame
from magmath.runtime.worker import Worker

logger = logging.getLogger(__name__)

CommandMessage = tuple[Command, Frame | None]


class CommandPort(ABC):
    """Where a worker's commands come from and its replies go to."""

    @abstractmethod
    def frames(self, wait: bool) -> list[bytes | memoryview] | None:
        """The frames of the next message; None where there is none and `wait` is false."""

    @abstractmethod
    def send(self, reply: Reply, frame: Frame | None = None) -> None:
        """Send a reply to the controller."""

    def receive(self, wait: bool) -> CommandMessage | None:
        """The next command; what is not one is logged and dropped."""
        while (frames := self.frames(wait)) is not None:
            try:
                if len(frames) not in (1, 2):
                    raise ProtocolError(f"a command has one or two frames, not {len(frames)}")
                return decode_command(frames[0]), frames[1] if len(frames) == 2 else None
            except ProtocolError as error:
                logger.warning("dropped a message from the controller: %s", error)
        return None


class CommandLoop:
    """A worker at its port, until the controller says stop."""

    def __init__(self, worker: Worker, port: CommandPort) -> None:
        self._worker = worker
        self._port = port
        self.running: Run | None = None
        """The run that is being carried out."""
        self._waiting: deque[CommandMessage] = deque()
        self._interrupted = 0
        self._abandoned = 0
        worker.poll = self._poll
        worker.is_abandoned = self._is_abandoned

    def run(self) -> None:
        """Serve until `Stop`."""
        while True:
            parcel = self._waiting.popleft() if self._waiting else self._port.receive(wait=True)
            if parcel is None or isinstance(parcel[0], Stop):
                return
            self.running = parcel[0] if isinstance(parcel[0], Run) else None
            answer = self._worker.answer(*parcel)
            self.running = None
            if answer is not None:
                self._port.send(*answer)

    def _poll(self, command: LongCommand, steps: int, values: list[float]) -> bool:
        """Between the chunks of a long command, on each rank: whether this one wants it to stop."""
        if self._worker.rank != 0 and isinstance(command, Run):  # its ranks agree on worker 0's
            return False
        if command.report:
            self._port.send(Progress(command.ticket, steps, values))
        self._poll_commands()
        return command.ticket <= self._interrupted

    def _is_abandoned(self) -> bool:
        """Between two instructions of a run: whether its results are not wanted any more."""
        if self.running is None or self._worker.rank != 0:
            return False
        self._poll_commands()
        return self.running.ticket <= self._abandoned

    def _poll_commands(self) -> None:
        """Take the commands that have arrived; interrupts overtake the others."""
        while (parcel := self._port.receive(wait=False)) is not None:
            arrived = parcel[0]
            if isinstance(arrived, Interrupt):
                self._interrupted = max(self._interrupted, arrived.ticket)
                if arrived.abandon:
                    self._abandoned = max(self._abandoned, arrived.ticket)
                continue
            if isinstance(arrived, Stop):
                self._interrupted = self._abandoned = sys.maxsize
            self._waiting.append(parcel)
