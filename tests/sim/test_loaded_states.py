"""A training that is rolled back to saved states continues as an uninterrupted one, and as
PyTorch's, with the programs that it has; states that do not fit change nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import magmath as mm
from engines import current
from magmath.errors import OptionError, ShapeError
from magmath.optim import Adam, GradientDescent, Momentum, Optimizer, RMSprop, schedules

POOLS = [("inline", 1), ("eager", 2), ("messages", 2)]
DRAW = np.random.default_rng(3)
X, Y = DRAW.normal(size=(8, 5)), DRAW.normal(size=(8, 3))
W, B = DRAW.normal(size=(5, 3)), DRAW.normal(size=3)
PAIRS: dict[str, tuple[Callable[[], Optimizer], Callable[[Any, Any], torch.optim.Optimizer]]] = {
    "adam": (
        lambda: Adam(0.05, amsgrad=True),
        lambda w, b: torch.optim.Adam([w, b], 0.05, amsgrad=True),
    ),
    "groups": (
        lambda: Momentum(0.02, 0.8, groups={"*.b": {"momentum": 0.5, "learning_rate": 0.1}}),
        lambda w, b: torch.optim.SGD(
            [{"params": [w]}, {"params": [b], "momentum": 0.5, "lr": 0.1}], 0.02, 0.8
        ),
    ),
    "without states": (lambda: GradientDescent(0.1), lambda w, b: torch.optim.SGD([w, b], 0.1)),
}


class Training:
    """A network of one layer, its optimizer, and its step, which counts its traces."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.w, self.b = mm.variable("net.w", W), mm.variable("net.b", B)
        self.optimizer = optimizer
        self.traces: list[int] = []
        self.compiled = mm.compile(self.step)

    def step(self) -> None:
        self.traces.append(1)
        loss = mm.mean((mm.tanh(mm.asarray(X) @ self.w + self.b) - mm.asarray(Y)) ** 2)
        slopes = mm.grad(loss, [self.w, self.b])
        self.optimizer.update({self.w: slopes[0], self.b: slopes[1]})

    def run(self, steps: int, way: str = "compiled") -> None:
        for _ in range(steps):
            getattr(self, way)()

    def save(self) -> tuple[dict[str, Any], Any, Any]:
        state = self.optimizer.state_dict()
        return {name: x.numpy() for name, x in state.items()}, self.w.numpy(), self.b.numpy()

    def load(self, saved: tuple[dict[str, Any], Any, Any]) -> None:
        self.optimizer.load_state_dict(saved[0])
        self.w.assign(saved[1])
        self.b.assign(saved[2])

    def check(self, w: Any, b: Any) -> None:
        np.testing.assert_allclose(self.w.numpy(), w, rtol=1e-12)
        np.testing.assert_allclose(self.b.numpy(), b, rtol=1e-12)


def of_torch(make: Callable[[Any, Any], torch.optim.Optimizer], steps: int) -> list[Any]:
    w, b = (torch.nn.Parameter(torch.from_numpy(v.copy())) for v in (W, B))
    optimizer, x, y = make(w, b), torch.from_numpy(X), torch.from_numpy(Y)
    for _ in range(steps):
        optimizer.zero_grad()
        ((torch.tanh(x @ w + b) - y) ** 2).mean().backward()
        optimizer.step()
    return [w.detach().numpy(), b.detach().numpy()]


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize(("kind", "workers"), POOLS)
def test_steps_after_loading_are_those_of_pytorch(name: str, kind: str, workers: int) -> None:
    ours, theirs = PAIRS[name]
    expected = of_torch(theirs, 7)
    with current(kind, workers):
        training = Training(ours())
        training.run(3)
        saved = training.save()
        for _ in range(2):
            training.run(4)
            training.check(*expected)
            training.load(saved)
            assert training.optimizer.steps == 3
        training.run(4)
        training.check(*expected)
        assert len(training.traces) == 1


def test_rates_of_a_schedule_continue() -> None:
    with current("inline"):
        training = Training(RMSprop(schedules.Exponential(0.05, 0.5), momentum=0.5))
        training.run(2)
        saved = training.save()
        training.run(3)
        expected = training.w.numpy(), training.b.numpy()
        training.load(saved)
        training.run(3)
        training.check(*expected)
        assert len(training.traces) == 1


@pytest.mark.parametrize("way", ["compiled", "step"])
def test_a_network_that_is_made_again_gets_the_states(way: str) -> None:
    """The optimizer's programs keep the variables of the former one, of the same names."""
    expected = of_torch(PAIRS["adam"][1], 7)
    with current("inline"):
        first = Training(PAIRS["adam"][0]())
        first.run(3, way)
        saved = first.save()
        first.run(2, way)
        again = Training(first.optimizer)
        again.load(saved)
        again.run(4, way)
        again.check(*expected)
        assert again.optimizer.state_dict().keys() == saved[0].keys()


def test_networks_of_one_optimizer_are_rolled_back_together() -> None:
    """Their variables have the same names: the states of each are its own."""
    with current("inline"):
        adam = Adam(0.05)
        first, second = Training(adam), Training(adam)
        second.w.assign(2 * W)
        for _ in range(3):
            first.run(1), second.run(1)
        saved, values = first.save(), (second.w.numpy(), second.b.numpy())
        for _ in range(2):
            first.run(1), second.run(1)
        expected = [(x.w.numpy(), x.b.numpy()) for x in (first, second)]
        first.load(saved)
        second.w.assign(values[0]), second.b.assign(values[1])
        for _ in range(2):
            second.run(1), first.run(1)
        for training, numbers in zip((first, second), expected, strict=True):
            training.check(*numbers)
            assert len(training.traces) == 1


def test_several_optimizers_in_a_step() -> None:
    with current("eager", 2):
        v, w = mm.variable("v", [1.0, 2.0]), mm.variable("w", [3.0, 4.0])
        adam, momentum = Adam(0.1), Momentum(0.1)
        traces: list[int] = []

        @mm.compile
        def step() -> None:
            traces.append(1)
            adam.update({v: v * w})
            momentum.update({w: w + v})

        def run(steps: int) -> list[Any]:
            for _ in range(steps):
                step()
            return [v.tolist(), w.tolist()]

        values = run(2)
        states = adam.state_dict(), momentum.state_dict()
        expected = run(3)
        adam.load_state_dict(states[0])
        momentum.load_state_dict(states[1])
        v.assign(values[0]), w.assign(values[1])
        assert run(3) == expected
        assert len(traces) == 1


def test_step_counts_that_differ_after_loading() -> None:
    """Two variables that have had one count get two, by another trace."""
    with current("inline"):
        training = Training(Adam(0.05))
        training.run(2)
        state = training.optimizer.state_dict()
        training.optimizer.load_state_dict({**state, "net.b.count": 9})
        training.run(1)
        state = training.optimizer.state_dict()
        assert (int(state["net.w.count"]), int(state["net.b.count"])) == (3, 10)


def test_a_variable_without_a_loaded_state_starts_from_zeros() -> None:
    with current("inline"):
        training, other = Training(Momentum(0.1)), Training(Momentum(0.1))
        training.run(2)
        state = training.optimizer.state_dict()
        del state["net.b.velocity"]
        training.optimizer.load_state_dict(state)
        other.w.assign(training.w)
        other.b.assign(training.b)
        training.run(1)
        other.run(1)
        np.testing.assert_allclose(training.b.numpy(), other.b.numpy(), rtol=1e-12)
        assert not np.allclose(training.w.numpy(), other.w.numpy())


WRONG = {
    "shape": (
        {"net.b.first": np.zeros(4)}, ShapeError, r"net.b.first has shape \(4,\), .* needs \(3,\)",
    ),
    "count": ({"net.w.count": np.zeros(2)}, ShapeError, r"net.w.count has shape \(2,\)"),
    "no count": ({"net.w.count": "many"}, OptionError, "net.w.count must be a number of steps"),
    "missing": ({"net.w.second": None}, OptionError, "net.w lack net.w.second; load all"),
    "missing count": ({"net.b.count": None}, OptionError, "net.b lack net.b.count"),
    "other optimizer": ({"net.b.velocity": B}, OptionError, "are velocity, this optimizer needs"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("is_updated", [True, False])
def test_states_that_do_not_fit_change_nothing(case: str, is_updated: bool) -> None:
    """Of variables that were updated it is known when they are loaded, of others when they are
    updated first: then they are still loaded, and another update fails too."""
    changes, error, message = WRONG[case]
    with current("inline"):
        training, other = Training(Adam(0.05)), Training(Adam(0.05))
        training.run(3)
        saved = training.save()
        state = {k: v for k, v in (saved[0] | changes).items() if v is not None} | {"steps": 7}
        if not is_updated:
            other.optimizer.load_state_dict(state)
            for _ in range(2):
                with pytest.raises(error, match=message):
                    other.run(1, "step")
            other.check(W, B)
            other.load(saved)
            training, other = other, training
        else:
            with pytest.raises(error, match=message):
                training.optimizer.load_state_dict(state)
            assert training.optimizer.steps == 3
            other.load(saved)
        for name, value in training.optimizer.state_dict().items():
            np.testing.assert_array_equal(np.asarray(value), saved[0][name])
        training.run(2)
        other.run(2)
        training.check(other.w.numpy(), other.b.numpy())


def test_a_schedule_that_cannot_be_loaded_changes_nothing() -> None:
    with current("inline"):
        training = Training(Adam(mm.optim.schedules.Plateau(0.05)))
        training.run(2)
        former = training.optimizer.state_dict()
        training.run(1)
        broken = {name: x for name, x in former.items() if not name.endswith(".rate")}
        assert broken.keys() != former.keys()
        later = training.optimizer.state_dict()
        with pytest.raises(OptionError, match="Plateau lacks rate"):
            training.optimizer.load_state_dict(broken)
        for name, value in training.optimizer.state_dict().items():
            np.testing.assert_array_equal(np.asarray(value), later[name])


@pytest.mark.parametrize(("kind", "workers"), POOLS)
def test_a_module_is_loaded_without_another_trace(kind: str, workers: int) -> None:
    with current(kind, workers):
        model = mm.nn.Sequential(mm.nn.Dense(4), mm.nn.BatchNorm(), mm.nn.Dropout(0.5, seed=1))
        model.build((8, 5))
        traces: list[int] = []

        @mm.compile
        def step(x: mm.Array) -> mm.Array:
            traces.append(1)
            return model(x)

        x = mm.asarray(X.astype("float32"))
        state = model.state_dict()
        expected = step(x).numpy()
        for values in (state, {name: value.numpy() for name, value in state.items()}):
            model.load_state_dict(values)
            np.testing.assert_array_equal(step(x).numpy(), expected)
        assert len(traces) == 1


def test_schedules_that_do_not_fit_change_nothing() -> None:
    def optimizer(rate: float) -> Optimizer:
        groups = {"*.bias": {"learning_rate": schedules.Plateau(rate / 2)}}
        return GradientDescent(schedules.Plateau(rate), groups=groups)

    with current("inline"):
        state = optimizer(0.1).state_dict()
        other = optimizer(0.4)
        del state["learning_rate.1.best"]
        with pytest.raises(OptionError, match="Plateau lacks best"):
            other.load_state_dict(state)
        assert other.rates(0) == [0.4, 0.2]
