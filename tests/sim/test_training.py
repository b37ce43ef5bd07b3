"""Training: the same curve for every strategy and worker count, the optimizers' known trajectories,
the messages and allocations of a step, and errors."""

from __future__ import annotations

import copy
import gc
import json
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import magmath as mm
import magmath.engine.session
from counting_communicator import CountingCommunicator
from engines import current
from executors import only, use_native_code
from magmath.engine import session
from magmath.errors import (
    DataError,
    MagmathError,
    NonFiniteLoss,
    OptionError,
    ShapeError,
    WeightsError,
)
from magmath.executor import native_forms
from magmath.executor.step_executors import ExecutorSelector, Segmented
from magmath.layout import plan_redistribution
from magmath.nn import Dense, Dropout, Flatten, NeuralNetwork
from magmath.optim import Adam, GradientDescent, Momentum
from magmath.program.instructions import Program, Redistribute
from magmath.runtime import Pool, PoolOptions, start_pool
from magmath.runtime.transport.threads import ThreadTransport
from magmath.runtime.transport_interface import WorkerOptions

DIGITS = mm.data.load("digits")
X = DIGITS.train_images[:300].reshape(300, 64)
Y = DIGITS.train_labels[:300]
LAYERS = (Dense(32, activation="relu"), Dense(24, activation="tanh"), Dense(10))
CLOSE = 2e-4
STRATEGIES = ("data", "model", "model-input", "auto")


def network(optimizer: Any = None, layers: Sequence[Any] = LAYERS, **options: Any) -> NeuralNetwork:
    """A small classifier."""
    layers = copy.deepcopy(layers)
    return NeuralNetwork(layers, optimizer=optimizer or GradientDescent(0.1), seed=3, **options)


def weights(net: NeuralNetwork) -> dict[str, Any]:
    """The parameters as NumPy arrays."""
    return {name: v.numpy() for name, v in net.parameters.items()}


def check_weights(net: NeuralNetwork, expected: dict[str, Any], limit: float = CLOSE) -> None:
    """Assert that the parameters are these, up to rounding."""
    actual = weights(net)
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name], value, rtol=limit, atol=limit, err_msg=name)


@pytest.fixture(scope="module")
def reference() -> dict[str, Any]:
    """What one worker makes of three epochs of 64, the last batch of each being smaller."""
    with current("inline"):
        net = network(Adam(1e-2))
        history = net.fit(X, Y, batch_size=64, epochs=3)
        return {"loss": history.loss, "steps": history.step_losses, "weights": weights(net)}


@pytest.fixture
def inline() -> Iterator[Pool]:
    with current("inline") as pool:
        yield pool


# the same for every strategy and number of workers -----------------------------------------------


@pytest.mark.parametrize(
    ("kind", "workers", "strategy"),
    [
        *[(kind, 3, name) for kind in ("messages", "hosts") for name in STRATEGIES],
        *[("shared", 2, name) for name in STRATEGIES],
        *[("shared", 1, "auto"), ("shared", 4, "model"), ("shared", 4, "data")],
        *[("messages", 2, "model-input"), ("hosts", 4, "auto"), ("hosts", 4, "data")],
    ],
)
def test_loss_curve_is_that_of_one_worker(
    kind: str, workers: int, strategy: str, reference: dict[str, Any]
) -> None:
    with current(kind, workers):
        net = network(Adam(1e-2))
        history = net.fit(X, Y, batch_size=64, epochs=3, strategy=strategy)
        np.testing.assert_allclose(history.step_losses, reference["steps"], rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(history.loss, reference["loss"], rtol=1e-3, atol=1e-4)
        check_weights(net, reference["weights"], 5e-3)


@pytest.mark.parametrize("strategy", ["data", "model", "model-input"])
def test_deterministic_training_gives_the_same_bits_for_any_number_of_workers(
    strategy: str,
) -> None:
    result = []
    counts = (1, 2, 3, 8) if strategy == "data" else (1, 3, 4)
    pools = [("exact", n) for n in counts] + [("exact hosts", n) for n in (3, 4)]
    for kind, workers in pools:
        with current(kind, workers):
            net = network(Momentum(0.05), (Dense(31, activation="relu"), Dropout(0.2), Dense(10)))
            history = net.fit(X, Y, batch_size=50, epochs=2, strategy=strategy)
            result.append((history.step_losses, weights(net)))
    for steps, values in result[1:]:
        assert steps == result[0][0]
        for name, value in values.items():
            np.testing.assert_array_equal(value, result[0][1][name])


def test_dropout_draws_the_same_for_any_number_of_workers(inline: Pool) -> None:
    layers = (Dense(32, activation="relu"), Dropout(0.4), Dense(10))
    histories = []
    for kind, workers in (("inline", 1), ("shared", 3), ("messages", 2)):
        with current(kind, workers):
            histories.append(network(layers=layers).fit(X, Y, batch_size=100, epochs=2).step_losses)
    for steps in histories[1:]:
        np.testing.assert_allclose(steps, histories[0], rtol=1e-3)
    without = network(layers=(layers[0], layers[2])).fit(X, Y, batch_size=100, epochs=2).step_losses
    assert not np.allclose(without, histories[0], rtol=1e-2)


# against PyTorch ---------------------------------------------------------------------------------


def in_torch(net: NeuralNetwork) -> torch.nn.Module:
    """The same network, with the same parameters, in PyTorch."""
    activations = {"relu": torch.nn.ReLU, "tanh": torch.nn.Tanh, "sigmoid": torch.nn.Sigmoid}
    modules: list[torch.nn.Module] = []
    for i, layer in enumerate(net.layers):
        weight = torch.from_numpy(net.parameters[f"{i}.weight"].numpy().T.copy())
        linear = torch.nn.Linear(weight.shape[1], weight.shape[0])
        linear.weight.data = weight
        linear.bias.data = torch.from_numpy(net.parameters[f"{i}.bias"].numpy().copy())
        modules.append(linear)
        if layer.activation != "linear":
            modules.append(activations[layer.activation]())
    return torch.nn.Sequential(*modules)


PAIRS: dict[str, tuple[Callable[[], Any], Callable[[Any], torch.optim.Optimizer]]] = {
    "sgd": (lambda: GradientDescent(0.1), lambda p: torch.optim.SGD(p, 0.1)),
    "momentum": (lambda: Momentum(0.05), lambda p: torch.optim.SGD(p, 0.05, momentum=0.9)),
    "nesterov": (
        lambda: Momentum(0.05, 0.8, nesterov=True),
        lambda p: torch.optim.SGD(p, 0.05, momentum=0.8, nesterov=True),
    ),
    "adam": (lambda: Adam(1e-2), lambda p: torch.optim.Adam(p, 1e-2)),
    "adam with other constants": (
        lambda: Adam(3e-2, 0.8, 0.95, 1e-4),
        lambda p: torch.optim.Adam(p, 3e-2, (0.8, 0.95), 1e-4),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("loss", ["cross_entropy", "mean_squared_error"])
@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 2)])
def test_five_steps_are_those_of_pytorch(name: str, loss: str, kind: str, workers: int) -> None:
    ours, theirs = PAIRS[name]
    targets = Y if loss == "cross_entropy" else np.eye(10, dtype=np.float32)[Y]
    with current(kind, workers):
        net = network(ours(), (Dense(16, activation="relu"), Dense(12, activation="sigmoid"),
                               Dense(10)), loss=loss)  # fmt: skip
        net.build((1, 64))
        module = in_torch(net)
        history = net.fit(X[:250], targets[:250], batch_size=50, shuffle=False)
        optimizer = theirs(module.parameters())
        function = {
            "cross_entropy": torch.nn.CrossEntropyLoss,
            "mean_squared_error": torch.nn.MSELoss,
        }[loss]()
        losses = []
        for start in range(0, 250, 50):
            optimizer.zero_grad()
            outputs = module(torch.from_numpy(X[start : start + 50]))
            value = function(outputs, torch.from_numpy(targets[start : start + 50]))
            value.backward()
            optimizer.step()
            losses.append(value.item())
        np.testing.assert_allclose(history.step_losses, losses, rtol=1e-4)
        expected = [p.detach().numpy().T for p in module.parameters()]
        for value, (label, v) in zip(expected, net.parameters.items(), strict=True):
            np.testing.assert_allclose(v.numpy(), value, rtol=1e-4, atol=1e-5, err_msg=label)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 3), ("messages", 3)])
def test_minimize_follows_the_trajectory_of_torch(name: str, kind: str, workers: int) -> None:
    random = np.random.default_rng(5)
    a, b = random.standard_normal((7, 5)), random.standard_normal(7)
    start = random.standard_normal(5)
    ours, theirs = PAIRS[name]
    w = torch.nn.Parameter(torch.from_numpy(start.copy()))
    optimizer = theirs([w])
    expected = []
    for _ in range(12):
        optimizer.zero_grad()
        value = ((torch.from_numpy(a) @ w - torch.from_numpy(b)) ** 2).sum() * 0.1
        value.backward()
        optimizer.step()
        expected.append(value.item())
    with current(kind, workers):
        v = mm.variable("w", start, layout=mm.Layout.split(0))
        loss = mm.sum(mm.square(mm.asarray(a) @ v - mm.asarray(b))) * 0.1
        rule = ours()
        actual = [rule.minimize(loss, [v]) for _ in range(6)]
        actual.append(rule.minimize(loss, [v], steps=6))
        np.testing.assert_allclose(actual, [*expected[:6], expected[-1]], rtol=1e-9)
        np.testing.assert_allclose(v.numpy(), w.detach().numpy(), rtol=1e-9)
        assert v.layout.splits[0] is not None


def test_learning_rate_may_follow_a_schedule(inline: Pool) -> None:
    v = mm.variable("v", [10.0])
    rule = GradientDescent(lambda step: 0.1 * (step + 1))
    loss = mm.sum(v)
    programs = pool_programs(inline)
    rule.minimize(loss, [v], steps=3)
    np.testing.assert_allclose(v.numpy(), [10 - 0.1 - 0.2 - 0.3], rtol=1e-6)
    rule.minimize(loss, [v])
    np.testing.assert_allclose(v.numpy(), [10 - 0.1 - 0.2 - 0.3 - 0.4], rtol=1e-6)
    assert pool_programs(inline) <= programs + 2, "another rate compiles nothing"


def test_schedule_of_fit_goes_by_epochs(inline: Pool) -> None:
    rates = [0.1, 0.01, 0.001]
    one = network(GradientDescent(lambda epoch: rates[epoch]))
    one.fit(X, Y, batch_size=75, epochs=3, shuffle=False)
    three = network(GradientDescent(1.0))
    for rate in rates:
        three.optimizer.learning_rate = rate
        three.fit(X, Y, batch_size=75, shuffle=False)
    check_weights(one, weights(three), 1e-6)


# parts of a data set, and going on ---------------------------------------------------------------


def test_remainder_batch_takes_the_samples_that_are_left(inline: Pool) -> None:
    """With 2 batches of 40 and 20 left over: three steps of gradient descent, done by hand."""
    net = network(layers=(Dense(10),))
    net.build((1, 64))
    w, b = (net.parameters[f"0.{name}"].numpy() for name in ("weight", "bias"))
    history = net.fit(X[:100], Y[:100], batch_size=40, shuffle=False)
    losses = []
    for part in (slice(0, 40), slice(40, 80), slice(80, 100)):
        x, y = X[part], np.eye(10)[Y[part]]
        scores = x @ w + b
        p = np.exp(scores - scores.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        losses.append(-np.log((p * y).sum(1)).mean())
        w, b = w - 0.1 * x.T @ (p - y) / len(x), b - 0.1 * (p - y).mean(0)
    np.testing.assert_allclose(history.step_losses, losses, rtol=1e-5)
    np.testing.assert_allclose(
        history.loss, [(40 * losses[0] + 40 * losses[1] + 20 * losses[2]) / 100]
    )
    check_weights(net, {"0.weight": w, "0.bias": b}, 1e-5)


def test_every_sample_is_taken_once_an_epoch(inline: Pool) -> None:
    """Return the sum of the inputs over the steps of an epoch, from a loss that is linear in
    them."""
    x = np.arange(70, dtype=np.float32).reshape(70, 1)

    def total(outputs: mm.Array, targets: mm.Array) -> mm.Array:
        return mm.sum(targets) + 0.0 * mm.sum(outputs)

    net = NeuralNetwork([Dense(1)], loss=total, optimizer=GradientDescent(1e-9))
    history = net.fit(x, x, batch_size=16, epochs=4)
    batches = np.reshape(history.step_losses, (4, 5))
    np.testing.assert_allclose(batches.sum(1), [x.sum()] * 4)
    assert len({tuple(epoch) for epoch in batches}) == 4, "each epoch has an order of its own"


def test_batch_larger_than_the_data_is_all_of_it(inline: Pool) -> None:
    big, whole = network(), network()
    big.fit(X[:50], Y[:50], batch_size=1000, epochs=2, shuffle=False)
    whole.fit(X[:50], Y[:50], batch_size=50, epochs=2, shuffle=False)
    check_weights(big, weights(whole), 1e-7)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("optimizer", [lambda: Adam(1e-2), lambda: Momentum(0.05)])
def test_second_fit_goes_on_where_the_first_ended(
    inline: Pool, optimizer: Callable[[], Any], shuffle: bool
) -> None:
    layers = (Dense(16, activation="relu"), Dropout(0.2), Dense(10))
    once, twice = network(optimizer(), layers), network(optimizer(), layers)
    whole = once.fit(X, Y, batch_size=64, epochs=4, shuffle=shuffle).step_losses
    parts = [
        twice.fit(X, Y, batch_size=64, epochs=2, shuffle=shuffle).step_losses for _ in range(2)
    ]
    np.testing.assert_allclose(parts[0] + parts[1], whole, rtol=1e-5)
    check_weights(twice, weights(once), 1e-5)


def test_second_fit_with_another_strategy_goes_on_too() -> None:
    with current("shared", 3):
        once, twice = network(Adam(1e-2)), network(Adam(1e-2))
        whole = once.fit(X, Y, batch_size=75, epochs=4, strategy="data").step_losses
        first = twice.fit(X, Y, batch_size=75, epochs=2, strategy="data").step_losses
        second = twice.fit(X, Y, batch_size=75, epochs=2, strategy="model").step_losses
        np.testing.assert_allclose(first + second, whole, rtol=1e-3)


def test_fit_keeps_strategy_and_metrics_until_they_are_given_again() -> None:
    with current("shared", 2):
        net = network()
        net.fit(X, Y, batch_size=100, strategy="model", metrics=["top_3_accuracy"])
        again = net.fit(X, Y, batch_size=100)
        assert again.strategy == "0: output, 1: output, 2: output"
        assert set(again.records[-1].metrics) == {"top_3_accuracy"}
        net.trainer.strategy, net.trainer.metrics = "model-input", []
        again = net.fit(X, Y, batch_size=100)
        assert again.strategy == "0: input, 1: input, 2: input"
        assert not again.records[-1].metrics
        again = net.fit(X, Y, batch_size=100, strategy="data", metrics=None)
        assert again.strategy == "0: data, 1: data, 2: data"
        assert set(again.records[-1].metrics) == set(net.evaluate(X, Y)) - {"loss"} == {"accuracy"}


@pytest.mark.parametrize("given", [{"strategy": "fast"}, {"metrics": ["precise"]}, {"metrics": 1}])
def test_strategy_or_metrics_that_are_refused_are_not_kept(
    given: dict[str, Any], inline: Pool
) -> None:
    net = network()
    with pytest.raises((OptionError, TypeError)):
        net.fit(X, Y, batch_size=100, **given)
    assert net.fit(X, Y, batch_size=100).accuracy


def test_fit_learns_and_reports(inline: Pool, tmp_path: Path) -> None:
    net = network(Adam(3e-3))
    validation = (DIGITS.test_images.reshape(-1, 64), DIGITS.test_labels)
    x, y = DIGITS.train_images.reshape(-1, 64), DIGITS.train_labels
    history = net.fit(x, y, batch_size=32, epochs=6, validation=validation)
    assert len(history.loss) == len(history.accuracy) == len(history.validation_loss) == 6
    assert len(history.step_losses) == 6 * -(-len(x) // 32)
    assert history.loss[-1] < 0.3 * history.loss[0]
    assert history.validation_accuracy[-1] > 0.9
    scored = net.evaluate(*validation)
    assert scored["accuracy"] == pytest.approx(history.validation_accuracy[-1])
    assert scored["loss"] == pytest.approx(history.validation_loss[-1])
    predicted = np.argmax(net.predict(validation[0]).numpy(), axis=1)
    assert np.mean(predicted == validation[1]) == pytest.approx(scored["accuracy"])
    history.save(tmp_path / "history.json")
    saved = json.loads((tmp_path / "history.json").read_text())
    assert [epoch["loss"] for epoch in saved["epochs"]] == history.loss
    history.plot(tmp_path / "history.png")
    assert (tmp_path / "history.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("batch", "steps"), [(100, 3), (80, 4)])
def test_reporter_is_told_of_every_epoch(batch: int, steps: int, inline: Pool) -> None:
    """The remainder batch is a step like the others."""
    told: list[Any] = []

    class Reporter:
        def begin(self, epochs: int, steps: int) -> None:
            told.append(("begin", epochs, steps))

        def step(self, done: int, loss: float, samples_per_second: float) -> None:
            told.append(("step", done))

        def epoch(self, record: Any) -> None:
            told.append(("epoch", record.epoch))

        def end(self) -> None:
            told.append(("end",))

    history = network().fit(X, Y, batch_size=batch, epochs=2, reporter=Reporter())
    assert len(history.step_losses) == 2 * steps
    assert told[0] == ("begin", 2, steps)
    ends = [i for i, event in enumerate(told) if event[0] == "epoch"]
    assert [told[i] for i in ends] == [("epoch", 1), ("epoch", 2)]
    assert [told[i - 1] for i in ends] == [("step", steps)] * 2
    assert told[-1] == ("end",)


def test_loss_and_layers_of_ones_own(inline: Pool) -> None:
    def absolute(outputs: mm.Array, targets: mm.Array) -> mm.Array:
        return mm.mean(mm.abs(outputs - targets))

    net = NeuralNetwork([Flatten(), Dense(1)], loss=absolute, optimizer=Adam(0.05), seed=1)
    images = DIGITS.train_images[:200]
    targets = images.mean((1, 2, 3)).reshape(-1, 1)
    history = net.fit(images, targets, batch_size=50, epochs=30)
    assert history.loss[-1] < 0.2 * history.loss[0]
    assert history.accuracy == []


# dropout -----------------------------------------------------------------------------------------


def test_dropout_drops_a_share_and_scales_the_rest(inline: Pool) -> None:
    """The loss of a network of dropout and a sum reveals the mask."""
    ones = np.ones((64, 500), dtype=np.float32)

    def total(outputs: mm.Array, targets: mm.Array) -> mm.Array:
        return mm.mean(outputs) + 0.0 * mm.sum(targets)

    layers = [Dropout(0.3), Dense(1, bias=False)]
    net = NeuralNetwork(layers, loss=total, optimizer=GradientDescent(1e-12), seed=1)
    net.build((1, 500))
    weights = np.arange(1, 501, dtype=np.float32)[:, np.newaxis]  # all masks have other sums
    net.parameters["1.weight"].assign(weights / weights.sum())
    steps = net.fit(ones, np.zeros((64, 1)), batch_size=32, epochs=5).step_losses
    assert np.mean(steps) == pytest.approx(1.0, abs=0.02), "the mean is kept"
    kept = np.array(steps) * 0.7
    assert np.all(np.abs(kept - 0.7) < 0.03)
    assert len(set(steps)) == 10, "every step has a mask of its own"
    np.testing.assert_allclose(net.predict(ones).numpy(), 1.0, rtol=1e-5)


@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("messages", 3)])
def test_dropout_of_whole_channels(kind: str, workers: int) -> None:
    with current(kind, workers):
        layer = Dropout(0.4, per_channel=True, seed=3)
        dropped = layer(mm.ones((50, 20, 3, 2))).numpy()
        assert layer.eval()(mm.ones(3)).numpy().tolist() == [1, 1, 1]
    kept = dropped[:, :, 0, 0] > 0
    np.testing.assert_allclose(
        dropped, np.broadcast_to(kept[:, :, None, None] / 0.6, dropped.shape)
    )
    assert kept.mean() == pytest.approx(0.6, abs=0.05)


# weights in files --------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 3), ("messages", 3)])
def test_saved_weights_come_back(kind: str, workers: int, tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    with current(kind, workers):
        net = network()
        net.fit(X, Y, batch_size=100, strategy="model")
        net.save(path)
        expected = net.predict(X).numpy()
        values = weights(net)
    with current("inline"):
        other = NeuralNetwork(copy.deepcopy(LAYERS), seed=8)
        other.load(path)
        check_weights(other, values, 0)
        np.testing.assert_allclose(other.predict(X).numpy(), expected, rtol=1e-4, atol=1e-5)
    assert list(tmp_path.iterdir()) == [path], "nothing else is left in the folder"


def test_weights_that_do_not_fit_are_refused(inline: Pool, tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    net = network()
    with pytest.raises(MagmathError, match="save: the network has no parameters yet"):
        net.save(path)
    net.build((1, 64))
    net.save(path)
    other = network(layers=(Dense(31), Dense(10)))
    with pytest.raises(WeightsError, match=r"belongs to another network: 0\.weight"):
        other.load(path)
    with pytest.raises(WeightsError, match=r"save: the folder .*nowhere does not exist; create it"):
        net.save(tmp_path / "nowhere" / "net.safetensors")
    with pytest.raises(WeightsError, match=r"there is no file .*missing.*; give .*net\.save"):
        net.load(tmp_path / "missing.safetensors")
    with pytest.raises(FileNotFoundError):
        net.load(tmp_path / "missing.safetensors")
    (tmp_path / "text.safetensors").write_text("import magmath as mm\n")
    with pytest.raises(WeightsError, match=r"not a safetensors file, or is damaged; give the path"):
        net.load(tmp_path / "text.safetensors")
    (tmp_path / "damaged.safetensors").write_bytes(path.read_bytes()[:200])
    before = weights(net)
    with pytest.raises(WeightsError, match="damaged"):
        net.load(tmp_path / "damaged.safetensors")
    net.parameters["0.bias"].assign(np.full(32, np.nan))
    net.save(path)
    net.parameters["0.bias"].assign(before["0.bias"])
    with pytest.raises(WeightsError, match=r"0\.bias holds nan"):
        net.load(path)
    check_weights(net, before, 0)


# what goes wrong ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 2)])
def test_loss_that_is_no_number_stops_the_training(kind: str, workers: int) -> None:
    with current(kind, workers):
        bad = X.copy()
        bad[170] = np.nan
        net = network()
        with pytest.raises(NonFiniteLoss, match=r"nan at step 4 of 6 in epoch 1; lower the learn"):
            net.fit(bad, Y, batch_size=50, shuffle=False)
        with pytest.raises(NonFiniteLoss, match="epoch"):
            network(GradientDescent(3e38)).fit(X, Y, batch_size=50, epochs=3)
        assert network().fit(X, Y, batch_size=50).loss[0] > 0, "the pool goes on"


def test_loss_that_is_no_number_in_the_remainder_is_found_too(inline: Pool) -> None:
    bad = X.copy()
    bad[290] = np.nan
    with pytest.raises(NonFiniteLoss, match=r"nan at step 4 of 4 in epoch 1"):
        network().fit(bad, Y, batch_size=80, shuffle=False)


@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 2), ("messages", 2)])
def test_network_stays_whole_when_training_is_stopped(kind: str, workers: int) -> None:
    """An error of a custom reporter ends training, in the middle of an epoch or after it."""

    class Stop(Exception):
        pass

    def stop(*_: Any) -> None:
        raise Stop

    with current(kind, workers):
        for event in ("step", "epoch"):
            net = network(Adam(1e-3))
            net.build((1, 64))
            first = weights(net)
            watcher = Watcher(list)
            setattr(watcher, event, stop)
            with pytest.raises(Stop):
                net.fit(X, Y, batch_size=10, epochs=50, reporter=watcher)
            assert not np.array_equal(weights(net)["0.weight"], first["0.weight"])
            assert np.isfinite(net.predict(X).numpy()).all()
            assert net.fit(X, Y, batch_size=10).loss[0] < 2.4


@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 2)])
def test_ctrl_c_keeps_what_was_learnt(kind: str, workers: int) -> None:
    with current(kind, workers):
        net = network(Adam(1e-3))
        net.build((1, 64))
        first = weights(net)
        watcher = Watcher(list)
        presses = iter([signal.SIGINT])
        watcher.step = lambda *_: [signal.raise_signal(s) for s in presses]  # type: ignore[method-assign,assign]
        with pytest.raises(KeyboardInterrupt):
            net.fit(X, Y, batch_size=10, epochs=1000, reporter=watcher)
        assert not np.array_equal(weights(net)["0.weight"], first["0.weight"])
        assert net.fit(X, Y, batch_size=10).loss[0] < 2.4


def test_network_of_a_pool_that_is_gone_says_so() -> None:
    pool = start_pool(PoolOptions(0, device="cpu"))
    session.set_current_pool(pool)
    net = network()
    net.build((1, 64))
    pool.close()
    with current("inline"), pytest.raises(MagmathError, match=r"another pool.*mm\.init"):
        net.predict(X).numpy()


def test_bad_input_is_refused_with_a_remedy(inline: Pool) -> None:
    wrong = Y.copy()
    wrong[7] = 10
    with pytest.raises(
        DataError, match=r"fit: labels must be in 0 … 9 .*10 outputs.* 0 to 10; correct"
    ):
        network().fit(X, wrong)
    with pytest.raises(DataError, match=r"evaluate: labels must be in 0 … 9"):
        network().evaluate(X, wrong)
    with pytest.raises(DataError, match=r"from -1 to"):
        network().fit(X, Y - 1)
    with pytest.raises(DataError, match=r"labels must be integers.*float64; .*mm\.astype"):
        network().fit(X, Y.astype(float))
    with pytest.raises(DataError, match=r"300 samples need [0-9]+ targets.*\(299,\)"):
        network().fit(X, Y[:-1])
    with pytest.raises(DataError, match=r"samples must be \(N, …\) with N ≥ 1.*\(0, 64\)"):
        network().fit(X[:0], Y[:0])
    for batch_size in (0, 2.5, "all"):
        with pytest.raises(MagmathError, match=r"batch_size must be .* at least 1, was given"):
            network().fit(X, Y, batch_size=batch_size)  # type: ignore[arg-type]
    with pytest.raises(MagmathError, match=r"epochs must be .* at least 0, was given -1"):
        network().fit(X, Y, epochs=-1)
    with pytest.raises(MagmathError, match=r"metric 'f2' is not known; there are accuracy"):
        network().fit(X, Y, metrics=("accuracy", "f2"))
    with pytest.raises(DataError, match=r"validation must be \(samples, targets\),.*ndarray"):
        network().fit(X, Y, validation=X)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="evaluate: 5 samples need [0-9]+ targets"):
        network().fit(X, Y, validation=(X[:5], Y[:4]))
    with pytest.raises(MagmathError, match=r"units must be .* at least 1, was given 2.5"):
        Dense(2.5)  # type: ignore[arg-type]
    with pytest.raises(
        MagmathError, match=r"strategy 'fast' is not known.*auto, data, model, model-input"
    ):
        network().fit(X, Y, strategy="fast")
    with pytest.raises(
        ShapeError, match=r"outputs \(10, 1, 8, 10\) .* end the network with Flatten"
    ):
        network().fit(DIGITS.train_images[:10], Y[:10])
    net = network()
    net.build((1, 64))
    with pytest.raises(ShapeError, match=r"samples of shape \(64,\).*\(63,\)"):
        net.predict(X[:, :63])
    with pytest.raises(MagmathError, match=r"optimizer 'speedy' is not known.*sgd"):
        NeuralNetwork([Dense(1)], optimizer="speedy")
    with pytest.raises(MagmathError, match=r"loss 'pain' is not known.*cross_entropy"):
        NeuralNetwork([Dense(1)], loss="pain")
    with pytest.raises(MagmathError, match=r"activation 'swoosh' is not known.*relu"):
        Dense(1, activation="swoosh")
    with pytest.raises(MagmathError, match=r"learning_rate must be at least 0.*-1"):
        GradientDescent(-1)
    with pytest.raises(MagmathError, match="explain: call fit first"):
        network().explain()


# what a step sends, allocates and waits for ------------------------------------------------------


def pool_programs(pool: Pool) -> int:
    """Return the number of programs on the workers."""
    return int(pool.stats()[0]["programs"])


class Watcher:
    """A reporter that notes something at the end of every epoch."""

    def __init__(self, look: Callable[[], Any]) -> None:
        self.look = look
        self.seen: list[Any] = []

    def begin(self, epochs: int, steps: int) -> None: ...

    def step(self, done: int, loss: float, samples_per_second: float) -> None: ...

    def epoch(self, record: Any) -> None:
        self.seen.append(self.look())

    def end(self) -> None: ...


@pytest.mark.parametrize("samples", [300, 280])
@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 3), ("messages", 2)])
def test_an_epoch_is_one_message(kind: str, workers: int, samples: int) -> None:
    """And one more where the last batch is smaller."""
    with current(kind, workers) as pool:
        watcher = Watcher(lambda: pool.traffic.messages)
        net = network(Adam(1e-3))
        gc.collect()  # arrays of other tests are released by messages, too
        net.fit(X[:samples], Y[:samples], batch_size=100, epochs=5, reporter=watcher)
        sent = np.diff(watcher.seen)
        assert set(sent) == {1 if samples % 100 == 0 else 2}


@pytest.mark.parametrize("strategy", ["data", "model"])
@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 3), ("messages", 2)])
def test_epochs_take_no_memory_of_the_heap(kind: str, workers: int, strategy: str) -> None:
    with current(kind, workers) as pool:
        names = ("allocations", "chunks", "in_use", "reserved", "arrays", "programs")
        watcher = Watcher(lambda: [[c[name] for name in names] for c in pool.stats()])
        network(Adam(1e-3)).fit(
            X[:280], Y[:280], batch_size=100, epochs=5, strategy=strategy, reporter=watcher
        )
        assert all(seen == watcher.seen[0] for seen in watcher.seen)


def allocated_by_torch(act: Callable[[], object]) -> int:
    """How often torch's own allocator has given or taken back memory meanwhile."""
    gc.collect()  # what others have left in cycles must not be given back then
    # of several cycles, which are not used: torch 2.11 warns of each profiler without it
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as seen:
        act()
    return sum(event.name == "[memory]" for event in seen.events())


def test_replayed_steps_allocate_nothing(inline: Pool) -> None:
    """Nor does an epoch, but for what sorts the order of its samples, once for all steps."""
    assert allocated_by_torch(lambda: torch.empty(100)) > 0
    net = network(Adam(1e-3), (Dense(32, activation="relu"), Dropout(0.1), Dense(10)))
    x, y = mm.asarray(X), mm.asarray(Y)

    def allocated(batch: int, shuffle: bool) -> int:
        def train() -> None:
            net.fit(x, y, batch_size=batch, epochs=3, shuffle=shuffle)

        train()
        return allocated_by_torch(train)

    assert allocated(150, shuffle=False) == allocated(10, shuffle=False) == 0
    assert allocated(150, shuffle=True) == allocated(10, shuffle=True) > 0


def test_minimize_sends_one_message_a_call(inline: Pool) -> None:
    v = mm.variable("v", np.ones(5))
    loss = mm.sum(mm.square(v))
    rule = GradientDescent(0.1)
    rule.minimize(loss, [v])
    before = inline.traffic.messages
    for _ in range(4):
        rule.minimize(loss, [v], steps=10)
    assert inline.traffic.messages - before == 4


def counted_pool(workers: int) -> tuple[Pool, list[CountingCommunicator]]:
    """A pool without shared memory whose messages between workers are counted."""
    transport = ThreadTransport(workers, WorkerOptions("cpu", 1), shares_memory=False)
    counting = [CountingCommunicator(c) for c in transport._communicators]
    transport._communicators = list(counting)
    return Pool(transport), counting


def loop_of(program: Program) -> list[Any]:
    """The instructions of every step."""
    return list(program.instructions[program.prologue :])


@pytest.mark.parametrize("strategy", ["data", "model", "model-input"])
@pytest.mark.parametrize("workers", [2, 3, 4])
def test_a_step_moves_the_bytes_that_were_planned(workers: int, strategy: str) -> None:
    pool, counting = counted_pool(workers)
    try:
        engine = session.set_current_pool(pool)
        sent: list[int] = []
        watcher = Watcher(lambda: sum(c.bytes for c in counting))
        net = network(Adam(1e-3))
        net.fit(X, Y, batch_size=60, epochs=4, strategy=strategy, reporter=watcher)
        sent = list(np.diff(watcher.seen))
        program = net.trainer.step.programs()[0].program
        slots = program.slots

        def moved(instructions: Sequence[Any]) -> int:
            return sum(
                plan_redistribution(slots[i.source].layout, slots[i.target].layout).total_bytes(
                    slots[i.source].dtype.itemsize
                )
                for i in instructions
                if isinstance(i, Redistribute)
            )

        once, each = moved(program.instructions[: program.prologue]), moved(loop_of(program))
        assert set(sent) == {once + 5 * each}
        assert each > 0
        assert net.explain().total.nbytes == once + each
        assert engine.pool is pool
    finally:
        pool.close()
        session.current_engine = None


def test_model_parallel_moves_activations_and_data_parallel_gradients() -> None:
    """Bytes a step on 2 workers without shared memory, from the shapes alone."""
    batch, width = 20, 50
    layers = (Dense(width, activation="relu"), Dense(10))
    moved = {}
    for strategy in ("data", "model"):
        pool, counting = counted_pool(2)
        try:
            session.set_current_pool(pool)
            watcher = Watcher(lambda c=counting: sum(one.bytes for one in c))
            net = network(layers=layers)
            net.fit(X, Y, batch_size=batch, epochs=3, strategy=strategy, reporter=watcher)
            moved[strategy] = int(np.diff(watcher.seen)[0]) / (300 // batch)
        finally:
            pool.close()
            session.current_engine = None
    parameters = 64 * width + width + width * 10 + 10
    # reduce-scatter and allgather of all parameters: n/2 elements from each worker in each
    assert moved["data"] <= 4 * 2 * parameters + 200
    assert moved["model"] < 0.7 * moved["data"]


# the ways to execute -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "workers", "strategy"),
    [
        ("inline", 1, "data"),
        ("shared", 2, "data"),
        ("shared", 2, "model"),
        ("shared", 3, "model-input"),
    ],
)
@pytest.mark.timeout(300)  # the compiler's time
def test_native_code_agrees_with_replay(
    kind: str, workers: int, strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    selector = only(0)
    with current(kind, workers):
        layers = (Dense(32, activation="relu"), Dropout(0.2), Dense(10))
        replayed, native = network(Adam(1e-2), layers), network(Adam(1e-2), layers)
        expected = replayed.fit(X, Y, batch_size=60, epochs=3, strategy=strategy).step_losses
        with monkeypatch.context() as patch:
            use_native_code(patch, selector)
            steps = native.fit(X, Y, batch_size=60, epochs=3, strategy=strategy).step_losses
        np.testing.assert_allclose(steps, expected, rtol=1e-3)
        check_weights(native, weights(replayed), 2e-3)
    assert set(selector.used) == {"native"}
    assert len(selector.used) == 3 * workers


def _images(seed: int) -> Any:
    """A network of convolutions, with statistics of the batch and a branch, and its data."""
    mm.random.seed(seed)
    block = mm.nn.Sequential(mm.nn.Conv2d(8, 3, padding="same"), mm.nn.BatchNorm(), mm.nn.ReLU())
    net = mm.nn.Sequential(
        mm.nn.Conv2d(8, 3, stride=2), mm.nn.BatchNorm(), mm.nn.ReLU(), mm.nn.Residual(block),
        mm.nn.MaxPool2d(2), mm.nn.Flatten(), mm.nn.Dropout(0.2), mm.nn.Dense(10),
    )  # fmt: skip
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(64, 3, 15, 15)).astype(np.float32)
    return net, x, draw.integers(0, 10, 64)


@pytest.mark.timeout(300)
def test_team_agrees_with_replay_for_convolutions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lanes of a program without a native loop execute native segments and bound calls."""
    pool = start_pool(PoolOptions(0, device="cpu", threads=2))
    session.set_current_pool(pool)
    try:
        result = []
        for selector in (None, only(1)):
            if selector is not None:
                use_native_code(monkeypatch, selector)
            net, x, y = _images(3)
            trainer = mm.train.Trainer(net, "cross_entropy", mm.optim.Momentum(0.02, 0.9))
            trainer.fit(x, y, batch_size=16, epochs=4)
            result.append({name: v.numpy() for name, v in net.state_dict().items()})
            if selector is not None:
                assert set(selector.used) == {"team"}
        replayed, team = result
        assert replayed.keys() == team.keys()
        for name, value in replayed.items():
            np.testing.assert_allclose(team[name], value, rtol=5e-3, atol=5e-4, err_msg=name)
    finally:
        pool.close()
        session.current_engine = None


@pytest.mark.timeout(300)
@pytest.mark.parametrize("failing", ["MainThread", "lane"])
def test_training_continues_after_a_team_has_failed(
    monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """The error of the lane is raised, and no lane waits for it."""
    run, failures = Segmented.run, []
    used: list[str] = []

    def fail_once(self: Segmented, steps: int) -> list[float]:
        if not failures and threading.current_thread().name.startswith(failing):
            failures.append(steps)
            raise MemoryError("no memory in this lane")
        return run(self, steps)

    class TeamFirst(ExecutorSelector):
        """Selects a team as soon as it is ready, and stops using one that is not."""

        def __init__(self, workers: Any, first: Any, others: Any, _: float, former: Any) -> None:
            super().__init__(workers, first, others, 0.0, former)

        def _next(self, ready: list[bool]) -> int:
            used.append(self.current.name)
            teams = [i for i, e in enumerate(self.candidates) if e.name == "team" and ready[i]]
            return teams[0] if teams else 0

    pool = start_pool(PoolOptions(0, device="cpu", threads=3))
    session.set_current_pool(pool)
    try:
        use_native_code(monkeypatch, TeamFirst)
        net, x, y = _images(3)
        trainer = mm.train.Trainer(net, "cross_entropy", mm.optim.Momentum(0.02, 0.9))
        while "team" not in used:
            trainer.fit(x, y, batch_size=16, epochs=20)
        monkeypatch.setattr(Segmented, "run", fail_once)
        with pytest.raises(MemoryError, match="in this lane"):
            trainer.fit(x, y, batch_size=16, epochs=20)
        trainer.fit(x, y, batch_size=16, epochs=20)
        assert all(np.isfinite(v.numpy()).all() for v in net.state_dict().values())
    finally:
        pool.close()
        session.current_engine = None


@pytest.mark.timeout(300)
def test_teams_share_memory_and_native_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each `fit` on other arrays has a team of its own, but not other memory, threads or code."""
    written = []
    segments = native_forms.write_segments

    def counted(*arguments: Any, exact: bool) -> Any:
        written.append(exact)
        return segments(*arguments, exact=exact)

    monkeypatch.setattr(native_forms, "write_segments", counted)
    selector = only(1)
    pool = start_pool(PoolOptions(0, device="cpu", threads=3))
    session.set_current_pool(pool)
    try:
        use_native_code(monkeypatch, selector)
        net, images, labels = _images(3)
        trainer = mm.train.Trainer(net, "cross_entropy", mm.optim.Momentum(0.02, 0.9))
        data = [(mm.asarray(images + i), mm.asarray(labels)) for i in range(6)]
        # the worker has them
        array_ids = [x.evaluated_leaf().value.array_id for pair in data for x in pair]
        assert len({*array_ids}) == 12
        used, threads, forms = [], [], []
        for x, y in data:
            trainer.fit(x, y, batch_size=16, epochs=1)
            used.append(int(pool.stats()[0]["in_use"]))
            threads.append(threading.active_count())
            forms.append(len(written))
        assert selector.used == ["team"] * 6
        assert threads[-1] == threads[0]
        assert forms[-1] == forms[0]
        assert used[-1] - used[0] < images.nbytes
    finally:
        pool.close()
        session.current_engine = None


@pytest.mark.timeout(300)
def test_team_agrees_with_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    selector = only(1)
    pool = start_pool(PoolOptions(0, device="cpu", threads=2))
    session.set_current_pool(pool)
    try:
        replayed, team = network(Adam(1e-2)), network(Adam(1e-2))
        expected = replayed.fit(X, Y, batch_size=60, epochs=3).step_losses
        use_native_code(monkeypatch, selector)
        steps = team.fit(X, Y, batch_size=60, epochs=3).step_losses
        np.testing.assert_allclose(steps, expected, rtol=1e-3)
        check_weights(team, weights(replayed), 2e-3)
        assert set(selector.used) == {"team"}
    finally:
        pool.close()
        session.current_engine = None
