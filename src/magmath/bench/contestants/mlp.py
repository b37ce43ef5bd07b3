"""magmath's contestant of the training benchmarks, written with the public names as a user
would."""

from __future__ import annotations

import time
from typing import Any, final

import magmath as mm
from magmath.bench.contestants.common import VERSIONS, warm_up
from magmath.bench.peers.problem import CLASSES, INPUTS, Problem
from magmath.bench.peers.service import Contestant

# Programs are also compiled to native code in the background, which takes some time.
WARM_UP_SECONDS = 30.0
GPU_SECONDS = 2.0  # graphs are recorded in the first steps


def mlp() -> Contestant:
    """Return the contestant that trains the MLP with the workers and strategy of the case."""
    return MagmathMlp()


@final
class MagmathMlp(Contestant):
    """Calls `NeuralNetwork.fit` on arrays that are on the workers, without shuffling."""

    def __init__(self) -> None:
        self._problem: Problem
        self._network: Any = None
        self._data: tuple[Any, Any]
        self._strategy = "auto"

    def versions(self) -> dict[str, str]:
        return VERSIONS

    def prepare(self, case: dict[str, Any]) -> dict[str, Any]:
        mm.shutdown()
        device = case.get("device", "cpu")
        mm.init(case["workers"], device=device, deterministic=case.get("deterministic", False))
        self._problem = Problem.of(case)
        self._strategy = case.get("strategy", "auto")
        images, labels = self._problem.data()
        self._data = mm.asarray(images), mm.asarray(labels)
        hidden = [
            mm.nn.Dense(self._problem.width, activation="relu") for _ in range(self._problem.layers)
        ]
        self._network = mm.nn.NeuralNetwork(
            [*hidden, mm.nn.Dense(CLASSES)],
            loss="cross_entropy",
            optimizer=mm.optim.GradientDescent(self._problem.learning_rate),
        )
        self._network.build((1, INPUTS))
        self._reset()
        epochs = self._problem.epochs
        timings = warm_up(
            WARM_UP_SECONDS if device == "cpu" else GPU_SECONDS,
            lambda: self._fit(1),
            lambda: self._fit(epochs) / epochs,
        )
        self._reset()
        return {"variant": "fit", "compile_seconds": timings.compile_seconds}

    def round(self) -> float:
        return self._fit(self._problem.epochs)

    def finish(self) -> dict[str, Any]:
        self._reset()
        self._fit(1)
        return {"loss": float(self._network.evaluate(*self._data)["loss"])}

    def _reset(self) -> None:
        values = (array for pair in self._problem.weights() for array in pair)
        for parameter, value in zip(self._network.parameters.values(), values, strict=True):
            parameter.assign(value)

    def _fit(self, epochs: int) -> float:
        start = time.perf_counter()
        self._network.fit(
            *self._data,
            batch_size=self._problem.batch,
            epochs=epochs,
            shuffle=False,
            strategy=self._strategy,
            metrics=(),
        )
        return time.perf_counter() - start
