"""Programs within a memory limit: second computations of intermediates in a program that is too
large.

The pass (`passes/rematerialize.py`) predicts the lifetimes of temporaries. The memory that a
lowered program needs is known exactly, and differs a little: there are gaps between temporaries,
and neighbouring loops are joined. So the pass is repeated with the difference, a few times.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from magmath.engine.programs.memory_check import RESERVED_SHARE, can_exceed, need_of
from magmath.passes import pipeline
from magmath.passes.environment import Environment
from magmath.passes.node_cost import node_seconds
from magmath.program.instructions import Program

ROUNDS = 4


@final
@dataclass(frozen=True)
class _SizedProgram:
    """A program, the bytes that it needs on a worker, and the seconds of second computations."""

    program: Program
    nbytes: int
    seconds: float


def fit_memory(
    planned: pipeline.PlannedGraph,
    program: Program,
    environment: Environment,
    room: int,
    lower_plan: Callable[[pipeline.PlannedGraph], Program],
) -> Program:
    """Return a program of a plan that needs at most `room` bytes of a worker, and little less; the
    smallest program if none fits.

    program     the program without second computations, which is returned if it fits
    lower_plan  returns the program of a plan
    """
    if not can_exceed(program, room):
        return program
    attempts = [_SizedProgram(program, need_of(program).nbytes, 0.0)]
    if attempts[0].nbytes <= room:
        return program
    aim = int(room * (1 - RESERVED_SHARE))
    excess = attempts[0].nbytes - aim
    while excess > 0 and len(attempts) <= ROUNDS:
        plan = pipeline.reduce_memory(planned, environment, excess)
        reduced = lower_plan(plan)
        seconds = sum([node_seconds(node, environment) for node in plan.originals])
        attempts.append(_SizedProgram(reduced, need_of(reduced).nbytes, seconds))
        missing = attempts[-1].nbytes - aim
        is_close = -RESERVED_SHARE * room <= missing <= 0
        if is_close or (missing > 0 and attempts[-1].nbytes >= attempts[-2].nbytes):
            break
        excess += missing
    fitting = [attempt for attempt in attempts if attempt.nbytes <= aim]
    if fitting:
        return min(fitting, key=lambda attempt: attempt.seconds).program
    return min(attempts, key=lambda attempt: attempt.nbytes).program
