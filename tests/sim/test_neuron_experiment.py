"""The single neuron on logical workers: the equations step by step, for any number of processes."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import magmath as mm
from magmath.reproduce.shm_neuron import GRID, RATE, WORKERS, Curves, train

STEPS, SEEDS = 60, 3


@cache
def curves(workers: int, every: int = 10) -> tuple[Curves, Curves]:
    with mm.init(workers, launcher="threads", threads=1, seed=1):
        return train(STEPS, SEEDS, every)


def loss_and_slopes(w: np.ndarray, b: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, ...]:
    y = 1 / (1 + np.exp(-(w * x + b)))
    error = y - (x >= 0.5)
    slope = error * y * (1 - y)
    return error**2 / 2, slope * x, slope


def counterpart(
    samples: np.ndarray, own: np.ndarray, workers: int, weights: bool, every: int
) -> list:
    """The report's equations 2.1 and 2.2, written out: a loss of the samples for each step."""
    result = []
    w, b = (own[i, :workers] if weights else np.repeat(own[i, :1], workers) for i in (0, 1))
    for number, x in enumerate(samples[:, :workers], start=1):
        loss, by_weight, by_bias = loss_and_slopes(w, b, x)
        result.append(loss.mean())
        if weights:
            w, b = w - RATE * by_weight, b - RATE * by_bias
            if number % every == 0:
                w, b = (np.full(workers, p.mean()) for p in (w, b))
        else:
            w, b = w - RATE * by_weight.mean(), b - RATE * by_bias.mean()
    return result


@pytest.mark.parametrize("weights", [False, True], ids=["gradients", "weights"])
def test_the_curves_are_those_of_the_equations(weights: bool) -> None:
    with mm.init(threads=1, seed=1):
        draw = mm.random.default_rng(0)
        samples = draw.uniform(size=(STEPS, SEEDS, max(WORKERS)), dtype=mm.float32)
        own = draw.normal(size=(2, SEEDS, max(WORKERS)), dtype=mm.float32)
        samples, own = (np.asarray(x).astype(np.float64) for x in (samples, own))
    actual = curves(0)[weights].sampled
    for i, workers in enumerate(WORKERS):
        for seed in range(SEEDS):
            expected = counterpart(samples[:, seed], own[:, seed], workers, weights, 10)
            np.testing.assert_allclose(actual[:, i, seed], expected, rtol=2e-3, atol=1e-5)


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_the_curves_do_not_depend_on_the_number_of_processes(workers: int) -> None:
    for one, several in zip(curves(0), curves(workers), strict=True):
        np.testing.assert_allclose(several.sampled, one.sampled, rtol=1e-3, atol=1e-6)
        np.testing.assert_allclose(several.true, one.true, rtol=1e-3, atol=1e-6)


def test_weights_averaged_after_every_step_are_gradients_averaged() -> None:
    """Equation 2.3. Both begin with other weights, which training forgets."""
    gradients, weights = curves(0, every=1)
    assert gradients.true.shape == (STEPS, len(WORKERS), SEEDS)
    apart = abs(gradients.true - weights.true).max(axis=(1, 2))
    assert apart[-1] < apart[0]


def test_the_true_loss_is_the_mean_over_all_inputs() -> None:
    assert GRID >= 16
    result = curves(0)[0].true
    assert result.shape == (STEPS, len(WORKERS), SEEDS)
    assert (result > 0).all()
    assert (result < 0.5).all()
