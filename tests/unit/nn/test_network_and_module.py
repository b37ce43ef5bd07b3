"""`NeuralNetwork` is built as a module is, and its errors name the module and the trainer in it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import magmath as mm
from engines import current
from magmath import nn
from magmath.errors import ShapeError, WorkerLost

NETWORKS: dict[str, tuple[Callable[[], list[nn.Module]], tuple[int, ...]]] = {
    "dense": (lambda: [nn.Dense(3), nn.BatchNorm(), nn.Dense(2)], (6, 5)),
    "images": (lambda: [nn.Conv2d(4, 3), nn.Flatten(), nn.Dense(2)], (2, 3, 8, 8)),
    "flat": (lambda: [nn.Flatten(), nn.Dense(2)], (1, 28, 28)),
    "sequences": (lambda: [nn.Dense(4), nn.GlobalAvgPool(), nn.Dense(2)], (2, 7, 5)),
}


class Pair(nn.Module):
    def __init__(self) -> None:
        self.first, self.second = nn.Dense(4), nn.Dense(4)

    def __call__(self, x: mm.Array, y: mm.Array) -> mm.Array:
        return self.first(x) + self.second(y)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_is_built_as_its_module(name: str) -> None:
    layers, shape = NETWORKS[name]
    with current("inline"):
        network = nn.NeuralNetwork(layers())
        assert network.build(shape) is network
        module = nn.Sequential(*layers()).build(shape)
        result = {path: v.shape for path, v in network.parameters.items()}
        assert result == {path: v.shape for path, v in module.named_parameters()}
        assert network.input_shape == shape[1:]
        assert network.build((9, *shape[1:])) is network
        x, y = np.ones((4, *shape[1:]), np.float32), np.arange(4) % 2
        network.fit(x, y)
        assert network.predict(x).shape[0] == 4


def test_the_type_of_inputs_and_several_inputs(tmp_path: Path) -> None:
    with current("inline"):
        words = nn.NeuralNetwork([nn.Embedding(9, 4), nn.Flatten(), nn.Dense(2)])
        words.build((1, 5), dtype="int64").save(tmp_path / "words")
        again = nn.NeuralNetwork([nn.Embedding(9, 4), nn.Flatten(), nn.Dense(2)])
        again.build((3, 5), dtype=mm.int64).load(tmp_path / "words")
        pair = nn.NeuralNetwork(Pair()).build((1, 5), (1, 6))
        pair.fit((np.ones((4, 5)), np.ones((4, 6))), np.arange(4))
        pair.save(tmp_path / "pair")
        other = nn.NeuralNetwork(Pair()).build((1, 5), (1, 6))
        other.load(tmp_path / "pair")
        for name, v in pair.parameters.items():
            np.testing.assert_array_equal(other.parameters[name], v)


WORDS = np.arange(40, dtype=np.int32).reshape(8, 5) % 9
BUILDS: dict[str, Callable[[nn.NeuralNetwork], object]] = {
    "build": lambda network: network.build((1, 5), dtype="int32"),
    "fit": lambda network: network.fit(WORDS, WORDS[:, 0] % 2),
    "lists": lambda network: network.fit(WORDS.tolist(), WORDS[:, 0] % 2),
    "predict": lambda network: network.predict(mm.asarray(WORDS)),
    "loader": lambda network: network.fit(mm.data.Loader((WORDS, WORDS[:, 0] % 2), 4)),
}


@pytest.mark.parametrize("way", BUILDS)
def test_a_network_keeps_the_type_of_its_inputs(way: str, tmp_path: Path) -> None:
    """Its summary and its file do not need it again."""
    with current("inline"):
        first, second = (
            nn.NeuralNetwork([nn.Embedding(9, 4), nn.Flatten(), nn.Dense(2)]) for _ in range(2)
        )
        BUILDS[way](first)
        first.save(tmp_path / "words")
        second.load(tmp_path / "words")
        assert first.summary() == second.summary()
        np.testing.assert_array_equal(first.predict(WORDS), second.predict(WORDS))
        second.save(tmp_path / "again")
        assert (tmp_path / "again").read_bytes() == (tmp_path / "words").read_bytes()


def test_shapes_that_do_not_fit() -> None:
    with current("inline"):
        network = nn.NeuralNetwork([nn.Dense(2)]).build((1, 5))
        with pytest.raises(ShapeError, match=r"build: .* samples of shape \(5,\), was given \(6,"):
            network.build((1, 6))
        with pytest.raises(ShapeError, match=r"fit: .* samples of shape \(5,\), was given \(6,"):
            network.fit(np.ones((4, 6)), np.arange(4) % 2)
        of_sample = nn.NeuralNetwork([nn.Dense(2)]).build((5,))  # without the batch
        with pytest.raises(ShapeError, match="build takes the shape of an input, batch included"):
            of_sample.fit(np.ones((4, 5)), np.arange(4) % 2)
        with pytest.raises(ShapeError, match="batch included"):
            nn.NeuralNetwork([nn.Dense(2)]).build(1, 5)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("train", "net.module.train(…)"), ("eval", "net.module.eval(…)"),
        ("freeze", "net.module.freeze(…)"), ("named_parameters", "net.module.named_parameters(…)"),
        ("epochs_done", None), ("callbacks", None), ("stop", "net.trainer.stop(…)"),
        ("zero_grad", "mm.grad(loss, parameters)"), ("forward", "__call__"), ("weights", None),
    ],
)  # fmt: skip
def test_missing_names_say_what_to_write(name: str, remedy: str | None) -> None:
    with current("inline"):
        network = nn.NeuralNetwork([nn.Dense(2)])
        with pytest.raises(AttributeError) as actual:
            getattr(network, name)
        expected = f"; write {remedy}" if remedy else ""
        assert f"'NeuralNetwork' object has no attribute {name!r}{expected}" in str(actual.value)


@pytest.mark.parametrize("loss", ["cross_entropy", "hinge"])
def test_labels_in_a_column(loss: str) -> None:
    """The remedy is in the labels, not in the last layer."""
    x, labels = np.ones((6, 4), np.float32), np.arange(6)[:, None] % 3
    remedy = re.escape("need labels (6,), was given (6, 1); give labels[:, 0]")
    with current("inline"):
        with pytest.raises(ShapeError, match=remedy):
            getattr(nn, loss)(mm.ones((6, 3)), mm.asarray(labels))
        network: Any = nn.NeuralNetwork([nn.Dense(3)], loss=loss)
        with pytest.raises(ValueError, match=re.escape("give labels[:, 0]")):
            network.fit(x, labels, batch_size=6)


def test_the_samples_are_noted_without_a_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of a lost worker is raised as it is; the parameters may have been made before."""
    lost = WorkerLost("worker 1 died")

    def fit(*arguments: Any, **options: Any) -> None:
        net.module.build((2, 5))
        monkeypatch.setattr("magmath.engine.session.engine", lose)
        raise lost

    def lose() -> None:
        raise WorkerLost("the pool has ended")

    with current("inline"):
        net = nn.NeuralNetwork([nn.Dense(2)])
        with monkeypatch.context() as patch:
            patch.setattr(net.trainer, "fit", fit)
            with pytest.raises(WorkerLost) as result:
                net.fit(np.ones((6, 5), np.float32), np.zeros(6, int))
        monkeypatch.undo()
        assert result.value is lost
        assert net.input_shape == (5,)
