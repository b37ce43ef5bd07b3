"""The learning rates of an update as nodes, and the count of its step.

A traced update has numbers in their place, which each run computes when it starts. The steps of a
run are counted then; those in branches of `cond` and in loops are counted on the workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from weakref import ref

from magmath.core.dtypes import DType
from magmath.engine.traces import tracing
from magmath.engine.traces.tracing import NumberSource, TraceScope
from magmath.errors import TracingError
from magmath.graph import Node
from magmath.ops.leaves import scalar
from magmath.optim.rates import LearningRate, rate_at
from magmath.optim.step_count import StepCount


class CountingOptimizer(Protocol):
    """The attributes of an optimizer that the rates of an update use."""

    step_count: StepCount

    @property
    def learning_rates(self) -> Sequence[LearningRate]:
        """The learning rates of the optimizer's groups."""


def rates_of_update(optimizer: CountingOptimizer, dtype: DType) -> list[Node]:
    """Return the learning rates of the next update, and count its step."""
    trace, indices = tracing.current(), range(len(optimizer.learning_rates))
    if trace is None:
        numbers = [_source(optimizer, i, 0, counts=False)(1) for i in indices]
        optimizer.step_count.reserve(1)  # not if a rate has raised an error
        return [scalar(number, dtype) for number in numbers]
    before, counts = _check_countable(optimizer, trace), not trace.is_conditional
    if not counts:
        optimizer.step_count.count_on_workers()
    return [trace.add_number(_source(optimizer, i, before, counts=counts), dtype) for i in indices]


def _check_countable(optimizer: CountingOptimizer, trace: TraceScope) -> int:
    """Return how many steps the workers count in a run before this line of a traced function; 0 if
    that is not known, which is allowed for rates that are numbers.

    Raises TracingError if a learning rate is a function of the step, and the number of the step is
    not known when the run starts. The function is traced again if one becomes such a function.
    """
    before = optimizer.step_count.taken_in_run()
    if before is not None and not trace.is_loop:
        return before
    if any(map(callable, optimizer.learning_rates)):
        if trace.is_loop:
            raise TracingError(
                "update: a loop on the workers cannot call a learning rate that is a function of "
                "the step; loop in Python over a compiled step, or give a number"
            )
        raise TracingError(
            "update: the learning rate is a function of the step, and how many steps the "
            "compiled function has taken before this line depends on values (mm.cond, "
            "mm.while_loop); take this step in another compiled function, or give a number"
        )
    trace.depend_on_state(optimizer.step_count)
    return before or 0


def _source(optimizer: CountingOptimizer, index: int, before: int, *, counts: bool) -> NumberSource:
    """Return a function that returns a learning rate for the first of the next run's steps.

    before   the number of steps that the workers count in the run before this one
    counts   the function of the first rate, which is called first, also counts the steps of the
             run, unless it fails; otherwise the workers count them

    The function raises TracingError if the optimizer no longer exists: its states would continue
    from one run to the next, while the code says that each run begins with new ones.
    """
    owner = ref(optimizer)  # programs of its updates refer to this function

    def source(steps: int) -> float:
        optimizer = owner()
        if optimizer is None:
            raise TracingError(
                "update: the optimizer was made in a compiled function, or in the body of a loop, "
                "which is traced once and runs many times; make the optimizer outside of it"
            )
        if counts and index == 0:
            optimizer.step_count.reserve(steps)
        rate = optimizer.learning_rates[index]
        if not callable(rate):
            return float(rate)
        counted = steps if counts else 0
        return rate_at(rate, optimizer.step_count.value - counted + before)

    return source
