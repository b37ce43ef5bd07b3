"""LeNet-5 on real images: the losses of PyTorch from the same weights and batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import magmath as mm
from engines import current
from magmath.data import load, normalize, pixel_statistics, resize
from magmath.errors import MissingDataError

BATCH, STEPS = 32, 12


def images_of(name: str) -> tuple[Any, Any]:
    """The first normalized training images (N, 1, 28, 28) of a set, and their labels."""
    try:
        data = load(name)
    except MissingDataError:
        pytest.skip(f"{name} is not on this machine: apt install dataset-fashion-mnist")
    random = np.random.default_rng(0)
    images = resize(28)(data.train_images[: BATCH * STEPS], random)
    return normalize(*pixel_statistics(images))(images, random), data.train_labels[: BATCH * STEPS]


def torch_losses(weights: list[Any], images: Any, labels: Any) -> list[float]:
    """The losses of one epoch of Adam."""
    parameters = [torch.from_numpy(w.copy()).requires_grad_() for w in weights]
    optimizer = torch.optim.Adam(parameters, lr=1e-3)
    result = []
    for start in range(0, len(labels), BATCH):
        x = torch.from_numpy(images[start : start + BATCH])
        w = iter(parameters)
        x = F.max_pool2d(F.relu(F.conv2d(x, next(w), next(w), padding=2)), 2)
        x = F.max_pool2d(F.relu(F.conv2d(x, next(w), next(w))), 2).flatten(1)
        x = F.relu(x @ next(w) + next(w))
        x = F.relu(x @ next(w) + next(w))
        loss = F.cross_entropy(
            x @ next(w) + next(w), torch.from_numpy(labels[start : start + BATCH])
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        result.append(loss.item())
    return result


@pytest.mark.parametrize("name", ["digits", "fashion-mnist"])
@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 2), ("messages", 2)])
def test_losses_are_those_of_torch(name: str, kind: str, workers: int) -> None:
    images, labels = images_of(name)
    with current(kind, workers):
        network = mm.nn.zoo.lenet5().build((1, 1, 28, 28))
        weights = [np.asarray(parameter) for parameter in network.parameters()]
        trainer = mm.train.Trainer(network, optimizer=mm.optim.Adam(1e-3))
        history = trainer.fit(images, labels, batch_size=BATCH, shuffle=False)
    expected = torch_losses(weights, images, labels)
    np.testing.assert_allclose(history.step_losses, expected, rtol=1e-3)
    assert expected[-1] < 0.9 * expected[0]
