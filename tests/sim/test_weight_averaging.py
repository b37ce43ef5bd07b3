"""Replicas: weight averaging equals NumPy models of its equations, for any number of workers."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import current
from magmath import nn
from magmath.errors import (
    GradientError,
    MagmathError,
    OptionError,
    ShapeError,
    TracingError,
    WeightsError,
)
from magmath.parallel import CompiledStep, Replicas, WeightAveraging, as_strategy
from magmath.train import Trainer

POOLS = [("inline", 1), ("shared", 2), ("messages", 4), ("shared", 3)]
DRAW = np.random.default_rng(5)
X = DRAW.normal(size=(96, 5))
Y = DRAW.integers(0, 3, 96)


@pytest.fixture(autouse=True)
def _in_float64() -> Any:
    mm.set_default_dtype(mm.float64)
    yield
    mm.set_default_dtype(mm.float32)


def slopes(w: np.ndarray, b: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[Any, Any, float]:
    """The gradient of cross-entropy of x @ w + b, and its value."""
    z = x @ w + b
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    loss = -np.log(p[range(len(y)), y]).mean()
    p[range(len(y)), y] -= 1
    return x.T @ p / len(y), p.sum(0) / len(y), loss


def model(
    w: np.ndarray, b: np.ndarray, replicas: int, every: int, batch: int, momentum: float
) -> Any:
    """Eq. 2.2, step by step: w = Σ (w_i - η g_i) / N, with momentum of each replica's own."""
    ws, bs = np.stack([w] * replicas), np.stack([b] * replicas)
    vw, vb = np.zeros_like(ws), np.zeros_like(bs)
    losses, step = [], 0
    for _ in range(2):
        for start in range(0, len(X), batch):
            x = X[start : start + batch].reshape(replicas, -1, 5)
            y = Y[start : start + batch].reshape(replicas, -1)
            result = [slopes(ws[i], bs[i], x[i], y[i]) for i in range(replicas)]
            for i, (gw, gb, _) in enumerate(result):
                vw[i], vb[i] = momentum * vw[i] + gw, momentum * vb[i] + gb
                ws[i] -= 0.2 * vw[i]
                bs[i] -= 0.2 * vb[i]
            losses.append(np.mean([loss for *_, loss in result]))
            step += 1
            if step % every == 0:
                ws[:], bs[:] = ws.mean(0), bs.mean(0)
    return ws, bs, losses


@pytest.mark.parametrize(
    ("replicas", "every", "momentum"), [(16, 1, 0.0), (16, 5, 0.9), (3, 2, 0.5)]
)
@pytest.mark.parametrize(("kind", "workers"), POOLS)
def test_equals_the_equation(
    kind: str, workers: int, replicas: int, every: int, momentum: float
) -> None:
    with current(kind, workers):
        rule = mm.optim.Momentum(0.2, momentum) if momentum else mm.optim.GradientDescent(0.2)
        net = nn.NeuralNetwork([nn.Dense(3)], optimizer=rule, seed=1)
        net.build((1, 5))
        first = [net.parameters[name].numpy() for name in ("0.weight", "0.bias")]
        strategy = WeightAveraging(replicas, every)
        history = net.fit(X, Y, batch_size=48, epochs=2, shuffle=False, strategy=strategy)
        ws, bs, losses = model(*first, replicas, every, 48, momentum)
        np.testing.assert_allclose(history.step_losses, losses, rtol=1e-12)
        stacked = strategy.weights(net.parameters["0.weight"]).numpy()
        np.testing.assert_allclose(stacked, ws, rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(net.parameters["0.bias"].numpy(), bs.mean(0), rtol=1e-11)
        scored = net.evaluate(X, Y)["loss"]
        assert scored == pytest.approx(slopes(ws.mean(0), bs.mean(0), X, Y)[2], rel=1e-10)


def module() -> nn.Module:
    return nn.Sequential(
        nn.Dense(8), nn.BatchNorm(), nn.ReLU(), nn.Dropout(0.3), nn.Dense(8, activation="tanh"),
        nn.Dropout(0.2, seed=9), nn.Dense(3),
    )  # fmt: skip


def test_statistics_and_dropout_are_the_same_for_any_number_of_workers() -> None:
    result = []
    for kind, workers in [*POOLS, ("messages", 2)]:
        with current(kind, workers):
            net = nn.NeuralNetwork(module(), optimizer=mm.optim.LARS(0.1), seed=2)
            steps = net.fit(
                X, Y, batch_size=32, epochs=2, strategy=WeightAveraging(8, 2)
            ).step_losses
            result.append((steps, {k: v.numpy() for k, v in net.module.state_dict().items()}))
    for steps, state in result[1:]:
        np.testing.assert_allclose(steps, result[0][0], rtol=1e-9)
        for name, value in state.items():
            np.testing.assert_allclose(value, result[0][1][name], rtol=1e-7, atol=1e-9)
    assert np.abs(result[0][1]["1.running_mean"]).max() > 0


@pytest.mark.parametrize("strategy", ["data", "sharded", "weight-averaging:2"])
@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 2)])
def test_steps_continue_in_another_type(kind: str, workers: int, strategy: str) -> None:
    """Of parameters and running statistics: each step changes those of the module."""
    with current(kind, workers):
        net = nn.Sequential(nn.Dense(3), nn.BatchNorm(momentum=0.5))
        net.build((1, 5))
        rule = mm.optim.GradientDescent(0.2)
        step = CompiledStep("cross_entropy", net, rule, strategy)
        for dtype in (mm.float64, mm.float32, mm.float32, mm.float64):
            net.astype(dtype)
            before = {name: v.numpy() for name, v in net.state_dict().items()}
            step(X.astype(dtype.name), Y)
            step.collect()
            for name in ("0.weight", "1.weight", "1.running_mean"):
                change = net.state_dict()[name].numpy() - before[name]
                assert np.abs(change).max() > 1e-4, name


@pytest.mark.parametrize("seed", [None, 1])
def test_replicas_draw_random_numbers_of_their_own(seed: int | None) -> None:
    """Also by a layer with a seed: a replica changes the weights of inputs that it keeps."""
    with current("inline"):
        net = nn.Sequential(nn.Dropout(0.5, seed=seed), nn.Dense(1))
        strategy = WeightAveraging(4, every=100)
        trainer = mm.train.Trainer(net, "mean_squared_error", strategy=strategy, seed=1)
        trainer.fit(np.ones((8, 50)), np.ones((8, 1)), batch_size=8)
        weights = strategy.weights(net.named_parameters()[0][1]).numpy()
        assert len(np.unique(weights, axis=0)) == 4


def test_replicas_of_deterministic_pools_have_the_same_bits() -> None:
    result = []
    for workers in (1, 2, 4):
        with current("exact", workers):
            net = nn.NeuralNetwork(module(), optimizer="adam", seed=2)
            net.fit(X, Y, batch_size=32, epochs=2, strategy=WeightAveraging(8, 2))
            result.append({k: v.numpy() for k, v in net.module.state_dict().items()})
    for state in result[1:]:
        for name, value in state.items():
            np.testing.assert_array_equal(value, result[0][name])


def test_resumed_training_equals_uninterrupted_training(tmp_path: Path) -> None:
    with current("shared", 2):
        ends = []
        for epochs in ((4,), (1, 4)):
            folder = tmp_path / str(len(epochs))
            for last in epochs:  # another process has other objects
                net = nn.NeuralNetwork(module(), optimizer="adam", seed=3)
                net.fit(X, Y, batch_size=32, epochs=last, strategy=WeightAveraging(4, 5),
                        checkpoint=folder, resume=True)  # fmt: skip
            ends.append({k: v.numpy() for k, v in net.module.state_dict().items()})
        for name, value in ends[0].items():
            np.testing.assert_array_equal(value, ends[1][name])
        with pytest.raises(
            WeightsError,
            match=r"another strategy than DataParallel.*, to WeightAveraging\(4, every=5\)",
        ):
            net.fit(X, Y, batch_size=32, epochs=5, strategy="data", checkpoint=folder, resume=True)


def test_second_fit_continues_and_loading_starts_anew() -> None:
    with current("shared", 2):
        strategy, nets = WeightAveraging(4, 100), []
        for parts in ((2,), (1, 1)):
            net = nn.NeuralNetwork(module(), optimizer=mm.optim.Momentum(0.1), seed=3)
            strategy = WeightAveraging(4, 100)
            for epochs in parts:
                net.fit(X, Y, batch_size=32, epochs=epochs, strategy=strategy)
            nets.append(net)
        for name, v in nets[0].parameters.items():
            np.testing.assert_array_equal(v.numpy(), nets[1].parameters[name].numpy())
        weight = nets[1].parameters["0.weight"]
        assert np.ptp(strategy.weights(weight).numpy(), axis=0).max() > 0
        weight.assign(weight + 1)
        nets[1].fit(X, Y, batch_size=32, epochs=0, strategy=strategy)
        np.testing.assert_array_equal(
            strategy.weights(weight).numpy(), np.stack([weight.numpy()] * 4)
        )


class Gossip(Replicas):
    """Each replica takes the mean of its own weights and those of its neighbours on a ring."""

    def exchange(self, weights: mm.Array) -> mm.Array:
        return (mm.roll(weights, 1, axis=0) + weights + mm.roll(weights, -1, axis=0)) / 3


@pytest.mark.parametrize(("kind", "workers"), POOLS)
def test_a_loop_of_ones_own_with_a_strategy_of_ones_own(kind: str, workers: int) -> None:
    with current(kind, workers):
        mm.random.seed(4)
        net = nn.Dense(3)
        net.build((1, 5))
        ws, bs = np.stack([net.weight.numpy()] * 6), np.stack([net.bias.numpy()] * 6)
        strategy = Gossip(6, every=2)
        step = CompiledStep(lambda x, y: nn.cross_entropy(net(x), y), net,
                            mm.optim.GradientDescent(0.2), strategy)  # fmt: skip
        for k in range(4):
            x, y = X[k * 24 : k * 24 + 24], Y[k * 24 : k * 24 + 24]
            value = float(step(x, y))
            parts = zip(ws, bs, x.reshape(6, 4, 5), y.reshape(6, 4), strict=True)
            result = [slopes(*part) for part in parts]
            assert value == pytest.approx(np.mean([loss for *_, loss in result]))
            ws, bs = (
                ws - 0.2 * np.stack([g for g, *_ in result]),
                bs - 0.2 * np.stack([g for _, g, _ in result]),
            )
            if k % 2:
                ws, bs = [(np.roll(v, 1, 0) + v + np.roll(v, -1, 0)) / 3 for v in (ws, bs)]
        step.collect()
        np.testing.assert_allclose(strategy.weights(net.weight).numpy(), ws, rtol=1e-11)
        np.testing.assert_allclose(net.bias.numpy(), bs.mean(0), rtol=1e-11)


def test_mistakes() -> None:
    with current("inline"):
        with pytest.raises(ShapeError, match="each of 5 replicas needs an equal part.*32 samples"):
            nn.NeuralNetwork(module()).fit(X, Y, batch_size=32, strategy=WeightAveraging(5))
        with pytest.raises(MagmathError, match=r"write mm.parallel.WeightAveraging\(…\)"):
            nn.NeuralNetwork(module()).fit(X, Y, strategy=WeightAveraging)  # type: ignore[arg-type]
        with pytest.raises(MagmathError, match="replicas"):
            WeightAveraging(0)
        net = nn.Dense(3).build((1, 5))
        with pytest.raises(MagmathError, match="has no replicas yet"):
            WeightAveraging(2).weights(net.weight)  # type: ignore[attr-defined]


class Returns(Replicas):
    """Exchanges weights by a given function."""

    def __init__(self, function: Any) -> None:
        super().__init__(2)
        self.function = function

    def exchange(self, weights: mm.Array) -> Any:
        return self.function(weights)


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (lambda weights: weights[0], ShapeError, r"Returns.exchange: .* shape \(2, 5, 3\)"),
        (lambda weights: mm.mean(weights), ShapeError, r"has returned one of shape \(\)"),
        (lambda weights: None, TypeError, "Returns.exchange"),
    ],
)
@pytest.mark.parametrize("kind", ["inline", "shared"])
def test_an_exchange_returns_weights_of_all_replicas(
    kind: Any, function: Any, error: Any, message: str
) -> None:
    with current(kind, 1 if kind == "inline" else 2):
        net = nn.NeuralNetwork([nn.Dense(3)], seed=1)
        with pytest.raises(error, match=message):
            net.fit(X, Y, batch_size=32, epochs=1, strategy=Returns(function))
        net.fit(X, Y, batch_size=32, epochs=1, strategy=Returns(lambda weights: weights))


@pytest.mark.parametrize(
    ("name", "replicas", "every"),
    [("weight-averaging", 2, 1), ("weight-averaging:4", 4, 1), ("weight-averaging:4:3", 4, 3)],
)
def test_names_have_the_numbers_of_replicas_and_steps(name: str, replicas: int, every: int) -> None:
    """Without numbers each worker has a replica."""

    def trained(strategy: Any) -> dict[str, np.ndarray]:
        net = nn.NeuralNetwork([nn.Dense(3)], optimizer=mm.optim.GradientDescent(0.1), seed=1)
        for _ in range(2):  # the second call finds the replicas of the first
            net.fit(X, Y, batch_size=24, epochs=1, strategy=strategy)
        return {path: v.numpy() for path, v in net.parameters.items()}

    with current("shared", 2):
        assert repr(as_strategy(name)) == repr(WeightAveraging(replicas, every))
        assert as_strategy(name) is not as_strategy(name)
        expected = trained(WeightAveraging(replicas, every))
        for path, value in trained(name).items():
            np.testing.assert_array_equal(value, expected[path])


@pytest.mark.parametrize("used", ["data", "weight-averaging"])
def test_an_explanation_makes_no_replicas_that_stay(used: str) -> None:
    with current("shared", 2):
        net = nn.NeuralNetwork([nn.Dense(3)], optimizer=mm.optim.Adam(), seed=1)
        net.fit(X, Y, batch_size=24, epochs=1, strategy=used)
        states = net.trainer.optimizer.state_dict().keys()
        assert net.explain(strategy="weight-averaging").instructions
        assert net.explain(strategy="weight-averaging:4:2").instructions
        gc.collect()
        assert net.trainer.optimizer.state_dict().keys() == states
        losses = net.fit(X, Y, batch_size=24, epochs=1).step_losses
        assert len(losses) == 4


@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 2)])
def test_trainers_that_name_a_strategy_have_their_own_replicas(kind: str, workers: int) -> None:
    """The second trainer of a module begins with its weights, the means over the replicas of the
    first one, and not with these replicas."""
    name = "weight-averaging:2:100"

    def epoch(module: nn.Module) -> dict[str, np.ndarray]:
        trainer = Trainer(module, optimizer=mm.optim.GradientDescent(0.5), strategy=name)
        trainer.fit(X, Y, batch_size=24, shuffle=False)
        return {path: v.numpy() for path, v in module.named_parameters()}

    with current(kind, workers):
        first = nn.NeuralNetwork([nn.Dense(3)], seed=1).build((24, 5)).module
        means = epoch(first)
        other = nn.NeuralNetwork([nn.Dense(3)], seed=2).build((24, 5)).module
        other.load_state_dict(means)
        expected = epoch(other)
        for path, value in epoch(first).items():
            np.testing.assert_allclose(value, expected[path], rtol=1e-9)


@pytest.mark.parametrize(
    "name", ["weight-averaging:", "weight-averaging:x", "weight-averaging:1:2:3"]
)
def test_names_with_other_numbers_are_refused(name: str) -> None:
    with pytest.raises(OptionError, match="weight-averaging:16:10 for 16 replicas"):
        as_strategy(name)
    with pytest.raises(OptionError, match="replicas must be an integer of at least 1"):
        as_strategy("weight-averaging:0")


@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 2)])
def test_trainers_share_a_strategy_and_not_its_replicas(kind: str, workers: int) -> None:
    with current(kind, workers):

        def trainer(seed: int) -> mm.train.Trainer:
            optimizer = mm.optim.Momentum(0.1)
            strategy = (
                "weight-averaging:2:5"  # epochs have 12 steps, so replicas differ at their ends
            )
            return mm.train.Trainer(nn.Dense(3), optimizer=optimizer, strategy=strategy, seed=seed)

        def epoch(one: mm.train.Trainer) -> None:
            one.fit(X, Y, batch_size=8)

        alone = [trainer(seed) for seed in (1, 2)]
        for one in alone:
            for _ in range(3):
                epoch(one)
        alternating = [trainer(seed) for seed in (1, 2)]
        for _ in range(3):
            for one in alternating:
                epoch(one)
        for one, other in zip(alone, alternating, strict=True):
            for name, value in one.module.state_dict().items():
                np.testing.assert_array_equal(
                    value.numpy(), other.module.state_dict()[name].numpy(), err_msg=name
                )


@pytest.mark.parametrize(("count", "batch_size", "used"), [(34, 16, 32), (30, 64, 28), (16, 8, 16)])
def test_samples_beyond_equal_parts_are_left_out(count: int, batch_size: int, used: int) -> None:
    """Of the last batch of an epoch; in each epoch other ones, as the order is another."""
    x = np.random.default_rng(0).normal(size=(count, 3)).astype("float32")

    def trained(samples: Any, replicas: int) -> list[Any]:
        with mm.init(workers=0):
            net = mm.nn.NeuralNetwork(
                [mm.nn.Dense(1)], loss="mean_squared_error", optimizer="sgd", seed=1
            )
            strategy = mm.parallel.WeightAveraging(replicas)
            net.fit(
                samples, samples[:, :1], batch_size=batch_size, strategy=strategy, shuffle=False
            )
            return [v.numpy() for v in net.module.parameters()]

    if used == count:
        result = trained(x, 4)
    else:
        with pytest.warns(UserWarning, match=f"{count - used} of {count} samples are left out"):
            result = trained(x, 4)
    for one, other in zip(result, trained(x[:used], 4), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.filterwarnings("error")
def test_fewer_samples_than_replicas_are_an_error_without_a_warning() -> None:
    x = np.ones((5, 3), np.float32)
    with current("inline"):
        net = mm.nn.NeuralNetwork([mm.nn.Dense(1)], loss="mean_squared_error")
        with pytest.raises(ShapeError, match="8 replicas"):
            net.fit(x, x[:, :1], batch_size=32, strategy=WeightAveraging(8))


@pytest.mark.parametrize("strategy", ["auto", "weight-averaging:2:1"])
def test_a_loss_without_gradient_is_an_error(strategy: str) -> None:
    loss = lambda y, z: mm.mean(mm.stop_gradient(y))  # noqa: E731
    trainer = mm.train.Trainer(mm.nn.Dense(2), loss, strategy=strategy)
    with pytest.raises(GradientError, match="depends on none of the 2 parameters"):
        trainer.fit(np.ones((8, 4), "float32"), np.zeros((8, 2), "float32"))


@pytest.mark.filterwarnings("ignore:fit. 4 of 100 samples are left out")
@pytest.mark.parametrize("batch_size", [32, 128])
def test_other_strategies_are_explained_for_the_batches_that_they_take(batch_size: int) -> None:
    """Each leaves out the samples that it leaves out in `fit`."""
    x, y = np.ones((100, 4)), np.zeros(100, int)

    def fitted(strategy: str) -> nn.NeuralNetwork:
        net = nn.NeuralNetwork([nn.Dense(3)], seed=1)
        net.fit(x, y, batch_size=batch_size, epochs=1, strategy=strategy)
        return net

    with current("inline"):
        whole, divided = fitted("auto"), fitted("weight-averaging:8:1")
        for net in (whole, divided):
            for strategy in ("auto", "weight-averaging:8:1"):
                wanted = whole if strategy == "auto" else divided
                actual, expected = net.explain(strategy), wanted.explain()
                texts = [entry.text for entry in actual.instructions]
                assert texts == [entry.text for entry in expected.instructions]
            net.fit(x, y, batch_size=batch_size, epochs=1)


class Stops:
    """A reporter that ends training after five steps by an error of its own."""

    def begin(self, epochs: int, steps: int) -> None: ...

    def epoch(self, record: Any) -> None: ...

    def end(self) -> None: ...

    def step(self, done: int, loss: float, speed: float) -> None:
        if done >= 5:
            raise ValueError("five steps are enough")


@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 2)])
def test_the_module_has_the_mean_of_replicas_after_an_error_of_a_reporter(
    kind: str, workers: int
) -> None:
    with current(kind, workers):
        net = nn.NeuralNetwork([nn.Dense(3)], optimizer=mm.optim.GradientDescent(0.1))
        strategy = WeightAveraging(2)
        with pytest.raises(ValueError, match="five steps"):
            net.fit(X, Y, batch_size=4, strategy=strategy, reporter=Stops())
        assert net.optimizer.steps >= 5
        for v in net.module.parameters():
            mean = strategy.weights(v).numpy().mean(0)
            np.testing.assert_allclose(v.numpy(), mean)
            assert np.abs(v.numpy()).max() > 0


class _BadFile:
    """A source whose sixth batch cannot be read."""

    labels = np.zeros((64, 1), np.float32)

    def read(self, indices: Any, random: Any) -> Any:
        if max(indices) >= 40:
            raise ValueError("a bad file")
        return np.ones((len(indices), 4), np.float32)


@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 2)])
@pytest.mark.parametrize("cause", ["source", "index"])
def test_the_module_has_the_mean_of_replicas_after_an_error_of_the_data(
    kind: str, workers: int, cause: str
) -> None:
    """A batch that cannot be read, or that makes a step fail."""
    tokens = np.zeros((64, 4), np.int64)
    tokens[40:] = 7
    source = _BadFile() if cause == "source" else (tokens, np.zeros((64, 1), np.float32))
    layers = [nn.Embedding(5, 2), nn.Flatten()] if cause == "index" else []
    with current(kind, workers):
        net = nn.NeuralNetwork(
            [*layers, nn.Dense(1)], loss="mean_squared_error",
            optimizer=mm.optim.GradientDescent(0.1),
        )  # fmt: skip
        strategy = WeightAveraging(2)
        loader = mm.data.Loader(source, batch_size=8, shuffle=False, threads=0)
        with pytest.raises((ValueError, IndexError)):
            net.fit(loader, strategy=strategy)
        assert net.optimizer.steps == 5
        for v in net.module.parameters():
            np.testing.assert_allclose(v.numpy(), strategy.weights(v).numpy().mean(0))


def test_asynchronous_updates_need_stored_samples() -> None:
    x = np.ones((8, 4), "float32")
    with mm.init(workers=2, launcher="threads"):
        net = mm.nn.NeuralNetwork([mm.nn.Dense(2)])
        with pytest.raises(OptionError, match="each worker takes batches of its own"):
            net.fit(mm.data.Loader((x, np.arange(8) % 2), 4), strategy="asynchronous")


# parameters that a module assigns, of half types, and frozen
# ----------------------------------------------------------------------------------


class Constrained(nn.Module):
    """A linear function that assigns its weights before or after it reads them, and the running
    mean of the weights, on which the loss does not depend."""

    def __init__(self, is_before: bool) -> None:
        draw = np.random.default_rng(0)
        self.w = nn.Parameter(draw.normal(size=(5, 3)))
        self.slow = nn.Parameter(np.ones((5, 3)))
        self.is_before = is_before

    def __call__(self, x: mm.Array) -> mm.Array:
        if self.is_before:
            self.w.assign(mm.stop_gradient(self.w / mm.sqrt(mm.sum(self.w**2, axis=0))))
        y = x @ self.w
        if not self.is_before:
            self.w.assign(mm.clip(self.w, -0.5, 0.5))
        self.slow.assign(0.5 * self.slow + 0.5 * self.w)
        return y


@given(
    is_before=st.booleans(),
    replicas=st.integers(1, 3),
    every=st.integers(1, 2),
    optimizer=st.sampled_from([mm.optim.GradientDescent, mm.optim.Momentum, mm.optim.Adam]),
    is_scaled=st.booleans(),
)
@settings(max_examples=8, deadline=None)
def test_parameters_that_the_module_assigns(
    is_before: bool, replicas: int, every: int, optimizer: Any, is_scaled: bool
) -> None:
    """Replicas with equal samples train as one copy of the parameters does. The first steps with a
    loss scale are skipped."""
    result = []
    x, y = X[:8], Y[:8]
    with current("inline"):
        for strategy, parts in (("data", 1), (WeightAveraging(replicas, every), replicas)):
            net = Constrained(is_before)
            scale = mm.optim.LossScale(2.0**1023, backoff_factor=2.0**-600) if is_scaled else None
            step = CompiledStep("cross_entropy", net, optimizer(0.3), strategy, loss_scale=scale)
            losses = [float(step(np.tile(x, (parts, 1)), np.tile(y, parts))) for _ in range(4)]
            step.collect()
            skipped = [] if scale is None else [scale.skipped]
            result.append([*losses, *skipped, *net.w.numpy().ravel(), *net.slow.numpy().ravel()])
    np.testing.assert_allclose(result[1], result[0], rtol=1e-9)


class Line(nn.Module):
    """One weight, by whose sample each replica has another gradient, and one that is not used."""

    def __init__(self, dtype: mm.DType) -> None:
        self.w = nn.Parameter(1.0, (1,), dtype=dtype)
        self.unused = nn.Parameter(3.0, (1,), dtype=dtype)

    def __call__(self, x: mm.Array) -> mm.Array:
        return x * mm.astype(self.w, mm.float64)


@pytest.mark.parametrize("dtype", [mm.float16, mm.bfloat16])
@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize(
    ("optimizer", "rate"), [(mm.optim.GradientDescent, 2e-3), (mm.optim.Momentum, 2e-4)]
)
def test_weights_of_half_types_are_exchanged_before_they_are_rounded(
    dtype: mm.DType, every: int, optimizer: Any, rate: float
) -> None:
    """Steps that are smaller than a rounding add up, and an assignment counts."""
    x = np.array([[-1.0], [0.0], [0.2], [-0.4]])
    result = []
    with current("inline"):
        for kind in (mm.float64, dtype):
            net, values = Line(kind), []
            strategy, rule = WeightAveraging(4, every), optimizer(rate)
            step = CompiledStep(lambda x, net=net: mm.mean(net(x)), net, rule, strategy)
            for _ in range(2):
                for _ in range(60):
                    step(x)
                step.collect()
                values += [float(net.w[0]), float(net.unused[0])]
                net.w.assign([2.0])
            result.append(values)
    np.testing.assert_allclose(result[1], result[0], rtol=2.0**-8)
    assert result[0][0] > 1.03


@pytest.mark.parametrize("dtype", [mm.float16, mm.bfloat16])
def test_weights_of_half_types_stay_when_steps_are_skipped(dtype: mm.DType) -> None:
    with current("inline"):
        net = Line(dtype)
        scale = mm.optim.LossScale(2.0**1023)
        step = CompiledStep(
            lambda x: mm.sum(net(x)), net, mm.optim.GradientDescent(0.1), WeightAveraging(2),
            loss_scale=scale,
        )  # fmt: skip
        step(np.full((2, 1), 1e10))
        step.collect()
        assert scale.skipped == 1
        assert net.w.tolist() == [1.0]
        assert net.unused.tolist() == [3.0]


def test_calls_that_raise_are_not_counted() -> None:
    """Replicas exchange after every second step that was taken."""
    with current("inline"):
        net, strategy = nn.Dense(3).build((1, 5)), WeightAveraging(2, every=2)
        step = CompiledStep("cross_entropy", net, mm.optim.GradientDescent(0.5), strategy)
        for _ in range(2):
            step(X[:8], Y[:8])
            with pytest.raises(ShapeError, match="was given a batch of 3 samples"):
                step(X[:3], Y[:3])
            assert np.ptp(strategy.weights(net.weight).numpy(), axis=0).max() > 0
            step(X[:8], Y[:8])
            assert np.ptp(strategy.weights(net.weight).numpy(), axis=0).max() == 0
        assert step.steps == 4


@pytest.mark.parametrize("kind", ["step", "fit"])
def test_replicas_of_unfrozen_layers_begin_with_the_weights_of_the_module(kind: str) -> None:
    """They have trained with these while the layer was frozen, and not with their former ones."""
    with current("inline"):
        net = nn.Sequential(nn.Dense(4), nn.Dense(3)).build((1, 5))
        strategy, rule = WeightAveraging(2, every=100), mm.optim.Momentum(0.5)
        step = CompiledStep("cross_entropy", net, rule, strategy)
        trainer = Trainer(net, "cross_entropy", rule, metrics=[], strategy=strategy)

        def train() -> None:
            if kind == "step":
                step(X[:8], Y[:8])
            else:
                trainer.fit(X[:8], Y[:8], batch_size=8, shuffle=False)

        for _ in range(5):
            train()
        net[0].freeze()
        train()
        net[0].unfreeze()
        mean = net[0].weight.numpy()
        assert np.ptp(strategy.weights(net[0].weight).numpy(), axis=0).max() > 1e-3
        rule.learning_rate = 0.0
        train()
        np.testing.assert_array_equal(strategy.weights(net[0].weight).numpy(), [mean, mean])


def test_frozen_parameters_that_the_module_assigns() -> None:
    class Decaying(nn.Module):
        def __init__(self) -> None:
            self.w, self.scale = nn.Parameter(1.0, (1,)), nn.Parameter(1.0, (1,))

        def __call__(self, x: Any) -> Any:
            self.scale.assign(mm.stop_gradient(self.scale * 0.5))
            return x * self.w * self.scale

    with current("inline"):
        for strategy in ("data", WeightAveraging(2)):
            net = Decaying()
            rule = mm.optim.GradientDescent(0.0)
            step = CompiledStep(lambda x, net=net: mm.mean(net(x)), net, rule, strategy)
            step(np.ones((4, 1)))
            net.freeze("scale")
            for _ in range(3):
                step(np.ones((4, 1)))
            step.collect()
            assert float(net.scale[0]) == 0.5**4


@pytest.mark.parametrize("strategy", ["data", "weight-averaging:2:10"])
def test_steps_are_not_called_in_traces(strategy: str) -> None:
    """They would count one step, and exchange weights in each step of a loop or in none."""
    with current("inline"):
        net = nn.Dense(3).build((1, 5))
        step = CompiledStep("cross_entropy", net, mm.optim.GradientDescent(0.1), strategy)
        for _ in range(2):  # before and after the first step
            with pytest.raises(TracingError, match="CompiledStep: .* call the step in a Python"):
                mm.fori_loop(0, 9, lambda i, value: step(X[:8], Y[:8]), mm.asarray(0.0))
            with pytest.raises(TracingError, match="CompiledStep: .* call the step in a Python"):
                mm.compile(lambda: step(X[:8], Y[:8]))()
            step(X[:8], Y[:8])
        assert step.steps == 2
