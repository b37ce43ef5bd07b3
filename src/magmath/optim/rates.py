"""Learning rates: numbers, schedules and functions of the step, and those of an epoch's steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, final

import numpy as np

from magmath.api.creation import variable
from magmath.arrays.array import Array
from magmath.arrays.variables.variable import Variable
from magmath.arrays.variables.variable_list import is_module
from magmath.core.dtypes import DType
from magmath.core.real_numbers import is_real_number
from magmath.errors import OptionError
from magmath.graph import Node
from magmath.ops.indexing.dynamic_slice import dynamic_slice
from magmath.ops.leaves import scalar
from magmath.ops.manipulation import reshape
from magmath.ops.slicing import slice_along
from magmath.optim.schedules import MonitoringSchedule, Schedule, StatefulSchedule, after_warm_up

LearningRate = float | Schedule | Callable[[int], float]

ROUNDING_ERROR = 1e-12
"""A function of the step may return rates that are below 0 by as much, which are 0."""


def check_learning_rate(rate: Any) -> None:
    """Raise TypeError for anything but a learning rate, OptionError for a rate below 0
    or nan. A rate of 0 changes no parameter, as at the beginning of a warm-up."""
    if callable(rate) and not isinstance(rate, Array) and not is_module(rate):
        return
    if not is_real_number(rate):
        if not isinstance(rate, (str, bytes, type(None))):
            shape = f" and shape {rate.shape}" if hasattr(rate, "shape") else ""
            raise TypeError(
                f"optimizer: the first argument is the learning rate, was given an object of type "
                f"{type(rate).__name__}{shape}; the parameters are arguments of the step: "
                f"optimizer.update({{w: gradient}}), or optimizer.minimize(loss, [w])"
            )
        raise TypeError(
            f"optimizer: learning_rate must be a number of at least 0, a schedule or a function of "
            f"the step, was given {rate!r}; see mm.optim.schedules"
        )
    if not rate >= 0:
        raise OptionError(
            f"optimizer: learning_rate must be at least 0, was given {rate}; typical are 0.001 to "
            f"0.1"
        )


def rate_at(rate: LearningRate, step: int, epoch: int | None = None) -> float:
    """Return a learning rate at a step; in `fit`, in an epoch with this number. Raises OptionError
    if a schedule or a function returns a rate below 0 or nan.

    A difference of decimal fractions that should be 0 may be rounded to -5.6e-17, which is 0 here.
    """
    if not callable(rate):
        return float(rate)
    per_step = isinstance(rate, Schedule) and rate.per == "step"
    number = step if epoch is None or per_step else epoch
    value = float(rate(number))
    if not value >= -ROUNDING_ERROR:
        raise OptionError(
            f"optimizer: learning_rate must be at least 0, {rate!r} returned {value} for {number}"
        )
    return max(value, 0.0)


def has_step_schedule(rates: Iterable[LearningRate]) -> bool:
    """Return True if one of the learning rates is a schedule that counts steps in `fit`."""
    return any(isinstance(rate, Schedule) and rate.per == "step" for rate in rates)


def observe_metrics(rates: Iterable[LearningRate], figures: Mapping[str, float | None]) -> None:
    """Pass an epoch's metrics, such as `loss`, to schedules that monitor them (`Plateau`)."""
    different = {id(rate): rate for rate in map(after_warm_up, rates)}
    for rate in different.values():  # groups may have the same schedule
        if isinstance(rate, MonitoringSchedule):
            rate.observe_metrics(figures)


def schedule_states(rates: Iterable[LearningRate]) -> dict[str, Mapping[str, Any]]:
    """Return the states of learning rates that have one, by the index of the rate."""
    numbered = enumerate(map(after_warm_up, rates))
    return {str(i): rate.state_dict() for i, rate in numbered if isinstance(rate, StatefulSchedule)}


def load_schedule_states(
    rates: Iterable[LearningRate], states: Mapping[str, Mapping[str, Any]]
) -> None:
    """Load what `schedule_states` returned. Rates without a state in it do not change; if one
    raises an error, none does."""
    former: list[tuple[StatefulSchedule, Mapping[str, Any]]] = []
    try:
        for i, rate in enumerate(map(after_warm_up, rates)):
            if isinstance(rate, StatefulSchedule) and str(i) in states:
                former.append((rate, dict(rate.state_dict())))
                rate.load_state_dict(states[str(i)])
    except Exception:
        for rate, state in reversed(former):
            rate.load_state_dict(state)
        raise


class RatedOptimizer(Protocol):
    """The methods of an optimizer that the rates of an epoch use."""

    @property
    def steps(self) -> int:
        """The number of steps that it has taken."""

    @property
    def learning_rates(self) -> list[LearningRate]:
        """The learning rate, and those of groups that have their own."""

    def rates(self, step: int, epoch: int | None = None) -> list[float]:
        """Return the learning rate at a step, and those of groups that have their own."""


@final
class EpochRates:
    """The learning rates of the steps of an epoch, which the workers run after one message.

    Rates that are the same in all steps are numbers that each run receives, `numbers`. Rates of
    schedules per step are rows of a table, which the controller sends at the start of each epoch.
    """

    def __init__(self, optimizer: RatedOptimizer, dtype: DType, steps: int) -> None:
        self._optimizer = optimizer
        self._steps = steps
        rates = optimizer.learning_rates
        self.numbers = {scalar(None, dtype): math.nan for _ in rates}
        """The present rates by their leaves, in order, nan until they are set; if there is a table,
        programs read that."""
        self._table: Variable | None = None
        self._rows = [[math.nan] * len(rates)] * steps
        """The rows of the table; nan if they were not set."""
        if has_step_schedule(rates):
            self._table = variable("rates", np.zeros((steps, len(rates))), dtype=dtype)

    @property
    def is_current(self) -> bool:
        """False if a schedule per step has replaced rates that are the same in all steps."""
        return self._table is not None or not has_step_schedule(self._optimizer.learning_rates)

    def nodes(self, step: Node) -> list[Node]:
        """Return the rates at a step of the epoch, given by its number, 0-d, from 0."""
        if self._table is None:
            return list(self.numbers)
        row = dynamic_slice(self._table.leaf, 0, step, 1)
        return [reshape(slice_along(row, 1, i, i + 1), ()) for i in range(len(self.numbers))]

    def set(self, epoch: int, completed: int = 0) -> None:
        """Set the rates of the steps after the first `completed` of the epoch with this number,
        which the optimizer has counted."""
        if completed >= self._steps:
            return  # no step is left
        first = self._optimizer.steps
        rates = self._optimizer.rates(first, epoch)
        if self._table is None:
            self.numbers = dict(zip(self.numbers, rates, strict=True))
            return
        has_new_rates = self._rows[completed] != rates
        if not completed or has_new_rates:
            remaining = range(self._steps - completed)
            rows = [self._optimizer.rates(first + i, epoch) for i in remaining]
            self._rows[completed:] = rows
            self._table.assign(np.array(self._rows, dtype=self._table.dtype.name))
