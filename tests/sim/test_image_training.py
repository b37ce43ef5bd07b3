"""Networks of images train like their PyTorch counterparts: loss curves, running averages, resumption."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import magmath as mm
from engines import current
from magmath import nn
from magmath.nn import zoo
from torch_counterparts import Counterpart

POOLS = [("inline", 1), ("shared", 2), ("messages", 4)]
every_pool = pytest.mark.parametrize(("kind", "workers"), POOLS, ids=[f"{n}-{k}" for k, n in POOLS])
BATCH, EPOCHS = 40, 2


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    mm.set_default_dtype("float64")
    yield
    mm.set_default_dtype("float32")


def digits() -> tuple[Any, Any]:
    """100 of scikit-learn's digits at twice their size: the last batch of an epoch is smaller."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    images = images[:100].reshape(100, 1, 8, 8) / 16
    return np.kron(images, np.ones((1, 1, 2, 2))), labels[:100].astype("int64")


def branching() -> nn.Module:
    """Batch normalization, branches, a residual block and several kinds of pooling."""
    return nn.Sequential(
        nn.Conv2d(6, 3, padding="same", bias=False), nn.BatchNorm(), nn.ReLU(), nn.MaxPool2d(2),
        nn.Parallel(nn.Conv2d(4, 1), nn.Sequential(nn.MaxPool2d(3, 1, 1), nn.Conv2d(2, 1))),
        nn.Residual(nn.Sequential(nn.Conv2d(6, 3, padding=1, groups="depthwise"), nn.BatchNorm())),
        nn.AvgPool2d(2), nn.GlobalAvgPool(), nn.Dense(10),
    )  # fmt: skip


NETWORKS = {"lenet5": zoo.lenet5, "branching": branching}


def torch_curve(counterpart: Counterpart, x: Any, y: Any) -> list[float]:
    """The mean losses of epochs with momentum."""
    optimizer = torch.optim.SGD(list(counterpart.parameters.values()), 0.05, momentum=0.9)
    curve = []
    for _ in range(EPOCHS):
        total = 0.0
        for i in range(0, len(x), BATCH):
            optimizer.zero_grad()
            labels = torch.from_numpy(y[i : i + BATCH])
            loss = torch.nn.functional.cross_entropy(counterpart(x[i : i + BATCH]), labels)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(labels)
        curve.append(total / len(x))
    return curve


def check_state(network: nn.Module, counterpart: Counterpart) -> None:
    for path, value in network.state_dict().items():
        expected = counterpart.tensors[path].detach().numpy()
        np.testing.assert_allclose(value.numpy(), expected, rtol=1e-6, atol=1e-9, err_msg=path)


@every_pool
@pytest.mark.parametrize("name", NETWORKS)
def test_fit_has_the_curve_of_pytorch(name: str, kind: str, workers: int) -> None:
    x, y = digits()
    with current(kind, workers):
        network = NETWORKS[name]().build((1, 1, 16, 16))
        counterpart = Counterpart(network)
        trained = nn.NeuralNetwork(network, optimizer=mm.optim.Momentum(0.05), seed=1)
        history = trained.fit(x, y, batch_size=BATCH, epochs=EPOCHS, shuffle=False)
        expected = torch_curve(counterpart, x, y)
        assert history.loss == pytest.approx(expected, rel=1e-8)
        check_state(network, counterpart)
        for module in network.modules():
            module.training = False
        with torch.no_grad():
            scores = counterpart(x[:7]).numpy()
        np.testing.assert_allclose(trained.predict(x[:7]), scores, rtol=1e-6, atol=1e-8)


@every_pool
def test_a_loop_of_ones_own(kind: str, workers: int) -> None:
    """A compiled step with two modes: running averages move in training mode only."""
    x, y = digits()
    with current(kind, workers):
        network = branching().build((1, 1, 16, 16))
        counterpart, optimizer = Counterpart(network), mm.optim.Momentum(0.05)

        @mm.compile
        def step(x: mm.Array, y: mm.Array) -> mm.Array:
            loss, gradients = mm.value_and_grad(
                lambda: nn.cross_entropy(network(x), y), network.trainable()
            )
            optimizer.update(gradients)
            return loss

        scores = mm.compile(lambda x: network(x))
        curve = []
        for _ in range(EPOCHS):
            network.train()
            total = 0.0
            for i in range(0, len(x), BATCH):
                labels = mm.asarray(y[i : i + BATCH])
                total += float(step(mm.asarray(x[i : i + BATCH]), labels)) * labels.size
            curve.append(total / len(x))
            network.eval()
            before = network[1].running_mean.numpy().copy()
            result = scores(mm.asarray(x[:5])).numpy()
            np.testing.assert_array_equal(network[1].running_mean.numpy(), before)
        network.train()
        assert curve == pytest.approx(torch_curve(counterpart, x, y), rel=1e-8)
        check_state(network, counterpart)
        network.eval()
        with torch.no_grad():
            np.testing.assert_allclose(result, counterpart(x[:5]).numpy(), rtol=1e-6, atol=1e-8)


def test_running_averages_are_saved_and_training_resumes(tmp_path: Path) -> None:
    """Files hold running averages; interrupted training continues like uninterrupted training."""
    x, y = digits()
    with current("shared", 2):

        def fresh() -> mm.train.Trainer:
            return mm.train.Trainer(branching(), optimizer=mm.optim.Momentum(0.05), seed=5)

        whole, part, rest = fresh(), fresh(), fresh()
        first = whole.fit(x, y, batch_size=BATCH, epochs=3)
        part.fit(x, y, batch_size=BATCH, epochs=2, checkpoint=tmp_path / "run")
        last = rest.fit(x, y, batch_size=BATCH, epochs=3, checkpoint=tmp_path / "run", resume=True)
        assert last.loss == first.loss
        whole.module.save(tmp_path / "weights.safetensors")
        other = branching().build((1, 1, 16, 16))
        other.load(tmp_path / "weights.safetensors")
        for (path, a), (_, b) in zip(
            rest.module.state_dict().items(), other.state_dict().items(), strict=True
        ):
            np.testing.assert_array_equal(a.numpy(), b.numpy(), err_msg=path)


def test_auxiliary_classifiers_train() -> None:
    """Their losses count in training mode; evaluation has the scores alone."""
    random = np.random.default_rng(0)
    x, y = random.normal(size=(4, 1, 32, 32)), np.array([0, 1, 2, 0])
    with current("inline"):
        network = zoo.googlenet(classes=3, auxiliary=True)
        trainer = mm.train.Trainer(
            network, zoo.auxiliary_cross_entropy, mm.optim.GradientDescent(0.01), metrics=[]
        )
        history = trainer.fit(x, y, batch_size=4, epochs=1)
        assert np.isfinite(history.loss[0])
        assert trainer.predict(x).shape == (4, 3)
