"""Training goes on after the loss of workers, and variables begin again in a new pool."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import magmath as mm
from magmath.engine.session import _smaller_pools
from magmath.errors import MagmathError, OptionError, WorkerError, WorkerLost
from magmath.parallel import DataParallel, WeightAveraging
from magmath.runtime import PoolOptions, start_pool
from magmath.runtime.hosts import parse_hosts

RANDOM = np.random.default_rng(0)
X, Y = RANDOM.normal(size=(192, 8)).astype(np.float32), np.arange(192) % 4


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    yield
    mm.shutdown()


class Kill(mm.train.Callback):
    """Kills the last worker at the beginning of epochs, each once."""

    def __init__(self, *epochs: int) -> None:
        self.epochs = set(epochs)

    def on_epoch_begin(self, trainer: Any, epoch: int) -> None:
        if epoch in self.epochs:
            self.epochs.discard(epoch)
            os.kill(int(mm.pool().stats()[-1]["pid"]), signal.SIGKILL)


class Counted(mm.train.Callback):
    """Counts epochs, and remembers the count."""

    def __init__(self) -> None:
        self.count = 0

    def on_epoch_end(self, trainer: Any, record: Any) -> None:
        self.count += 1

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state: Any) -> None:
        self.count = state["count"]


def _start() -> None:
    mm.init(2, device="cpu", threads=1, deterministic=True)


def _by_name() -> str:
    return "cross_entropy"


def _undisturbed(
    folder: Path, strategy: Any, loss: Callable[[], Any] = _by_name
) -> tuple[Any, Any]:
    """Return the history and the weights of a training by threads, which compute the same bits."""
    mm.init(2, device="cpu", launcher="threads", threads=1, deterministic=True)
    history, weights, _ = _trained(folder, strategy, loss=loss)
    return history, weights


class Centred(mm.nn.Module):
    """A loss of classes that moves a centre with the outputs."""

    def __init__(self) -> None:
        self.centre = mm.nn.Buffer(0.0, (4,))

    def __call__(self, outputs: mm.Array, targets: mm.Array) -> mm.Array:
        loss = mm.nn.cross_entropy(outputs - self.centre, targets)
        mean = mm.stop_gradient(mm.mean(outputs, axis=0))
        self.centre.assign(0.9 * self.centre + 0.1 * mean)
        return loss


def _trained(
    folder: Path,
    strategy: Any,
    *kills: int,
    restarts: int = 0,
    loss: Callable[[], Any] = _by_name,
) -> tuple[Any, Any, int]:
    """Return the history and the weights of a training, and how many epochs a callback counted."""
    trainer = mm.train.Trainer(
        mm.nn.Sequential(
            [
                mm.nn.Dense(12, activation="relu"),
                mm.nn.BatchNorm(),
                mm.nn.Dropout(0.3),
                mm.nn.Dense(4),
            ]
        ),
        loss(),
        optimizer=mm.optim.Adam(1e-2, weight_decay=1e-3),
        strategy=strategy,
        seed=5,
    )
    counted = Counted()
    history = trainer.fit(
        X, Y, epochs=4, batch_size=48, checkpoint=folder, restarts=restarts,
        callbacks=[Kill(*kills), counted],
    )  # fmt: skip
    return (
        history,
        {k: np.asarray(v) for k, v in trainer.module.state_dict().items()},
        counted.count,
    )


DISTURBED: dict[str, tuple[Callable[[], Any], Callable[[], Any], tuple[int, ...]]] = {
    "data": (lambda: "data", Centred, (0, 2)),
    "weight averaging": (lambda: WeightAveraging(replicas=4, every=3), _by_name, (2,)),
    "one bit": (lambda: DataParallel(messages="1-bit"), _by_name, (1,)),
}
"""Strategies, losses, and the epochs at whose beginning a worker is killed."""


def test_weights_are_those_of_an_undisturbed_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """For losses before the first checkpoint and later, and for everything that is restored.

    Each training begins with the workers that the one before has started. The block of a session
    ends the pool that replaced its own.
    """
    undisturbed = {
        name: _undisturbed(tmp_path / f"{name} whole", strategy(), loss)
        for name, (strategy, loss, _) in DISTURBED.items()
    }
    with mm.init(2, device="cpu", threads=1, deterministic=True):
        for name, (strategy, loss, kills) in DISTURBED.items():
            caplog.clear()
            with caplog.at_level(logging.WARNING):
                history, weights, count = _trained(
                    tmp_path / name, strategy(), *kills, restarts=len(kills), loss=loss
                )
            assert history.loss == undisturbed[name][0].loss, name
            assert count == 4, name
            for key, value in undisturbed[name][1].items():
                np.testing.assert_array_equal(weights[key], value, err_msg=f"{name}: {key}")
            assert caplog.text.count("was lost: Killed") == len(kills), name
            said = "training continues from the checkpoint with 2 workers"
            assert said in caplog.text, name
        pool = mm.pool()
    assert pool.closed


@pytest.mark.parametrize("strategy", ["data", "weight-averaging"])
def test_fewer_workers_go_on_if_the_same_do_not_start(
    strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With as many replicas as there were workers."""
    history, weights = _undisturbed(tmp_path / "whole", strategy)
    _start()

    def started(options: PoolOptions) -> Any:
        if options.workers > 1:
            raise WorkerError("init: the workers do not start")
        return start_pool(options)

    monkeypatch.setattr("magmath.runtime.start_pool", started)
    again, result, _ = _trained(tmp_path / "part", strategy, 1, restarts=1)
    assert mm.pool().workers == 1
    assert again.loss == history.loss
    for name, value in weights.items():
        np.testing.assert_array_equal(result[name], value, err_msg=name)


def test_losses_beyond_the_number_of_restarts_are_errors(tmp_path: Path) -> None:
    _start()
    with pytest.raises(WorkerLost, match="worker 1 on"):
        _trained(tmp_path, "data", 1)
    mm.init(0, device="cpu")
    with pytest.raises(MagmathError, match="restarts= needs checkpoint="):
        mm.train.Trainer(mm.nn.Dense(4)).fit(X, Y, restarts=1)


@pytest.mark.parametrize("where", ["x", "validation"])
def test_data_that_would_be_lost_are_refused(where: str, tmp_path: Path) -> None:
    mm.init(2, device="cpu", launcher="threads")
    x, validation = (mm.asarray(X), (X, Y)) if where == "x" else (X, (mm.asarray(X), Y))
    trainer = mm.train.Trainer(mm.nn.Dense(4))
    with pytest.raises(OptionError, match=r"arrays of NumPy, np\.asarray\(x\), or a Loader"):
        trainer.fit(x, Y, validation=validation, checkpoint=tmp_path, restarts=1)


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_networks_are_loaded_in_another_pool(workers: int, tmp_path: Path) -> None:
    """In which their arrays have other layouts, for other numbers of workers."""
    mm.init(2, launcher="threads", device="cpu")
    net = mm.nn.NeuralNetwork(
        [mm.nn.Dense(600), mm.nn.BatchNorm(), mm.nn.Dense(4)], optimizer="adam"
    )
    net.fit(X, Y, epochs=1, batch_size=48, checkpoint=tmp_path)
    net.save(tmp_path / "net.safetensors")
    wanted = np.asarray(net.predict(X))
    mm.init(workers, launcher="threads", device="cpu")
    net.load(tmp_path / "net.safetensors")
    np.testing.assert_allclose(net.predict(X), wanted, rtol=1e-5, atol=1e-6)
    history = net.fit(X, Y, epochs=2, batch_size=48, checkpoint=tmp_path, resume=True)
    assert len(history.records) == 2


def test_a_variable_begins_again_in_another_pool() -> None:
    mm.init(2, launcher="threads", device="cpu")
    v = mm.variable("v", np.zeros((70_000,), np.float32))
    assert not v.layout.is_whole_on_first_worker

    @mm.compile
    def twice(x: Any) -> Any:
        return x * v

    assert float(twice(mm.ones(70_000)).sum()) == 0.0
    mm.init(0, device="cpu")
    v.assign(np.full((70_000,), 2.0, np.float32))
    assert float((v * 1.5).sum()) == 210_000.0
    assert float(mm.grad(mm.sum(v * v), v).sum()) == 280_000.0
    assert float(twice(mm.ones(70_000)).sum()) == 140_000.0
    v += 1
    assert float(v[69_999]) == 3.0


def test_a_loss_before_the_first_checkpoint_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the folder has the checkpoint of an earlier training."""
    _undisturbed(tmp_path, "data")
    _start()
    monkeypatch.setattr("magmath.train.trainer.EpochLoop.__init__", _kill_and_ask)
    with pytest.raises(WorkerLost, match="was lost: Killed"):
        _trained(tmp_path, "data", restarts=2)


def _kill_and_ask(*_: Any) -> None:
    os.kill(int(mm.pool().stats()[-1]["pid"]), signal.SIGKILL)
    while True:
        mm.pool().stats()


def test_expressions_of_the_former_pool_do_not_block_a_variable() -> None:
    mm.init(2, launcher="threads", device="cpu")
    v = mm.variable("v", np.zeros((70_000,), np.float32))
    pending, evaluated = v * 2, v + 1
    mm.evaluate(evaluated)
    mm.init(0, device="cpu")
    v.assign(np.ones((70_000,), np.float32))
    v += 1
    v.assign(v * 2)
    assert float(v[3]) == 4.0
    assert pending is not None
    assert evaluated is not None


def test_a_pool_that_does_not_start_again_leaves_the_lost_one_current(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(options: PoolOptions) -> Any:
        raise WorkerError(f"init: {options.workers} workers do not start")

    _start()
    monkeypatch.setattr("magmath.runtime.start_pool", started)
    with pytest.raises(WorkerError, match="2 workers do not start"):
        _trained(tmp_path, "data", 1, restarts=1)
    with pytest.raises(WorkerLost):
        float(mm.ones(3).sum() + mm.asarray(np.ones(3))[0])


def test_smaller_pools_have_fewer_workers_or_hosts() -> None:
    assert [one.workers for one in _smaller_pools(PoolOptions(3))] == [3, 2, 1]
    listed = PoolOptions(hosts="a:2,b:2")
    assert [one.hosts for one in _smaller_pools(listed)] == ["a:2,b:2", ["b:2"], ["a:2"]]


@pytest.mark.parametrize(
    ("workers", "hosts", "counts"),
    [(4, "a:3,b:1", [1, 3]), (0, "a:3,b:1", [1, 3]), (6, ["a:1", "b:2", "c:3"], [5, 4, 3]),
     (3, "a,b", [1, 2]), (4, ["a", "b"], [2, 2]), (5, "a:3,b", [2, 3])],
)  # fmt: skip
def test_without_a_host_the_others_have_as_many_workers_as_before(
    workers: int, hosts: Any, counts: list[int]
) -> None:
    """Each of the smaller pools is one that can be started."""
    _, *smaller = _smaller_pools(PoolOptions(workers, launcher="threads", hosts=hosts))
    assert [parse_hosts(one.hosts, one.workers).workers for one in smaller] == counts
