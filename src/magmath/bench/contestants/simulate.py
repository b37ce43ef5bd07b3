"""magmath's contestant of `bench simulate`: trains, and simulates the program of the step."""

from __future__ import annotations

import re
import time
from typing import Any, final

import numpy as np

import magmath as mm
from magmath.bench.contestants.common import VERSIONS, use_workers, warm_up
from magmath.bench.peers.service import Contestant

# Programs are also compiled to native code, and kernels measured, in the first seconds.
WARM_UP_SECONDS = 8.0
SETTINGS: dict[str, dict[str, Any]] = {"resnet18": {"stem": "small"}}


def simulate() -> Contestant:
    """Return the contestant of the strategy that the case names."""
    return _Simulate()


@final
class _Simulate(Contestant):
    """A round trains an epoch, then simulates a step from newly measured calls."""

    def __init__(self) -> None:
        self._network: mm.nn.NeuralNetwork
        self._fit: Any
        self._simulated: list[tuple[float, str]] = []

    def versions(self) -> dict[str, str]:
        return VERSIONS

    def prepare(self, case: dict[str, Any]) -> dict[str, Any]:
        use_workers(case["workers"])
        self._simulated = []
        module, shape = _network(case["network"])
        self._network = network = mm.nn.NeuralNetwork(
            module, loss="cross_entropy", optimizer=mm.optim.GradientDescent(0.001)
        )
        random = np.random.default_rng(0)
        count = case["batch"] * case["steps"]
        x = mm.asarray(random.random((count, *shape), dtype=np.float32))
        y = mm.asarray(random.integers(0, 10, count))
        options = {"batch_size": case["batch"], "strategy": case["strategy"], "metrics": ()}
        self._fit = lambda: network.fit(x, y, epochs=1, shuffle=False, **options)
        warm_up(WARM_UP_SECONDS, self._time, self._time)
        return {}

    def round(self) -> float:
        seconds = self._time()
        step = self._network.simulate()
        self._simulated.append((step.seconds, step.form))
        return seconds

    def _time(self) -> float:
        """Return the seconds of an epoch."""
        start = time.perf_counter()
        self._fit()
        return time.perf_counter() - start

    def finish(self) -> dict[str, Any]:
        seconds, form = min(self._simulated)
        return {"simulated_seconds": seconds, "form": form}


def _network(name: str) -> tuple[Any, tuple[int, ...]]:
    """Return a module, or a list of layers, and the shape of a sample."""
    if mlp := re.fullmatch(r"mlp (\d+)×(\d+)", name):
        width, layers = map(int, mlp.groups())
        hidden = [mm.nn.Dense(width, activation="relu") for _ in range(layers)]
        return [*hidden, mm.nn.Dense(10)], (784,)
    shape = (1, 28, 28) if name == "lenet5" else (3, 32, 32)
    return mm.nn.zoo.NETWORKS[name](classes=10, **SETTINGS.get(name, {})), shape
