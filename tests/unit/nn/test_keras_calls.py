"""`fit` with Keras's arguments, layers of lists, and the text of optimizers and histories."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import magmath as mm
from engines import current
from magmath.errors import DataError, MagmathError, OptionError

RANDOM = np.random.default_rng(7)
X = RANDOM.normal(size=(50, 4)).astype("float32")
LABELS = RANDOM.integers(0, 3, 50)


def network(loss: Any = "cross_entropy", units: int = 3) -> mm.nn.NeuralNetwork:
    layers = [mm.nn.Dense(units)]
    return mm.nn.NeuralNetwork(layers, loss=loss, optimizer=mm.optim.GradientDescent(0.1), seed=3)


# validation ---------------------------------------------------------------------------------------


def test_validation_data_is_validation() -> None:
    held = X[:10], LABELS[:10]
    history = [
        network().fit(X, LABELS, epochs=2, **{name: held})
        for name in ("validation", "validation_data")
    ]
    assert history[0].validation_loss == history[1].validation_loss
    assert len(history[0].validation_loss) == 2


@pytest.mark.parametrize("made", [lambda a: a, mm.asarray, lambda a: a.tolist()])
def test_validation_split_holds_out_the_last_samples(made: Any) -> None:
    x, y = made(X), made(LABELS)
    split = network().fit(x, y, epochs=2, batch_size=8, validation_split=0.3)
    given = network().fit(X[:35], LABELS[:35], epochs=2, batch_size=8,
                          validation=(X[35:], LABELS[35:]))  # fmt: skip
    assert split.loss == given.loss
    assert split.validation_loss == given.validation_loss


def test_validation_split_of_several_inputs() -> None:
    class Both(mm.nn.Module):
        def __init__(self) -> None:
            self.dense = mm.nn.Dense(3)

        def __call__(self, a: mm.Array, b: mm.Array) -> Any:
            return self.dense(a - b)

    net = mm.nn.NeuralNetwork(Both(), seed=1)
    history = net.fit((X, X[::-1].copy()), LABELS, validation_split=0.5)
    assert len(history.validation_loss) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"validation_split": 1.0}, "a share between 0 and 1, was given 1.0"),
        ({"validation_split": -0.1}, "a share between 0 and 1"),
        ({"validation_split": 0.999}, "leaves none for training or none for validation"),
        ({"validation_split": 0.2, "validation": (X, LABELS)}, "not both"),
        ({"validation_data": (X, LABELS), "validation": (X, LABELS)}, "give one of them"),
        ({"class_weight": {"a": 1.0}}, "was given the class 'a'"),
        ({"class_weight": {0: -1.0}}, "a number of at least 0"),
        ({"class_weight": []}, "a number of at least 0"),
        ({"class_weight": {7: 2.0}}, "for class 7, and the outputs have 3 classes"),
    ],
)
def test_options_that_do_not_fit(options: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        network().fit(X, LABELS, **options)


@pytest.mark.parametrize(("pool", "workers"), [("inline", 1), ("shared", 2)])
def test_batch_size_of_calls_without_gradients(pool: str, workers: int) -> None:
    """No call of the module has more samples, and the results are the same."""
    rows: list[int] = []

    class Noting(mm.nn.Module):
        def __call__(self, x: mm.Array) -> mm.Array:
            rows.append(x.shape[0])
            return x

    with current(pool, workers):
        net = mm.nn.NeuralNetwork([Noting(), mm.nn.Dense(3)], seed=1)
        expected, score = net.predict(X), net.evaluate(X, LABELS)
        rows.clear()
        np.testing.assert_allclose(net.predict(X, batch_size=8), expected, rtol=1e-4, atol=1e-6)
        assert net.evaluate(X, LABELS, batch_size=7) == pytest.approx(score, rel=1e-5)
        assert {8, 7, 50 % 8, 50 % 7} <= set(rows)
        with pytest.raises(MagmathError, match="predict: batch_size must be"):
            net.predict(X, batch_size=0)
        loader = mm.data.Loader((np.zeros((8, 4), np.uint8), np.zeros(8, np.int64)), batch_size=4)
        with pytest.raises(OptionError, match="evaluate: a Loader has its own batch_size"):
            net.evaluate(loader, batch_size=2)


def test_a_loader_is_not_split() -> None:
    images, labels = np.zeros((8, 1, 2, 2), np.uint8), np.zeros(8, np.int64)
    with pytest.raises(OptionError, match="a Loader cannot be split"):
        network().fit(mm.data.Loader((images, labels), batch_size=4), validation_split=0.5)
    with pytest.raises(DataError, match="need equal numbers"):
        network().fit(X, LABELS[:20], validation_split=0.5)


# weights of classes -------------------------------------------------------------------------------

WEIGHTS = {0: 0.5, 2: 3.0}  # that of class 1 is 1


def torch_step(weights: torch.Tensor, loss_of: Any) -> tuple[Any, float]:
    """The weights of a linear layer after one step from zero, and its loss."""
    layer = torch.nn.Linear(4, weights.shape[0])
    torch.nn.init.zeros_(layer.weight)
    torch.nn.init.zeros_(layer.bias)
    loss = loss_of(layer(torch.from_numpy(X)))
    loss.backward()
    return -0.1 * layer.weight.grad.numpy().T, float(loss.detach())


@pytest.mark.parametrize("kind", ["labels", "one-hot", "probabilities"])
@pytest.mark.parametrize(("pool", "workers"), [("inline", 1), ("shared", 2)])
def test_class_weight_is_the_factor_of_each_sample(pool: str, workers: int, kind: str) -> None:
    targets: Any = LABELS
    if kind != "labels":
        targets = np.eye(3, dtype="float32" if kind == "probabilities" else "int64")[LABELS]
    table = torch.tensor([0.5, 1.0, 3.0])
    labels = torch.from_numpy(LABELS)

    def loss_of(outputs: torch.Tensor) -> torch.Tensor:
        losses = torch.nn.functional.cross_entropy(outputs, labels, reduction="none")
        return (losses * table[labels]).mean()

    expected, loss = torch_step(table, loss_of)
    for given in (WEIGHTS, [0.5, 1.0, 3.0], {np.int64(0): 0.5, 2: 3}):
        with current(pool, workers):
            net = mm.nn.NeuralNetwork(
                [mm.nn.Dense(3, weight_init="zeros")], optimizer=mm.optim.GradientDescent(0.1)
            )
            history = net.fit(X, targets, batch_size=50, class_weight=given, validation_split=0.0)
            assert history.loss[0] == pytest.approx(loss, rel=1e-5)
            actual = net.parameters["0.weight"].numpy()
            np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("loss", ["binary_cross_entropy_with_logits", "mean_squared_error"])
@pytest.mark.parametrize("shape", [(50, 1), (50,)])
def test_class_weight_of_binary_targets(loss: str, shape: tuple[int, ...]) -> None:
    y = (LABELS > 0).astype("float32").reshape(shape)

    class Column(mm.nn.Module):
        def __init__(self) -> None:
            self.dense = mm.nn.Dense(1)

        def __call__(self, x: mm.Array) -> Any:
            return mm.reshape(self.dense(x), (-1, *shape[1:]))

    net = mm.nn.NeuralNetwork(Column(), loss=loss, optimizer=mm.optim.GradientDescent(1e-12))
    weighted = net.fit(X, y, batch_size=50, class_weight={1: 4.0}).loss[0]
    outputs = np.asarray(net.predict(X), dtype=float).reshape(-1)
    t = y.reshape(-1)
    each = (outputs - t) ** 2
    if loss != "mean_squared_error":
        each = np.logaddexp(0, outputs) - outputs * t
    assert weighted == pytest.approx(float((each * np.where(t == 1, 4, 1)).mean()), rel=1e-4)


@pytest.mark.parametrize("ignored", [-100, -1, 255])
def test_class_weight_of_labels_that_the_loss_ignores(ignored: int) -> None:
    labels = LABELS.copy()
    labels[:7] = ignored
    table = torch.tensor([0.5, 1.0, 3.0])
    kept = torch.from_numpy(LABELS[7:])

    def loss_of(outputs: torch.Tensor) -> torch.Tensor:
        losses = torch.nn.functional.cross_entropy(outputs[7:], kept, reduction="none")
        return (losses * table[kept]).sum() / len(labels)

    expected, loss = torch_step(table, loss_of)
    net = mm.nn.NeuralNetwork(
        [mm.nn.Dense(3, weight_init="zeros")], optimizer=mm.optim.GradientDescent(0.1),
        loss=partial(mm.nn.cross_entropy, ignore_index=ignored),
    )  # fmt: skip
    assert net.fit(X, labels, batch_size=50, class_weight=WEIGHTS).loss[0] == pytest.approx(loss)
    np.testing.assert_allclose(net.parameters["0.weight"], expected, rtol=1e-4, atol=1e-6)


def test_another_class_weight_is_another_step() -> None:
    net = network()
    net.optimizer = mm.optim.GradientDescent(1e-12)
    plain = net.fit(X, LABELS, batch_size=50).loss[0]
    double = net.fit(X, LABELS, batch_size=50, class_weight=[2, 2, 2]).loss[0]
    assert double == pytest.approx(2 * plain, rel=1e-5)
    assert net.fit(X, LABELS, batch_size=50).loss[0] == pytest.approx(plain, rel=1e-6)
    history = net.fit(X, LABELS, class_weight=[0, 0, 0], validation_split=0.2)
    assert history.loss == [0.0]
    assert history.validation_loss[0] > 0


def test_class_weight_needs_the_losses_of_samples() -> None:
    net = network(loss=lambda outputs, targets: mm.mean(outputs))
    with pytest.raises(OptionError, match="reduction='mean'"):
        net.fit(X, LABELS, class_weight=[1, 2, 3])


# weights of samples -------------------------------------------------------------------------------

SHARES = np.random.default_rng(5).uniform(0, 2, len(LABELS))


@pytest.mark.parametrize(("pool", "workers"), [("inline", 1), ("shared", 2)])
@pytest.mark.parametrize("strategy", ["auto", "data", "sharded", "parameter-server"])
def test_sample_weight_in_shuffled_batches(pool: str, workers: int, strategy: str) -> None:
    """Each sample keeps its weight in any order, in the last, smaller batch too."""
    table = torch.tensor([0.5, 1.0, 3.0])
    layer = torch.nn.Linear(4, 3)
    torch.nn.init.zeros_(layer.weight)
    torch.nn.init.zeros_(layer.bias)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    x, labels = torch.from_numpy(X), torch.from_numpy(LABELS)
    shares = torch.from_numpy(SHARES).float() * table[labels]
    with current(pool, workers):
        for epoch in range(2):
            order = mm.train.sample_order(len(X), epoch=epoch, seed=3).tolist()
            for start in range(0, len(X), 16):
                batch = torch.tensor(order[start : start + 16])
                outputs = layer(x[batch])
                losses = torch.nn.functional.cross_entropy(outputs, labels[batch], reduction="none")
                optimizer.zero_grad()
                (losses * shares[batch]).mean().backward()
                optimizer.step()
        net = mm.nn.NeuralNetwork(
            [mm.nn.Dense(3, weight_init="zeros")], optimizer=mm.optim.GradientDescent(0.1), seed=3
        )
        net.fit(
            X, LABELS, batch_size=16, epochs=2, strategy=strategy, class_weight=WEIGHTS,
            sample_weight=SHARES,
        )  # fmt: skip
        result = net.parameters["0.weight"].numpy()
    np.testing.assert_allclose(result, layer.weight.detach().numpy().T, rtol=1e-4, atol=1e-6)


def test_sample_weight_of_a_part_and_of_none() -> None:
    net = network()
    net.optimizer = mm.optim.GradientDescent(1e-12)
    plain = net.fit(X[:40], LABELS[:40], batch_size=50).loss[0]
    twos = np.full(len(X), 2)
    split = net.fit(X, LABELS, batch_size=50, sample_weight=twos, validation_split=0.2)
    assert split.loss[0] == pytest.approx(2 * plain, rel=1e-5)
    alone = net.evaluate(X[40:], LABELS[40:])["loss"]
    assert split.validation_loss[0] == pytest.approx(2 * alone, rel=1e-5)
    again = net.fit(X, LABELS, batch_size=50, sample_weight=[0.0] * len(X))
    assert again.loss == [0.0]
    assert net.fit(X[:40], LABELS[:40], batch_size=50).loss[0] == pytest.approx(plain, rel=1e-6)


@pytest.mark.parametrize(("pool", "workers"), [("inline", 1), ("shared", 2)])
def test_weights_of_validation_multiply_the_losses_of_samples(pool: str, workers: int) -> None:
    with current(pool, workers):
        net = network()
        net.optimizer = mm.optim.GradientDescent(1e-12)
        given = net.fit(X, LABELS, validation=(X, LABELS, SHARES))
        outputs = torch.from_numpy(np.asarray(net.predict(X)))
        losses = torch.nn.functional.cross_entropy(
            outputs, torch.from_numpy(LABELS), reduction="none"
        )
        expected = pytest.approx(float(losses.numpy() @ SHARES) / len(X), rel=1e-5)
        assert given.validation_loss == [expected]
        assert given.validation_accuracy == [net.evaluate(X, LABELS)["accuracy"]]
        split = net.fit(X, LABELS, sample_weight=SHARES, validation_split=0.3)
        assert split.validation_loss == [
            pytest.approx(float(losses.numpy()[35:] @ SHARES[35:]) / 15, rel=1e-5)
        ]
        plain = net.fit(X, LABELS, validation=(X, LABELS)).validation_loss
        assert plain == [pytest.approx(float(losses.mean()), rel=1e-5)]


def test_weights_of_validation_that_do_not_fit() -> None:
    with pytest.raises(DataError, match=r"50 samples need weights of shape \(50,\), was given"):
        network().fit(X, LABELS, validation=(X, LABELS, SHARES[:7]))
    net = network(loss=lambda outputs, targets: mm.mean(outputs))
    with pytest.raises(OptionError, match=r"validation=\(x, y, weights\) needs the loss of each"):
        net.fit(X, LABELS, validation=(X, LABELS, SHARES))
    with pytest.raises(DataError, match=r"must be \(samples, targets\),.* was given tuple of 4"):
        net.fit(X, LABELS, validation=(X, LABELS, SHARES, 1))  # type: ignore[typeddict-item]


def test_sample_weight_of_another_length() -> None:
    with pytest.raises(DataError, match=r"50 samples need weights of shape \(50,\), was given"):
        network().fit(X, LABELS, sample_weight=SHARES[:7])
    with pytest.raises(OptionError, match="sample_weight needs the loss of each sample"):
        network(loss=lambda outputs, targets: mm.mean(outputs)).fit(X, LABELS, sample_weight=SHARES)
    loader = mm.data.Loader((np.zeros((8, 4), np.uint8), np.zeros(8, np.int64)), batch_size=4)
    with pytest.raises(OptionError, match="a Loader has no weights of samples"):
        network().fit(loader, sample_weight=SHARES[:8])


# text ---------------------------------------------------------------------------------------------


def test_history_tells_the_last_epoch_and_has_keras_names() -> None:
    history = network().fit(X, LABELS, epochs=3, validation_split=0.2)
    assert repr(history) == (
        f"History(epochs=3, loss={history.loss[-1]:.4g}, accuracy={history.accuracy[-1]:.4g}, "
        f"validation_loss={history.validation_loss[-1]:.4g}, "
        f"validation_accuracy={history.validation_accuracy[-1]:.4g})"
    )
    assert set(history.history) == {"loss", "accuracy", "val_loss", "val_accuracy"}
    assert history.history["val_loss"] == history.validation_loss
    assert repr(mm.train.History()) == "History(epochs=0)"


# lists as inputs ----------------------------------------------------------------------------------

TABLE = [[1.0, 2.0, 3.0], [4.0, 5.0, 7.0]]
IMAGE = np.arange(16.0, dtype="float32").reshape(1, 1, 4, 4)
LAYERS: list[tuple[Any, Any]] = [
    (mm.nn.Dense(2), TABLE), (mm.nn.ReLU(), TABLE), (mm.nn.Softmax(), TABLE),
    (mm.nn.LayerNorm(), TABLE), (mm.nn.RMSNorm(), TABLE), (mm.nn.BatchNorm(), TABLE), (mm.nn.GroupNorm(3), TABLE),
    (mm.nn.Dropout(0.0), TABLE), (mm.nn.Flatten(), TABLE), (mm.nn.Activation("tanh"), TABLE),
    (mm.nn.Sequential(mm.nn.Dense(2), mm.nn.ReLU()), TABLE), (mm.nn.Residual(mm.nn.Dense(3)), TABLE),
    (mm.nn.Embedding(5, 3), [1, 4, 0]), (mm.nn.Conv2d(2, 3), IMAGE.tolist()),
    (mm.nn.ConvTranspose2d(2, 3), IMAGE.tolist()), (mm.nn.MaxPool2d(2), IMAGE.tolist()),
    (mm.nn.AvgPool2d(2), IMAGE.tolist()), (mm.nn.GlobalAvgPool(), IMAGE.tolist()),
    (mm.nn.InstanceNorm(), IMAGE.tolist()), (mm.nn.ZeroPad2d(1), IMAGE.tolist()),
]  # fmt: skip


@pytest.mark.parametrize(("layer", "values"), LAYERS, ids=lambda x: type(x).__name__)
def test_layers_take_lists_tuples_and_numpy_arrays(layer: Any, values: Any) -> None:
    array = np.asarray(values, dtype="float32" if isinstance(values[0], list) else "int64")
    expected = layer(mm.asarray(array)).numpy()
    rows = tuple(map(tuple, values)) if isinstance(values[0], list) else tuple(values)
    for given in (values, rows, array):
        np.testing.assert_allclose(layer(given).numpy(), expected, rtol=1e-6)


def test_modules_of_users_receive_lists_as_they_are() -> None:
    class Sizes(mm.nn.Module):
        def __call__(self, sizes: Any) -> Any:
            return type(sizes)

    assert Sizes()([2, 3]) is list
    arrays = [mm.ones((2, 2)), mm.zeros((2, 2))]
    assert mm.nn.Concatenate()(*arrays).shape == (2, 4)


def test_axis_may_be_given_by_position() -> None:
    x = RANDOM.normal(size=(2, 3, 4))
    for name in ("softmax", "log_softmax"):
        for axis in (0, 1, -1):
            expected = getattr(torch, name)(torch.from_numpy(x), axis).numpy()
            for module in (mm, mm.nn.functional):
                actual = getattr(module, name)(mm.asarray(x), axis).numpy()
                np.testing.assert_allclose(actual, expected, rtol=1e-6)
