"""The command loop of a worker: receive a command, execute it, reply.

A `CommandPort` abstracts the source of commands: a queue (threads) or a socket (processes). During
a run of many steps, worker 0 polls its port between chunks, so that an interrupt overtakes queued
commands.
"""

from __future__ import annotations

import logging
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import final

from magmath.core.debugging import Delays
from magmath.core.thread_placement import release_caller
from magmath.errors import ProtocolError
from magmath.runtime.messages import (
    Command,
    Get,
    Interrupt,
    LongCommand,
    Progress,
    Reply,
    Run,
    Stop,
    decode_command,
)
from magmath.runtime.tiles import TileData
from magmath.runtime.worker import Worker

logger = logging.getLogger(__name__)

CommandMessage = tuple[Command, TileData | None]


class CommandPort(ABC):
    """The connection of a worker to its controller."""

    @abstractmethod
    def frames(self, wait: bool) -> Sequence[bytes | memoryview] | None:
        """Return the frames of the next message; None if there is none and `wait` is false."""

    @abstractmethod
    def send(self, reply: Reply, data: TileData | None = None, *, hold: bool = False) -> None:
        """Send a reply to the controller; with `hold`, at the latest with the next one."""

    def receive(self, wait: bool) -> CommandMessage | None:
        """Return the next command; malformed messages are logged and dropped."""
        while (frames := self.frames(wait)) is not None:
            try:
                if len(frames) not in (1, 2):
                    raise ProtocolError(f"a command has one or two frames, not {len(frames)}")
                return decode_command(frames[0]), frames[1] if len(frames) == 2 else None
            except ProtocolError as error:
                logger.warning("dropped a message from the controller: %s", error)
        return None


@final
class CommandLoop:
    """Executes the commands of one worker until the controller sends Stop."""

    def __init__(self, worker: Worker, port: CommandPort) -> None:
        self._worker = worker
        self._port = port
        self.running: Run | None = None
        """The current run."""
        self._waiting: deque[CommandMessage] = deque()
        self._interrupted = 0
        """The ticket up to which runs of many steps, reads and writes stop."""
        self._abandoned = 0
        """The ticket up to which runs stop between two instructions."""
        self._delays = Delays("commands", worker.rank)
        worker.poll = self._poll
        worker.is_abandoned = self._is_abandoned

    def run(self) -> None:
        """Execute commands until `Stop`."""
        while True:
            message = self._waiting.popleft() if self._waiting else self._port.receive(wait=True)
            if message is None:
                return
            command, data = message
            if isinstance(command, Stop):
                return
            self.running = command if isinstance(command, Run) else None
            if not isinstance(command, Run):
                release_caller()  # it may start threads
            self._delays.sleep()
            reply = self._worker.reply_to(command, data)
            self._delays.sleep()
            self.running = None
            if reply is not None:
                self._port.send(*reply, hold=self._is_get_next())

    def _is_get_next(self) -> bool:
        """Return True if the next command has arrived and only reads an array, which is soon done.
        Then one packet with both replies wakes the controller once."""
        if not self._waiting:
            message = self._port.receive(wait=False)
            if message is not None:
                self._waiting.append(message)
        return bool(self._waiting) and isinstance(self._waiting[0][0], Get)

    def _poll(self, command: LongCommand, steps: int, values: list[float]) -> bool:
        """Return True if a long command should stop; called between its chunks, on each rank."""
        if self._worker.rank != 0 and isinstance(command, Run):  # worker 0 decides for all ranks
            return False
        if command.report:
            self._port.send(Progress(command.ticket, steps, values))
        self._poll_commands()
        return command.ticket <= self._interrupted

    def _is_abandoned(self) -> bool:
        """Return True if the run is abandoned; called between two of its instructions."""
        if self.running is None or self._worker.rank != 0:
            return False
        self._poll_commands()
        return self.running.ticket <= self._abandoned

    def _poll_commands(self) -> None:
        """Queue the commands that have arrived; process interrupts immediately."""
        while (message := self._port.receive(wait=False)) is not None:
            command, _ = message
            if isinstance(command, Interrupt):
                self._interrupted = max(self._interrupted, command.ticket)
                if command.abandon:
                    self._abandoned = max(self._abandoned, command.ticket)
                continue
            if isinstance(command, Stop):
                self._interrupted = self._abandoned = sys.maxsize
            self._waiting.append(message)
