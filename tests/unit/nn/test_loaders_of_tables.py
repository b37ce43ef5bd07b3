"""Loaders of samples that are no images: tables, tokens, sequences and targets that are numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import magmath as mm
from engines import current
from magmath import nn

DRAW = np.random.default_rng(0)
TABLE = DRAW.normal(size=(50, 6)).astype(np.float32)
TOKENS = DRAW.integers(0, 9, (50, 4))
LABELS = DRAW.integers(0, 3, 50)
NUMBERS = DRAW.normal(size=(50, 2)).astype(np.float32)


def dense(outputs: int) -> list[nn.Module]:
    return [nn.Dense(8, activation="tanh"), nn.Dense(outputs)]


CASES: dict[str, tuple[Any, Any, Any, str]] = {
    "table, labels": (TABLE, LABELS, lambda: dense(3), "cross_entropy"),
    "table, numbers": (TABLE, NUMBERS, lambda: dense(2), "mean_squared_error"),
    "float64, numbers": (
        TABLE.astype(np.float64),
        NUMBERS.astype(np.float64),
        lambda: dense(2),
        "mean_squared_error",
    ),
    "tokens, labels": (
        TOKENS.astype(np.int16),
        LABELS.astype(np.uint8),
        lambda: [nn.Embedding(9, 5), nn.Flatten(), nn.Dense(3)],
        "cross_entropy",
    ),
    "sequences, one number": (
        TABLE.reshape(50, 2, 3),
        NUMBERS[:, :1],
        lambda: [nn.Flatten(), nn.Dense(1)],
        "mean_squared_error",
    ),
}


@pytest.mark.parametrize("kind", [("inline", 1), ("shared", 2)], ids=lambda kind: kind[0])
@pytest.mark.parametrize("name", CASES)
def test_a_loader_trains_as_the_arrays_do(name: str, kind: tuple[str, int]) -> None:
    samples, targets, layers, loss = CASES[name]
    with current(*kind):
        ends = []
        for loads in (False, True):
            net = nn.NeuralNetwork(layers(), loss=loss, optimizer="sgd", seed=1)
            if loads:
                loader = mm.data.Loader((samples, targets), 16, shuffle=False, threads=1)
                net.fit(loader, epochs=2)
                scores = net.evaluate(mm.data.Loader((samples, targets), 7, threads=0))
            else:
                integers = samples.dtype.kind == "i"
                net.fit(
                    samples if integers else samples.astype(np.float32),
                    targets if targets.dtype.kind in "iu" else targets.astype(np.float32),
                    batch_size=16,
                    epochs=2,
                    shuffle=False,
                )
                scores = net.evaluate(samples, targets)
            ends.append((net.history.step_losses, scores["loss"]))
    np.testing.assert_allclose(ends[1][0], ends[0][0], rtol=1e-5)
    np.testing.assert_allclose(ends[1][1], ends[0][1], rtol=1e-5)


def test_types_of_batches() -> None:
    for samples, targets, *_ in CASES.values():
        x, y = next(iter(mm.data.Loader((samples, targets), 8, shuffle=False)))
        assert x.dtype == (np.int64 if samples.dtype.kind == "i" else np.float32)
        assert y.dtype == (np.int64 if targets.dtype.kind in "iu" else np.float32)
        np.testing.assert_array_equal(x, samples[:8].astype(x.dtype))
        np.testing.assert_array_equal(y, targets[:8].astype(y.dtype))
