"""Random networks have PyTorch's losses and gradients, in any layout and on any workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import magmath as mm
from engines import current, debugged
from magmath import Layout
from magmath.core.optional_passes import OPTIONAL_PASSES
from random_networks import CLASSES, RandomNetwork

POOLS = [("inline", 1), ("planned", 1), ("shared", 2), ("messages", 3), ("hosts", 3)]
NETWORKS = 4  # on each pool, and others on each
LIMIT = 1e-8


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    mm.set_default_dtype("float64")
    yield
    mm.set_default_dtype("float32")


@pytest.mark.parametrize("number", range(NETWORKS))
@pytest.mark.parametrize("pool", range(len(POOLS)), ids=[f"{n}-{k}" for k, n in POOLS])
def test_a_random_network_equals_pytorch(pool: int, number: int) -> None:
    kind, workers = POOLS[pool]
    with current(kind, workers):
        check(pool * NETWORKS + number)


@pytest.mark.parametrize(
    "omitted",
    [*([name] for name in OPTIONAL_PASSES), [*OPTIONAL_PASSES]],
    ids=[*OPTIONAL_PASSES, "all"],
)
@pytest.mark.parametrize(("kind", "workers", "seed"), [("planned", 1, 11), ("shared", 2, 24)])
def test_numbers_need_no_optional_pass(kind: str, workers: int, seed: int, omitted: Any) -> None:
    with debugged(",".join(f"without={name}" for name in omitted), kind, workers):
        check(seed)


def check(seed: int) -> None:
    """Compare loss and gradients of two batches with those of PyTorch."""
    random = np.random.default_rng(seed)
    shape = (int(random.integers(1, 7)) + 1, 3, *[int(n) for n in random.integers(5, 13, size=2)])
    network = RandomNetwork(seed, shape)
    weights = {name: mm.variable(name, value) for name, value in network.weights.items()}

    @mm.compile
    def step(x: mm.Array, labels: mm.Array) -> Any:
        return mm.value_and_grad(
            lambda: mm.nn.cross_entropy(network.ours(weights, x), labels),
            list(weights.values()),
        )

    scores = mm.compile(lambda x: network.ours(weights, x))
    for _ in range(2):
        images = random.normal(size=shape)
        labels = random.integers(0, CLASSES, shape[0])
        x = mm.asarray(images)
        axis = int(random.integers(5))
        x = x if axis == 4 else x.redistribute(Layout.split(axis))
        _check_scores(network, weights, scores, images)
        loss, gradients = step(x, mm.asarray(labels))
        expected, slopes = _expected(network, images, labels)
        np.testing.assert_allclose(float(loss), expected, rtol=LIMIT, err_msg=repr(network))
        for name, slope in slopes.items():
            scale = max(1e-3, float(np.abs(slope).max(initial=0)))
            np.testing.assert_allclose(
                gradients[weights[name]].numpy(), slope, rtol=LIMIT, atol=LIMIT * scale,
                err_msg=f"{name} of {network!r}",
            )  # fmt: skip
        _change(network, weights)


def _check_scores(network: RandomNetwork, weights: Any, scores: Any, images: Any) -> None:
    """Compare the outputs of inference, for which values of weights alone are computed once."""
    constants = {name: torch.from_numpy(value) for name, value in network.weights.items()}
    expected = network.theirs(constants, torch.from_numpy(images)).numpy()
    scale = float(np.abs(expected).max())
    np.testing.assert_allclose(
        scores(mm.asarray(images)).numpy(), expected, rtol=LIMIT, atol=LIMIT * scale,
        err_msg=repr(network),
    )  # fmt: skip


def _change(network: RandomNetwork, weights: dict[str, mm.Variable]) -> None:
    """Assign other values to every second weight."""
    for name in list(weights)[::2]:
        network.weights[name] = network.weights[name] * 0.5 + 0.1
        weights[name].assign(network.weights[name])


def _expected(network: RandomNetwork, images: Any, labels: Any) -> tuple[float, dict[str, Any]]:
    weights = {
        name: torch.from_numpy(value).requires_grad_() for name, value in network.weights.items()
    }
    scores = network.theirs(weights, torch.from_numpy(images))
    loss = torch.nn.functional.cross_entropy(scores, torch.from_numpy(labels))
    slopes = torch.autograd.grad(loss, list(weights.values()))
    return loss.item(), {name: g.numpy() for name, g in zip(weights, slopes, strict=True)}
