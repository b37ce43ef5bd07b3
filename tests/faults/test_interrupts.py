"""Ctrl-C at random instants: no array is lost, and every update is complete or absent."""

from __future__ import annotations

import math
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import magmath as mm
from engines import current
from magmath.files import csv, npy
from magmath.runtime import array_file, command_queue
from magmath.runtime.command_queue import CommandQueue
from magmath.runtime.messages import Define, Get

INTERRUPTS = 100  # on each of the pools


class Trigger:
    """Sends this process SIGINT at random instants while it is armed."""

    def __init__(self) -> None:
        self.armed = False
        self._random = random.Random(1)
        self._stopped = False
        self._thread = threading.Thread(target=self._shoot, daemon=True)
        self._thread.start()

    def _shoot(self) -> None:
        while not self._stopped:
            time.sleep(self._random.choice([0.0003, 0.002, 0.01]) * self._random.random() * 2)
            if self.armed:
                os.kill(os.getpid(), signal.SIGINT)

    def stop(self) -> None:
        self.armed, self._stopped = False, True
        self._thread.join()


def ignore(unraisable: object) -> None:
    """A hook for exceptions that Python drops."""


@contextmanager
def trigger() -> Iterator[Trigger]:
    """A trigger; a signal that arrives when it is not armed any more has no effect."""
    shooting = Trigger()

    def handler(number: int, frame: object) -> None:
        if shooting.armed:
            raise KeyboardInterrupt

    former, report = signal.signal(signal.SIGINT, handler), sys.unraisablehook
    sys.unraisablehook = ignore  # a signal may strike in a callback, where Python drops exceptions
    try:
        yield shooting
    finally:
        shooting.stop()
        signal.signal(signal.SIGINT, former)
        sys.unraisablehook = report


class Work:
    """What users keep: variables, arrays, optimizer states and a network."""

    def __init__(self) -> None:
        draw = np.random.default_rng(0)
        self.count = mm.variable("count", np.zeros(20_000))
        self.written = mm.asarray(np.zeros(30_000))
        self.plain = mm.asarray(np.zeros(30_000))
        self.weights = mm.variable("weights", np.ones((64, 32)))
        self.x = mm.asarray(draw.normal(size=(200, 64)))
        self.optimizer = mm.optim.Momentum(1e-3)
        self.compiled = mm.compile(self._counted)
        self.net = mm.nn.NeuralNetwork([mm.nn.Dense(16, activation="relu"), mm.nn.Dense(10)])
        self.samples = draw.normal(size=(400, 64)).astype(np.float32)
        self.labels = draw.integers(0, 10, 400)
        self.net.build((1, 64))
        self.steps: list[Callable[[], Any]] = [
            self._add, self._call, self._write, self._minimize, self._fit, self._update, self._plain
        ]  # fmt: skip

    def _counted(self, k: float) -> mm.Array:
        self.count.assign(self.count + k)
        return mm.sum(self.count)

    def _add(self) -> None:
        self.count += 1.0

    def _call(self) -> None:
        self.compiled(1.0)

    def _write(self) -> None:
        for i in range(5):
            self.written[i] = float(i)

    def _minimize(self) -> None:
        self.optimizer.minimize(mm.mean(mm.square(self.x @ self.weights)), [self.weights], steps=2)

    def _fit(self) -> None:
        self.net.fit(self.samples, self.labels, batch_size=50, strategy="data")

    def _update(self) -> None:
        slope = mm.grad(mm.mean(mm.square(self.x @ self.weights)), self.weights)
        self.weights -= 1e-3 * slope

    def _plain(self) -> None:
        self.plain += 1.0
        mm.evaluate(self.plain)

    def check(self) -> None:
        """All of it is there, and each update is done on all elements or on none."""
        for array in (self.count, self.plain):
            values = np.asarray(array)
            assert values.min() == values.max()
        values = np.asarray(self.written)
        assert not values[5:].any()
        assert set(values[:5]) <= set(range(5))
        assert np.isfinite(np.asarray(self.weights)).all()
        for v in self.net.parameters.values():
            assert np.isfinite(np.asarray(v)).all()


# Ctrl-C within a finalizer of Python's is lost, which Python reports and pytest makes a warning.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("kind", "workers"), [("inline", 1), ("planned", 1), ("shared", 2), ("processes", 2)]
)
def test_interrupts_lose_nothing(kind: str, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # However slowly the machine stops a run, the next signals are no second Ctrl-C of a user.
    monkeypatch.setattr(command_queue, "REPEATED_INTERRUPT_SECONDS", math.inf)
    with current(kind, workers), trigger() as shooting:
        work, choice, caught = Work(), random.Random(2), 0
        while caught < INTERRUPTS:
            try:
                shooting.armed = True
                choice.choice(work.steps)()
                shooting.armed = False
            except KeyboardInterrupt:
                shooting.armed = False
                caught += 1
            work.check()
        before = float(work.count[0])
        work._add()
        assert float(work.count[0]) == before + 1


def _interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def _interrupt_when_read(delay: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send SIGINT while the next array is requested from the workers, or `delay` seconds later."""
    send, timers = CommandQueue._send, [threading.Timer(delay, _interrupt)]

    def sending(self: CommandQueue, command: Any, *rest: Any) -> None:
        if isinstance(command, Get) and timers:
            timers.pop().start() if delay else (timers.clear(), _interrupt())
        send(self, command, *rest)

    monkeypatch.setattr(CommandQueue, "_send", sending)


FACTOR = np.random.default_rng(4).normal(size=(1024, 1024)).astype(np.float32)


@cache
def sum_of_products() -> float:
    """The sum of FACTOR's scaled hundredth power."""
    product = FACTOR
    for _ in range(100):
        product = (product @ FACTOR) * np.float32(0.03)
    return float(product.sum())


@pytest.mark.parametrize("delay", [0.0, 0.3])
@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 2), ("processes", 2)])
def test_an_interrupted_program_is_not_waited_for(
    kind: str, workers: int, delay: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stops between two instructions; what it should have computed is computed later."""
    with current(kind, workers):
        a = mm.asarray(FACTOR)
        mm.evaluate(mm.sum(a @ a))
        b = a
        for _ in range(100):
            b = (b @ a) * 0.03
        result, first = mm.sum(b), a[:1, :1]
        _interrupt_when_read(delay, monkeypatch)

        def read() -> float:
            if kind == "inline":  # it computes within the call, without messages
                threading.Timer(delay + 0.02, _interrupt).start()
            return float(result)

        with pytest.raises(KeyboardInterrupt):
            read()
        np.asarray(first)
        with mm.profile() as profile:
            value = float(result)
        assert len(profile.runs), "it was abandoned, and runs again"
        np.testing.assert_allclose(value, sum_of_products(), rtol=2e-2)


def test_a_file_that_waits_for_a_program_does_not_keep_it_running(tmp_path: Path) -> None:
    with current("shared", 2):
        a = mm.asarray(FACTOR)
        mm.evaluate(mm.sum(a @ a), wait=True)
        b = a
        for _ in range(100):
            b = (b @ a) * 0.03
        mm.evaluate(b)
        threading.Timer(0.1, _interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            mm.save(tmp_path / "b.npy", b)
        assert not os.listdir(tmp_path)
        with mm.profile() as profile:
            value = float(mm.sum(b))
        assert len(profile.runs) > 1, "it was abandoned, and runs again"
        np.testing.assert_allclose(value, sum_of_products(), rtol=2e-2)


def _interrupt_transfers(monkeypatch: pytest.MonkeyPatch, delay: float = 0.0) -> None:
    """Send SIGINT before a worker's third piece of a file, which it copies after `delay`."""
    monkeypatch.setattr(array_file, "PIECE_BYTES", 64)
    monkeypatch.setattr(array_file, "PIECE_NUMBERS", 8)
    pieces = array_file._pieces

    def interrupted(*arguments: Any) -> Iterator[Any]:
        for number, piece in enumerate(pieces(*arguments)):
            if number == 2 and arguments[1][0].start == 0:
                _interrupt()
                time.sleep(delay)
            yield piece

    monkeypatch.setattr(array_file, "_pieces", interrupted)


@pytest.mark.parametrize("suffix", [".npy", ".csv"])
@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("planned", 1), ("shared", 2)])
def test_an_interrupted_transfer_raises_at_once_and_once(
    kind: str,
    workers: int,
    reads: bool,
    suffix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(csv, "PART_BYTES", 64)
    path = tmp_path / f"a{suffix}"
    with current(kind, workers):
        x = mm.asarray(np.ones((100, 3))).redistribute(mm.Layout.split(0))
        mm.save(path, x)
        before = path.read_bytes()
        _interrupt_transfers(monkeypatch)
        with pytest.raises(KeyboardInterrupt):
            mm.load(path) if reads else mm.save(path, 2 * x)
        assert float(mm.sum(x)) == 300
        monkeypatch.undo()
        assert os.listdir(tmp_path) == [path.name]
        assert path.read_bytes() == before
        np.testing.assert_array_equal(mm.load(path), x)


@pytest.mark.parametrize("suffix", [".npy", ".csv"])
def test_failures_of_a_cancelled_transfer_are_dropped(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that does not stop in time writes into a folder that was removed."""
    monkeypatch.setattr(command_queue, "INTERRUPT_SECONDS", 0.0)
    _interrupt_transfers(monkeypatch, delay=0.3)
    with current("shared", 2) as pool:
        x = mm.asarray(np.ones((100, 3))).redistribute(mm.Layout.split(0))
        with pytest.raises(KeyboardInterrupt):
            mm.save(tmp_path / f"a{suffix}", x)
        assert not os.listdir(tmp_path)
        assert float(mm.sum(x)) == 300
        pool.finish()


def test_the_exception_of_a_progress_report_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(array_file, "PIECE_BYTES", 64)

    def fail(copied: int, _: list[float]) -> None:
        raise BrokenPipeError

    for kind, workers in (("inline", 1), ("shared", 2)):
        with current(kind, workers) as pool:
            x = mm.asarray(np.ones((100, 3))).redistribute(mm.Layout.split(0))
            mm.save(tmp_path / "a.npy", x)
            spec, storage = npy.entries(str(tmp_path / "a.npy"))[""]
            with pytest.raises(BrokenPipeError):
                pool.read(str(tmp_path / "a.npy"), storage, x.layout, spec.dtype, fail)
            assert float(mm.sum(x)) == 300


def test_an_interrupted_fit_keeps_its_history() -> None:
    with current("inline"):
        draw = np.random.default_rng(0)
        net = mm.nn.NeuralNetwork([mm.nn.Dense(64, activation="relu"), mm.nn.Dense(10)])
        x, y = draw.normal(size=(2000, 64)).astype(np.float32), draw.integers(0, 10, 2000)
        timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))

        class Interrupting(mm.train.Callback):
            def on_epoch_end(self, trainer: mm.train.Trainer, record: object) -> None:
                if timer.ident is None:
                    timer.start()

        with pytest.raises(KeyboardInterrupt):
            net.fit(x, y, epochs=1_000_000, callbacks=[Interrupting()])
        timer.join()
        history = net.history
        assert history is not None
        assert len(history.records) > 0
        assert len(history.step_losses) >= len(history.records) * (-(-2000 // 32))
        assert all(np.isfinite(history.step_losses))


@pytest.mark.parametrize("part", ["_feeds", "_step"])
def test_a_fit_that_is_interrupted_before_its_first_epoch_has_an_empty_history(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    with current("inline"):
        net = mm.nn.NeuralNetwork([mm.nn.Dense(3)])
        x, y = np.ones((8, 2), np.float32), np.zeros(8, np.int64)
        for fits_before in (0, 1):
            for _ in range(fits_before):
                net.fit(x, y)
            with monkeypatch.context() as patched:
                patched.setattr(mm.train.Trainer, part, interrupted)
                with pytest.raises(KeyboardInterrupt):
                    net.fit(x, y)
            assert net.history is not None
            assert net.history.loss == []


def test_a_program_that_an_interrupt_follows_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    send = CommandQueue._send

    def sending(self: CommandQueue, command: Any, *rest: Any) -> None:
        send(self, command, *rest)
        if isinstance(command, Define):
            _interrupt()

    with current("shared", 2) as pool:
        a = mm.asarray(FACTOR)
        mm.evaluate(a + 1)
        before = pool.stats()[0]["programs"]
        monkeypatch.setattr(CommandQueue, "_send", sending)
        with pytest.raises(KeyboardInterrupt):
            mm.evaluate(mm.sum(a @ a, axis=1) * 3)
        monkeypatch.undo()
        assert pool.stats()[0]["programs"] == before
        mm.evaluate(mm.sum(a @ a, axis=1) * 3)


@pytest.mark.parametrize("way", ["fit", "minimize"])
def test_steps_that_end_after_an_interrupt_are_counted(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C does not wait for the run; the optimizer counts what the workers have counted."""
    monkeypatch.setattr(command_queue, "INTERRUPT_SECONDS", 0.0)
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(40_000, 4)).astype(np.float32), draw.integers(0, 3, 40_000)
    with current("shared", 2):
        net, optimizer = mm.nn.Dense(3).build((1, 4)), mm.optim.Adam(1e-4)

        class Interrupting(mm.train.Callback):
            def on_epoch_begin(self, trainer: mm.train.Trainer, epoch: int) -> None:
                threading.Timer(0.3, _interrupt).start()

        def train() -> None:
            if way == "fit":
                trainer = mm.train.Trainer(net, optimizer=optimizer, strategy="data", seed=0)
                trainer.fit(x, y, batch_size=1, callbacks=[Interrupting()])
            else:
                loss = mm.mean(net(mm.asarray(x[:10])) ** 2)
                optimizer.minimize(loss, net.parameters())
                threading.Timer(0.3, _interrupt).start()
                optimizer.minimize(loss, net.parameters(), steps=200_000)

        with pytest.raises(KeyboardInterrupt):
            train()
        steps = optimizer.steps
        assert 0 < steps < 200_000
        counts = [int(v) for k, v in optimizer.state_dict().items() if k.endswith(".count")]
        assert set(counts) == {steps}
        optimizer.minimize(mm.sum(net.weight**2), [net.weight])
        assert optimizer.steps == steps + 1
