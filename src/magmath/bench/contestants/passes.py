"""magmath's contestant of `bench passes`: training steps and inference of networks, and parts of
networks, by compiled functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import numpy as np

import magmath as mm
from magmath.bench.contestants.common import VERSIONS
from magmath.bench.peers.repeated import RepeatedContestant, Work
from magmath.bench.peers.service import Contestant

CLASSES = 10
WARM_UP_SECONDS = 10.0
LEARNING_RATE = 1e-9
"""So small that the loss, which systems compare, does not change."""

Function = Callable[..., Any]


def network_or_part() -> Contestant:
    """Return the contestant of a network or a part of one."""
    return _Passes()


@final
class _Passes(RepeatedContestant):
    """Reports the size of the program too."""

    def __init__(self) -> None:
        super().__init__(VERSIONS, self._start_case, _check, WARM_UP_SECONDS)
        self._function: Any = None

    def prepare(self, case: dict[str, Any]) -> dict[str, Any]:
        record = super().prepare(case)
        explanation = self._function.explain()
        return {
            **record,
            "instructions": len(explanation.instructions),
            "planned_bytes": explanation.memory,
        }

    def _start_case(self, case: dict[str, Any]) -> Work:
        _start()
        self._function, arrays = _compiled(case)
        if share := case.get("memory_share"):
            _work(self._function, arrays)(1)
            needed = self._function.explain().memory
            _start(int(share * needed))
            self._function, arrays = _compiled(case)
        return _work(self._function, arrays)


def _start(memory_limit: int | None = None) -> None:
    mm.shutdown()
    mm.init(0, device="cpu", memory_limit=memory_limit)


def _work(function: Function, arrays: tuple[Any, ...]) -> Work:
    def work(times: int) -> Any:
        for _ in range(times):
            result = function(*arrays)
            mm.evaluate(result)
        float(mm.sum(result))  # the last result is computed after all others
        return result

    return work


def _check(case: dict[str, Any], result: Any) -> float:
    return float(mm.mean(mm.abs(result)))


def _compiled(case: dict[str, Any]) -> tuple[Any, tuple[Any, ...]]:
    """Return the compiled function of a case, and its arguments."""
    if "part" in case:
        function, arrays = PARTS[case["part"]]()
    else:
        function, arrays = _network(case)
    return mm.compile(function), arrays


def _network(case: dict[str, Any]) -> tuple[Function, tuple[Any, ...]]:
    """Return a step of SGD, or the outputs in evaluation mode, of images and labels."""
    shape = (case["batch"], *case["image"])
    settings: dict[str, Any] = {"dropout": 0.0} if case["network"] == "vgg16" else {}
    architecture = mm.nn.zoo.NETWORKS[case["network"]]
    height, width = shape[2:]
    network = architecture.for_images(height, width, classes=CLASSES, **settings).build(shape)
    random = np.random.default_rng(1)
    images = mm.asarray(random.standard_normal(shape, dtype=np.float32))
    labels = mm.asarray(random.integers(0, CLASSES, shape[0]))
    if case["purpose"] == "inference":
        network.eval()
        return lambda images, labels: network(images), (images, labels)
    optimizer = mm.optim.Momentum(LEARNING_RATE)

    def step(images: Any, labels: Any) -> Any:
        loss, gradients = mm.value_and_grad(
            lambda: mm.nn.cross_entropy(network(images), labels), network.trainable()
        )
        optimizer.update(gradients)
        return loss

    return step, (images, labels)


# parts --------------------------------------------------------------------------------------------


def _normal(*shape: int) -> Any:
    return mm.asarray(np.random.default_rng(2).standard_normal(shape, dtype=np.float32))


def _images() -> Any:
    """Return images as large as those of the first stage of ResNet-18."""
    return _normal(32, 64, 32, 32)


def _convolution() -> tuple[Function, tuple[Any, ...]]:
    layer = mm.nn.Conv2d(64, 3, padding=1, activation="relu").build((32, 64, 32, 32))
    return lambda x: layer(layer(x)), (_images(),)


def _normalized() -> Function:
    norm = mm.nn.BatchNorm().build((32, 64, 32, 32))
    return lambda x, y: mm.relu(norm(x) + y)


def _normalization() -> tuple[Function, tuple[Any, ...]]:
    return _normalized(), (_images(), _images())


def _normalization_gradient() -> tuple[Function, tuple[Any, ...]]:
    normalized = _normalized()
    return lambda x, y: mm.grad(mm.sum(normalized(x, y) ** 2), x), (_images(), _images())


def _pooling_gradient() -> tuple[Function, tuple[Any, ...]]:
    pool = mm.nn.MaxPool2d(2)
    return lambda x: mm.grad(mm.sum(pool(mm.relu(x)) ** 2), x), (_images(),)


def _cross_entropy_gradient() -> tuple[Function, tuple[Any, ...]]:
    labels = mm.asarray(np.random.default_rng(3).integers(0, 1000, 4096))

    def gradient(scores: Any, labels: Any) -> Any:
        return mm.grad(mm.nn.cross_entropy(scores, labels), scores)

    return gradient, (_normal(4096, 1000), labels)


def _adam() -> tuple[Function, tuple[Any, ...]]:
    weights = mm.variable("weights", np.zeros((10, 1_000_000), np.float32))
    optimizer = mm.optim.Adam(LEARNING_RATE)

    def step(gradient: Any) -> Any:
        optimizer.update({weights: gradient})
        return gradient[0, :1]

    return step, (_normal(10, 1_000_000),)


PARTS: dict[str, Callable[[], tuple[Function, tuple[Any, ...]]]] = {
    "convolution": _convolution,
    "normalization": _normalization,
    "normalization_gradient": _normalization_gradient,
    "pooling_gradient": _pooling_gradient,
    "cross_entropy_gradient": _cross_entropy_gradient,
    "adam": _adam,
}
