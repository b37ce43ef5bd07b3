"""Pending commands with the replies so far, and the handles of runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, final

from magmath.errors import ProtocolError, WorkerLost
from magmath.runtime import messages
from magmath.runtime.failures import failure_from
from magmath.runtime.messages import Failure, Reply
from magmath.runtime.tiles import TileData

if TYPE_CHECKING:
    from magmath.program.instructions import Program

ProgressCallback = Callable[[int, list[float]], None]
"""Called with the completed steps of a run, and the scalars emitted since the last report."""


class PendingCommands(Protocol):
    """The methods of the command queue that a run uses."""

    def wait(self, pending: PendingCommand) -> None:
        """Wait for the replies to a command and to every earlier one."""

    def wait_ignoring_failures(self, pending: PendingCommand) -> None:
        """Wait as `wait` does, but drop failures."""


@final
class RunTiming(NamedTuple):
    """What a worker has measured in a timed run: the seconds of each instruction, and the bytes of
    the arrays of the run."""

    seconds: list[float]
    memory: int


@final
class RunHandle:
    """A pending or completed run. `outputs`: the ids of the output arrays."""

    __slots__ = (
        "_emitted",
        "_queue",
        "concurrent",
        "error",
        "outputs",
        "pending",
        "program",
        "progress",
        "recovery",
        "steps",
        "timings",
    )

    def __init__(
        self,
        queue: PendingCommands,
        outputs: list[int],
        steps: int,
        progress: ProgressCallback | None,
        program: Program | None = None,
        concurrent: bool = False,
    ) -> None:
        self.outputs = outputs
        self.steps = steps
        """The completed steps: fewer than requested if the run was interrupted."""
        self.progress = progress
        self.error: BaseException | None = None
        """The exception that `progress` raised."""
        self.pending: PendingCommand | None = None
        self.program = program
        self.concurrent = concurrent
        """True if it may overlap later runs; `values` then waits for its start only."""
        self.timings: dict[int, RunTiming] = {}
        """For a timed run, by worker."""
        self.recovery: Any = None
        """The engine's record that repeats the run, while it can be abandoned."""
        self._queue = queue
        self._emitted: list[float] = []

    @property
    def is_pending(self) -> bool:
        """True if a worker has not replied yet."""
        return self.pending is not None and bool(self.pending.waiting)

    @property
    def taken_steps(self) -> int:
        """The steps whose results variables keep: 0 for a run that has failed, after which they
        have the values from before it, and for one that goes on (`wait_for_steps`)."""
        if self.pending is not None and (self.is_pending or self.pending.failures):
            return 0
        return self.steps

    def wait_for_steps(self) -> int:
        """Wait for the end of the run; return the steps whose results variables keep, 0 if the
        workers were lost."""
        try:
            self.wait_ignoring_failures()
        except WorkerLost:
            return 0
        return self.taken_steps

    @property
    def can_be_abandoned(self) -> bool:
        """True if it is pending and can be stopped between two instructions: a long run that
        overwrites nothing."""
        return self.is_pending and self.program is not None and self.program.is_abandonable

    @property
    def should_finish(self) -> bool:
        """True if abandoning it, or a run that it depends on, would lose arrays: those that it
        overwrites, or results that cannot be computed again. Files depend on runs, but their
        commands lose nothing."""
        if self.program is None:  # a file command
            return False
        return bool(self.program.donated) or (self.program.is_abandonable and self.recovery is None)

    def values(self) -> list[float]:
        """Wait for the run, with progress reports; return the emitted scalars.

        Raises the failure of a worker, the exception of `progress`, and KeyboardInterrupt (Ctrl-C
        stops the run at a common step; `outputs` and `steps` are then those of that step).
        """
        self.wait()
        error, self.error = self.error, None
        if error is not None:
            raise error
        return self._emitted

    def wait(self) -> None:
        """Wait for the run; like `values`, but does not raise the exception of `progress`."""
        try:
            if self.pending is not None:
                self._queue.wait(self.pending)
        except InterruptedError:
            if self.error is None:
                raise

    def wait_ignoring_failures(self) -> None:
        """Wait for the run and all earlier commands, whose failures are dropped: arrays of failed
        runs raise them when they are used."""
        if self.pending is not None:
            self._queue.wait_ignoring_failures(self.pending)

    def finish(self, values: list[float], steps: int) -> None:
        """Store the reply of worker 0."""
        self._emitted, self.steps = values, steps


@final
@dataclass(slots=True, eq=False)
class PendingCommand:
    """A command that awaits replies: the workers that have not replied, and the replies so far."""

    ticket: int
    ranks: Sequence[int]
    expected: tuple[type, ...]
    waiting: set[int]
    nbytes: int
    run: RunHandle | None
    is_independent: bool
    """True if each worker executes it independently, so that a failure does not affect others."""
    array_id: int | None = None
    """The array that it stores without a run."""
    is_cancelled: bool = False
    """True if nothing waits for it any more after Ctrl-C, so that later failures are dropped."""
    tiles: dict[int, TileData] = field(default_factory=dict)
    counters: dict[int, dict[str, int | float | str]] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)

    @property
    def has_uniform_failure(self) -> bool:
        """True if every worker has failed at the same place."""
        alike = len({(failure.kind, failure.site) for failure in self.failures}) == 1
        return alike and len(self.failures) == len(self.ranks)

    @property
    def is_in_step(self) -> bool:
        """True if the failed workers completed the command nevertheless."""
        return all(failure.is_in_step for failure in self.failures)

    @property
    def outputs(self) -> Sequence[int]:
        """The ids of the arrays that it makes."""
        if self.run is not None:
            return self.run.outputs
        return () if self.array_id is None else (self.array_id,)

    @property
    def is_raised_at_use(self) -> bool:
        """True if only a use of the array that it stores raises its failure: no statement waits for
        it, and the workers continue without the array."""
        return self.array_id is not None and self.is_in_step

    def add_reply(self, rank: int, reply: Reply, data: TileData | None) -> None:
        """Store a worker's reply, and the data of a tile."""
        self.waiting.discard(rank)
        if not isinstance(reply, (*self.expected, Failure)):
            reply = failure_from(
                ProtocolError(f"{type(reply).__name__} is no reply to command {self.ticket}"),
                self.ticket,
                rank,
                "",
            )
        if isinstance(reply, Failure):
            self.failures.append(reply)
        elif isinstance(reply, messages.Values) and self.run is not None:
            self.run.finish(reply.values, reply.steps)
            if reply.seconds:
                self.run.timings[rank] = RunTiming(reply.seconds, reply.memory)
        elif isinstance(reply, messages.TileMessage):
            self.tiles[rank] = b"" if data is None else data
        elif isinstance(reply, messages.Counters):
            self.counters[rank] = reply.values
