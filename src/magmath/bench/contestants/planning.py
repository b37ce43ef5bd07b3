"""Plans a training step, or an expression, as if for the first time."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any, final

import numpy as np

import magmath as mm
from magmath.bench.contestants.common import VERSIONS, use_workers
from magmath.bench.peers.service import Contestant
from magmath.core.stage_times import StageTimes, recording
from magmath.engine import session
from magmath.parallel import Hybrid, Strategy, WeightAveraging
from magmath.passes.candidate_cost import cost_cache_of
from magmath.passes.parameter_layouts import clear_option_caches

_WIDTH = 32
_BATCH = 64
_WITH_SETTINGS: dict[str, Callable[[], Strategy]] = {
    "hybrid": lambda: Hybrid({"1": "output"}),
    "weight-averaging": lambda: WeightAveraging(replicas=4, every=2),
}


def plan() -> Contestant:
    """Return the contestant; the case names the kind of program, its size and the workers."""
    return PlanningContestant()


@final
class PlanningContestant(Contestant):
    """A round forgets all plans and makes one; it counts processor seconds of this process."""

    def __init__(self) -> None:
        self._once: Callable[[], StageTimes]
        self._rounds: list[StageTimes] = []
        self._first_run = 0.0

    def versions(self) -> dict[str, str]:
        return VERSIONS

    def prepare(self, case: dict[str, Any]) -> dict[str, Any]:
        use_workers(case["workers"])
        self._rounds = []
        work = self._training if case["what"] == "mlp" else self._expression
        self._once = lambda: work(case["count"], case["strategy"])
        self._once()
        return {}

    def round(self) -> float:
        cost_cache_of.cache_clear()
        clear_option_caches()
        session.engine().forget_programs()
        times = self._once()
        self._rounds.append(times)
        return sum(times.seconds.values())

    def finish(self) -> dict[str, Any]:
        names = dict.fromkeys(name for times in self._rounds for name in times.seconds)
        stages = {name: median(times.seconds[name] for times in self._rounds) for name in names}
        nodes = self._rounds[-1].counts["nodes"]
        return {"stages": stages | {"first run": self._first_run}, "nodes": nodes}

    def _training(self, layers: int, strategy: str) -> StageTimes:
        """Plan and compile the training step of an MLP, and run it once."""
        hidden = [mm.nn.Dense(_WIDTH, activation="relu") for _ in range(layers - 1)]
        network = mm.nn.NeuralNetwork([*hidden, mm.nn.Dense(10)])
        samples = np.ones((_BATCH, _WIDTH), dtype=np.float32)
        data = mm.asarray(samples), mm.asarray(np.zeros(_BATCH, dtype=np.int64))
        network.build((1, _WIDTH))
        options: dict[str, Any] = {
            "batch_size": _BATCH,
            "strategy": _WITH_SETTINGS[strategy]() if strategy in _WITH_SETTINGS else strategy,
            "metrics": [],
        }
        with recording() as times:
            network.fit(*data, epochs=0, **options)
        start = time.perf_counter()
        network.fit(*data, epochs=1, **options)
        self._first_run = time.perf_counter() - start
        return times

    def _expression(self, nodes: int, strategy: str) -> StageTimes:
        """Plan and compile an expression of products and element-wise operations, and run it."""
        x = mm.asarray(np.ones((_BATCH, _WIDTH), dtype=np.float32))
        factor = mm.asarray(np.eye(_WIDTH, dtype=np.float32))

        def expression() -> Any:
            y = x
            for _ in range(nodes // 3):
                y = mm.tanh(y @ factor) + x
            return y

        compiled = mm.compile(expression)
        start = time.perf_counter()
        with recording() as times:
            mm.evaluate(compiled())
        self._first_run = time.perf_counter() - start - sum(times.seconds.values())
        return times
