"""Networks and optimizers without references are freed at once, without the garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any
from weakref import ref

import numpy as np
import pytest

import magmath as mm
from engines import current

RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(64, 8)).astype("float32")
LABELS = RNG.integers(0, 3, 64)


@pytest.fixture(params=[("inline", 1), ("shared", 2)], autouse=True)
def pool(request: pytest.FixtureRequest) -> Iterator[None]:
    """A pool, with the garbage collector off."""
    kind, workers = request.param
    with current(kind, workers):
        gc.collect()
        gc.disable()
        try:
            yield
        finally:
            gc.enable()


def sequential() -> Any:
    """A module of nested modules, built, with its parts listed."""
    inner = mm.nn.Sequential(mm.nn.Dense(8, activation="relu"), mm.nn.LayerNorm())
    module = mm.nn.Sequential(mm.nn.Residual(inner), mm.nn.Dense(3)).build((1, 8))
    assert [path for path, _ in module.named_modules()][:2] == ["", "0"]
    assert "0.body.0" in dict(module.named_modules())
    return module


def called() -> Any:
    """A module that has computed outputs."""
    module = sequential()
    np.asarray(module(mm.asarray(IMAGES)))
    return module


def trained_by_a_loop() -> Any:
    """A module that a compiled step with an optimizer has updated."""
    module, optimizer = sequential(), mm.optim.Adam(1e-3, groups={"*.bias": {"epsilon": 1e-6}})

    @mm.compile
    def step(x: Any, y: Any) -> Any:
        def loss() -> Any:
            return mm.nn.losses.cross_entropy(module(x), y)

        value, gradients = mm.value_and_grad(loss, module.trainable())
        optimizer.update(gradients)
        return value

    for _ in range(3):
        float(step(mm.asarray(IMAGES), mm.asarray(LABELS)))
    return module


def trained_by_fit() -> Any:
    """A network that `fit` has trained, and that has been evaluated."""
    layers = [mm.nn.Dense(8, activation="relu"), mm.nn.Dropout(0.5), mm.nn.Dense(3)]
    net = mm.nn.NeuralNetwork(layers, optimizer="momentum")
    net.fit(IMAGES, LABELS, epochs=2, validation=(IMAGES, LABELS))
    net.evaluate(IMAGES, LABELS)
    net.predict(IMAGES)
    return net


@pytest.mark.parametrize("make", [sequential, called, trained_by_a_loop, trained_by_fit])
def test_a_dropped_network_is_freed_at_once(make: Callable[[], Any]) -> None:
    network = make()
    owned = network.trainer.module if isinstance(network, mm.nn.NeuralNetwork) else network
    weak = [ref(network), ref(owned), *map(ref, owned.modules()), *map(ref, owned.parameters())]
    del network, owned
    assert [one() for one in weak] == [None] * len(weak)


def test_a_trainer_keeps_a_bounded_number_of_functions() -> None:
    """For data sets of other sizes, and for new metrics."""
    net = mm.nn.NeuralNetwork([mm.nn.Dense(2)])
    functions = []
    for n in range(20):
        x, y = np.zeros((20 + n, 4), np.float32), np.zeros(20 + n, int)
        net.predict(x, batch_size=19)  # the last part has n + 1 samples

        def metric(outputs: Any, targets: Any) -> Any:
            return mm.mean(outputs)

        net.trainer.metrics = [metric]
        net.evaluate(x, y)
        functions.append(ref(metric))
    assert sum(one() is not None for one in functions) < 12
    assert len(net.trainer._inference._parts) < 12
    assert len(net.trainer._data._outputs) < 24


def test_the_states_of_a_dropped_optimizer_are_freed_at_once() -> None:
    x = mm.variable("x", np.ones(100_000, dtype="float32"))
    optimizer = mm.optim.Momentum(0.1)
    optimizer.minimize(mm.sum(mm.square(x)), [x])
    held = mm.pool().stats()[0]["in_use"]
    del optimizer
    assert mm.pool().stats()[0]["in_use"] <= held - x.nbytes // mm.pool().workers
