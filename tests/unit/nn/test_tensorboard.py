"""What the callback for TensorBoard writes, read by TensorBoard itself."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import magmath as mm
from magmath.errors import MissingPackageError

X = np.random.default_rng(0).normal(size=(96, 8)).astype(np.float32)
Y = np.arange(96) % 4


@pytest.fixture(autouse=True)
def pool() -> None:
    mm.init(workers=0, device="cpu", seed=3)


def _read(folder: Path, curve: str) -> Any:
    events = EventAccumulator(str(folder / curve))
    events.Reload()
    return events


def _numbers(events: Any, name: str) -> list[tuple[int, float]]:
    return [(point.step, point.value) for point in events.Scalars(name)]


def _trainer() -> mm.train.Trainer:
    net = mm.nn.Sequential([mm.nn.Dense(6, activation="relu"), mm.nn.Dense(4)])
    rate = mm.optim.schedules.Cosine(1e-2, 10)
    return mm.train.Trainer(net, optimizer=mm.optim.Adam(rate), seed=2)


def test_curves_are_those_of_the_history(tmp_path: Path) -> None:
    board = pickle.loads(pickle.dumps(mm.train.TensorBoard(tmp_path, histograms=True)))
    trainer = _trainer()
    history = trainer.fit(X, Y, epochs=3, batch_size=32, validation=(X, Y), callbacks=[board])
    training, validation = _read(tmp_path, "training"), _read(tmp_path, "validation")
    for events, name, wanted in (
        (training, "epoch/loss", history.loss),
        (training, "epoch/accuracy", history.accuracy),
        (validation, "epoch/loss", history.validation_loss),
        (validation, "epoch/accuracy", history.validation_accuracy),
        (training, "step/loss", history.step_losses),
    ):
        steps, values = zip(*_numbers(events, name), strict=True)
        assert steps == tuple(range(1, len(wanted) + 1)), name
        np.testing.assert_allclose(values, wanted, rtol=1e-6, err_msg=name)
    rates = [value for _, value in _numbers(training, "epoch/learning rate")]
    assert rates[0] > rates[-1] > 0
    assert training.Tags()["histograms"] == ["0/weight", "0/bias", "1/weight", "1/bias"]


def test_learning_rates_are_those_of_the_epochs(tmp_path: Path) -> None:
    rate = mm.optim.schedules.Step(0.5, 2, 0.1)
    net = mm.nn.Sequential([mm.nn.Dense(4)])
    trainer = mm.train.Trainer(net, optimizer=mm.optim.GradientDescent(rate))
    trainer.fit(X, Y, epochs=6, batch_size=20, callbacks=[mm.train.TensorBoard(tmp_path)])
    result = [value for _, value in _numbers(_read(tmp_path, "training"), "epoch/learning rate")]
    np.testing.assert_allclose(result, [0.5, 0.5, 0.05, 0.05, 0.005, 0.005], rtol=1e-6)


def test_a_second_fit_goes_on(tmp_path: Path) -> None:
    trainer, board = _trainer(), mm.train.TensorBoard(tmp_path)
    losses = []
    for _ in range(2):
        losses += trainer.fit(X, Y, epochs=2, batch_size=32, callbacks=[board]).step_losses
    events = _read(tmp_path, "training")
    assert [step for step, _ in _numbers(events, "epoch/loss")] == [1, 2, 3, 4]
    steps, values = zip(*_numbers(events, "step/loss"), strict=True)
    assert steps == tuple(range(1, 13))
    np.testing.assert_allclose(values, losses, rtol=1e-6)


def test_a_resumed_training_continues_its_curves(tmp_path: Path) -> None:
    for epochs in (2, 4):
        history = _trainer().fit(
            X, Y, epochs=epochs, batch_size=32, checkpoint=tmp_path / "checkpoint", resume=True,
            callbacks=[mm.train.TensorBoard(tmp_path)],
        )  # fmt: skip
    events = _read(tmp_path, "training")
    assert [step for step, _ in _numbers(events, "epoch/loss")] == [1, 2, 3, 4]
    steps, values = zip(*_numbers(events, "step/loss"), strict=True)
    assert steps == tuple(range(1, 13))
    np.testing.assert_allclose(values, history.step_losses, rtol=1e-6)


def test_without_the_package_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tensorboard", None)
    with pytest.raises(MissingPackageError, match=r"magmath\[tensorboard\]"):
        mm.train.TensorBoard("runs")
