"""Arguments and data of PyTorch's programs: errors name magmath's."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import magmath as mm
from engines import current
from magmath import nn
from magmath.errors import DataError

CALLS: dict[str, tuple[Callable[[], Any], str]] = {
    "layers": (lambda: nn.LSTM(16, num_layers=2), "write layers=…"),
    "units": (lambda: nn.GRU(hidden_size=16), "write units=…"),
    "input_size": (lambda: nn.LSTM(input_size=8), "the number of inputs follows"),
    "batch_first": (lambda: nn.LSTM(16, batch_first=True), "arrays are (N, length, features)"),
    "bias": (lambda: nn.TransformerEncoderLayer(8, 2, bias=False), "no switch for its bias"),
    "affine": (lambda: nn.LayerNorm(bias=False), "write affine=…"),
    "in_features": (lambda: nn.Dense(in_features=3), "the number of inputs follows"),
    "moments": (lambda: nn.BatchNorm(track_running_stats=False), "write running_moments=…"),
    "features": (lambda: nn.MultiheadAttention(embed_dim=8, heads=2), "write features=…"),
    "heads": (lambda: nn.TransformerEncoderLayer(8, nhead=2), "write heads=…"),
    "feedforward": (
        lambda: nn.TransformerEncoderLayer(8, 2, dim_feedforward=9), "write feedforward=…"
    ),
    "mask": (
        lambda: nn.functional.scaled_dot_product_attention(*[mm.ones((2, 2))] * 3, attn_mask=None),
        "write mask=…",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_arguments_name_ours(name: str) -> None:
    call, remedy = CALLS[name]
    with current("inline"), pytest.raises(TypeError, match=re.escape(remedy)):
        call()


def _batches() -> list[tuple[Any, Any]]:
    return [(np.ones((4, 3), np.float32), np.arange(4) % 2) for _ in range(3)]


DATA: dict[str, Callable[[], Any]] = {
    "list": _batches,
    "iterator": lambda: iter(_batches()),
    "DataLoader": lambda: torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.ones(8, 3), torch.arange(8) % 2), batch_size=4
    ),
}


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("call", ["fit", "evaluate"])
def test_batches_in_place_of_samples(name: str, call: str) -> None:
    with current("inline"):
        trainers: Any = (
            mm.train.Trainer(nn.Dense(2).build((1, 3))), nn.NeuralNetwork([nn.Dense(2)])
        )  # fmt: skip
        for trainer in trainers:
            with pytest.raises(DataError, match=r"was given batches in a .*np\.concatenate"):
                getattr(trainer, call)(DATA[name]())


@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 2)])
@pytest.mark.parametrize("way", ["eager", "compiled"])
def test_a_loop_continues_exactly_from_the_state_of_the_generator(
    kind: str, workers: int, way: str
) -> None:
    """With the states of module and optimizer, it is that of all random numbers."""
    x, y = np.ones((8, 5), np.float32), np.arange(8) % 3

    def made() -> tuple[nn.Module, Any, Callable[[], Any]]:
        net = nn.Sequential(nn.Dense(16, "relu"), nn.Dropout(0.5), nn.Dense(3)).build((1, 5))
        optimizer = mm.optim.Adam(0.01)

        def step() -> mm.Array:
            noise = mm.random.normal(size=x.shape, scale=0.1)
            loss, gradients = mm.value_and_grad(
                lambda: nn.cross_entropy(net(x + noise), y), net.trainable()
            )
            optimizer.update(gradients)
            return loss

        return net, optimizer, mm.compile(step) if way == "compiled" else step

    with current(kind, workers):
        mm.random.seed(3)
        net, optimizer, step = made()
        for _ in range(3):
            step()
        saved = net.state_dict(), optimizer.state_dict(), mm.random.get_state()
        expected = [float(step()) for _ in range(3)]
        initial = nn.Dense(2).build((1, 2)).weight.numpy()
        mm.random.seed(9)
        again, other, step = made()
        again.load_state_dict(saved[0])
        other.load_state_dict(saved[1])
        mm.random.set_state(saved[2])
        assert [float(step()) for _ in range(3)] == expected
        np.testing.assert_array_equal(nn.Dense(2).build((1, 2)).weight, initial)


def test_states_that_are_none() -> None:
    with current("inline"):
        for state in (None, 3, {"seed": 1}, {"seed": 1, "next": -1, "initial": 0}):
            with pytest.raises((ValueError, TypeError)):
                mm.random.set_state(state)  # type: ignore[arg-type]
        with pytest.raises(mm.errors.TracingError):
            mm.compile(lambda: mm.random.set_state({"seed": 1, "next": 1, "initial": 1}))()
