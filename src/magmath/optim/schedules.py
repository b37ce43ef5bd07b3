"""Schedules: learning rates that change with the step.

A schedule is a small object that maps a step number, from 0, to a learning rate. Optimizers accept
it as `learning_rate=`. Any other function of the step is one too; if it depends on the past, it has
the methods of `StatefulSchedule`, so that it is saved with the optimizer. A rate is a scalar of
the compiled step, so a schedule does not recompile it. In user loops (`update`, `minimize`) the
optimizer counts its steps. In `fit` a schedule counts epochs, or with `per="step"` steps.

If PyTorch has a corresponding scheduler, the values are equal.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    NoReturn,
    Protocol,
    final,
    runtime_checkable,
)

from magmath.core import foreign_names, foreign_network_names
from magmath.core.keyword_hints import KeywordHints
from magmath.core.monitored_figure import Mode, monitored_figure, monitored_mode
from magmath.core.real_numbers import require_number
from magmath.errors import OptionError

__all__ = [
    "Constant",
    "Cosine",
    "Exponential",
    "Formula",
    "MultiStep",
    "OneCycle",
    "Plateau",
    "Polynomial",
    "Schedule",
    "Step",
    "WarmUp",
]


def __dir__() -> list[str]:
    return __all__


Per = Literal["epoch", "step"]
MIN_CHANGE = 1e-8
"""Smallest reduction of a rate that `Plateau` makes, as in PyTorch."""
_LEAST: Mapping[str, int] = {
    **dict.fromkeys(("rate", "end", "minimum", "factor", "start_factor", "power"), 0),
    **dict.fromkeys(("steps", "size", "growth"), 1),
}
"""Settings of schedules that are numbers, with the least ones that they may be."""


class Schedule(metaclass=KeywordHints):
    """A learning rate that changes with the step; in `fit` it counts `per`, epochs or steps."""

    per: Per

    @abstractmethod
    def __call__(self, step: int) -> float:
        """Return the learning rate at a step, counted from 0."""


def _check_numbers(schedule: Schedule) -> None:
    """Raise OptionError for settings of a schedule of this module that are out of range."""
    for name, least in _LEAST.items():
        if hasattr(schedule, name):
            require_number(f"{type(schedule).__name__}: {name}", getattr(schedule, name), least)


@dataclass(frozen=True)
class Formula(Schedule):
    """A schedule that depends on the step alone."""

    _: KW_ONLY
    per: Per = "epoch"

    def __post_init__(self) -> None:
        _check_numbers(self)
        if self.per not in ("epoch", "step"):
            raise OptionError(f'schedule: per must be "epoch" or "step", was given {self.per!r}')


@final
@dataclass(frozen=True)
class Constant(Formula):
    """The same rate in all steps, to combine with other schedules."""

    rate: float

    def __call__(self, step: int) -> float:
        return self.rate


@final
@dataclass(frozen=True)
class Step(Formula):
    """The rate is multiplied by `factor` after every `size` steps."""

    rate: float
    size: int
    factor: float = 0.1

    def __call__(self, step: int) -> float:
        return self.rate * self.factor ** (step // self.size)


@final
@dataclass(frozen=True)
class MultiStep(Formula):
    """The rate is multiplied by `factor` at each of the `milestones`, numbers of steps."""

    rate: float
    milestones: Sequence[int]
    factor: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.milestones, Iterable):
            raise OptionError(
                f"MultiStep: milestones must be a list of steps, was given {self.milestones!r}; "
                f"Step multiplies the rate after every so many steps"
            )
        object.__setattr__(self, "milestones", tuple(sorted(self.milestones)))

    def __call__(self, step: int) -> float:
        return self.rate * self.factor ** bisect_right(self.milestones, step)


@final
@dataclass(frozen=True)
class Exponential(Formula):
    """The rate is multiplied by `factor` after every step."""

    rate: float
    factor: float

    def __call__(self, step: int) -> float:
        return self.rate * self.factor**step


@final
@dataclass(frozen=True)
class Polynomial(Formula):
    """The rate changes from `rate` to `end` in `steps` steps, as a power of the remaining share.

    The power 1 gives a straight line. After these steps the rate is constant.
    """

    rate: float
    steps: int
    power: float = 1.0
    end: float = 0.0

    def __call__(self, step: int) -> float:
        remaining = max(1 - step / self.steps, 0.0)
        return self.end + (self.rate - self.end) * math.pow(remaining, self.power)


@final
@dataclass(frozen=True)
class Cosine(Formula):
    """The rate changes from `rate` to `end` in `steps` steps, along half a cosine.

    After these steps the rate rises again along the same curve, as in PyTorch. With `restarts` it
    restarts at `rate` instead, each period `growth` times as long as the one before. Source:
    Loshchilov and Hutter (2017), SGDR.
    """

    rate: float
    steps: int
    end: float = 0.0
    restarts: bool = False
    growth: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.restarts, bool):
            raise OptionError(
                f"Cosine: restarts must be True or False, was given {self.restarts!r}; for periods "
                f"that grow by the factor 2 write restarts=True, growth=2"
            )

    def __call__(self, step: int) -> float:
        period = self.steps
        if self.restarts and self.growth == 1:
            step %= period
        while self.restarts and step >= period:
            step, period = step - period, period * self.growth
        share = (1 + math.cos(math.pi * step / period)) / 2
        return self.end + (self.rate - self.end) * share


@final
@dataclass(frozen=True)
class WarmUp(Formula):
    """The rate rises linearly from `start_factor` times the first rate of `after` to that rate in
    `steps` steps; then `after` starts from its step 0.

    `after` is a schedule, a function of the step, or a number; in `fit` it counts what this
    schedule counts. Source: Goyal et al. (2017), section 2.2.
    """

    after: Schedule | Callable[[int], float] | float
    steps: int
    start_factor: float = 0.1

    def __call__(self, step: int) -> float:
        after = self.after if callable(self.after) else Constant(self.after)
        if step >= self.steps:
            return after(step - self.steps)
        return after(0) * (self.start_factor + (1 - self.start_factor) * step / self.steps)


@final
@dataclass(frozen=True)
class OneCycle(Formula):
    """The rate rises from rate / div_factor to `rate` in the share `pct_start` of the steps, then
    falls to rate / div_factor / final_div_factor and stays there.

    It changes along a cosine, or with `linear` along straight lines. It counts steps in `fit`
    unless `per="epoch"`. Source: Smith and Topin (2018).
    """

    rate: float
    steps: int
    pct_start: float = 0.3
    div_factor: float = 25.0
    final_div_factor: float = 1e4
    linear: bool = False
    per: Per = field(default="step", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.pct_start <= 1:
            raise OptionError(
                f"OneCycle: pct_start is a share of the steps, from 0 to 1, was given "
                f"{self.pct_start}; 30 % are 0.3"
            )
        for name in ("div_factor", "final_div_factor"):
            if not getattr(self, name) > 0:
                raise OptionError(
                    f"OneCycle: {name} must be positive, was given {getattr(self, name)}"
                )

    def __call__(self, step: int) -> float:
        first = self.rate / self.div_factor
        top, last = self.pct_start * self.steps - 1, self.steps - 1
        if step <= top:
            return self._interpolate(first, self.rate, step / top if top else 1.0)
        share = 1.0 if step >= last else (step - top) / (last - top)
        return self._interpolate(self.rate, first / self.final_div_factor, share)

    def _interpolate(self, start: float, end: float, share: float) -> float:
        if self.linear:
            return start + (end - start) * share
        return end + (start - end) / 2 * (1 + math.cos(math.pi * share))


@final
@dataclass(eq=False)
class Plateau(Schedule):
    """A rate that is multiplied by `factor` when a value stops improving for `patience` epochs.

    `fit` passes the value called `monitor` ("loss", "validation_loss", "accuracy", …) at the end of
    each epoch; a user's loop calls `observe`. A value improves if it is less than the best one
    (with `mode="max"`: more) by the share `threshold` of it. The default of `mode` follows from the
    name, as for `train.BestWeights`. After a reduction the next `cooldown` values do not count. The
    rate never falls below `minimum`.
    """

    rate: float
    factor: float = 0.1
    patience: int = 10
    threshold: float = 1e-4
    cooldown: int = 0
    minimum: float = 0.0
    monitor: str = "loss"
    mode: Mode | None = None

    per: ClassVar[Per] = "epoch"  # type: ignore[misc]

    def __post_init__(self) -> None:
        _check_numbers(self)
        if self.factor >= 1:
            raise OptionError(
                f"Plateau: factor multiplies the rate and must be less than 1, was given "
                f"{self.factor}; 0.1 divides it by 10"
            )
        self.mode = monitored_mode("Plateau", self.monitor, self.mode)
        self._best = math.inf if self.mode == "min" else -math.inf
        self._bad = self._waiting = 0

    def __call__(self, step: int) -> float:
        return self.rate

    def observe(self, value: float) -> None:
        """Record the next value, and reduce the rate after too many without an improvement."""
        value = float(value)
        if self._is_better(value):
            self._best, self._bad = value, 0
        else:
            self._bad += 1
        if self._waiting:
            self._waiting, self._bad = self._waiting - 1, 0
        if self._bad > self.patience:
            lower = max(self.rate * self.factor, self.minimum)
            self.rate = lower if self.rate - lower > MIN_CHANGE else self.rate
            self._waiting, self._bad = self.cooldown, 0

    def _is_better(self, value: float) -> bool:
        if self.mode == "min":
            return value < self._best * (1 - self.threshold)
        return value > self._best * (1 + self.threshold)

    def observe_metrics(self, figures: Mapping[str, float | None]) -> None:
        """Observe the monitored value among the metrics of an epoch.

        Raises OptionError if it is missing.
        """
        self.observe(monitored_figure("Plateau", self.monitor, figures))

    def state_dict(self) -> dict[str, float]:
        """Return the rate, the best value and the counters, as numbers."""
        return {"rate": self.rate, "best": self._best, "bad": self._bad, "waiting": self._waiting}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Load what `state_dict` returned. Raises OptionError, and changes nothing, if a value is
        missing."""
        missing = [name for name in self.state_dict() if name not in state]
        if missing:
            raise OptionError(
                f"load_state_dict: the state of Plateau lacks {missing[0]}; load all that "
                f"state_dict returned"
            )
        self.rate, self._best = state["rate"], state["best"]
        self._bad, self._waiting = int(state["bad"]), int(state["waiting"])


@runtime_checkable
class StatefulSchedule(Protocol):
    """A learning rate that depends on the past of the training, such as `Plateau`."""

    def state_dict(self) -> Mapping[str, Any]:
        """Return the state by name, as numbers or arrays."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load what `state_dict` returned."""


@runtime_checkable
class MonitoringSchedule(Protocol):
    """A learning rate that follows the metrics of epochs, such as `Plateau`."""

    def observe_metrics(self, figures: Mapping[str, float | None]) -> None:
        """Receive the losses and metrics of an epoch by name."""


def after_warm_up(rate: object) -> object:
    """Return the learning rate that a rate warms up to; any other rate unchanged."""
    while isinstance(rate, WarmUp):
        rate = rate.after
    return rate


if not TYPE_CHECKING:  # otherwise type checkers would accept any name

    def __getattr__(name: str) -> NoReturn:
        hint = foreign_names.hint(foreign_network_names.SCHEDULE_NAMES, name)
        raise foreign_names.missing_in_module("magmath.optim.schedules", __all__, name, hint)
