"""The running moments of batch normalization equal PyTorch's, for every momentum."""

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
from magmath.interop import from_onnx, to_onnx

POOLS = [("inline", 1), ("shared", 2), ("messages", 2)]
X = np.random.default_rng(0).normal(2, 3, size=(24, 5))
LABELS = np.random.default_rng(1).integers(0, 3, 24)
RATE = 0.05


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    mm.set_default_dtype("float64")
    yield
    mm.set_default_dtype("float32")


def networks(momentum: float | None, running: bool) -> tuple[nn.Module, torch.nn.Module]:
    norm = nn.BatchNorm(momentum, running_moments=running)
    ours = nn.Sequential(norm, nn.Dense(3)).build((2, 5))
    theirs = torch.nn.Sequential(
        torch.nn.BatchNorm1d(5, momentum=momentum, track_running_stats=running),
        torch.nn.Linear(5, 3),
    ).double()
    theirs[1].weight.data = torch.from_numpy(ours[1].weight.numpy().T.copy())
    theirs[1].bias.data = torch.from_numpy(ours[1].bias.numpy().copy())
    return ours, theirs


def train_both(ours: nn.Module, theirs: torch.nn.Module, way: str) -> None:
    """Train with the three batches of 8 samples, twice."""
    rule, optimizer = torch.optim.SGD(theirs.parameters(), RATE), mm.optim.GradientDescent(RATE)

    def step(x: Any, y: Any) -> mm.Array:
        loss, gradients = mm.value_and_grad(lambda: nn.cross_entropy(ours(x), y), ours.trainable())
        optimizer.update(gradients)
        return loss

    run = mm.compile(step) if way == "compiled" else step
    for _ in range(2):
        for i in range(0, 24, 8):
            x, y = X[i : i + 8], LABELS[i : i + 8]
            rule.zero_grad()
            torch.nn.functional.cross_entropy(
                theirs(torch.from_numpy(x)), torch.from_numpy(y)
            ).backward()
            rule.step()
            if way != "fit":
                run(mm.asarray(x), mm.asarray(y))
    if way == "fit":
        trainer = mm.train.Trainer(ours, loss="cross_entropy", optimizer=optimizer, strategy="data")
        settings: dict[str, Any] = {"batch_size": 8, "shuffle": False, "verbose": False}
        trainer.fit(X, LABELS, epochs=2, **settings)


def check_equal(ours: nn.Module, theirs: torch.nn.Module) -> None:
    actual = {k.replace("variance", "var"): v.numpy() for k, v in ours.state_dict().items()}
    for name, value in theirs.state_dict().items():
        if name in actual:
            expected = value.T if name == "1.weight" else value
            np.testing.assert_allclose(actual.pop(name), expected, rtol=1e-9, atol=1e-10)
    assert not actual
    x = X[:5] + 1
    outputs = theirs.eval()(torch.from_numpy(x)).detach()
    np.testing.assert_allclose(ours.eval()(x), outputs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("momentum", "running"), [(0.3, True), (1.0, True), (0.0, True), (None, True), (None, False)]
)
@pytest.mark.parametrize("way", ["eager", "compiled", "fit"])
@pytest.mark.parametrize(("kind", "workers"), POOLS)
def test_moments_are_those_of_pytorch(
    kind: str, workers: int, way: str, momentum: float | None, running: bool
) -> None:
    with current(kind, workers):
        ours, theirs = networks(momentum, running)
        train_both(ours, theirs, way)
        names = {name.rpartition(".")[2] for name, _ in ours.named_buffers()}
        counts = {"num_batches_tracked"} if momentum is None else set()
        assert names == ({"running_mean", "running_variance", *counts} if running else set())
        check_equal(ours, theirs)


def test_the_average_continues_from_a_saved_state(tmp_path: Path) -> None:
    with current("inline", 1):
        ours, theirs = networks(None, True)
        train_both(ours, theirs, "eager")
        ours.save(tmp_path / "x.safetensors")
        again, _ = networks(None, True)
        again.load(tmp_path / "x.safetensors")
        assert int(again[0].num_batches_tracked) == 6
        train_both(again, theirs, "compiled")
        check_equal(again, theirs)


def test_models_of_other_programs(tmp_path: Path) -> None:
    with current("inline", 1):
        ours, theirs = networks(None, True)
        train_both(ours, theirs, "eager")
        converted = mm.interop.from_torch(theirs.train(), torch.from_numpy(X))
        for batch in (X[:9], X[9:] * 2):
            outputs = theirs(torch.from_numpy(batch)).detach()
            np.testing.assert_allclose(converted(batch), outputs, atol=1e-9)
        for name, value in theirs.state_dict().items():
            np.testing.assert_allclose(converted.state_dict()[name], value, rtol=1e-9)
        outputs = theirs.eval()(torch.from_numpy(X)).detach()
        np.testing.assert_allclose(converted.eval()(X), outputs, atol=1e-9)
        to_onnx(ours, tmp_path / "x.onnx", X)
        np.testing.assert_allclose(from_onnx(tmp_path / "x.onnx")(X), ours.eval()(X), atol=1e-9)


def test_a_layer_that_counts_batches_is_made_before_the_pool() -> None:
    """It stores nothing in the pool that another one replaces."""
    norm = nn.BatchNorm(momentum=None)
    with mm.init(workers=2, launcher="threads", device="cpu"):
        x = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
        norm(mm.asarray(x))
        np.testing.assert_allclose(norm.running_mean, x.mean(0), rtol=1e-5)
        assert norm.num_batches_tracked.tolist() == 1
