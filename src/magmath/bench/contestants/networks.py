"""magmath's contestants of `bench cnn` and `bench infer`: networks of the zoo."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import Any

import magmath as mm
from magmath.bench.contestants.common import VERSIONS, use_workers
from magmath.bench.peers.networks import ZOO_SETTINGS, NetworkProblem
from magmath.bench.peers.service import Contestant

# Programs are also compiled to native code, and kernels measured, in the first seconds.
SETTLE_SECONDS = 20.0
GPU_SECONDS = 3.0


def train() -> Contestant:
    """Return the contestant that trains."""
    return NetworkTraining()


def infer() -> Contestant:
    """Return the contestant that computes outputs."""
    return _Inference()


class _Network(Contestant, ABC):
    """A network of the zoo on one batch, by a compiled function."""

    variant = "compiled function"

    def __init__(self) -> None:
        self._problem: NetworkProblem
        self._network: Any = None
        self._call: Any = None
        self._images: Any = None
        self._labels: Any = None

    def versions(self) -> dict[str, str]:
        return VERSIONS

    def prepare(self, case: dict[str, Any]) -> dict[str, Any]:
        use_workers(case["workers"], case.get("device", "cpu"), case.get("deterministic", False))
        self._problem = problem = NetworkProblem.of(case)
        make = mm.nn.zoo.NETWORKS[problem.network]
        self._network = make(classes=problem.classes, **ZOO_SETTINGS[problem.network])
        self._images, self._labels = map(mm.asarray, problem.data())
        self._network.build(self._images.shape)
        self._reset()
        self._call = self._compiled(case)
        seconds = SETTLE_SECONDS if problem.device == "cpu" else GPU_SECONDS
        first, steady = self._settle(seconds)
        self._reset()
        return {"variant": self.variant, "compile_seconds": max(0.0, first - steady)}

    def round(self) -> float:
        return self._time(self._problem.epochs)

    def _compiled(self, case: dict[str, Any]) -> Any:
        return mm.compile(self._function())

    def _reset(self) -> None:
        for parameter, value in zip(
            self._network.parameters(), self._problem.weights(), strict=True
        ):
            parameter.assign(value)

    def _settle(self, seconds: float) -> tuple[float, float]:
        """Return the seconds of the first call, and of one after all programs are compiled."""
        first = self._time(1)
        begin = time.perf_counter()
        while time.perf_counter() - begin < seconds:
            steady = self._time(self._problem.epochs) / self._problem.epochs
        return first, steady

    def _time(self, calls: int) -> float:
        start = time.perf_counter()
        for _ in range(calls):
            result = self._call(self._images, self._labels)
            mm.evaluate(result)
        float(mm.sum(result))  # the last result is computed after all others
        return time.perf_counter() - start

    @abstractmethod
    def _function(self) -> Any:
        """Return the function of images and labels."""


class NetworkTraining(_Network):
    """Steps of SGD."""

    def _function(self) -> Any:
        network = self._network.train()
        optimizer = mm.optim.GradientDescent(self._problem.learning_rate)

        def step(images: Any, labels: Any) -> Any:
            parameters = network.trainable()
            loss, gradients = mm.value_and_grad(
                lambda: mm.nn.cross_entropy(network(images), labels), parameters
            )
            optimizer.update(gradients)
            return loss

        return step

    def finish(self) -> dict[str, Any]:
        self._reset()
        self._call(self._images, self._labels)
        return {"loss": float(self._call(self._images, self._labels))}


class _Inference(_Network):
    """Outputs in evaluation mode."""

    def _function(self) -> Any:
        network = self._network.eval()
        return lambda images, labels: network(images)

    def finish(self) -> dict[str, Any]:
        outputs = self._call(self._images, self._labels)
        return {"loss": float(mm.nn.cross_entropy(outputs, self._labels))}
