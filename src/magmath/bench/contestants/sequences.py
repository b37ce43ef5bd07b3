"""magmath's contestant of `bench sequences`: a custom training loop, compiled or not."""

from __future__ import annotations

import time
from typing import Any, final

import magmath as mm
from magmath.bench.contestants.common import VERSIONS, use_workers, warm_up
from magmath.bench.peers.sequence_problem import CLASSES, SequenceProblem
from magmath.bench.peers.service import Contestant

# Programs are also compiled to native code in the background, which takes some time.
WARM_UP_SECONDS = 20.0


def lstm() -> Contestant:
    """Return the contestant."""
    return _Sequences()


@final
class _Network(mm.nn.Module):
    def __init__(self, units: int) -> None:
        self.lstm = mm.nn.LSTM(units)
        self.last = mm.nn.Dense(CLASSES)

    def __call__(self, x: mm.Array) -> Any:
        outputs, _ = self.lstm(x)
        return self.last(outputs[:, -1])


@final
class _Sequences(Contestant):
    """Steps of SGD on one batch of sequences."""

    def __init__(self) -> None:
        self._problem: SequenceProblem
        self._network: _Network
        self._loss: Any
        self._step: Any

    def versions(self) -> dict[str, str]:
        return VERSIONS

    def prepare(self, case: dict[str, Any]) -> dict[str, Any]:
        use_workers(0)
        self._problem = SequenceProblem.of(case)
        sequences, labels = map(mm.asarray, self._problem.data())
        self._network = network = _Network(self._problem.units)
        network(sequences)
        optimizer = mm.optim.GradientDescent(self._problem.learning_rate)

        def loss() -> mm.Array:
            value: mm.Array = mm.nn.cross_entropy(network(sequences), labels)
            return value

        def step() -> mm.Array:
            value, gradients = mm.value_and_grad(loss, network.trainable())
            optimizer.update(gradients)
            result: mm.Array = value
            return result

        self._loss, self._step = loss, mm.compile(step) if case["compiled"] else step
        self._reset()
        timings = warm_up(WARM_UP_SECONDS, lambda: self._train(1), lambda: self._train(1))
        self._reset()
        return {
            "variant": "compiled" if case["compiled"] else "not compiled",
            "compile_seconds": timings.compile_seconds,
        }

    def round(self) -> float:
        return self._train(self._problem.epochs)

    def finish(self) -> dict[str, Any]:
        self._reset()
        self._train(1)
        return {"loss": float(self._loss())}

    def _reset(self) -> None:
        pairs = zip(self._network.parameters(), self._problem.weights(), strict=True)
        for parameter, value in pairs:
            parameter.assign(value)

    def _train(self, steps: int) -> float:
        start = time.perf_counter()
        for _ in range(steps):
            value = self._step()
        float(value)
        return time.perf_counter() - start
