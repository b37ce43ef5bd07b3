"""The interface between the controller and its workers.

A `Transport` starts workers, sends commands to them, and delivers their replies to the pool.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar, final

import numpy as np

from magmath.core.byte_sizes import WORKSPACE_LIMIT
from magmath.core.dtypes import DType
from magmath.core.type_aliases import Number
from magmath.layout import Layout
from magmath.memory.local_array import LocalArray
from magmath.program.encoding import encode as encode_program
from magmath.program.instructions import Program
from magmath.runtime.messages import Command, Hello, Reply, encode
from magmath.runtime.tiles import TileData, tile_bytes

HEARTBEAT_TIMEOUT: Final = 5.0
"""Seconds that a worker process may be silent, unless the user gives another time."""

Payload: TypeAlias = TileData | Program | None
"""The payload of a command: a part of an array, or a program."""

HandleReply: TypeAlias = Callable[[int, Reply, TileData | None], bool]
"""Called with the rank of a worker, its reply and the data of a tile; returns True to stop a
running program."""

Expression = TypeVar("Expression")
"""The nodes that the inline worker computes without a program, passed through to the executor."""


@final
@dataclass(slots=True)
class ControlTraffic:
    """The commands that the controller has sent (a broadcast counts once), and their bytes."""

    messages: int = 0
    bytes: int = 0


@final
@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """The start options of a pool's workers.

    device          "auto", "cpu", "cuda", or a torch device
    threads         processor threads of each worker; None: torch's default
    deterministic   reductions in an order that does not depend on the number of workers
    memory_limit    bytes that a worker's arrays may use; None: its share of the host's memory
    winograd        convolutions may use Winograd's algorithms and Fourier transforms
    workspace_limit  bytes of temporary memory that an algorithm for a convolution may need
    flush_denormals  numbers below the smallest normal one count as 0 in training steps
    """

    device: str = "auto"
    threads: int | None = None
    deterministic: bool = False
    memory_limit: int | None = None
    winograd: bool = True
    workspace_limit: int = WORKSPACE_LIMIT
    flush_denormals: bool = True


class Transport(ABC):
    """The connection to the workers 0 … size - 1."""

    size: int
    options: WorkerOptions
    """The start options of the workers."""
    is_inline: bool = False
    """True if `send` executes commands directly: nothing is encoded, copied or waited for."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.traffic = ControlTraffic()
        self.is_interrupted: Callable[[], bool] = bool
        """Returns whether a Ctrl-C is deferred, for commands that `send` executes directly."""
        self.describe_memory_use: Callable[[], str] = str
        """Describes the memory of the workers' arrays, for out-of-memory reports."""

    @abstractmethod
    def start(self, handle_reply: HandleReply) -> list[Hello]:
        """Start the workers and return their Hello messages, in order of rank.

        Raises the exception of a worker at its start, or WorkerError if they could not be started.
        """

    @abstractmethod
    def send(
        self, command: Command, ranks: Sequence[int], payloads: Sequence[Payload] = ()
    ) -> None:
        """Send a command to workers, with one payload for each, or one payload for all.

        Raises WorkerLost if a worker is unreachable.
        """

    def compute(
        self,
        order: Sequence[Expression],
        requested: Sequence[Expression],
        array_ids: Mapping[Expression, int],
        outputs: Sequence[int],
        released: Sequence[int],
    ) -> list[LocalArray]:
        """Drop the arrays `released`, compute nodes without a program (see `Pool.compute`) and
        store the results as the arrays `outputs`; only if `is_inline`."""
        raise AssertionError("workers in other processes receive programs")

    def run(
        self,
        program_id: int,
        inputs: Sequence[int],
        outputs: Sequence[int],
        scalars: Sequence[Number],
        released: Sequence[int],
    ) -> list[float]:
        """Drop the arrays `released` and run one step of a program; return the emitted scalars.
        Only if `is_inline`."""
        raise AssertionError("workers elsewhere are sent messages")

    def store(
        self, array_id: int, values: np.ndarray[Any, Any], layout: Layout, dtype: DType
    ) -> None:
        """Copy an array of this process to the only worker, under an id; only if `is_inline`."""
        raise AssertionError("workers elsewhere are sent messages")

    def get(self, array_id: int) -> LocalArray:
        """Return an array itself, not a copy; only if `is_inline`."""
        raise AssertionError("workers elsewhere are sent messages")

    def prepare_run(
        self, program_id: int, inputs: Sequence[int], outputs: Sequence[int]
    ) -> Callable[[Sequence[Number]], object]:
        """Return a call that runs a program again, between existing arrays, given its scalars;
        only if `is_inline`."""
        raise AssertionError("workers elsewhere are sent messages")

    @abstractmethod
    def pump(self, seconds: float) -> None:
        """Deliver the available replies, or wait this time for the first one.

        Raises WorkerLost if a worker has died or does not answer.
        """

    @abstractmethod
    def close(self, *, force: bool) -> None:
        """Stop the workers: with a Stop command and some seconds to exit, or by force."""


def encode_frames(
    command: Command, ranks: Sequence[int], payloads: Sequence[Payload], traffic: ControlTraffic
) -> list[list[bytes | memoryview]]:
    """Encode a command for each rank, as a message and an optional payload, and count the
    traffic."""
    message = encode(command)
    encoded = [_payload_bytes(payload) for payload in payloads]
    if len(encoded) == 1:  # one for all
        encoded = encoded * len(ranks)
    messages: list[list[bytes | memoryview]] = [
        [message] if payload is None else [message, payload]
        for payload in (encoded or [None] * len(ranks))
    ]
    traffic.messages += 1
    traffic.bytes += sum(len(frame) for frames in messages for frame in frames)
    return messages


def _payload_bytes(payload: Payload) -> bytes | memoryview | None:
    if payload is None:
        return None
    return encode_program(payload) if isinstance(payload, Program) else tile_bytes(payload)
