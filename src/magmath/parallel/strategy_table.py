"""The table of strategies by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, final

from magmath.engine import session
from magmath.errors import OptionError
from magmath.parallel.asynchronous import Asynchronous
from magmath.parallel.data_parallel import EXCHANGES, DataParallel
from magmath.parallel.per_layer import Auto, Hybrid, ModelParallel
from magmath.parallel.strategy import Strategy
from magmath.parallel.weight_averaging import WeightAveraging

STRATEGIES: Mapping[str, Callable[[], Strategy]] = {
    "auto": Auto,
    "data": DataParallel,
    "model": ModelParallel,
    "model-input": partial(ModelParallel, "input"),
    **{name: partial(DataParallel, name) for name in EXCHANGES},
    "asynchronous": Asynchronous,
}
"""Functions by name, each of which returns a new strategy with the default settings."""

WEIGHT_AVERAGING = "weight-averaging"
"""The name of `WeightAveraging`, alone or with its numbers: "weight-averaging:16:10" has 16
replicas and averages every 10 steps. By default each worker of the pool in which a trainer first
uses the name has a replica, and every = 1."""

StrategyLike = str | Strategy | Mapping[str, str]
"""A strategy, its name, or the options of layers by path (`Hybrid`)."""


def as_strategy(strategy: Any) -> Strategy:
    """Return a new strategy for a name or for options of layers, or the given strategy.

    Raises OptionError for other values, with the known names.
    """
    if isinstance(strategy, Strategy):
        return strategy
    if isinstance(strategy, Mapping):
        return Hybrid(strategy)
    if isinstance(strategy, type) and issubclass(strategy, Strategy):
        raise OptionError(
            f"strategy: needs an object; write mm.parallel.{strategy.__name__}(…), with parentheses"
        )
    if isinstance(strategy, str) and strategy.partition(":")[0] == WEIGHT_AVERAGING:
        return _weight_averaging(strategy)
    if not isinstance(strategy, str) or strategy not in STRATEGIES:
        raise OptionError(
            f"strategy {strategy!r} is not known; there are {', '.join(STRATEGIES)}, "
            f"{WEIGHT_AVERAGING}, dictionaries from layers to options, and the objects of "
            f"mm.parallel"
        )
    return STRATEGIES[strategy]()


def _weight_averaging(name: str) -> Strategy:
    """Return the strategy of a name with numbers. Raises OptionError for other forms."""
    numbers = name.split(":")[1:]
    if len(numbers) > 2 or not all(number.isdecimal() for number in numbers):
        raise OptionError(
            f"strategy {name!r}: write {WEIGHT_AVERAGING}, or {WEIGHT_AVERAGING}:16:10 for 16 "
            f"replicas that are averaged every 10 steps"
        )
    replicas = int(numbers[0]) if numbers else session.engine().environment.workers
    return WeightAveraging(replicas, int(numbers[1]) if len(numbers) > 1 else 1)


@final
class NamedStrategies:
    """The strategies of one trainer that were given by name or by options of layers.

    Equal settings give one object, in which training finds its replicas again; a name gives the
    same object in each pool, so a pool of other workers continues with the same replicas. Each
    trainer has objects of its own, since they store variables and what a trace needs.
    """

    def __init__(self) -> None:
        self._by_name: dict[str, Strategy] = {}
        self._by_settings: dict[str, Strategy] = {}

    def of(self, given: Any) -> Strategy:
        """Return the strategy for a name or for options of layers, or the given strategy. Raises
        OptionError for other values."""
        strategy = self.known_or_new(given)
        if strategy is not given:
            self._by_settings[repr(strategy)] = strategy
            if isinstance(given, str):
                self._by_name[given] = strategy
        return strategy

    def known_or_new(self, given: Any) -> Strategy:
        """Return what `of` returns, without keeping a new strategy."""
        if isinstance(given, Strategy):
            return given
        if isinstance(given, str) and given in self._by_name:
            return self._by_name[given]
        strategy = as_strategy(given)
        return self._by_settings.get(repr(strategy), strategy)
