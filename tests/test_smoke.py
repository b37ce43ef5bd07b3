"""Smoke test: the whole in one small file, in this process and with two worker processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import magmath as mm


@pytest.fixture(scope="module", params=[0, 2], ids=["0 workers", "2 workers"], autouse=True)
def workers(request: pytest.FixtureRequest) -> Iterator[int]:
    with mm.init(workers=request.param, device="cpu", seed=3) as pool:
        assert pool.workers == max(request.param, 1)
        yield request.param


def test_arrays() -> None:
    values = np.random.default_rng(0).normal(size=(300, 200))
    x = mm.asarray(values, layout=mm.Layout.split(0))
    y = mm.asarray(values.T, layout=mm.Layout.cyclic(1, block=7))
    result = mm.relu(x @ y - 1.0) / (1.0 + mm.sum(mm.square(x), axis=1))
    expected = np.maximum(values @ values.T - 1, 0) / (1 + (values**2).sum(axis=1))
    np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-10)
    assert float(mm.max(x[:, ::-2])) == values[:, ::-2].max()


def test_gradient_and_minimize() -> None:
    x = mm.variable("x", [1.0, -2.0])
    y = mm.sum(x**3)
    slope = mm.grad(y, x)
    np.testing.assert_allclose(np.asarray(slope), [3, 12])
    np.testing.assert_allclose(np.asarray(mm.grad(mm.sum(slope), x)), [6, -12])
    mm.optim.GradientDescent(0.1).minimize(mm.sum((x - 0.5) ** 2), [x], steps=100)
    np.testing.assert_allclose(np.asarray(x), 0.5, atol=1e-6)


def test_compiled_function() -> None:
    traced = []

    @mm.compile
    def scaled(x: mm.Array, factor: float) -> mm.Array:
        traced.append(x.shape)
        return mm.tanh(x) * factor

    x = mm.linspace(-1.0, 1.0, 1001)
    for factor in (1.0, 2.0, 3.0):
        expected = np.tanh(np.asarray(x)) * factor
        np.testing.assert_allclose(np.asarray(scaled(x, factor)), expected, rtol=1e-5, atol=1e-6)
    assert traced == [(1001,)]


def test_train_save_and_load(tmp_path: Path) -> None:
    digits = mm.data.load("digits")

    def network() -> mm.nn.NeuralNetwork:
        hidden = mm.nn.Dense(64, activation="relu")
        return mm.nn.NeuralNetwork(
            [mm.nn.Flatten(), hidden, mm.nn.Dropout(0.1), mm.nn.Dense(10)],
            optimizer=mm.optim.Adam(5e-3),
        )

    net = network()
    test = digits.test_images, digits.test_labels
    history = net.fit(
        digits.train_images, digits.train_labels, batch_size=32, epochs=2, validation=test
    )
    assert history.loss[1] < history.loss[0]
    assert history.validation_accuracy[-1] > 0.85
    net.save(tmp_path / "weights.safetensors")
    other = network()
    other.load(tmp_path / "weights.safetensors")
    images = digits.test_images[:50]
    np.testing.assert_allclose(
        np.asarray(other.predict(images)), np.asarray(net.predict(images)), rtol=1e-5, atol=1e-5
    )


def test_table_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "table.csv"
    file.write_text("a,b\n1,2\n3,4.5\n")
    table = mm.data.read_csv(file, layout=mm.Layout.split(0))
    np.testing.assert_array_equal(np.asarray(mm.sum(table, axis=0)), [4.0, 6.5])
