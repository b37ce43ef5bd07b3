"""The table of strategies by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from magmath.errors import MagmathError, OptionError
from magmath.parallel.asynchronous import Asynchronous
from magmath.parallel.data_parallel import EXCHANGES, DataParallel
from magmath.parallel.per_layer import Auto, Hybrid, ModelParallel
from magmath.parallel.strategy import Strategy

STRATEGIES: Mapping[str, Strategy] = {
    "auto": Auto(),
    "data": DataParallel(),
    "model": ModelParallel(),
    "rows": ModelParallel("rows"),
    **{name: DataParallel(name) for name in EXCHANGES},
    "asynchronous": Asynchronous(),
}
"""Strategies with their default settings, by name. All trainers share these objects: what one
stores while it traces a step is read before the next step is traced."""

StrategyLike = str | Strategy | Mapping[str, str]
"""A strategy, its name, or the options of layers by path (`Hybrid`)."""


def as_strategy(given: Any) -> Strategy:
    """Return the strategy for a name, for options of layers, or the given one.

    Raises OptionError for other values, with the known names.
    """
    if isinstance(given, Strategy):
        return given
    if isinstance(given, Mapping):
        return Hybrid(given)
    if isinstance(given, type) and issubclass(given, Strategy):
        raise MagmathError(
            f"strategy: needs an object; write mm.parallel.{given.__name__}(…), with parentheses"
        )
    if not isinstance(given, str) or given not in STRATEGIES:
        raise OptionError(
            f"strategy {given!r} is not known; there are {', '.join(STRATEGIES)}, dictionaries "
            f"from layers to options, and the objects of mm.parallel"
        )
    return STRATEGIES[given]
