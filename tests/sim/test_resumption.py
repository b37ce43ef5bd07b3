"""A training that is interrupted after any epoch and resumed is the uninterrupted one, bit for bit:
for all schedules, callbacks with a state, optimizers, and modules with random numbers."""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import current
from magmath import nn
from magmath.errors import DataError, MagmathError, WeightsError
from magmath.files import safetensors
from magmath.nn import state_file
from magmath.optim import schedules as s
from magmath.parallel import DataParallel
from magmath.train import BestWeights, Callback, EarlyStopping, Trainer
from magmath.train.checkpoint import FORMAT
from magmath.train.state_tree import decode_state, encode_state

EPOCHS = 6
DRAW = np.random.default_rng(2)
X = DRAW.normal(size=(24, 5)).astype(np.float32)
Y = DRAW.integers(0, 3, 24)


class OwnSchedule(s.Schedule):
    """A user's schedule with a state: the rate falls while the loss is above its mean so far."""

    per = "epoch"

    def __init__(self) -> None:
        self.rate, self.seen = 0.1, [0.0]

    def __call__(self, step: int) -> float:
        return self.rate

    def observe_metrics(self, figures: Mapping[str, Any]) -> None:
        self.seen.append(figures["loss"])
        self.rate *= 0.5 if self.seen[-1] > np.mean(self.seen) else 1.1

    def state_dict(self) -> dict[str, Any]:
        return {"rate": self.rate, "seen": self.seen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.rate, self.seen = state["rate"], list(state["seen"])


def plateau() -> s.Plateau:
    return s.Plateau(0.1, factor=0.5, patience=0, threshold=0.2, cooldown=1)


RATES: dict[str, Callable[[], Any]] = {
    "number": lambda: 0.05,
    "function": lambda: lambda epoch: 0.1 / (epoch + 1),
    "plateau": plateau,
    "warm-up to plateau": lambda: s.WarmUp(plateau(), 2),
    "warm-up to cosine": lambda: s.WarmUp(s.Cosine(0.1, 12, per="step"), 5, per="step"),
    "one cycle": lambda: s.OneCycle(0.1, 18),
    "own": OwnSchedule,
}


class Average(Callback):
    """A user's callback: a moving average of the weights, which are the result of training."""

    def on_train_begin(self, trainer: Trainer, epochs: int, steps: int) -> None:
        self.average = {k: 0 * v for k, v in trainer.module.state_dict().items()}
        self.epochs = 0
        self.history: list[tuple[int, float]] = []
        self.noise = np.random.default_rng(0).normal(size=3)

    def on_epoch_end(self, trainer: Trainer, record: Any) -> None:
        self.epochs += 1
        for name, value in trainer.module.state_dict().items():
            self.average[name] = mm.astype(0.5 * self.average[name] + 0.5 * value, value.dtype)
        self.history.append((record.epoch, record.loss))
        self.noise *= record.loss

    def state_dict(self) -> dict[str, Any]:
        return vars(self)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state)


class Halving(Callback):
    """A callback without a state, which changes the optimizer's rate if that is a number."""

    def on_epoch_end(self, trainer: Trainer, record: Any) -> None:
        if not callable(trainer.optimizer.learning_rate):
            trainer.optimizer.learning_rate *= 0.7


class StopsAt(Callback):
    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_epoch_end(self, trainer: Trainer, record: Any) -> None:
        if record.epoch >= self.epoch:
            trainer.stop()


CALLBACKS: dict[str, Callable[[], Any]] = {
    "best": lambda: BestWeights(monitor="validation_accuracy"),
    "worst": lambda: BestWeights(mode="max"),  # soon, so that the state matters
    "patient": lambda: EarlyStopping(3, mode="max", restore_best=False),
    "impatient": lambda: EarlyStopping(1, minimum_change=0.01),
    "average": Average,
    "halving": Halving,
    "stops": lambda: StopsAt(4),
}
OPTIMIZERS: dict[str, Callable[[Any], mm.optim.Optimizer]] = {
    "sgd": lambda rate: mm.optim.GradientDescent(rate),
    "momentum": lambda rate: mm.optim.Momentum(rate, nesterov=True),
    "adam": lambda rate: mm.optim.Adam(rate, groups={"*.bias": {"learning_rate": plateau()}}),
    "one for all": lambda rate: mm.optim.AdamW(rate, groups={"*.bias": {"learning_rate": rate}}),
}


class Interrupts(Callback):
    """Raises an exception in epoch `epoch`, counted from 0."""

    def __init__(self, epoch: int, event: str) -> None:
        self.epoch, self.event = epoch, event

    def on_epoch_begin(self, trainer: Trainer, epoch: int) -> None:
        if self.event == "begin" and epoch == self.epoch:
            raise KeyboardInterrupt

    def on_step_end(self, trainer: Trainer, done: int, loss: float, speed: float) -> None:
        if self.event == "step" and trainer.epochs_done == self.epoch:
            raise KeyboardInterrupt


def outcome(trainer: Trainer, history: Any) -> dict[str, Any]:
    """All that the training has left, as values that compare."""
    result: dict[str, Any] = {"steps": history.step_losses, "epochs": len(history.records)}
    result["figures"] = [record.figures() for record in history.records]
    result["rates"] = trainer.optimizer.rates(trainer.optimizer.steps, trainer.epochs_done)
    result["weights"] = {k: v.tolist() for k, v in trainer.module.state_dict().items()}
    result["optimizer"] = {k: v.tolist() for k, v in trainer.optimizer.state_dict().items()}
    for callback in trainer.callbacks:
        state = callback.state_dict()
        result[type(callback).__name__] = repr({k: _plain(v) for k, v in state.items()})
    return result


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return value.tolist() if hasattr(value, "tolist") else value


@settings(max_examples=14, phases=[Phase.explicit, Phase.generate])  # shrinking takes minutes
@given(
    rate=st.sampled_from(sorted(RATES)),
    callbacks=st.lists(st.sampled_from(sorted(CALLBACKS)), unique=True, max_size=3),
    optimizer=st.sampled_from(sorted(OPTIMIZERS)),
    dropout=st.sampled_from([None, "pool", "own"]),
    seed=st.sampled_from([None, 5]),
    stops=st.lists(st.tuples(st.integers(0, EPOCHS), st.sampled_from(["begin", "step"])), max_size=2),
)  # fmt: skip
def test_a_resumed_training_is_the_uninterrupted_one(
    rate: str,
    callbacks: list[str],
    optimizer: str,
    dropout: str | None,
    seed: int | None,
    stops: list[tuple[int, str]],
) -> None:
    def trainer() -> Trainer:
        mm.random.seed(3)
        layers: list[Any] = [nn.Dense(6), nn.BatchNorm(), nn.ReLU()]
        if dropout is not None:
            layers.append(nn.Dropout(0.3, seed=None if dropout == "pool" else 9))
        return Trainer(
            nn.Sequential(*layers, nn.Dense(3)), "cross_entropy",
            OPTIMIZERS[optimizer](RATES[rate]()),
            callbacks=[CALLBACKS[name]() for name in callbacks], strategy="data", seed=seed,
        )  # fmt: skip

    options: dict[str, Any] = {"epochs": EPOCHS, "batch_size": 8, "validation": (X, Y)}
    with current("inline"), tempfile.TemporaryDirectory() as folder:
        whole = trainer()
        expected = outcome(whole, whole.fit(X, Y, **options))
        options |= {"checkpoint": folder, "resume": True}
        for epoch, event in sorted(stops):
            try:
                trainer().fit(X, Y, callbacks=[Interrupts(epoch, event)], **options)
            except KeyboardInterrupt:
                continue
        for _ in range(2):  # also a training that is complete
            resumed = trainer()
            assert outcome(resumed, resumed.fit(X, Y, **options)) == expected


@pytest.mark.parametrize(("kind", "workers"), [("shared", 2), ("messages", 3)])
def test_states_are_restored_on_workers(kind: str, workers: int) -> None:
    with current(kind, workers), tempfile.TemporaryDirectory() as folder:

        def fit(epochs: int, **options: Any) -> dict[str, Any]:
            callbacks = [BestWeights(mode="max"), BestWeights(), Average()]
            module = nn.Sequential(nn.Dense(6, activation="relu"), nn.Dense(3))
            trainer = Trainer(
                module, optimizer=mm.optim.Adam(plateau()), callbacks=callbacks, seed=1,
                strategy="data",
            )  # fmt: skip
            return outcome(trainer, trainer.fit(X, Y, epochs=epochs, batch_size=8, **options))

        expected = fit(6)
        fit(3, checkpoint=folder)
        assert fit(6, checkpoint=folder, resume=True) == expected


def test_a_stopped_training_continues_for_more_epochs() -> None:
    with current("inline"), tempfile.TemporaryDirectory() as folder:

        def fit(epochs: int, callbacks: list[Any]) -> list[int]:
            trainer = Trainer(nn.Dense(3), seed=1, callbacks=callbacks)
            history = trainer.fit(X, Y, epochs=epochs, checkpoint=folder, resume=True)
            return [record.epoch for record in history.records]

        assert fit(5, [StopsAt(2)]) == [1, 2]
        assert fit(5, [StopsAt(2)]) == [1, 2]
        assert fit(6, [StopsAt(4)]) == [1, 2, 3, 4]
        assert fit(7, []) == [1, 2, 3, 4, 5, 6, 7]


def test_a_state_that_a_checkpoint_cannot_store_is_an_error() -> None:
    class Odd(Callback):
        def state_dict(self) -> dict[str, Any]:
            return {"counts": [1, {"table": object()}]}

    with current("inline"), tempfile.TemporaryDirectory() as folder:
        message = r"the state of Odd has a object \(Odd/counts/1/table\).*must return numbers"
        with pytest.raises(MagmathError, match=message):
            Trainer(nn.Dense(3)).fit(X, Y, checkpoint=folder, callbacks=[Odd()])


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 2), (4, 1), (1, 3), (4, 2)])
def test_one_bit_training_goes_on_with_other_numbers_of_workers(before: int, after: int) -> None:
    """What the workers have not sent yet is kept: the sum of their residuals."""

    def trained(folder: str, epochs: int) -> dict[str, Any]:
        strategy = DataParallel(messages="1-bit")
        trainer = Trainer(nn.Dense(3), seed=1, optimizer=mm.optim.GradientDescent(0.0),
                          strategy=strategy)  # fmt: skip
        trainer.fit(X, Y, batch_size=24, epochs=epochs, checkpoint=folder, resume=True)
        strategy, training = trainer.prepare_strategy()
        return {name: v.numpy().sum(axis=0) for name, v in strategy.state(training).items()}

    with tempfile.TemporaryDirectory() as folder:
        with current("shared" if before > 1 else "inline", before):
            expected = trained(folder, 2)
        with current("shared" if after > 1 else "inline", after):
            actual = trained(folder, 2)  # restores, and takes no step
    assert expected.keys() == actual.keys() == {"weight/residual", "bias/residual"}
    assert max(abs(value).max() for value in expected.values()) > 0
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name], value, rtol=1e-4, atol=1e-6)


def test_a_constant_learning_rate_is_that_of_the_checkpoint() -> None:
    with current("inline", 1), tempfile.TemporaryDirectory() as folder:

        def trainer(rate: Any) -> Trainer:
            return Trainer(nn.Dense(3), optimizer=mm.optim.GradientDescent(rate), seed=0)

        trainer(0.25).fit(X, Y, epochs=1, checkpoint=folder)
        resumed = trainer(0.5)
        resumed.fit(X, Y, epochs=2, checkpoint=folder, resume=True)
        assert resumed.optimizer.learning_rate == 0.25

        class Assigned(Callback):
            def on_train_begin(self, trainer: Any, epochs: int, steps: int) -> None:
                trainer.optimizer.learning_rate = 0.75

        resumed.fit(X, Y, epochs=3, checkpoint=folder, resume=True, callbacks=[Assigned()])
        assert resumed.optimizer.learning_rate == 0.75
        schedule = s.Constant(0.125)
        with_schedule = trainer(schedule)
        with_schedule.fit(X, Y, epochs=4, checkpoint=folder, resume=True)
        assert with_schedule.optimizer.learning_rate is schedule


# losses with variables of their own -----------------------------------------------------------


class Centred(nn.Module):
    """A loss that moves a centre with the outputs."""

    def __init__(self) -> None:
        self.centre = nn.Buffer(0.0, (3,))

    def __call__(self, outputs: mm.Array, targets: mm.Array) -> mm.Array:
        loss = mm.mean((outputs - self.centre - targets) ** 2)
        mean = mm.stop_gradient(mm.mean(outputs, axis=0))
        self.centre.assign(0.9 * self.centre + 0.1 * mean)
        return loss


class Noisy(nn.Module):
    """A loss that draws from a generator of its own."""

    def __init__(self) -> None:
        self.drop = nn.Dropout(0.5, seed=3)

    def __call__(self, outputs: mm.Array, targets: mm.Array) -> mm.Array:
        return mm.mean(self.drop(outputs - targets) ** 2)


def queued(size: int = 16) -> Callable[..., mm.Array]:
    """Return a loss that compares with the last outputs, in two variables of one name."""
    queue, times = mm.variable("queue", np.zeros((size, 3), np.float32)), mm.variable("queue", 0.0)

    def loss(outputs: mm.Array, targets: mm.Array) -> mm.Array:
        difference = mm.mean(outputs @ mm.transpose(queue)) - times
        queue.assign(mm.concat([queue[8:], mm.stop_gradient(outputs)], axis=0))
        times.assign(times + 0.01)
        return mm.mean((outputs - targets) ** 2) + 0.01 * difference

    return loss


LOSSES: dict[str, Callable[[], Any]] = {"centre": Centred, "noise": Noisy, "queue": queued}


def with_loss(loss: str) -> Trainer:
    rule = mm.optim.GradientDescent(0.1)
    return Trainer(nn.Dense(3), LOSSES[loss](), rule, metrics=[], strategy="data", seed=1)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 2), ("messages", 3)])
def test_variables_of_the_loss_are_resumed(kind: str, workers: int, loss: str) -> None:
    options: dict[str, Any] = {"batch_size": 8, "shuffle": False}
    with current(kind, workers), tempfile.TemporaryDirectory() as folder:
        expected = with_loss(loss).fit(X, X[:, :3], epochs=4, **options).step_losses
        for epochs in (1, 3, 4):
            history = with_loss(loss).fit(
                X, X[:, :3], epochs=epochs, checkpoint=folder, resume=True, **options
            )
        np.testing.assert_allclose(history.step_losses, expected, rtol=1e-6)


@pytest.mark.parametrize("other", ["noise", "queue", "larger queue", "name"])
def test_a_checkpoint_belongs_to_the_variables_of_its_loss(
    other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LOSSES, "larger queue", lambda: queued(24))
    monkeypatch.setitem(LOSSES, "name", lambda: "mean_squared_error")
    first = "queue" if other == "larger queue" else "centre"
    with current("inline"), tempfile.TemporaryDirectory() as folder:
        with_loss(first).fit(X, X[:, :3], batch_size=8, checkpoint=folder)
        with pytest.raises(WeightsError, match=f"assign the variables {first}.*the same loss"):
            with_loss(other).fit(
                X, X[:, :3], epochs=2, batch_size=8, checkpoint=folder, resume=True
            )


class Assigns(Callback):
    """Assigns another loss from epoch 2 on, counted from 0."""

    def __init__(self, loss: str) -> None:
        self.loss = LOSSES[loss]()
        self.is_assigned = False

    def on_epoch_begin(self, trainer: Trainer, epoch: int) -> None:
        if epoch >= 2 and not self.is_assigned:
            trainer.loss, self.is_assigned = self.loss, True


@pytest.mark.parametrize(
    ("first", "second"),
    [*itertools.permutations(["centre", "queue", "name"], 2), ("name", "noise")],
)
def test_the_loss_of_a_callback_is_resumed(
    first: str, second: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an epoch with either loss, and after the last one."""
    monkeypatch.setitem(LOSSES, "name", lambda: "mean_squared_error")

    def fit(epochs: int, **options: Any) -> list[float]:
        trainer = with_loss(first)
        options |= {"batch_size": 8, "callbacks": [Assigns(second)]}
        return trainer.fit(X, X[:, :3], epochs=epochs, **options).step_losses

    with current("inline"), tempfile.TemporaryDirectory() as folder:
        expected = fit(5)
        for epochs in (1, 2, 3, 5, 5):
            losses = fit(epochs, checkpoint=folder, resume=True)
            assert losses == expected[: 3 * epochs]


@pytest.mark.parametrize("other", [None, 1, FORMAT - 1, FORMAT + 1])
def test_a_checkpoint_of_another_format_is_refused(other: int | None) -> None:
    """And nothing is assigned."""

    def fit(trainer: Trainer, **options: Any) -> None:
        trainer.fit(X, Y, checkpoint=folder, callbacks=[Average()], **options)

    with current("inline"), tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/checkpoint.safetensors"
        fit(Trainer(nn.Dense(3), optimizer=mm.optim.Adam(plateau()), seed=1))
        arrays, metadata = state_file.read(path)
        content = json.loads(metadata["training"])
        content["history"] = {"strategy": "", "steps": [0.5], "records": []}
        content["frozen"] = ["weight"]
        content["format"] = other
        if other is None:
            del content["format"]
        values = {name: mm.asarray(value) for name, value in arrays.items()}
        state_file.write(path, values, {"training": json.dumps(content)})
        trainer = Trainer(nn.Dense(3).build((1, 5)), optimizer=mm.optim.Adam(plateau()), seed=2)
        former = {name: v.tolist() for name, v in trainer.module.state_dict().items()}
        with pytest.raises(WeightsError, match="another version of magmath; give another folder"):
            fit(trainer, epochs=2, resume=True)
        assert {name: v.tolist() for name, v in trainer.module.state_dict().items()} == former
        assert len(trainer.module.trainable()) == 2
        assert trainer.optimizer.steps == trainer.epochs_done == 0


@pytest.mark.parametrize(("before", "after"), [("momentum", "LARS"), ("sgd", "Constant")])
def test_a_checkpoint_belongs_to_an_optimizer(before: str, after: str) -> None:
    """Also if the states have the same names."""

    class Constant(mm.optim.GradientDescent):
        pass

    rules: dict[str, Any] = {
        "momentum": mm.optim.Momentum, "LARS": mm.optim.LARS, "sgd": mm.optim.GradientDescent,
        "Constant": Constant,
    }  # fmt: skip
    with current("inline"), tempfile.TemporaryDirectory() as folder:
        Trainer(nn.Dense(3), optimizer=rules[before](0.01)).fit(X, Y, checkpoint=folder)
        module = nn.Dense(3).build((1, 5))
        former = module.weight.numpy()
        message = f"belongs to the optimizer {rules[before].__name__}"
        with pytest.raises(WeightsError, match=message):
            Trainer(module, optimizer=rules[after](0.01)).fit(
                X, Y, epochs=2, checkpoint=folder, resume=True
            )
        np.testing.assert_array_equal(module.weight.numpy(), former)


# sizes ----------------------------------------------------------------------------------------

LEAVES: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3),
    st.lists(st.floats(), min_size=1, max_size=3), st.lists(st.integers(), min_size=1, max_size=3),
    st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=2), max_size=3),
    st.integers(0, 9).map(lambda n: np.full((2,), n)),
)  # fmt: skip
KEYS = st.sampled_from(["a", "b", "a/b", "1", "", "a'"]) | st.integers(0, 1)
STATES = st.recursive(
    LEAVES,
    lambda x: (
        st.lists(x, max_size=3)
        | st.lists(x, max_size=3).map(tuple)
        | st.dictionaries(KEYS, x, max_size=4)
    ),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None)
@given(STATES)
def test_states_are_the_same_in_a_checkpoint(value: Any) -> None:
    with current("inline"):
        arrays: dict[str, mm.Array] = {}
        content = json.loads(json.dumps(encode_state("owner", value, "state", arrays)))
        tensors = {name: torch.from_numpy(x.numpy()) for name, x in arrays.items()}
        assert repr(decode_state(content, tensors)) == repr(value)


class Log(Callback):
    """A callback with long lists of numbers, and a text of some length."""

    def __init__(self, length: int = 0) -> None:
        self.numbers = {"floats": [0.125] * 20_000, "pairs": [[n, -n] for n in range(10_000)]}
        self.length = length

    def state_dict(self) -> dict[str, Any]:
        return {"numbers": self.numbers, "text": "x" * self.length}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.numbers = state["numbers"]


def test_checkpoints_that_could_not_be_read_are_not_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The size of the header is limited, that of the arrays is not."""
    monkeypatch.setattr(safetensors, "MAX_HEADER", 20_000)
    with current("inline"), tempfile.TemporaryDirectory() as folder:

        def fit(epochs: int, log: Log) -> Any:
            metrics: list[Any] = ["confusion_matrix"]
            trainer = Trainer(nn.Dense(100), metrics=metrics, seed=1)
            return trainer.fit(
                X, Y, epochs=epochs, validation=(X, Y), checkpoint=folder, resume=True,
                callbacks=[log],
            )  # fmt: skip

        expected = fit(2, Log())
        with pytest.raises(DataError, match="at most 20000 bytes"):
            fit(3, Log(30_000))
        log = Log()
        log.numbers = {}
        history = fit(2, log)
        assert history.records == expected.records
        assert history.step_losses == expected.step_losses
        assert log.numbers == Log().numbers
