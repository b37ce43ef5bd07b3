"""Deterministic pools add biases, residuals and updates to products by the same roundings, whether the
layouts of a number of workers would let a kernel do it or not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import magmath as mm
from engines import current
from magmath import nn
from magmath.layout import Layout

DRAW = np.random.default_rng(8)
X, H, W, B, R = (
    DRAW.normal(size=shape).astype("float32")
    for shape in ((8, 20), (8, 33), (20, 33), (33,), (8, 33))
)
IMAGES, FILTERS = (
    DRAW.normal(size=shape).astype("float32") for shape in ((6, 4, 7, 7), (8, 4, 3, 3))
)
LABELS = DRAW.integers(0, 5, 30)
SAMPLES = DRAW.normal(size=(30, 20)).astype("float32")


def _sums(layout: Layout | None) -> list[Any]:
    x, h, w, b, r = (mm.asarray(a) for a in (X, H, W, B, R))
    if layout is not None:
        w = w.redistribute(layout)
    convolved = nn.functional.conv(mm.asarray(IMAGES), mm.asarray(FILTERS))
    return [
        w - 0.01 * (mm.matrix_transpose(x) @ (h + 1)),
        x @ w + b,
        x @ w + r,
        mm.relu(x @ w + b),
        convolved + mm.reshape(b[:8], (1, 8, 1, 1)),
        convolved + convolved * 0.5,
    ]


LAYOUTS = [None, Layout.split(0), Layout.split(-1), Layout.on(0)]


def test_sums_with_products_agree_bit_for_bit() -> None:
    with current("exact", 1):
        expected = [np.asarray(value) for value in _sums(None)]
    for workers in (2, 3, 4):
        for layout in LAYOUTS:
            with current("exact", workers):
                for actual, value in zip(_sums(layout), expected, strict=True):
                    np.testing.assert_array_equal(actual, value, strict=True)


def _trained(workers: int, optimizer: str, batch: int, strategy: str) -> list[NDArray[Any]]:
    with current("exact", workers):
        layers = [nn.Dense(33), nn.Dense(5)]
        net = nn.NeuralNetwork(layers, optimizer=optimizer, seed=3)
        net.fit(SAMPLES, LABELS, batch_size=batch, epochs=2, strategy=strategy)
        values = [np.asarray(value) for value in net.parameters.values()]
        return [*values, np.asarray(net.predict(SAMPLES))]


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("batch", [8, 10, 16])
def test_small_batches_train_and_predict_bit_for_bit(optimizer: str, batch: int) -> None:
    expected = _trained(1, optimizer, batch, "data")
    for workers, strategy in ((2, "data"), (2, "parameter-server"), (2, "model"), (3, "data")):
        for actual, value in zip(
            _trained(workers, optimizer, batch, strategy), expected, strict=True
        ):
            np.testing.assert_array_equal(actual, value, strict=True)
