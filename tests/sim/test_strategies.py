"""What holds for every strategy: samples weigh equally, errors end steps, workers may be many."""

from __future__ import annotations

import copy
import pickle
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import current
from magmath import nn
from magmath.graph import KernelCall
from magmath.kernels import allreduce
from magmath.ops import OPERATIONS
from magmath.parallel import (
    STRATEGIES,
    Asynchronous,
    Auto,
    DataParallel,
    Hybrid,
    WeightAveraging,
)

DRAW = np.random.default_rng(5)
X = DRAW.normal(size=(64, 7))
Y = DRAW.integers(0, 5, 64)
AVERAGING = [
    *[name for name in STRATEGIES if name != "asynchronous"],
    DataParallel(accumulate=3),
    DataParallel("ring", accumulate=2),
    Hybrid({"0": "output", "1": "input"}),
    Asynchronous(3, schedule=[0]),
]
"""Strategies that train as one worker does."""


@pytest.fixture(autouse=True)
def _in_float64() -> Any:
    mm.set_default_dtype(mm.float64)
    yield
    mm.set_default_dtype(mm.float32)


def trained(strategy: Any, samples: int, batch: int, epochs: int = 1) -> tuple[list[float], Any]:
    layers = [nn.Dense(9, activation="tanh"), nn.Dense(5)]
    net = nn.NeuralNetwork(layers, optimizer=mm.optim.Momentum(0.1), seed=1)
    net.fit(X[:samples], Y[:samples], batch_size=batch, epochs=epochs, strategy=strategy)
    return net.history.step_losses, {k: v.numpy() for k, v in net.module.state_dict().items()}


def check_equal(actual: tuple[list[float], Any], expected: tuple[list[float], Any]) -> None:
    np.testing.assert_allclose(actual[0], expected[0], rtol=1e-9)
    for name, value in expected[1].items():
        np.testing.assert_allclose(actual[1][name], value, rtol=1e-8, atol=1e-11, err_msg=name)


@pytest.mark.parametrize("workers", [2, 3, 4])
@given(data=st.data())
@settings(max_examples=4, deadline=None)
def test_samples_weigh_equally(workers: int, data: st.DataObject) -> None:
    """Also if the shares of the workers, or the last batch, are smaller, or empty."""
    samples = data.draw(st.integers(1, 30), "samples")
    batch = data.draw(st.integers(1, samples), "batch")
    strategy = data.draw(st.sampled_from(AVERAGING), "strategy")
    kind = data.draw(st.sampled_from(["shared", "messages"]), "pool")
    with current("inline"):
        expected = trained("data", samples, batch)
    with current(kind, workers):
        check_equal(trained(strategy, samples, batch), expected)


# bits ---------------------------------------------------------------------------------------------

EXACT = [
    ("data", (1, 2, 3, 8)),
    ("sharded", (1, 3, 4)),
    ("ring", (1, 3)),
    ("tree", (1, 3, 8)),
    ("parameter-server", (1, 3)),
    (DataParallel(accumulate=3), (1, 3)),
    (DataParallel("sharded", messages="bfloat16"), (1, 3)),
    (DataParallel(messages="1-bit"), (1, 2)),
    (Asynchronous(2, schedule=[0, 2, 1]), (1, 3)),
]


@pytest.mark.parametrize(("strategy", "counts"), EXACT, ids=str)
def test_deterministic_training_has_the_same_bits(strategy: Any, counts: Sequence[int]) -> None:
    """For any number of workers, with dropout, batch norm, shuffling and a smaller last batch."""
    ends = []
    for workers in counts:
        with current("exact", workers):
            layers = [nn.Dense(9), nn.BatchNorm(), nn.ReLU(), nn.Dropout(0.3, seed=3), nn.Dense(5)]
            net = nn.NeuralNetwork(layers, optimizer="momentum", seed=1)
            net.fit(X[:33], Y[:33], batch_size=20, epochs=1, strategy=strategy)
            state = {name: v.numpy() for name, v in net.module.state_dict().items()}
            ends.append((net.history.step_losses, state))
    for steps, state in ends[1:]:
        assert steps == ends[0][0]
        for name, value in state.items():
            np.testing.assert_array_equal(value, ends[0][1][name], err_msg=name)


@pytest.mark.parametrize("kind", ["exact", "shared", "messages"])
def test_a_moved_variable_has_the_layout_of_its_data(kind: str) -> None:
    """The evaluation may store copies for all workers of a host once."""
    with current(kind, 3) as pool:
        v = mm.variable("residual", mm.zeros((1, 45)))
        for _ in range(2):
            v.move(mm.Layout.replicated_on((1, 45), pool.mesh))
            assert v.stored.layout == v.leaf.layout
            assert float(mm.sum(v * 1.0 + 1.0)) == 45.0


# many workers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("workers", "strategy"), [(8, "sharded"), (16, "data")])
def test_many_workers_train_as_one_does(workers: int, strategy: str) -> None:
    with current("inline"):
        expected = trained("data", 50, 20)
    with current("shared", workers):
        check_equal(trained(strategy, 50, 20), expected)


def test_many_asynchronous_workers_finish() -> None:
    """Least squares with delays of up to 20 updates."""
    y = X[:, :2] - X[:, 2:4]
    with current("shared", 16):
        layer = nn.Dense(2, bias=False)
        optimizer = mm.optim.GradientDescent(0.01)
        net = nn.NeuralNetwork([layer], loss="mean_squared_error", optimizer=optimizer, seed=1)
        history = net.fit(X, y, batch_size=1, epochs=6, strategy=Asynchronous(20))
        assert len(history.step_losses) == 6 * 64
        assert history.loss[-1] < 0.5 * history.loss[0]
        assert max(one["max"] for one in history.delays) <= 20


# errors -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["ring", "tree"])
def test_an_error_in_a_collective_ends_the_step_everywhere(
    strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others wait for messages of worker 1, which never come."""
    bind = getattr(allreduce, strategy)

    def broken(comm: Any, result: torch.Tensor, parts: torch.Tensor, messages: str) -> Any:
        ready = bind(comm, result, parts, messages)

        def run() -> None:
            if comm.rank == 1:
                raise ValueError("the sum is broken")
            ready()

        return run

    with mm.init(3, launcher="threads") as pool:
        monkeypatch.setattr(allreduce, strategy, broken)
        start = time.monotonic()
        with pytest.raises(ValueError, match="the sum is broken"):
            trained(strategy, 30, 10)
        assert time.monotonic() - start < 40
        assert pool.closed
    monkeypatch.undo()
    with mm.init(3, launcher="threads"):
        assert len(trained(strategy, 30, 10)[0]) == 3


@pytest.mark.parametrize("strategy", ["data", "sharded", "parameter-server", "model"])
def test_an_error_of_one_kernel_ends_the_step_and_the_pool_goes_on(
    strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = OPERATIONS["gemm"]

    def kernel(call: KernelCall) -> Callable[[], object]:
        def run() -> None:
            raise ValueError("the product is broken")

        return run if call.context.rank == 1 else original.kernel(call)

    with current("shared", 2) as pool:
        with monkeypatch.context() as patch:
            patch.setitem(OPERATIONS, "gemm", replace(original, kernel=kernel))
            with pytest.raises(ValueError, match="the product is broken"):
                trained(strategy, 31, 10)
        assert not pool.closed
        assert len(trained(strategy, 29, 10)[0]) == 3


# explanations -------------------------------------------------------------------------------------------


def test_every_strategy_is_explained_by_layer() -> None:
    """With bytes, messages, memory and predicted time; and asynchronous steps count their copies."""
    with current("shared", 2):
        net = nn.NeuralNetwork([nn.Dense(9, activation="tanh"), nn.Dense(5)], seed=1)
        net.fit(X, Y, batch_size=16, epochs=0, strategy="data")
        sizes = {"0": 7 * 9 + 9, "1": 9 * 5 + 5}
        for strategy in [*STRATEGIES, WeightAveraging(4), Asynchronous(2, schedule=[1, 2])]:
            explanation = net.explain(strategy=strategy)
            layers = {group.name: group for group in explanation.by_layer() if group.name in sizes}
            assert set(layers) == set(sizes)
            assert all(group.seconds > 0 and group.memory > 0 for group in layers.values())
            assert sum(group.nbytes for group in layers.values()) > 0
            assert sum(group.messages for group in layers.values()) > 0
            assert explanation.memory > explanation.temporaries > 0
        explanation = net.explain(strategy="asynchronous")
        pulled = {step.layer: 0 for step in explanation.instructions if step.operation == "pull"}
        for step in explanation.instructions:
            if step.operation == "pull":
                pulled[step.layer] += step.nbytes
        assert pulled == {name: 8 * size for name, size in sizes.items()}
        assert "each of 2 workers takes steps on its own" in str(explanation)


@pytest.mark.parametrize(
    "strategy",
    [
        WeightAveraging(2, every=3),
        Asynchronous(1, schedule=[0, 1]),
        DataParallel("sharded", messages="1-bit"),
        Auto(accumulate=2),
    ],
    ids=repr,
)
@pytest.mark.parametrize(
    "way", [copy.copy, copy.deepcopy, lambda strategy: pickle.loads(pickle.dumps(strategy))]
)
def test_a_strategy_that_was_used_is_copied(strategy: Any, way: Any) -> None:
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(16, 5)).astype(np.float32), draw.integers(0, 3, 16)

    def weights(of: Any) -> Any:
        trainer = mm.train.Trainer(nn.Dense(3), optimizer="sgd", strategy=of, seed=1)
        trainer.fit(x, y, epochs=2, batch_size=4)
        return trainer.module.weight.numpy()

    with current("inline", 1):
        expected = weights(strategy)
        other = way(strategy)
        assert repr(other) == repr(strategy)
        np.testing.assert_array_equal(weights(other), expected)
