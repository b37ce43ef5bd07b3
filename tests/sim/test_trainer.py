"""Trainer: any module, loss and data; one sequence of random numbers; callbacks; resumption."""

from __future__ import annotations

import itertools
import shutil
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import magmath as mm
from engines import current
from magmath import nn
from magmath.errors import (
    DataError,
    MagmathError,
    MissingWeightsError,
    OptionError,
    ShapeError,
    WeightsError,
)
from magmath.passes import pipeline
from magmath.train import BestWeights, Callback, EarlyStopping, LearningRateSchedule, Trainer
from magmath.train.reporter import ConsoleReporter

POOLS = [("inline", 1), ("shared", 2), ("messages", 4), ("processes", 2)]
DRAW = np.random.default_rng(2)
X = DRAW.normal(size=(60, 6)).astype(np.float32)
Y = DRAW.integers(0, 4, 60)


def module() -> nn.Module:
    """With everything that has a state: running statistics, and random streams of both kinds."""
    return nn.Sequential(
        nn.Dense(8), nn.BatchNorm(), nn.ReLU(), nn.Dropout(0.3), nn.Dense(8, activation="tanh"),
        nn.Dropout(0.2, seed=9), nn.Dense(4),
    )  # fmt: skip


def state(of: nn.Module) -> dict[str, Any]:
    return {name: v.numpy() for name, v in of.state_dict().items()}


def check_same(actual: dict[str, Any], expected: dict[str, Any], limit: float = 0.0) -> None:
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name], value, rtol=limit, atol=limit, err_msg=name)


@pytest.mark.parametrize(("kind", "workers"), POOLS)
def test_fit_is_the_loop_of_ones_own(kind: str, workers: int) -> None:
    """Eager, compiled and fit: one sequence, the same buffers and weights."""
    with current(kind, workers):
        ends = []
        for way in ("eager", "compiled", "fit"):
            mm.random.seed(7)
            model, optimizer = module(), mm.optim.Momentum(0.05)
            model.build((20, 6))

            def step(x: mm.Array, y: mm.Array, model: Any = model, rule: Any = optimizer) -> Any:
                loss = nn.cross_entropy(model(x), y)
                slopes = mm.grad(loss, model.trainable())
                rule.update(dict(zip(model.trainable(), slopes, strict=True)))
                return loss

            if way == "fit":
                trainer = Trainer(model, "cross_entropy", optimizer, strategy="data")
                losses = trainer.fit(X, Y, batch_size=20, epochs=4, shuffle=False).step_losses
            else:
                call = mm.compile(step) if way == "compiled" else step
                losses = [
                    float(call(mm.asarray(X[i : i + 20]), mm.asarray(Y[i : i + 20])))
                    for _ in range(4)
                    for i in (0, 20, 40)
                ]
            after = mm.random.uniform(shape=(2,)).numpy()
            ends.append((losses, {**state(model), "after": after}))
        for losses, values in ends[1:]:
            np.testing.assert_allclose(losses, ends[0][0], rtol=1e-4)
            check_same(values, ends[0][1], 1e-4)


class Two(nn.Module):
    """Several inputs and outputs."""

    def __init__(self) -> None:
        self.words = nn.Embedding(10, 5)
        self.body = nn.Dense(6, activation="relu")
        self.classes, self.value = nn.Dense(4), nn.Dense(1)

    def __call__(self, tokens: mm.Array, x: mm.Array) -> dict[str, mm.Array]:
        joined = mm.concat([mm.mean(self.words(tokens), axis=1), x], axis=1)
        y = self.body(joined)
        return {"classes": self.classes(y), "value": self.value(y)}


def both(outputs: Any, targets: Any) -> mm.Array:
    """A custom loss, of two outputs and targets."""
    labels, values = targets
    return nn.cross_entropy(outputs["classes"], labels) + mm.mean(mm.abs(outputs["value"] - values))


def far(outputs: Any, targets: Any) -> mm.Array:
    return mm.max(mm.abs(outputs["value"] - targets[1]))


@pytest.mark.parametrize(
    ("kind", "workers", "strategy"),
    [
        ("inline", 1, "auto"),
        *[("shared", 2, name) for name in ("auto", "data", "model", "model-input")],
        *[("messages", 4, name) for name in ("auto", "model-input")],
    ],
)
def test_several_inputs_and_outputs(kind: str, workers: int, strategy: str) -> None:
    tokens = DRAW.integers(0, 10, (60, 3))
    targets = (Y, X[:, :1])
    with current(kind, workers):
        actual = []
        for inputs in ((tokens, X), {"x": X, "tokens": tokens}):
            trainer = Trainer(Two(), both, "adam", metrics=[far], strategy=strategy, seed=1)
            history = trainer.fit(inputs, targets, batch_size=16, epochs=3,
                                  validation=(inputs, targets))  # fmt: skip
            actual.append(history.step_losses)
            assert history.loss[-1] < history.loss[0]
            outputs = trainer.predict(inputs)
            assert outputs["classes"].shape == (60, 4)
            expected = float(far(outputs, (None, mm.asarray(X[:, :1]))))
            assert history.metric("validation_far")[-1] == pytest.approx(expected)
            assert len(history.metric("far")) == 3
            assert trainer.evaluate(inputs, targets)["far"] == pytest.approx(expected)
        np.testing.assert_allclose(actual[0], actual[1], rtol=1e-4)


def test_large_data_is_evaluated_in_parts() -> None:
    with current("shared", 2):
        x = DRAW.normal(size=(9000, 6)).astype(np.float32)
        y = DRAW.integers(0, 4, 9000)
        trainer = Trainer(module(), seed=2)
        outputs = trainer.predict(x)
        labels = np.argmax(outputs.numpy(), axis=1)
        assert trainer.evaluate(x, y)["accuracy"] == pytest.approx(np.mean(labels == y))
        whole = trainer.module.eval()(mm.asarray(x)).numpy()
        np.testing.assert_allclose(outputs.numpy(), whole, rtol=1e-4, atol=1e-5)


def count_and_call(counted: list[int], function: Any, *values: Any) -> Any:
    counted.append(1)
    return function(*values)


def test_other_data_of_the_same_shape_plans_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, workers in (("inline", 1), ("shared", 3)):
        with current(kind, workers) as pool:
            net = mm.nn.NeuralNetwork(module(), seed=1)
            data = [(X + i, Y, (X - i, Y)) for i in range(3)]
            counted: list[int] = []
            with monkeypatch.context() as patch:
                patch.setattr(pipeline, "run", partial(count_and_call, counted, pipeline.run))
                for x, y, held_out in data:
                    net.fit(x, y, batch_size=25, epochs=2, validation=held_out)
                    counted.append(-1)
            first = counted.index(-1)
            assert first > 0
            assert set(counted[first:]) == {-1}, f"planned on {kind}"
            before = pool.traffic.messages
            net.fit(*data[0][:2], batch_size=25, epochs=1)
            assert pool.traffic.messages > before


def test_steps_do_not_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    from magmath.nn import module as modules

    with current("inline"):
        trainer = Trainer(module(), seed=1)
        trainer.fit(X, Y, epochs=1)
        monkeypatch.setattr(modules, "Inventory", None)
        trainer.fit(X, Y, epochs=3)


@pytest.mark.parametrize(
    ("kind", "workers", "seed"),
    [
        ("inline", 1, None),
        ("inline", 1, 5),
        ("shared", 2, None),
        ("messages", 4, 5),
        ("processes", 2, None),
    ],
)
def test_a_resumed_run_ends_with_the_same_bits(
    kind: str, workers: int, seed: int | None, tmp_path: Path
) -> None:
    def trainer() -> Trainer:
        mm.random.seed(3)
        return Trainer(module(), "cross_entropy", mm.optim.Adam(1e-2), seed=seed, strategy="data")

    options: dict[str, Any] = {"batch_size": 16, "validation": (X, Y)}
    with current(kind, workers):
        whole = trainer()
        expected = whole.fit(X, Y, epochs=6, **options)
        after = mm.random.uniform(shape=(3,)).numpy()
    with current(kind, workers):
        trainer().fit(X, Y, epochs=2, checkpoint=tmp_path / "a", **options)
    with current(kind, workers):
        resumed = trainer()
        mm.random.seed(3)
        history = resumed.fit(X, Y, epochs=6, checkpoint=tmp_path / "a", resume=True, **options)
        check_same(state(resumed.module), state(whole.module))
        np.testing.assert_array_equal(mm.random.uniform(shape=(3,)).numpy(), after)
        assert history.step_losses == expected.step_losses
        assert history.loss == expected.loss
        assert history.validation_loss == expected.validation_loss
        assert [record.epoch for record in history.records] == [1, 2, 3, 4, 5, 6]
        done = trainer().fit(X, Y, epochs=6, checkpoint=tmp_path / "a", resume=True, **options)
        assert done.loss == expected.loss
        with pytest.raises(
            WeightsError, match=r"belongs to the optimizer Adam or to other parameters"
        ):
            Trainer(module(), optimizer="momentum").fit(
                X, Y, epochs=6, checkpoint=tmp_path / "a", resume=True
            )


def test_callbacks() -> None:
    with current("inline"):
        seen: list[Any] = []

        class All(Callback):
            def on_train_begin(self, trainer: Trainer, epochs: int, steps: int) -> None:
                seen.append(("begin", epochs, steps))

            def on_epoch_begin(self, trainer: Trainer, epoch: int) -> None:
                seen.append(("epoch", epoch, trainer.optimizer.learning_rate))

            def on_step_end(self, trainer: Trainer, done: int, loss: float, speed: float) -> None:
                seen.append(("step", done))

            def on_epoch_end(self, trainer: Trainer, record: Any) -> None:
                seen.append(("end", record.epoch))

            def on_train_end(self, trainer: Trainer, finished: bool) -> None:
                seen.append(("over", finished))

        records: list[Any] = []
        rates = [0.1, 0.01]
        schedule = LearningRateSchedule(lambda epoch: rates[epoch])
        trainer = Trainer(module(), optimizer="sgd", callbacks=[schedule, All(), records.append])
        trainer.fit(X, Y, batch_size=30, epochs=2)
        assert seen[0] == ("begin", 2, 2)
        assert [e for e in seen if e[0] == "epoch"] == [("epoch", 0, 0.1), ("epoch", 1, 0.01)]
        assert ("step", 2) in seen
        assert seen[-2:] == [("end", 2), ("over", True)]
        assert [r.epoch for r in records] == [1, 2]
        with pytest.raises(MagmathError, match="a callback is an object such as"):
            trainer.fit(X, Y, callbacks=[EarlyStopping])


@pytest.mark.parametrize(("kind", "workers"), POOLS)
def test_an_assigned_seed_is_that_of_orders_and_layers(kind: str, workers: int) -> None:
    with current(kind, workers):
        mm.random.seed(1)
        net = nn.Sequential(nn.Dense(8), nn.Dropout(0.5), nn.Dense(4)).build((1, 6))
        initial = net.state_dict()
        ends = []
        for seeds in ([5], [3, 5], [None, 5]):
            trainer = Trainer(net, "cross_entropy", mm.optim.GradientDescent(0.05), seed=seeds[0])
            for seed in seeds:
                net.load_state_dict(initial)
                trainer.seed, trainer.epochs_done = seed, 0
                losses = trainer.fit(X, Y, batch_size=20, epochs=2).step_losses
            ends.append(losses)
        np.testing.assert_allclose(ends[1:], [ends[0]] * 2, rtol=1e-6)


def test_a_single_callback_needs_no_list() -> None:
    with current("inline"):
        records: list[Any] = []
        Trainer(module(), optimizer="sgd", callbacks=records.append).fit(X, Y)
        net = mm.nn.NeuralNetwork([mm.nn.Dense(4)])
        net.fit(X, Y, reporter=ConsoleReporter(StringIO()), callbacks=records.append)
        assert [r.epoch for r in records] == [1, 1]


class Steps(Callback):
    """Records the steps, their losses and the weights after each one."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, float]] = []
        self.weights: list[Any] = []

    def on_step_end(self, trainer: Trainer, done: int, loss: float, speed: float) -> None:
        self.seen.append((done, loss))
        self.weights.append(trainer.module.parameters()[0].numpy())


@pytest.mark.parametrize(
    ("kind", "workers", "strategy"),
    [*[(*pool, "data") for pool in POOLS], *[(*POOLS[i], "mean") for i in (0, 1)]],
)
def test_a_callback_for_steps_is_called_after_each_one(
    kind: str, workers: int, strategy: str
) -> None:
    """With the weights after the step, which are those of a training without it."""
    with current(kind, workers):
        result = []
        for callbacks in ([], [Steps()]):
            own = mm.parallel.WeightAveraging(2, every=2) if strategy == "mean" else strategy
            trainer = Trainer(module(), "cross_entropy", "sgd", strategy=own, seed=2)
            history = trainer.fit(X, Y, batch_size=8, epochs=2, callbacks=callbacks)
            result.append((history.step_losses, trainer.module.parameters()[0].numpy()))
        assert result[0][0] == result[1][0]
        np.testing.assert_array_equal(result[0][1], result[1][1])
        (steps,) = callbacks
        count = -(-len(X) // 8)
        assert [done for done, _ in steps.seen] == [*range(1, count + 1)] * 2
        assert [loss for _, loss in steps.seen] == history.step_losses
        assert all(np.any(a != b) for a, b in itertools.pairwise(steps.weights))
        np.testing.assert_array_equal(steps.weights[-1], result[1][1])
        if kind == "inline":
            assert trainer.simulate(times="predicted").seconds > 0
            assert "layers 0: " in str(trainer.explain())


class Thaws(Callback):
    """Unfreezes the first layer and freezes the last one after an epoch."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_epoch_end(self, trainer: Trainer, record: Any) -> None:
        if record.epoch == self.epoch:
            trainer.module.unfreeze("0")
            trainer.module.freeze("6.bias")


@pytest.mark.parametrize(("kind", "workers"), POOLS[:2])
def test_resuming_restores_frozen_parameters(kind: str, workers: int, tmp_path: Path) -> None:
    def trainer(frozen: str | None = "0") -> Trainer:
        mm.random.seed(3)
        net = module().build((16, 6))
        if frozen is not None:
            net.freeze(frozen)
        return Trainer(net, "cross_entropy", "sgd", strategy="data", seed=3, callbacks=[Thaws(3)])

    with current(kind, workers):
        whole = trainer()
        expected = whole.fit(X, Y, batch_size=16, epochs=6)
        for epochs in (2, 4):
            trainer().fit(X, Y, batch_size=16, epochs=epochs, checkpoint=tmp_path / str(epochs))
        # Whatever is frozen before, the checkpoint decides.
        for epochs, frozen in [(2, "0"), (2, None), (4, None), (4, "4")]:
            resumed = trainer(frozen)
            folder = tmp_path / f"{epochs} {frozen}"
            shutil.copytree(tmp_path / str(epochs), folder)
            options: dict[str, Any] = {"checkpoint": folder, "resume": True}
            history = resumed.fit(X, Y, batch_size=16, epochs=6, **options)
            assert history.step_losses == expected.step_losses
            check_same(state(resumed.module), state(whole.module))
            flags = [p.trainable for p in resumed.module.parameters()]
            assert flags == [p.trainable for p in whole.module.parameters()]
        other = Trainer(module().build((16, 6)).freeze("4"), optimizer="adam", seed=3)
        with pytest.raises(WeightsError, match="give the same module and optimizer"):
            other.fit(X, Y, epochs=6, checkpoint=tmp_path / "2", resume=True)
        frozen_paths = [k for k, p in other.module.named_parameters() if not p.trainable]
        assert sorted(frozen_paths) == ["4.bias", "4.weight"]


class Pauses(Callback):
    """Freezes a layer from the second to the fourth epoch."""

    def on_epoch_begin(self, trainer: Trainer, epoch: int) -> None:
        if epoch == 1:
            trainer.module.freeze("4")
        if epoch == 4:
            trainer.module.unfreeze()


@pytest.mark.parametrize(("optimizer", "stops"), [("momentum", (2, 4)), ("adam", (1, 3, 5))])
def test_optimizer_states_of_frozen_parameters_are_resumed(
    optimizer: str, stops: tuple[int, ...], tmp_path: Path
) -> None:
    def trainer() -> Trainer:
        return Trainer(module(), optimizer=optimizer, strategy="data", seed=3, callbacks=[Pauses()])

    with current("inline"):
        whole = trainer()
        expected = whole.fit(X, Y, batch_size=16, epochs=6)
        for epochs in stops:
            trainer().fit(X, Y, batch_size=16, epochs=epochs, checkpoint=tmp_path / str(epochs))
            resumed = trainer()
            options: dict[str, Any] = {"checkpoint": tmp_path / str(epochs), "resume": True}
            history = resumed.fit(X, Y, batch_size=16, epochs=6, **options)
            assert history.step_losses == expected.step_losses
            check_same(state(resumed.module), state(whole.module))


@pytest.mark.parametrize(("kind", "workers"), POOLS[:2])
def test_early_stopping_restores_the_best_weights(kind: str, workers: int) -> None:
    with current(kind, workers):
        held_out = (DRAW.normal(size=(40, 6)).astype(np.float32), DRAW.integers(0, 4, 40))
        stopping = EarlyStopping(3)
        trainer = Trainer(module(), optimizer=mm.optim.Adam(0.05), seed=1, callbacks=[stopping])
        history = trainer.fit(X, Y, batch_size=20, epochs=200, validation=held_out)
        assert len(history.loss) < 200
        losses = history.validation_loss
        assert losses.index(min(losses)) == len(losses) - 4 == stopping.best_epoch - 1
        assert trainer.evaluate(*held_out)["loss"] == pytest.approx(min(losses), rel=1e-5)
        best = BestWeights("accuracy", restore=False)
        trainer.fit(X, Y, epochs=2, callbacks=[best])
        assert best.best_value == max(trainer.history.metric("accuracy"))
        with pytest.raises(
            MagmathError, match=r"no value is recorded as 'f1'; recorded are loss, accuracy"
        ):
            trainer.fit(X, Y, callbacks=[BestWeights("f1")])
        for callback in (EarlyStopping(monitor="val_loss"), BestWeights("val_accuracy")):
            with pytest.raises(
                MagmathError, match=rf"'{callback.monitor}'; .*did you mean 'validation_"
            ):
                trainer.fit(X, Y, callbacks=[callback], validation=held_out)


@pytest.mark.parametrize("below", ["", "runs/1"])
def test_a_file_is_no_folder_of_a_checkpoint(tmp_path: Path, below: str) -> None:
    file = tmp_path / "env.sh"
    file.write_text("text")
    with current("inline"):
        trainer = Trainer(module())
        with pytest.raises(
            MissingWeightsError, match=r"fit: checkpoint needs a folder.*env\.sh is a file; "
        ):
            trainer.fit(X, Y, checkpoint=file / below)
        assert trainer.epochs_done == 0
    assert file.read_text() == "text"


def test_a_frozen_network_says_so() -> None:
    with current("inline"):
        trainer = Trainer(module())
        trainer.fit(X, Y)
        trainer.module.freeze()
        with pytest.raises(MagmathError, match=r"nothing to train.*frozen; call module\.unfreeze"):
            trainer.fit(X, Y)
        trainer.module.unfreeze("6")
        before = state(trainer.module)
        trainer.fit(X, Y)
        changed = {k for k, v in state(trainer.module).items() if not np.array_equal(v, before[k])}
        assert {"6.weight", "6.bias"} <= changed
        assert "0.weight" not in changed
        with pytest.raises(MagmathError, match="the module has no parameters"):
            Trainer(nn.Flatten(), "mean_squared_error").fit(X, X)


def scores(outputs: mm.Array, targets: mm.Array) -> mm.Array:
    """A metric that is no number."""
    return outputs


def test_mistakes() -> None:
    with current("inline"):
        with pytest.raises(ShapeError, match=r"the loss must be a 0-d array, was given shape \(32"):
            Trainer(nn.Dense(4), lambda o, t: o[:, 0] - t).fit(X, Y)
        with pytest.raises(ShapeError, match=r"a metric must be a 0-d array, scores is \(32, 4\)"):
            Trainer(nn.Dense(4), metrics=[scores]).fit(X, Y)
        assert Trainer(nn.Dense(4), metrics=[scores]).evaluate(X, Y)["scores"].shape == (60, 4)
        with pytest.raises(MagmathError, match="resume=True needs checkpoint="):
            Trainer(nn.Dense(4)).fit(X, Y, resume=True)
        with pytest.raises(MagmathError, match=r"Dense\(…\), with parentheses"):
            Trainer(nn.Dense)  # type: ignore[arg-type]


def test_a_network_of_a_module() -> None:
    with current("inline"):
        net = mm.nn.NeuralNetwork(Two(), loss=both, seed=3)
        history = net.fit((Y[:, np.newaxis], X), (Y, X[:, :1]), epochs=2, metrics=[])
        assert history.loss[1] < history.loss[0]
        assert list(net.parameters)[:2] == ["words.weight", "body.weight"]


@pytest.mark.parametrize("strategy", ["data", "model"])
def test_deterministic_training_of_modules(strategy: str) -> None:
    """The same bits for any number of workers, running statistics and dropout included."""
    result = []
    for workers in (1, 3):
        with current("exact", workers):
            trainer = Trainer(module(), strategy=strategy, seed=1)
            steps = trainer.fit(X, Y, batch_size=25, epochs=2).step_losses
            result.append((steps, state(trainer.module)))
    for steps, values in result[1:]:
        assert steps == result[0][0]
        check_same(values, result[0][1])


def test_each_metric_has_its_own_name() -> None:
    """Functions of the same name, partial objects, objects, and names of other figures."""

    def loss(outputs: mm.Array, targets: mm.Array) -> mm.Array:
        return mm.mean(outputs) * 0 + 3

    def accuracy(outputs: mm.Array, targets: mm.Array, scale: float = 1.0) -> mm.Array:
        return mm.mean(outputs) * 0 + 4 * scale

    class Five:
        def __call__(self, outputs: mm.Array, targets: mm.Array) -> mm.Array:
            return mm.mean(outputs) * 0 + 5

    metrics: list[Any] = [
        lambda outputs, targets: mm.mean(outputs) * 0 + 1,
        lambda outputs, targets: mm.mean(outputs) * 0 + 2,
        loss,
        "accuracy",
        accuracy,
        partial(accuracy, scale=2.0),
        Five(),
        Five(),
        "accuracy",
    ]
    expected = {
        "<lambda>": 1, "<lambda>_2": 2, "loss_2": 3, "accuracy_2": 4, "accuracy_3": 8, "Five": 5,
        "Five_2": 5,
    }  # fmt: skip
    with current("inline"):
        trainer = Trainer(module(), metrics=metrics, seed=1)
        history = trainer.fit(X, Y, epochs=1, validation=(X, Y))
        figures = history.records[0].figures()
        for name, value in expected.items():
            assert figures[name] == figures[f"validation_{name}"] == value
        assert 0 <= figures["accuracy"] <= 1
        assert (
            min(history.step_losses)
            < figures["loss"]
            == history.loss[0]
            < max(history.step_losses)
            < 3
        )
        assert len(figures) == 2 * (len(expected) + 2)
        assert trainer.evaluate(X, Y).keys() == {"loss", "accuracy", *expected}


@pytest.mark.parametrize(("kind", "workers"), POOLS[:2])
@pytest.mark.parametrize("strategy", ["data", "auto"])
def test_what_a_callback_changes_takes_effect_in_the_next_epoch(
    kind: str, workers: int, strategy: str
) -> None:
    """A training with changes in callbacks is that of one `fit` for each state."""

    def change(trainer: Trainer, epoch: int) -> None:
        if epoch == 1:
            trainer.module.unfreeze()
        if epoch == 2:
            trainer.module.freeze("0")
            trainer.module[0].weight.assign(np.ones((6, 8)))  # type: ignore[index]
        if epoch == 3:
            trainer.optimizer = mm.optim.Momentum(0.1)
        if epoch == 4:
            trainer.module[2].rate = 0.0  # type: ignore[index]
            trainer.module.unfreeze()

    class Changes(Callback):
        def on_epoch_end(self, trainer: Trainer, record: Any) -> None:
            change(trainer, trainer.epochs_done)

    class Counted(nn.Module):
        def __init__(self) -> None:
            self.rate = 0.5

        def __call__(self, x: mm.Array) -> mm.Array:
            traced.append(self.rate)
            return x * self.rate

    traced: list[float] = []
    with current(kind, workers):
        ends, losses = [], []
        for calls in ([6], [1] * 6):
            made = nn.Sequential(nn.Dense(8), nn.BatchNorm(), Counted(), nn.Dense(4)).build((1, 6))
            for path, v in made.named_parameters():
                v.assign(np.random.default_rng(len(path)).normal(size=v.shape).astype(np.float32))
            made.freeze("3")
            trainer = Trainer(made, optimizer=mm.optim.Adam(0.05), seed=1, strategy=strategy)
            result: list[float] = []
            for epochs in calls:
                changes = [Changes()] if calls == [6] else []
                result += trainer.fit(X, Y, epochs=epochs, callbacks=changes).loss
                if calls != [6]:
                    change(trainer, trainer.epochs_done)
            ends.append(state(trainer.module))
            losses.append(result)
            count = len(traced)
            trainer.fit(X, Y, epochs=3)
            assert len(traced) == count, "without a change the step is not traced again"
        assert losses[0] == losses[1]
        check_same(*ends)


@pytest.mark.parametrize(("kind", "workers"), POOLS)
def test_parameters_without_dimensions(kind: str, workers: int) -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            self.scale = nn.Parameter(0.5, ())

        def __call__(self, x: mm.Array) -> mm.Array:
            return mm.sum(x, axis=1) * self.scale

    with current(kind, workers):
        net, x = Scaled(), X.astype(np.float64)
        trainer = Trainer(net, "mean_squared_error", mm.optim.GradientDescent(0.01), metrics=[])
        trainer.fit(x, x.sum(axis=1), batch_size=20, epochs=2, shuffle=False)
        scale = 0.5
        for _ in range(2):
            for start in range(0, 60, 20):
                total = x[start : start + 20].sum(axis=1)
                scale -= 0.01 * np.mean(2 * (scale - 1) * total**2)
        np.testing.assert_allclose(float(net.scale), scale, rtol=1e-4)


def test_another_loss_may_be_assigned() -> None:
    x, y = np.ones((4, 2), np.float32), np.full((4, 1), 3, np.float32)
    trainer = Trainer(mm.nn.Dense(1), "mean_squared_error", mm.optim.GradientDescent(0.0))
    squared = trainer.fit(x, y).loss[0]
    trainer.loss = mm.nn.mean_absolute_error
    assert trainer.fit(x, y).loss[-1] == pytest.approx(squared**0.5)
    assert trainer.evaluate(x, y)["loss"] == pytest.approx(squared**0.5)
    trainer.loss = "mean_squared_error"
    assert trainer.evaluate(x, y)["loss"] == pytest.approx(squared)


@pytest.mark.parametrize(
    ("values", "best", "stops_after"),
    [
        ([3.0, np.nan, 2.0, 2.5, np.nan, 4.0], 3, 6),
        ([np.nan, np.nan, 5.0, 6.0, np.nan, 7.0], 3, 6),
        ([3.0, np.nan, np.nan, np.nan, np.nan, 1.0], 1, 4),
    ],
)
def test_a_monitored_value_that_is_nan_is_never_the_best(
    values: list[float], best: int, stops_after: int
) -> None:
    with current("inline", 1):
        remaining = iter(values)

        class Given(Callback):
            def on_epoch_end(self, trainer: Any, record: Any) -> None:
                record.metrics["given"] = next(remaining)

        stopping = EarlyStopping(3, "given", mode="min")
        module = nn.Sequential(nn.Dense(4))
        trainer = Trainer(module, optimizer=mm.optim.GradientDescent(0.1))
        states: list[Any] = []
        history = trainer.fit(
            X, Y, epochs=6,
            callbacks=[Given(), lambda _: states.append(module.state_dict()), stopping],
        )  # fmt: skip
        assert (stopping.best_epoch, len(history.records)) == (best, stops_after)
        for name, value in states[best - 1].items():
            np.testing.assert_array_equal(module.state_dict()[name].numpy(), value.numpy())


@pytest.mark.parametrize(
    ("name", "mode"),
    [("loss", "min"), ("validation_loss", "min"), ("my_loss", "min"), ("top_5_accuracy", "max"),
     ("macro_f1", "max"), ("accuracy_2", "max")]
    + [(name, "min" if "error" in name else "max") for name in nn.metrics.METRICS
       if name != "confusion_matrix"],
)  # fmt: skip
def test_the_mode_of_known_figures_follows_from_their_names(name: str, mode: str) -> None:
    for monitor in (name, f"validation_{name}"):
        modes = {
            BestWeights(monitor).mode,
            EarlyStopping(monitor=monitor).mode,
            mm.optim.schedules.Plateau(0.1, monitor=monitor).mode,
        }
        assert modes == {mode}


@pytest.mark.parametrize("name", ["rmse", "validation_rmse", "perplexity", "<lambda>", "half1"])
def test_other_figures_need_a_mode(name: str) -> None:
    for make in (
        BestWeights,
        partial(EarlyStopping, 3),
        partial(mm.optim.schedules.Plateau, 0.1, monitor=name),
    ):
        arguments = () if getattr(make, "keywords", None) else (name,)
        with pytest.raises(OptionError, match=r"less or more of .* is better; give mode='min' or"):
            make(*arguments)
        assert make(*arguments, mode="min").mode == "min"


@pytest.mark.parametrize("patience", [0, 1])
def test_early_stopping_without_patience_waits_for_an_epoch_without_improvement(
    patience: int,
) -> None:
    with current("inline", 1):
        values = iter([5.0, 4.0, 3.0, 3.5, 1.0])

        class Given(Callback):
            def on_epoch_end(self, trainer: Any, record: Any) -> None:
                record.metrics["given"] = next(values)

        stopping = EarlyStopping(patience, "given", mode="min")
        trainer = Trainer(nn.Sequential(nn.Dense(4)), optimizer="sgd")
        history = trainer.fit(X, Y, epochs=5, callbacks=[Given(), stopping])
        assert (len(history.loss), stopping.best_epoch) == (4, 3)


def test_another_precision_may_be_assigned() -> None:
    with current("inline", 1):
        net = nn.Sequential(nn.Dense(4))
        trainer = Trainer(net, optimizer="sgd")
        trainer.fit(X, Y)
        for name in ("mixed-bfloat16", "mixed-float16", None):
            trainer.precision = name
            expected = Trainer(net, precision=name)
            np.testing.assert_array_equal(trainer.predict(X), expected.predict(X))
            assert trainer.evaluate(X, Y) == expected.evaluate(X, Y)
            records = trainer.fit(X, Y).records
            assert (records[0].loss_scale is None) == (name != "mixed-float16")
        with pytest.raises(MagmathError, match="precision 'half' is not known"):
            trainer.precision = "half"


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_metrics_of_half_types_are_computed_in_float32(dtype: str) -> None:
    """Those of training are those of evaluation."""

    def size(outputs: mm.Array, targets: mm.Array) -> mm.Array:
        return mm.mean(mm.square(outputs))

    with current("inline", 1):
        net = nn.Sequential(nn.Dense(4)).build((1, 6)).astype(dtype)
        trainer = Trainer(net, optimizer=mm.optim.GradientDescent(0.0), metrics=[size])
        history = trainer.fit(X, Y, batch_size=60, shuffle=False).metric("size")[0]
        assert history == pytest.approx(trainer.evaluate(X, Y)["size"], rel=1e-6)


def test_arrays_that_are_nested_otherwise_are_other_data() -> None:
    """Of the same three arrays the second is an input or a target."""

    class Net(nn.Module):
        def __call__(self, *inputs: mm.Array) -> mm.Array:
            return sum(inputs[1:], inputs[0] * self.weight)

        def __init__(self) -> None:
            self.weight = nn.Parameter(1.0)

    def loss(outputs: mm.Array, targets: Any) -> mm.Array:
        parts = targets if isinstance(targets, tuple) else (targets,)
        return mm.mean(mm.square(outputs - sum(parts[1:], parts[0])))

    with current("inline", 1):
        a, b, c = [mm.asarray(DRAW.normal(size=(8, 2)).astype(np.float32)) for _ in range(3)]
        trainer = Trainer(Net(), loss, mm.optim.GradientDescent(0.0))
        for x, y, expected in (((a, b), c, a + b - c), (a, (b, c), a - b - c)):
            history = trainer.fit(x, y, batch_size=8).loss[-1]
            assert history == pytest.approx(float(mm.mean(mm.square(expected))), rel=1e-5)


def test_labels_are_checked_for_the_loss_that_is_assigned() -> None:
    with current("inline", 1):
        module, labels = nn.Sequential(nn.Dense(3)), np.array([0, 1, 5, 2])
        x = mm.asarray(np.ones((4, 2), np.float32))
        trainer = Trainer(module, lambda outputs, targets: mm.mean(outputs * targets[:, None]))
        targets = mm.asarray(labels)
        trainer.fit(x, targets)
        trainer.loss = "cross_entropy"
        with pytest.raises(DataError, match="labels must be in 0 … 2"):
            trainer.fit(x, targets)


def test_labels_are_checked_for_the_parts_of_the_module() -> None:
    with current("inline", 1):
        module = nn.Sequential(nn.Dense(3))
        x, y = mm.asarray(np.ones((4, 2), np.float32)), mm.asarray(np.array([0, 1, 2, 2]))
        trainer = Trainer(module)
        trainer.fit(x, y)
        module.append(lambda outputs: outputs[:, :2])
        with pytest.raises(DataError, match="labels must be in 0 … 1"):
            trainer.fit(x, y)
        with pytest.raises(DataError, match="labels must be in 0 … 1"):
            trainer.evaluate(x, y)
        del module[1]
        trainer.fit(x, y)


CHANGES: dict[str, Any] = {
    "loss": lambda trainer: setattr(trainer, "loss", "mean_absolute_error"),
    "optimizer": lambda trainer: setattr(trainer, "optimizer", "adam"),
    "metrics": lambda trainer: setattr(trainer, "metrics", ["mean_absolute_error"]),
    "precision": lambda trainer: setattr(trainer, "precision", "mixed-bfloat16"),
    "loss_scale": lambda trainer: setattr(trainer, "loss_scale", mm.optim.LossScale(8.0)),
    "strategy": lambda trainer: setattr(trainer, "strategy", "weight-averaging:2"),
    "whole": lambda trainer: setattr(trainer, "strategy", "data"),
    "module": lambda trainer: setattr(trainer, "module", trainer.module[0]),
    "type": lambda trainer: trainer.module.astype(mm.float64),
    "values": lambda trainer: trainer.module[1].weight.assign(mm.ones((4, 4))),
}


@pytest.mark.filterwarnings("ignore:fit. 1 of 61 samples are left out")
@pytest.mark.parametrize(
    ("strategy", "event"),
    [("data", "on_epoch_begin"), ("data", "on_epoch_end"), ("weight-averaging:2", "on_epoch_end")],
)
@pytest.mark.parametrize("change", CHANGES)
def test_whatever_a_callback_assigns_is_that_of_the_next_epoch(
    strategy: str, change: str, event: str
) -> None:
    """As between two calls of `fit`; 61 samples cannot be divided by two replicas."""
    x, y = np.ones((61, 6), np.float32) * X[:1], np.full((61, 4), 0.5, np.float32)

    class Changes(Callback):
        def apply(self, trainer: Trainer, *_: Any) -> None:
            if trainer.epochs_done == 1:
                CHANGES[change](trainer)

    def trainer() -> Trainer:
        net = nn.Sequential(nn.Dense(4), nn.Dense(4))
        rule = mm.optim.GradientDescent(0.1)
        return Trainer(net, "mean_squared_error", rule, metrics=[], strategy=strategy, seed=1)

    setattr(Changes, event, Changes.apply)
    with current("shared", 2):
        whole, parts = trainer(), trainer()
        history = whole.fit(x, y, epochs=2, validation=(x, y), callbacks=[Changes()])
        parts.fit(x, y)
        CHANGES[change](parts)
        expected = parts.fit(x, y, validation=(x, y))
        figures = expected.records[
            0
        ].figures()  # products in other threads may be rounded otherwise
        assert history.records[1].figures() == pytest.approx(figures, rel=1e-6)
        check_same(state(whole.module), state(parts.module))


@pytest.mark.parametrize("event", ["on_train_begin", "on_epoch_end", "on_step_end"])
@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize(
    "strategy",
    ["data", "weight-averaging:2", "weight-averaging:2:3", mm.parallel.Asynchronous(schedule=[0])],
)
def test_a_callback_assigns_parameters(
    strategy: Any, checkpoint: bool, event: str, tmp_path: Path
) -> None:
    """A strategy with copies of the parameters takes the values over at once."""

    class Assigns(Callback):
        def apply(self, trainer: Trainer, *_: Any) -> None:
            for p in trainer.module.parameters():
                p.assign(mm.zeros(p.shape))

    setattr(Assigns, event, Assigns.apply)
    with current("inline"):
        net = nn.Sequential(nn.Dense(4))
        options: dict[str, Any] = {"checkpoint": tmp_path} if checkpoint else {}
        trainer = Trainer(
            net, "mean_squared_error", mm.optim.GradientDescent(0.0), strategy=strategy, seed=1
        )
        history = trainer.fit(
            X, X[:, :4], epochs=2, batch_size=20, callbacks=[Assigns()], shuffle=False, **options
        )
        expected = [np.mean(X[i : i + 20, :4] ** 2) for i in (0, 20, 40)]
        first = {"on_train_begin": 0, "on_step_end": 1, "on_epoch_end": 3}[event]
        np.testing.assert_allclose(history.step_losses[first:], (expected * 2)[first:], rtol=1e-5)
        for p in net.parameters():
            np.testing.assert_array_equal(p.numpy(), 0)


def pair_with_teacher(teacher: nn.Module, strategy: str = "auto") -> Trainer:
    """Return the trainer of another module, whose loss calls the teacher."""

    def loss(outputs: mm.Array, targets: mm.Array) -> mm.Array:
        return mm.mean((outputs - teacher(targets)) ** 2)

    rule = mm.optim.GradientDescent(0.0)
    return Trainer(nn.Dense(6), loss, rule, metrics=[], strategy=strategy, seed=1)


@pytest.mark.parametrize(
    ("kind", "workers", "strategy"),
    [*[(*pool, "data") for pool in POOLS], *[(*POOLS[i], "weight-averaging:2") for i in (0, 2)]],
)
def test_a_module_that_the_loss_calls_is_converted_and_moved(
    strategy: str, kind: str, workers: int
) -> None:
    with current(kind, workers):
        teacher = nn.Dense(6).build((1, 6))
        trainer = pair_with_teacher(teacher, strategy)

        def check() -> None:
            history = trainer.fit(X, X, batch_size=60).loss[0]
            assert history == pytest.approx(trainer.evaluate(X, X)["loss"], rel=1e-3)

        check()
        for dtype in (mm.float64, mm.float16, mm.float32):
            teacher.astype(dtype)
            check()
        for other in ("model", "parameter-server", "data"):
            rule = mm.optim.GradientDescent(0.0)
            Trainer(teacher, "mean_squared_error", rule, strategy=other).fit(X, X)
            check()


@pytest.mark.parametrize(
    ("kind", "workers", "shared"),
    [
        *[("shared", 2, shared) for shared in ("teacher", "module", "type")],
        ("inline", 1, "teacher"),
        ("messages", 4, "module"),
        ("processes", 2, "type"),
        ("processes", 2, "teacher"),
    ],
)
def test_callbacks_of_steps_move_variables(shared: str, kind: str, workers: int) -> None:
    """Of a module that the loss calls, or of the trained one, which another trainer trains too."""

    class Turns(Callback):
        def __init__(self, module: nn.Module) -> None:
            self.strategies = itertools.cycle(["model", "parameter-server", "data"])
            self.module = module

        def on_step_end(self, trainer: Trainer, done: int, loss: float, speed: float) -> None:
            if shared == "type":
                self.module.astype(mm.float32 if done % 2 else mm.float64)
            else:
                rule, strategy = mm.optim.GradientDescent(0.0), next(self.strategies)
                Trainer(self.module, "mean_squared_error", rule, strategy=strategy).fit(X, X)

    def fit(turns: bool) -> Any:
        teacher = nn.Dense(6, weight_init=0.1).build((1, 6))
        net = nn.Sequential(nn.Dense(6, weight_init=0.2), nn.BatchNorm(), nn.Dropout(0.3))
        rate = mm.optim.schedules.Cosine(0.1, 8, per="step")
        trainer = Trainer(
            net, lambda outputs, targets: mm.mean((outputs - teacher(targets)) ** 2),
            mm.optim.Momentum(rate), metrics=["mean_absolute_error"], strategy="data", seed=1,
        )  # fmt: skip
        changed = net if shared == "module" else teacher
        history = trainer.fit(
            X, X, batch_size=16, epochs=2, callbacks=[Turns(changed)] if turns else []
        )
        return history.step_losses, history.metric("mean_absolute_error"), state(net)

    with current(kind, workers):
        if shared == "module":  # of which the other trainer must leave the running statistics
            Turns.on_step_end = lambda self, *_: Trainer(  # type: ignore[method-assign]
                self.module, "mean_squared_error", strategy=next(self.strategies)
            ).fit(X, X, epochs=0)
        found, expected = fit(True), fit(False)
        for values, wanted in zip(found[:2], expected[:2], strict=True):
            np.testing.assert_allclose(values, wanted, rtol=1e-4)
        check_same(found[2], expected[2], 1e-4)


@pytest.mark.parametrize("event", ["on_train_begin", "load_state_dict"])
def test_callbacks_that_have_begun_end(event: str, tmp_path: Path) -> None:
    """Also if a later callback raises an exception before the first epoch."""
    ends: list[Any] = []

    class Ends(Callback):
        def on_train_end(self, trainer: Any, finished: bool) -> None:
            ends.append((type(self).__name__, finished))

        def state_dict(self) -> dict[str, Any]:
            return {"a": 1}

    class Raises(Ends):
        def fail(self, *_: Any) -> None:
            raise KeyError("on purpose")

    with current("inline"):
        trainer = Trainer(nn.Dense(4), seed=1)
        trainer.fit(X, Y, checkpoint=tmp_path, callbacks=[Ends(), Raises()])
        assert ends == [("Ends", True), ("Raises", True)]
        ends.clear()
        setattr(Raises, event, Raises.fail)
        with pytest.raises(KeyError, match="on purpose"):
            trainer.fit(X, Y, checkpoint=tmp_path, resume=True, callbacks=[Ends(), Raises()])
    has_begun = event == "load_state_dict"
    assert ends == [("Ends", False)] + [("Raises", False)] * has_begun


@pytest.mark.parametrize("inner", [False, True])
def test_the_mode_of_a_module_that_the_loss_calls(inner: bool) -> None:
    with current("inline"):
        layer = nn.Dropout(0.9)
        teacher = nn.Sequential(nn.Identity(), layer)
        changed = layer if inner else teacher
        trainer = pair_with_teacher(teacher)
        for _ in range(2):
            history = trainer.fit(X, X).loss[0]
            trainer.evaluate(X, X)
            changed.eval()
            kept = trainer.fit(X, X).loss[0]
            assert kept == pytest.approx(trainer.evaluate(X, X)["loss"], rel=1e-5)
            assert history > 2 * kept
            changed.train()


def test_optimizers_are_assigned_by_name() -> None:
    with current("inline"):
        trainer = Trainer(nn.Dense(4), "mean_squared_error")
        for owner in (trainer, nn.NeuralNetwork([nn.Dense(4)], loss="mean_squared_error")):
            owner.optimizer = "sgd"  # type: ignore[assignment]
            assert isinstance(owner.optimizer, mm.optim.GradientDescent)
            owner.fit(X, X[:, :4])
            with pytest.raises(MagmathError, match="optimizer 'sdg' is not known"):
                owner.optimizer = "sdg"  # type: ignore[assignment]
            assert isinstance(owner.optimizer, mm.optim.GradientDescent)
