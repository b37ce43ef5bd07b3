"""The calls of a bound program: the bound calls of its instructions, in order.

`executor/bound_calls.py` makes the call of each instruction. Errors of a call carry the user's line
of its instruction.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from copy import copy
from functools import partial
from typing import NamedTuple, final

from magmath.core.paused_gc import paused_gc
from magmath.core.stage_times import stage
from magmath.core.type_aliases import BoundCall
from magmath.errors import LinAlgError, WorkerLost
from magmath.executor.bound_calls import bound_calls, overlapped_move, with_user_line
from magmath.executor.context import Context
from magmath.executor.error_context import attach_user_line, set_in_step
from magmath.executor.memory_fill import fills_of
from magmath.executor.move import AsyncMove
from magmath.executor.tensors import Tensors
from magmath.program.instructions import Call, Instruction, Program, Redistribute

NO_SEGMENTS: Mapping[range, BoundCall] = {}

Around = Callable[[int], AbstractContextManager[object]]
"""Returns the context in which the calls of the instruction at a position are made."""


@final
class CallList:
    """Bound calls in order, with the instruction of each for the user's line.

    `segments` are ranges of instructions that one call, a compiled function, replaces.
    """

    __slots__ = (
        "_alone",
        "_async_moves",
        "_bound",
        "_failures",
        "_instructions",
        "_positions",
        "_spans",
    )

    @paused_gc()
    @stage("bind")
    def __init__(
        self,
        positions: range,
        tensors: Tensors,
        segments: Mapping[range, BoundCall] = NO_SEGMENTS,
    ) -> None:
        self._bound: list[BoundCall] = []
        self._instructions: list[Instruction] = []
        self._positions: list[int] = []
        self._spans: dict[int, range] | None = None
        self._async_moves: list[AsyncMove] = []
        self._alone = tensors.context.comm.size == 1
        self._failures = tensors.context.failures.errors
        program = tensors.program
        segment_at = {position: segment for segment in segments for position in segment}
        beginning, fills = fills_of(tensors, positions, segment_at)
        if beginning:
            self._add(beginning, program.instructions[positions[0]], positions[0])
        pending: list[_PendingMove] = []
        for position in positions:
            instruction = program.instructions[position]
            self._add(fills.get(position, ()), instruction, position)
            if _is_interruptible(program, instruction):
                self._add((partial(_check_abandoned, tensors.context),), instruction, position)
            segment = segment_at.get(position)
            if segment is None:
                pending += self._bind(instruction, position, tensors)
            elif position == segment[-1]:
                self._add((segments[segment],), _last_call(segment, program), position)
            is_last = position == positions[-1]
            for x in [x for x in pending if is_last or x.due <= position]:
                self._add((x.move.wait,), x.instruction, x.position)
                pending.remove(x)

    def _bind(
        self, instruction: Instruction, position: int, tensors: Tensors
    ) -> list[_PendingMove]:
        """Add the bound calls of an instruction; return the concurrent move that they begin, if
        any."""
        with with_user_line(instruction):
            move = overlapped_move(instruction, tensors)
            bound = bound_calls(instruction, tensors) if move is None else (move.begin,)
        self._add(bound, instruction, position)
        if move is None:
            return []
        assert isinstance(instruction, Redistribute)
        self._async_moves.append(move)
        return [_PendingMove(instruction, position, move)]

    def rebound(
        self,
        positions: Collection[int],
        tensors: Tensors,
        segments: Mapping[range, BoundCall] = NO_SEGMENTS,
    ) -> CallList | None:
        """Return these calls, with those of the instructions at some positions on other tensors.

        `segments` are the same ranges as before, on the other tensors. Returns None if the calls
        depend on one another (moves on the progress thread, and filled memory), or an instruction
        has another number of calls on the new tensors.
        """
        if self._async_moves or tensors.context.heap.should_fill:
            return None
        program = tensors.program
        segment_at = {position: segment for segment in segments for position in segment}
        rebound = copy(self)
        rebound._bound = [*self._bound]
        for position in {segment_at[p][-1] if p in segment_at else p for p in positions}:
            instruction = program.instructions[position]
            segment = segment_at.get(position)
            if segment is not None:
                calls: Sequence[BoundCall] = (segments[segment],)
            else:
                with with_user_line(instruction):
                    calls = bound_calls(instruction, tensors)
            span = self._span(position)
            checks = int(_is_interruptible(program, instruction))  # calls in front of its own
            if len(span) != len(calls) + checks:
                return None
            rebound._bound[span.start + checks : span.stop] = calls
        return rebound

    def _span(self, position: int) -> range:
        """Return the range of the bound calls of an instruction."""
        if self._spans is None:
            self._spans = {}
            for i, call_position in enumerate(self._positions):
                start = self._spans[call_position].start if call_position in self._spans else i
                self._spans[call_position] = range(start, i + 1)
        return self._spans.get(position, range(0))

    def _add(self, bound: Sequence[BoundCall], instruction: Instruction, position: int) -> None:
        self._bound += bound
        self._instructions += [instruction] * len(bound)
        self._positions += [position] * len(bound)

    def run(self) -> None:
        """Make all calls; call it in `without_fp_warnings`. An error of a call carries the user's
        line.

        A copy of `_make` without contexts, since entering one takes as long as a short call.
        """
        for i, call in enumerate(self._bound):
            try:
                call()
            except Exception as error:
                self._fail(error, i)

    def run_some(self, positions: Collection[int]) -> None:
        """Make the calls of the instructions at these positions, like `run`."""
        self._make([i for i, position in enumerate(self._positions) if position in positions])

    def run_each(self, around: Around) -> None:
        """Make all calls like `run`, each in the context that `around` returns for the position of
        its instruction."""
        self._make(range(len(self._bound)), around)

    def _make(self, indices: Iterable[int], around: Around = nullcontext) -> None:
        for i in indices:
            try:
                with around(self._positions[i]):
                    self._bound[i]()
            except Exception as error:
                self._fail(error, i)

    def calls_at(self, positions: Collection[int]) -> list[tuple[int, BoundCall]]:
        """Return the calls of the instructions at these positions, each with its position.

        Their errors are raised as they are: for a caller that is no part of a run, so that no other
        worker waits for this one.
        """
        pairs = zip(self._positions, self._bound, strict=True)
        return [(position, call) for position, call in pairs if position in positions]

    def _fail(self, error: Exception, i: int) -> None:
        """Raise the error of call `i`, or record it if the other workers may wait for this one.

        A kernel does not synchronize workers, so a worker on which one fails can continue with an
        undefined result and remain in step. In a collective kernel, data can cause LinAlgError or
        IndexError, on all workers or after the last exchange. The executor raises a recorded error
        at the end of the program.
        """
        instruction = self._instructions[i]
        attach_user_line(error, instruction)
        if isinstance(error, InterruptedError):
            self._wait_for_moves()
            raise error
        local = isinstance(instruction, Call) and instruction.workspace is None
        lost = isinstance(error, WorkerLost)
        if self._alone or lost or not (local or isinstance(error, LinAlgError | IndexError)):
            self._wait_for_moves()
            raise error
        self._failures.append(error)

    def _wait_for_moves(self) -> None:
        """Wait for all pending moves after a failure, before the memory is freed."""
        for move in self._async_moves:
            with suppress(Exception):
                move.wait()


@final
class _PendingMove(NamedTuple):
    """A move on the progress thread, and the instruction at a position that has begun it."""

    instruction: Redistribute
    position: int
    move: AsyncMove

    @property
    def due(self) -> int:
        """The position of the last instruction that may run before the move is complete."""
        return self.position + self.instruction.overlapped


def _is_interruptible(program: Program, instruction: Instruction) -> bool:
    """Return True for an instruction before which the workers check whether the run is
    abandoned."""
    return program.is_abandonable and program.is_long(instruction)


def _last_call(segment: range, program: Program) -> Instruction:
    """Return the last call of a segment; a failure in the segment concerns this worker alone."""
    instructions = [program.instructions[position] for position in reversed(segment)]
    return next((x for x in instructions if isinstance(x, Call)), instructions[0])


def _check_abandoned(context: Context) -> None:
    """Raise InterruptedError on all workers if the run is abandoned."""
    if context.comm.allreduce_max(int(context.is_abandoned())):
        error = InterruptedError("interrupted between two instructions: the result is not computed")
        set_in_step(error)
        raise error
