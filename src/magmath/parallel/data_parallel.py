"""Data parallelism: every worker computes the gradient of its share of each batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import final

from magmath.arrays.array import Array
from magmath.arrays.variable import Variable
from magmath.errors import MagmathError
from magmath.graph import Graph
from magmath.layout import Layout
from magmath.parallel.averaging import Averaging
from magmath.parallel.strategy import Training
from magmath.passes.environment import Environment

EXCHANGES = {"allreduce": "data", "sharded": "sharded"}
"""The option of all layers for each exchange."""


@final
class DataParallel(Averaging):
    """Average the gradients of the workers, each computed from its share of the batch."""

    def __init__(self, exchange: str = "allreduce", *, accumulate: int = 1) -> None:
        super().__init__(accumulate)
        if exchange not in EXCHANGES:
            raise MagmathError(
                f"DataParallel: exchange {exchange!r} is not known; there are "
                f"{', '.join(EXCHANGES)}"
            )
        self._exchange = exchange

    @property
    def label(self) -> str:
        return repr(self)

    def __repr__(self) -> str:
        return f"DataParallel({self._exchange!r})"

    @property
    def reads_copies(self) -> bool:
        return True

    def prepare(self, training: Training, environment: Environment) -> None:
        pass

    def state(self, training: Training) -> Mapping[str, Variable]:
        return {}

    def own_layouts(
        self, training: Training, environment: Environment
    ) -> Mapping[Variable, Layout]:
        return {}

    def options(
        self, training: Training, environment: Environment, trace: Callable[[], Graph]
    ) -> tuple[Mapping[str, str], Mapping[str, float]]:
        return dict.fromkeys(training.layers, EXCHANGES[self._exchange]), {}

    def exchange(self, training: Training, gradients: Sequence[Array]) -> Sequence[Array]:
        return gradients
