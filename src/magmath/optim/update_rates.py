"""The learning rates of an update as nodes, and the count of its step.

A traced update has numbers in their place, which each run computes when it starts. The steps of a
run are counted then; those in branches of `cond` and in loops are counted on the workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from weakref import ref

from magmath.core.dtypes import DType
from magmath.engine.run_numbers import reserve_for_run
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
        return [scalar(_counting_source(optimizer, i)(1), dtype) for i in indices]
    before = _check_countable(optimizer, trace)
    if not trace.is_conditional:
        return [trace.add_number(_counting_source(optimizer, i), dtype) for i in indices]
    optimizer.step_count.count_on_workers()
    return [trace.add_number(_source(optimizer, i, before), dtype) for i in indices]


def _check_countable(optimizer: CountingOptimizer, trace: TraceScope) -> int:
    """Return how many steps the workers count in a run before this line of a traced function.

    Raises TracingError if a learning rate is a function of the step, and the number of the step is
    not known when the run starts.
    """
    before = optimizer.step_count.taken_in_run()
    if any(map(callable, optimizer.learning_rates)):
        if trace.is_loop:
            raise TracingError(
                "update: a loop on the workers cannot call a learning rate that is a function of "
                "the step; loop in Python over a compiled step, or give a number"
            )
        if before is None:
            raise TracingError(
                "update: the learning rate is a function of the step, and how many steps the "
                "compiled function has taken before this line depends on values (mm.cond, "
                "mm.while_loop); take this step in another compiled function, or give a number"
            )
    return before or 0


def _counting_source(optimizer: CountingOptimizer, index: int) -> NumberSource:
    """Return a function that returns a learning rate for the first of the next run's steps.

    The function of the first rate, which is called first, also counts the steps, unless the run
    fails.
    """
    owner = ref(optimizer)  # programs of its updates refer to this function

    def source(steps: int) -> float:
        optimizer = owner()
        assert optimizer is not None
        if index == 0:
            reserve_for_run(optimizer.step_count, "started", steps)
        return _rate_ahead(optimizer, index, -steps)

    return source


def _source(optimizer: CountingOptimizer, index: int, ahead: int) -> NumberSource:
    """Return a function that returns the learning rate of the step that is so many after the steps
    so far."""
    owner = ref(optimizer)

    def source(steps: int) -> float:
        optimizer = owner()
        assert optimizer is not None
        return _rate_ahead(optimizer, index, ahead)

    return source


def _rate_ahead(optimizer: CountingOptimizer, index: int, ahead: int) -> float:
    rate = optimizer.learning_rates[index]
    return rate_at(rate, optimizer.step_count.value + ahead) if callable(rate) else float(rate)
