"""Modules equal their PyTorch counterparts in training steps: loss, gradients and weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch

import magmath as mm
from engines import current
from magmath import nn
from magmath.errors import ShapeError

POOLS = [("inline", 1), ("shared", 2), ("messages", 4), ("processes", 2)]
STEPS = 4
DRAW = np.random.default_rng(4)
X = DRAW.normal(size=(24, 6))
LABELS = DRAW.integers(0, 5, 24)
TOKENS = DRAW.integers(0, 9, (24, 4))


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    mm.set_default_dtype("float64")
    yield
    mm.set_default_dtype("float32")


class Block(nn.Module):
    """A residual block with a list and a dictionary of modules."""

    def __init__(self, units: int) -> None:
        self.dense = [nn.Dense(units), nn.Dense(units, activation="tanh")]
        self.norms = {"batch": nn.BatchNorm(), "layer": nn.LayerNorm()}

    def __call__(self, x: mm.Array) -> mm.Array:
        y = self.norms["batch"](self.dense[0](x))
        return mm.relu(x + self.norms["layer"](self.dense[1](y)))


class TorchBlock(torch.nn.Module):
    def __init__(self, units: int) -> None:
        super().__init__()
        self.dense = torch.nn.ModuleList([torch.nn.Linear(units, units) for _ in range(2)])
        self.norms = torch.nn.ModuleDict(
            {"batch": torch.nn.BatchNorm1d(units), "layer": torch.nn.LayerNorm(units)}
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norms["batch"](self.dense[0](x))
        return torch.relu(x + self.norms["layer"](torch.tanh(self.dense[1](y))))


class Tied(nn.Module):
    """An embedding whose table also gives the scores of the tokens."""

    def __init__(self) -> None:
        self.table = nn.Embedding(9, 6)
        self.block = Block(6)

    def __call__(self, tokens: mm.Array) -> mm.Array:
        x = self.block(mm.mean(self.table(tokens), axis=1))
        return x @ self.table.weight.T


class TorchTied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(9, 6)
        self.block = TorchBlock(6)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.block(self.table(tokens).mean(1)) @ self.table.weight.T


def residual() -> tuple[nn.Module, torch.nn.Module, Any]:
    ours = nn.Sequential(Block(6), Block(6), nn.Dense(5))
    return ours, torch.nn.Sequential(TorchBlock(6), TorchBlock(6), torch.nn.Linear(6, 5)), X


def tied() -> tuple[nn.Module, torch.nn.Module, Any]:
    return Tied(), TorchTied(), TOKENS


def shared() -> tuple[nn.Module, torch.nn.Module, Any]:
    """One layer twice in a network."""
    layer, theirs = nn.Dense(6, activation="gelu"), torch.nn.Linear(6, 6)
    gelu = torch.nn.GELU()
    ours = nn.Sequential(layer, nn.LayerNorm(), layer, nn.Dense(5))
    modules = (theirs, gelu, torch.nn.LayerNorm(6), theirs, gelu, torch.nn.Linear(6, 5))
    return ours, torch.nn.Sequential(*modules), X


def images() -> tuple[nn.Module, torch.nn.Module, Any]:
    """Channels before two axes of a picture."""
    ours = nn.Sequential(nn.BatchNorm(), nn.Flatten(), nn.Dense(5))
    theirs = torch.nn.Sequential(
        torch.nn.BatchNorm2d(3), torch.nn.Flatten(), torch.nn.Linear(3 * 4 * 2, 5)
    )
    return ours, theirs, DRAW.normal(1, 2, size=(24, 3, 4, 2))


CASES: dict[str, Callable[[], tuple[nn.Module, torch.nn.Module, Any]]] = {
    "residual": residual,
    "tied": tied,
    "shared": shared,
    "images": images,
}


def take_weights(ours: nn.Module, theirs: torch.nn.Module) -> None:
    """Give the counterpart the weights, in the order of parameters, which is the same."""
    parameters = list(theirs.parameters())
    assert len(parameters) == len(ours.parameters())
    for (name, own), their in zip(ours.named_parameters(), parameters, strict=True):
        value = torch.from_numpy(own.numpy().copy())
        is_weight = name.endswith("weight") and value.ndim == 2 and "table" not in name
        their.data = value.T.contiguous() if is_weight else value


def check_weights(ours: nn.Module, theirs: torch.nn.Module) -> None:
    actual = [v.numpy() for v in ours.parameters()]
    expected = [p.detach().numpy() for p in theirs.parameters()]
    for (name, _), a, b in zip(ours.named_parameters(), actual, expected, strict=True):
        b = b.T if a.shape != b.shape or (name.endswith("weight") and _is_dense(ours, name)) else b
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10, err_msg=name)
    running = [v for k, v in theirs.named_buffers() if "running" in k]
    for (name, own), their in zip(ours.named_buffers(), running, strict=True):
        np.testing.assert_allclose(own.numpy(), their.numpy(), rtol=1e-9, err_msg=name)


def _is_dense(module: nn.Module, name: str) -> bool:
    return isinstance(dict(module.named_modules())[name.rpartition(".")[0]], nn.Dense)


def torch_losses(theirs: torch.nn.Module, x: Any, frozen: bool = False) -> list[float]:
    """The losses of training with momentum; with `frozen` without the first two parameters."""
    parameters = list(theirs.parameters())[2 if frozen else 0 :]
    optimizer = torch.optim.SGD(parameters, 0.05, momentum=0.9)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(
            theirs(torch.from_numpy(x)), torch.from_numpy(LABELS)
        )
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def built(case: str) -> tuple[nn.Module, torch.nn.Module, Any]:
    ours, theirs, x = CASES[case]()
    theirs.double()
    ours.build(x.shape, dtype=str(x.dtype))
    take_weights(ours, theirs)
    return ours, theirs, x


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("kind", "workers"), POOLS)
def test_loss_and_gradients(case: str, kind: str, workers: int) -> None:
    with current(kind, workers):
        ours, theirs, x = built(case)
        expected = torch.nn.functional.cross_entropy(
            theirs(torch.from_numpy(x)), torch.from_numpy(LABELS)
        )
        slopes = torch.autograd.grad(expected, list(theirs.parameters()))
        loss = nn.cross_entropy(ours(mm.asarray(x)), mm.asarray(LABELS))
        actual = mm.grad(loss, ours.trainable())
        np.testing.assert_allclose(float(loss), expected.item(), rtol=1e-10)
        for (name, _), a, b in zip(ours.named_parameters(), actual, slopes, strict=True):
            value = b.numpy().T if _is_dense(ours, name) and b.ndim == 2 else b.numpy()
            np.testing.assert_allclose(a.numpy(), value, rtol=1e-9, atol=1e-10, err_msg=name)


WITHOUT_MODELS = ("eager", "compiled", "data", "auto")
EVERY_WAY = (*WITHOUT_MODELS, "model", "model-input")
WAYS_OF_POOLS: dict[tuple[str, int], dict[str, Sequence[str]]] = {
    ("inline", 1): dict.fromkeys(CASES, EVERY_WAY),
    ("shared", 2): dict.fromkeys(CASES, EVERY_WAY),
    # Four workers take long, and two of the networks have no layers of other kinds. But only images
    # have statistics of channels before other axes, which workers add up.
    ("messages", 4): {
        "residual": EVERY_WAY,
        "tied": EVERY_WAY,
        "shared": ["model"],
        "images": ["data", "model"],
    },
    # The programs are those of threads, which show how models are divided.
    ("processes", 2): dict.fromkeys(CASES, WITHOUT_MODELS),
}
"""How each network is trained on each pool."""
TRAINED = [
    (case, way, kind, workers)
    for (kind, workers), cases in WAYS_OF_POOLS.items()
    for case, ways in cases.items()
    for way in ways
]


@pytest.mark.parametrize(("case", "way", "kind", "workers"), TRAINED)
def test_trajectories(case: str, way: str, kind: str, workers: int) -> None:
    """Also what the running statistics become, and the outputs in evaluation mode."""
    with current(kind, workers):
        ours, theirs, x = built(case)
        expected = torch_losses(theirs, x)
        actual = train(ours, x, way)
        np.testing.assert_allclose(actual, expected, rtol=1e-7)
        check_weights(ours, theirs)
        theirs.eval()
        outputs = ours.eval()(mm.asarray(x))
        np.testing.assert_allclose(
            outputs.numpy(), theirs(torch.from_numpy(x)).detach().numpy(), rtol=1e-6, atol=1e-9
        )


def train(module: nn.Module, x: Any, way: str) -> list[float]:
    optimizer = mm.optim.Momentum(0.05)
    if way not in ("eager", "compiled"):
        trainer = mm.train.Trainer(module, "cross_entropy", optimizer, strategy=way)
        history = trainer.fit(x, LABELS, batch_size=24, epochs=STEPS, shuffle=False)
        return history.step_losses

    def step(x: mm.Array, y: mm.Array) -> mm.Array:
        loss = nn.cross_entropy(module(x), y)
        parameters = module.trainable()
        optimizer.update(dict(zip(parameters, mm.grad(loss, parameters), strict=True)))
        return loss

    call = mm.compile(step) if way == "compiled" else step
    return [float(call(mm.asarray(x), mm.asarray(LABELS))) for _ in range(STEPS)]


@pytest.mark.parametrize("way", ["eager", "compiled", "data"])
@pytest.mark.parametrize(("kind", "workers"), POOLS[:3])
def test_frozen_parts_stay(way: str, kind: str, workers: int) -> None:
    with current(kind, workers):
        ours, theirs, x = built("residual")
        ours.freeze("0.dense.0")
        first = ours.parameters()[0].numpy()
        assert len(ours.trainable()) == len(ours.parameters()) - 2
        expected = torch_losses(theirs, x, frozen=True)
        np.testing.assert_allclose(train(ours, x, way), expected, rtol=1e-7)
        np.testing.assert_array_equal(ours.parameters()[0].numpy(), first)
        check_weights(ours, theirs)


ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "ReLU": torch.relu,
    "ReLU6": torch.nn.functional.relu6,
    "LeakyReLU": torch.nn.functional.leaky_relu,
    "ELU": torch.nn.functional.elu,
    "CELU": torch.nn.functional.celu,
    "SELU": torch.nn.functional.selu,
    "GELU": torch.nn.functional.gelu,
    "SiLU": torch.nn.functional.silu,
    "Mish": torch.nn.functional.mish,
    "Softplus": torch.nn.functional.softplus,
    "Softsign": torch.nn.functional.softsign,
    "Sigmoid": torch.sigmoid,
    "LogSigmoid": torch.nn.functional.logsigmoid,
    "Hardsigmoid": torch.nn.functional.hardsigmoid,
    "Hardswish": torch.nn.functional.hardswish,
    "Hardtanh": torch.nn.functional.hardtanh,
    "Tanh": torch.tanh,
    "Tanhshrink": torch.nn.functional.tanhshrink,
    "Softshrink": torch.nn.functional.softshrink,
    "Hardshrink": torch.nn.functional.hardshrink,
    "Softmin": lambda x: torch.nn.functional.softmin(x, -1),
    "GLU": torch.nn.functional.glu,
    "Softmax": lambda x: torch.softmax(x, -1),
    "LogSoftmax": lambda x: torch.log_softmax(x, -1),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize(("kind", "workers"), POOLS[:2])
def test_activations(name: str, kind: str, workers: int) -> None:
    points = [[30.0] * 6, [-30.0] * 6, [0.0] * 6, [-1.0, 1.0, -6.0, 6.0, -0.0, 20.0]]
    values = np.concatenate([DRAW.normal(0, 3, (20, 6)), points])
    with current(kind, workers):
        layer = getattr(nn, name)()
        x = mm.variable("x", values)
        y = layer(x)
        theirs = torch.from_numpy(values.copy()).requires_grad_()
        expected = ACTIVATIONS[name](theirs)
        weights = np.arange(float(y.size)).reshape(y.shape)
        (expected * torch.from_numpy(weights)).sum().backward()
        slope = mm.grad(mm.sum(y * mm.asarray(weights)), x)
        np.testing.assert_allclose(y.numpy(), expected.detach().numpy(), rtol=1e-9, atol=1e-12)
        assert theirs.grad is not None
        np.testing.assert_allclose(slope.numpy(), theirs.grad.numpy(), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gated_linear_units(axis: int) -> None:
    values = DRAW.normal(size=(4, 6, 2))
    with current("inline"):
        actual = nn.GLU(axis)(mm.asarray(values)).numpy()
        expected = torch.nn.functional.glu(torch.from_numpy(values), axis).numpy()
        np.testing.assert_allclose(actual, expected, rtol=1e-14)
        with pytest.raises(ShapeError, match=r"axis 0 into two halves, was given shape \(3, 6, 2"):
            nn.functional.glu(mm.asarray(values[:3]), 0)


def test_gelu_by_tanh() -> None:
    values = torch.linspace(-4, 4, 50, dtype=torch.float64)
    with current("inline"):
        actual = nn.GELU(approximate="tanh")(mm.asarray(values.numpy()))
        expected = torch.nn.functional.gelu(values, approximate="tanh").numpy()
        np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-9, atol=1e-12)
        with pytest.raises(ValueError, match="'none' or 'tanh', was given True"):
            nn.functional.gelu(actual, approximate=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize(
    "name", ["sigmoid", "silu", "gelu", "log_sigmoid", "softplus", "elu", "mish", "hard_sigmoid"]
)
def test_small_values_of_activations_are_exact(name: str, dtype: torch.dtype) -> None:
    """To a few units in the last place, also where a sum of the formula would cancel."""
    x = torch.linspace(-30.0, 30.0, 2001).to(dtype)
    function = getattr(nn.functional, name)
    exact = np.asarray(function(mm.asarray(x.double())))
    values = mm.astype(function(mm.asarray(x)), mm.float64).numpy()
    info = torch.finfo(dtype)
    kept = np.abs(exact) > 2 * info.tiny / info.eps
    if name in ("gelu", "silu", "mish"):  # float32 has 1 + erf(x) to 1e-5 there
        kept &= np.asarray(x.double()) > -3
    tolerance = 2e-5 if dtype is torch.float32 else 8 * info.eps
    np.testing.assert_allclose(values[kept], exact[kept], rtol=tolerance)
