"""magmath's contestants of the benchmarks of convolutional networks: networks of the zoo."""

from __future__ import annotations

import time
from typing import Any

import magmath as mm
from magmath.bench.contestants.common import VERSIONS, WarmUpTime, use_workers, warm_up
from magmath.bench.peers.network_problem import NetworkProblem
from magmath.bench.peers.networks import ZOO_SETTINGS
from magmath.bench.peers.resident_memory import forget_peak, peak_resident_bytes, resident_bytes
from magmath.bench.peers.service import Contestant

# Programs are also compiled to native code, and kernels measured, in the first seconds.
WARM_UP_SECONDS = 20.0
GPU_SECONDS = 3.0


def compiled() -> Contestant:
    """Return the contestant that trains or runs a network by a compiled function."""
    return CompiledNetwork()


class CompiledNetwork(Contestant):
    """A network of the zoo on one batch, by a compiled function: steps of SGD, or outputs in
    evaluation mode."""

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
        _start_pool(case)
        self._build(case)
        timings = self._warm_up()
        if self._problem.purpose == "train":
            self._reset()
        return {"variant": self.variant, "compile_seconds": timings.compile_seconds}

    def round(self) -> float:
        return self._time(self._problem.epochs)

    def finish(self) -> dict[str, Any]:
        result = self._call(self._images, self._labels)
        if self._problem.purpose == "infer":
            outputs = mm.astype(result, mm.float32)
            return {"loss": float(mm.nn.cross_entropy(outputs, self._labels))}
        self._reset()
        self._call(self._images, self._labels)
        return {"loss": float(self._call(self._images, self._labels))}

    def peak_bytes(self, case: dict[str, Any]) -> int:
        _start_pool(case)
        float(mm.sum(mm.ones(8)))  # loads the libraries
        before = resident_bytes()
        self._build(case)
        forget_peak()
        self._warm_up()
        return peak_resident_bytes() - before

    def _build(self, case: dict[str, Any]) -> None:
        self._problem = problem = NetworkProblem.of(case)
        make = mm.nn.zoo.NETWORKS[problem.network]
        network = make(classes=problem.classes, **ZOO_SETTINGS[problem.network])
        self._network = network.train() if problem.purpose == "train" else network.eval()
        self._images, self._labels = map(mm.asarray, problem.data())
        self._network.build(self._images.shape)
        self._reset()
        if problem.is_half:
            self._network.astype(problem.precision)
            self._images = mm.astype(self._images, problem.precision)
        self._call = self._function(case)

    def _reset(self) -> None:
        weights = self._problem.weights()
        for parameter, value in zip(self._network.parameters(), weights, strict=True):
            parameter.assign(value)

    def _warm_up(self) -> WarmUpTime:
        calls = self._problem.epochs
        seconds = WARM_UP_SECONDS if self._problem.device == "cpu" else GPU_SECONDS
        return warm_up(seconds, lambda: self._time(1), lambda: self._time(calls) / calls)

    def _time(self, calls: int) -> float:
        start = time.perf_counter()
        for _ in range(calls):
            result = self._call(self._images, self._labels)
            mm.evaluate(result)
        float(mm.sum(result))  # the last result is computed after all others
        return time.perf_counter() - start

    def _function(self, case: dict[str, Any]) -> Any:
        """Return the compiled function of images and labels: its loss or outputs."""
        network, problem = self._network, self._problem
        precision = None if problem.is_half else problem.precision

        def outputs(images: Any, labels: Any) -> Any:
            with mm.nn.precision(precision):
                return network(images)

        if problem.purpose == "infer":
            return mm.compile(outputs)
        optimizer = mm.optim.GradientDescent(problem.learning_rate)
        scale = mm.optim.LossScale() if precision == "mixed-float16" else None

        def step(images: Any, labels: Any) -> Any:
            def loss() -> Any:
                return mm.nn.cross_entropy(outputs(images, labels), labels)

            differentiate = mm.value_and_grad if scale is None else scale.value_and_grad
            value, gradients = differentiate(loss, network.trainable())
            optimizer.update(gradients, scale)
            return value

        return mm.compile(step)


def _start_pool(case: dict[str, Any]) -> None:
    use_workers(case["workers"], case.get("device", "cpu"), case.get("deterministic", False))
