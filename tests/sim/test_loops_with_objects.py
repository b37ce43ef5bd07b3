"""Training loops that keep settings, networks, optimizers and states in Python objects have the same
losses compiled and not."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import magmath as mm
from engines import current

X = np.random.default_rng(0).normal(size=(24, 4)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int64)
Compile = Callable[[Any], Any]
Loop = Callable[[Compile], list[float]]


def network(seed: int, outputs: int = 2) -> mm.nn.Module:
    mm.random.seed(seed)
    return mm.nn.Sequential(mm.nn.Dense(5, "tanh"), mm.nn.Dense(outputs)).build((1, 4))


def settings_in_a_dictionary(compile: Compile) -> list[float]:
    config: dict[str, Any] = {"seed": None, "loss": {"weight": 1.0, "terms": [0.1]}, "name": "a"}
    net, optimizer = network(0), mm.optim.Adam(0.05)

    @compile
    def step(x: Any, y: Any) -> Any:
        def loss() -> Any:
            value = config["loss"]["weight"] * mm.nn.cross_entropy(net(x), y)
            for term in config["loss"]["terms"]:
                value = value + term * sum(mm.sum(p * p) for p in net.parameters())
            return value

        value, gradients = mm.value_and_grad(loss, net.trainable())
        optimizer.update(gradients)
        return value

    losses = []
    for epoch in range(6):
        config["epoch"] = epoch  # which the step does not read
        config["loss"]["weight"] = 1.0 + epoch // 2
        if epoch == 3:
            config["loss"]["terms"].append(0.01)
        losses.append(float(step(X, Y)))
    return losses


def settings_in_classes(compile: Compile) -> list[float]:
    class Config:
        weight = 1.0
        schedule = SimpleNamespace(beta=0.0)

        @property
        def doubled(self) -> float:
            return 2 * self.weight

    class Model:
        def __init__(self) -> None:
            self.net, self.optimizer, self.config = network(1), mm.optim.Adam(0.05), Config()
            self.step, self.losses = compile(self.update), list[float]()

        def loss(self, x: Any, y: Any) -> Any:
            loss = self.config.doubled * mm.nn.cross_entropy(self.net(x), y)
            return loss + self.config.schedule.beta * mm.mean(self.net(x) ** 2)

        def update(self, x: Any, y: Any) -> Any:
            value, gradients = mm.value_and_grad(lambda: self.loss(x, y), self.net.trainable())
            self.optimizer.update(gradients)
            return value

    model = Model()
    for epoch in range(6):
        Config.schedule.beta = min(1.0, epoch / 3)
        if epoch == 2:
            Config.weight = 3.0
        if epoch == 4:
            model.config.weight = 0.5
        model.losses.append(float(model.step(X, Y)))
    return model.losses


def folds_in_lists(compile: Compile) -> list[float]:
    nets: list[Any] = []
    optimizers: list[Any] = []
    best: dict[str, Any] = {"net": None, "score": np.inf}

    @compile
    def step(x: Any, y: Any) -> Any:
        value, gradients = mm.value_and_grad(
            lambda: mm.nn.cross_entropy(nets[-1](x), y), nets[-1].trainable()
        )
        optimizers[-1].update(gradients)
        return value

    @compile
    def score(x: Any, y: Any) -> Any:
        return mm.nn.cross_entropy(best["net"](x), y)

    result = []
    for fold in range(3):
        nets.append(network(fold))
        optimizers.append(mm.optim.Adam(0.05))
        rows = np.arange(24) % 3 != fold
        losses = [float(step(X[rows], Y[rows])) for _ in range(3)]
        if losses[-1] < best["score"]:
            best["net"], best["score"] = nets[-1], losses[-1]
        result += [*losses, float(score(X[~rows], Y[~rows]))]
    return result


def adversaries_in_dictionaries(compile: Compile) -> list[float]:
    nets: dict[str, Any] = {"g": network(0, 4), "d": network(1, 1)}
    optimizers: dict[str, Any] = {"g": mm.optim.Adam(0.05), "d": mm.optim.Adam(0.05)}

    def losses(x: Any, z: Any) -> dict[str, Any]:
        made, true = nets["d"](nets["g"](z)), nets["d"](x)
        return {"g": mm.mean((made - 1) ** 2), "d": mm.mean(made**2) + mm.mean((true - 1) ** 2)}

    @compile
    def step(x: Any, z: Any) -> Any:
        result = []
        for name in ("d", "g"):
            value, gradients = mm.value_and_grad(
                lambda name=name: losses(x, z)[name], nets[name].trainable()
            )
            optimizers[name].update(gradients)
            result.append(value)
        return mm.stack(result)

    result = []
    for epoch in range(6):
        if epoch == 2:
            optimizers["g"] = mm.optim.GradientDescent(0.1)
        if epoch == 4:
            nets["g"], optimizers["g"] = network(2, 4), mm.optim.Adam(0.01)
        result += step(X, X[::-1].copy()).tolist()
    return result


def states_in_dictionaries(compile: Compile) -> list[float]:
    net, optimizer = network(0, 3), mm.optim.Adam(0.05)
    state: dict[str, Any] = {"h": mm.zeros((24, 3)), "step": 0, "seed": None}

    @compile
    def step(x: Any) -> Any:
        def loss() -> Any:
            h = mm.tanh(net(x) + state["h"])
            return mm.mean((h - 1) ** 2), h

        parameters = net.trainable()
        value, h = loss()
        optimizer.update(dict(zip(parameters, mm.grad(value, parameters), strict=True)))
        return value, h

    losses = []
    for _ in range(6):
        value, h = step(X)
        state["h"], state["step"] = mm.stop_gradient(h), state["step"] + 1
        losses.append(float(value))
    return losses


def schedules_by_counts(compile: Compile) -> list[float]:
    class Warming(mm.nn.Module):
        def __init__(self) -> None:
            self.net, self.steps = network(0), mm.nn.Buffer(0, dtype="int64")

        def __call__(self, x: Any) -> Any:
            self.steps += 1
            return self.net(x) * mm.minimum(1.0, self.steps / 4)

    module, optimizer = Warming(), mm.optim.Adam(0.05)
    counts = [0]

    @compile
    def step(x: Any, y: Any) -> Any:
        value, gradients = mm.value_and_grad(
            lambda: mm.nn.cross_entropy(module(x), y) * min(1.0, counts[0] / 3), module.trainable()
        )
        optimizer.update(gradients)
        return value

    losses = []
    for _ in range(6):
        counts[0] += 1
        losses.append(float(step(X, Y)))
    return losses


LOOPS: list[Loop] = [
    settings_in_a_dictionary,
    settings_in_classes,
    folds_in_lists,
    adversaries_in_dictionaries,
    states_in_dictionaries,
    schedules_by_counts,
]


@pytest.mark.parametrize(
    ("loop", "pool"),
    [
        *[(loop, ("inline", 1)) for loop in LOOPS],
        *zip(LOOPS, cycle([("shared", 2), ("eager", 2)])),
    ],
)
def test_compiled_loops_have_the_same_losses(loop: Loop, pool: tuple[str, int]) -> None:
    with current(*pool):
        np.testing.assert_allclose(loop(mm.compile), loop(lambda f: f), rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize("place", ["dictionary", "class", "object"])
def test_fit_sees_what_callbacks_change(place: str) -> None:
    """The loss of `fit` with a weight in an object is that of a fit with each weight."""

    class Config:
        weight = 1.0

    config = {"weight": 1.0, "seed": None, "inner": {"weight": 1.0}}
    owner = SimpleNamespace(weight=1.0)
    weights: dict[str, tuple[Callable[[], float], Callable[[float], object]]] = {
        "dictionary": (
            lambda: config["inner"]["weight"],  # type: ignore[index]
            lambda w: config["inner"].update(weight=w),  # type: ignore[union-attr]
        ),
        "class": (lambda: Config.weight, lambda w: setattr(Config, "weight", w)),
        "object": (lambda: owner.weight, lambda w: setattr(owner, "weight", w)),
    }
    read, change = weights[place]

    class Change(mm.train.Callback):
        def on_epoch_begin(self, trainer: Any, epoch: int) -> None:
            change(float(epoch + 1))

    with current("inline", 1):
        trainer = mm.train.Trainer(
            network(0), lambda outputs, _: 0 * mm.sum(outputs) + read(), "adam", metrics=[]
        )
        history = trainer.fit(X, Y, epochs=4, batch_size=8, callbacks=[Change()])
    assert history.loss == [1.0, 2.0, 3.0, 4.0]


def test_a_function_with_a_loop_sees_conversions() -> None:
    with current("inline"):
        net = network(0)

        @mm.compile
        def run(x: Any) -> Any:
            halved = mm.while_loop(lambda s: mm.max(s) > 1, lambda s: s / 2, x)
            return halved, net(x), mm.sum(net.parameters()[0])

        for dtype in (mm.float32, mm.float64, mm.float32):
            net.astype(dtype)
            halved, outputs, total = run(X)
            assert (halved.dtype, outputs.dtype, total.dtype) == (mm.float32, dtype, dtype)
            np.testing.assert_allclose(outputs.numpy(), net(X).numpy(), rtol=1e-5)
