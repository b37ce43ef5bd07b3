"""Model parallelism by kind of layer: which axis of which parameter is divided, and equal numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import magmath as mm
from engines import current
from magmath import nn
from magmath.errors import MagmathError, OptionError
from magmath.parallel import ModelParallel

Axes = dict[str, int | None]


class Masked(nn.Module):
    """A layer of a user: (units, inputs) as in PyTorch, through a mask and a transposition."""

    def __init__(self) -> None:
        self.own = nn.Parameter(np.random.default_rng(0).normal(size=(8, 8)) * 0.3)
        self.shift = nn.Parameter(np.zeros((8, 1)))
        self.mask = np.tril(np.ones((8, 8)))

    def __call__(self, x: Any) -> Any:
        return x @ mm.permute_dims(self.own * self.mask, (1, 0)) + mm.reshape(self.shift, (8,))


class LowRank(nn.Module):
    """A product of two parameters."""

    def __init__(self) -> None:
        draw = np.random.default_rng(0)
        self.left = nn.Parameter(draw.normal(size=(8, 5)) * 0.3)
        self.right = nn.Parameter(draw.normal(size=(5, 8)) * 0.3)

    def __call__(self, x: Any) -> Any:
        return x @ (self.left @ self.right)


class Twice(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        self.layer = layer

    def __call__(self, x: Any) -> Any:
        return self.layer(x, x)


class First(nn.Module):
    """The outputs of a recurrent network."""

    def __init__(self, layer: nn.Module) -> None:
        self.layer = layer

    def __call__(self, x: Any) -> Any:
        return self.layer(x)[0]


class Rows(nn.Module):
    """An embedding of integers given as floating point numbers."""

    def __init__(self) -> None:
        self.table = nn.Embedding(12, 8)

    def __call__(self, x: Any) -> Any:
        return self.table(mm.astype(mm.abs(x) * 3 % 12, mm.int64))


FLAT, STEPS, LINE, IMAGE, VOLUME = (8,), (5, 8), (8, 9), (8, 5, 5), (8, 3, 3, 3)
BIAS: Axes = {"bias": 0}
KINDS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], Axes, Axes]] = {
    # a layer, the shape of a sample, the axes of outputs and of inputs
    "dense": (lambda: nn.Dense(8), FLAT, {"weight": 1, "bias": 0}, {"weight": 0, "bias": None}),
    "dense steps": (lambda: nn.Dense(8), STEPS, {"weight": 1} | BIAS, {"weight": 0, "bias": None}),
    "bilinear": (
        lambda: Twice(nn.Bilinear(8)), FLAT, {"layer.weight": 0, "layer.bias": 0},
        {"layer.weight": 1, "layer.bias": None},
    ),
    "conv1d": (lambda: nn.Conv1d(8, 3), LINE, {"weight": 0} | BIAS, {"weight": 1, "bias": None}),
    "conv2d": (lambda: nn.Conv2d(8, 3), IMAGE, {"weight": 0} | BIAS, {"weight": 1, "bias": None}),
    "conv3d": (lambda: nn.Conv3d(8, 2), VOLUME, {"weight": 0} | BIAS, {"weight": 1, "bias": None}),
    "transposed": (
        lambda: nn.ConvTranspose2d(8, 3, stride=2), IMAGE, {"weight": 1} | BIAS,
        {"weight": 0, "bias": None},
    ),
    "depthwise": (
        lambda: nn.Conv2d(8, 3, groups="depthwise"), IMAGE, {"weight": 0} | BIAS,
        {"weight": None, "bias": None},
    ),
    "groups": (
        lambda: nn.Conv2d(8, 3, groups=2), IMAGE, {"weight": None, "bias": None},
        {"weight": None, "bias": None},
    ),
    "embedding": (Rows, STEPS[:1], {"table.weight": 1}, {"table.weight": 0}),
    "batch norm": (
        nn.BatchNorm, IMAGE, {"weight": 0, "bias": 0}, {"weight": None, "bias": None}
    ),
    "layer norm": (
        nn.LayerNorm, FLAT, {"weight": 0, "bias": 0}, {"weight": None, "bias": None}
    ),
    "group norm": (
        lambda: nn.GroupNorm(2), IMAGE, {"weight": 0, "bias": 0}, {"weight": None, "bias": None}
    ),
    "prelu": (lambda: nn.PReLU(8), FLAT, {"weight": 0}, {"weight": None}),
    "lstm": (
        lambda: First(nn.LSTM(8)), STEPS,
        {f"layer.layers.0.0.{name}": axis for name, axis in
         [("input_weight", 1), ("hidden_weight", 1), ("input_bias", 0), ("hidden_bias", 0)]},
        {f"layer.layers.0.0.{name}": axis for name, axis in
         [("input_weight", 0), ("hidden_weight", 0), ("input_bias", None), ("hidden_bias", None)]},
    ),
    "attention": (
        lambda: nn.MultiheadAttention(8, 2), STEPS,
        {f"{name}.weight": 1 for name in ("query", "key", "value", "output")}
        | {f"{name}.bias": 0 for name in ("query", "key", "value", "output")},
        {f"{name}.weight": 0 for name in ("query", "key", "value", "output")}
        | {f"{name}.bias": None for name in ("query", "key", "value", "output")},
    ),
    "masked": (Masked, FLAT, {"own": 0, "shift": 0}, {"own": 1, "shift": None}),
    "low rank": (LowRank, FLAT, {"left": None, "right": None}, {"left": None, "right": None}),
}  # fmt: skip


def trained(make: Callable[[], nn.Module], shape: tuple[int, ...], strategy: Any) -> Any:
    """Two steps of the layer and a dense one."""
    draw = np.random.default_rng(1)
    x, y = draw.normal(size=(24, *shape)), draw.integers(0, 8, 24)
    layers = [make(), nn.Flatten(), nn.Dense(8)]
    net = nn.NeuralNetwork(layers, optimizer=mm.optim.Momentum(0.05), seed=1)
    net.fit(x, y, batch_size=12, epochs=1, strategy=strategy)
    return net


@pytest.fixture(autouse=True)
def _in_float64() -> Any:
    mm.set_default_dtype(mm.float64)
    yield
    mm.set_default_dtype(mm.float32)


@pytest.mark.parametrize("option", ["output", "input"])
@pytest.mark.parametrize("name", KINDS)
def test_layers_are_divided_along_their_outputs_or_inputs(name: str, option: str) -> None:
    make, shape, outputs, inputs = KINDS[name]
    with current("inline"):
        one = trained(make, shape, ModelParallel(option))
        expected = {path: v.numpy() for path, v in one.parameters.items()}
        losses = one.history.step_losses
    for kind, workers in (("shared", 2), ("messages", 3)):
        with current(kind, workers):
            net = trained(make, shape, ModelParallel(option))
            np.testing.assert_allclose(net.history.step_losses, losses, rtol=1e-9)
            for path, v in net.parameters.items():
                np.testing.assert_allclose(v.numpy(), expected[path], rtol=1e-8, atol=1e-11)
            for path, axis in (outputs if option == "output" else inputs).items():
                splits = net.parameters[f"0.{path}"].layout.splits
                actual = [d for d, split in enumerate(splits) if split is not None]
                assert actual == ([] if axis is None else [axis]), path


@pytest.mark.parametrize("kind", ["shared", "messages"])
@pytest.mark.parametrize("workers", [2, 4])
def test_convolutions_of_many_channels_compute_their_share_of_the_outputs(
    kind: str, workers: int
) -> None:
    """Weights of 2.4 MB are not gathered for 8 small images."""
    draw = np.random.default_rng(1)
    x, y = draw.normal(size=(8, 256, 3, 3)), draw.integers(0, 256, 8)
    layers = [nn.Conv2d(256, 3, padding=1, activation="relu"), nn.GlobalAvgPool()]
    with current(kind, workers):
        net = nn.NeuralNetwork([*layers, nn.Flatten()], seed=1)
        net.fit(x, y, batch_size=8, epochs=0, strategy="model")
        steps = net.explain().instructions
        (forward,) = [step.text for step in steps if step.operation == "correlation"]
        assert "float64[8, 256, 3, 3] S(1) " in forward.partition("= correlation")[0]
        assert max(step.nbytes for step in steps) < 8 * 256 * 256 * 9


@pytest.mark.parametrize(
    ("make", "shape", "option", "extent", "reason"),
    [
        (lambda: nn.Conv2d(3, 5), (8, 7, 7), "output", 3, "3 "),
        (lambda: nn.Conv2d(8, 5), (3, 7, 7), "input", 3, "3 "),
        (lambda: nn.ConvTranspose2d(3, 5), (8, 7, 7), "output", 3, "3 "),
        (lambda: nn.Conv2d(8, 5, groups=2), (8, 7, 7), "output", 0, "no outputs by which"),
        (lambda: nn.Dense(3), (8,), "output", 3, "3 "),
    ],
)
def test_a_layer_with_fewer_outputs_than_workers_cannot_be_divided(
    make: Any, shape: Any, option: str, extent: int, reason: str
) -> None:
    with current("shared", 4):
        with pytest.raises(OptionError, match=f"layer '0' has {reason}"):
            trained(make, shape, {"0": option})
        net = trained(make, shape, ModelParallel(option))  # the last layer is divided
        assert net.history.strategy == f"0: data, 2: {option}"
        x, y = np.zeros((8, *shape)), np.zeros((8, 2))
        small = nn.NeuralNetwork([make(), nn.Flatten(), nn.Dense(2)], loss="mean_squared_error")
        if option == "output":
            with pytest.raises(MagmathError, match=f"no layer has more than {max(extent, 2)};"):
                small.fit(x, y, strategy=ModelParallel(option))
