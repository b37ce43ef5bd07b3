"""Batch normalization of a single value of each channel in training mode: an error with a remedy."""

from __future__ import annotations

import numpy as np
import pytest

import magmath as mm
from magmath import nn
from magmath.errors import ShapeError
from magmath.train import Trainer

RANDOM = np.random.default_rng(3)
X = RANDOM.standard_normal((9, 6)).astype("float32")
Y = RANDOM.integers(0, 3, 9)


def network() -> nn.Module:
    return nn.Sequential(nn.Dense(5), nn.BatchNorm(), nn.Dense(3))


@pytest.mark.parametrize(
    ("shape", "words"),
    [((1, 3), "1 samples of 1 values"), ((1, 3, 1, 1), "1 samples of 1 values"),
     ((0, 3, 2, 2), "0 samples of 4 values")],
)  # fmt: skip
def test_the_error_says_which_batch_it_is_and_the_remedies(
    shape: tuple[int, ...], words: str
) -> None:
    with pytest.raises(ShapeError, match=rf"{words}.*batch size.*drop_last=True.*module.eval\(\)"):
        nn.BatchNorm()(np.zeros(shape, np.float32))


def test_one_sample_with_several_pixels_has_moments() -> None:
    y = nn.BatchNorm()(mm.asarray(RANDOM.standard_normal((1, 3, 2, 2)).astype("float32")))
    assert np.abs(np.asarray(mm.mean(y, axis=(2, 3)))).max() < 1e-6


def test_fit_refuses_a_last_batch_of_one_sample_before_the_first_step() -> None:
    model = network()
    model.build((2, 6))
    before = [p.numpy() for p in model.trainable()]
    trainer = Trainer(model, "cross_entropy", mm.optim.Adam(0.1))
    with pytest.raises(ShapeError, match="last batch of an epoch.*drop_last"):
        trainer.fit(X, Y, batch_size=4)
    assert all(np.array_equal(p.numpy(), q) for p, q in zip(model.trainable(), before, strict=True))


def test_the_remedies_help() -> None:
    Trainer(network(), "cross_entropy", mm.optim.Adam()).fit(X, Y, batch_size=3)
    loader = mm.data.Loader((X, Y), 4, drop_last=True)
    Trainer(network(), "cross_entropy", mm.optim.Adam()).fit(loader)
    model = network()
    model.build((2, 6))
    assert model.eval()(mm.asarray(X[:1])).shape == (1, 3)
