"""The interface between the controller and its workers, whatever lies between.

A `Transport` starts workers, sends commands to them, and delivers their replies to the pool.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from magmath.graph import Node
from magmath.memory.local_array import LocalArray
from magmath.program.instructions import Program
from magmath.program.instructions import encode as encode_program
from magmath.runtime.messages import Command, Hello, Number, Reply, encode
from magmath.runtime.tiles import Frame, frame_bytes

HEARTBEAT_TIMEOUT: Final = 5.0
"""Seconds that a worker process may be silent, unless the user gives another time."""

Payload: TypeAlias = Frame | Program | None
"""What travels beside a command: a part of an array, or a program."""

Deliver: TypeAlias = Callable[[int, Reply, Frame | None], bool]
"""Takes a worker's number, its reply and the frame beside it; true asks a running program to stop.
"""


@dataclass(slots=True)
class ControlTraffic:
    """What the controller has sent: commands (one to all workers counts once), and their bytes."""

    messages: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """What a pool's workers are told when they start.

    device          "auto", "cpu", "cuda", or a torch device
    threads         processor threads of each worker; None: what torch takes by itself
    deterministic   reductions in an order that does not depend on the number of workers
    memory_limit    bytes that a worker's arrays may take; None: its share of the host's memory
    """

    device: str = "auto"
    threads: int | None = None
    deterministic: bool = False
    memory_limit: int | None = None


class Transport(ABC):
    """Reaches the workers 0 … size - 1."""

    size: int
    is_inline: bool = False
    """True where commands are carried out within `send`: nothing is encoded, copied or waited for.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.traffic = ControlTraffic()
        self.is_interrupted: Callable[[], bool] = bool
        """Whether Ctrl-C waits to take effect, for commands that are carried out within `send`."""
        self.describe_memory_use: Callable[[], str] = str
        """Says what the workers' arrays take, for the report of one that was killed for memory."""

    @abstractmethod
    def start(self, deliver: Deliver) -> list[Hello]:
        """Start the workers and return what they say of themselves, in order of rank.

        Raises what a worker raised at its start; WorkerError where they could not be started.
        """

    @abstractmethod
    def send(
        self, command: Command, ranks: Sequence[int], payloads: Sequence[Payload] = ()
    ) -> None:
        """Send a command to workers, to each with its own payload, or one payload to all of them.

        Raises WorkerLost where a worker cannot be reached.
        """

    def compute(
        self,
        order: Sequence[Node],
        wanted: Sequence[Node],
        given: Mapping[Node, int],
        outputs: Sequence[int],
        released: Sequence[int],
    ) -> list[LocalArray]:
        """Drop the arrays `released`, compute nodes without a program (see `Pool.compute`) and keep
        what is wanted as the arrays `outputs`; only where `direct`."""
        raise AssertionError("workers elsewhere are sent programs")

    def run(
        self,
        program: int,
        inputs: Sequence[int],
        outputs: Sequence[int],
        parameters: Sequence[Number],
        released: Sequence[int],
    ) -> list[float]:
        """Drop the arrays `released` and run one step of a program; the scalars that it emits. Only
        where `direct`."""
        raise AssertionError("workers elsewhere are sent messages")

    def prepare_replay(
        self, program: int, inputs: Sequence[int], outputs: Sequence[int]
    ) -> Callable[[Sequence[Number]], object]:
        """A call that runs a program again, from arrays into arrays that are there, given its
        numbers; only where `direct`."""
        raise AssertionError("workers elsewhere are sent messages")

    @abstractmethod
    def pump(self, seconds: float) -> None:
        """Deliver the replies that are there, or the first to arrive within this time.

        Raises WorkerLost where a worker has died or stopped answering.
        """

    @abstractmethod
    def close(self, *, force: bool) -> None:
        """End the workers: told to stop and given some seconds, or by force."""


def encode_frames(
    command: Command, ranks: Sequence[int], payloads: Sequence[Payload], traffic: ControlTraffic
) -> list[list[bytes | memoryview]]:
    """The frames of a command for each rank, counted: its record, and its payload if it has one."""
    record = encode(command)
    shared = [_payload_bytes(payload) for payload in payloads]
    if len(shared) == 1:
        shared = shared * len(ranks)
    parcels: list[list[bytes | memoryview]] = [
        [record] if payload is None else [record, payload]
        for payload in (shared or [None] * len(ranks))
    ]
    traffic.messages += 1
    traffic.bytes += sum(len(frame) for frames in parcels for frame in frames)
    return parcels


def _payload_bytes(payload: Payload) -> bytes | memoryview | None:
    if payload is None:
        return None
    return encode_program(payload) if isinstance(payload, Program) else frame_bytes(payload)
