"""Interrupted training on worker processes: a worker is killed, or Ctrl-C arrives.

The workers are real and so is their program. The fakes of `test_pool_processes.py` can reach any
state, but they do not wait at a barrier inside a step, or read the memory of a worker that dies.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import magmath as mm
from magmath.errors import WorkerLost
from magmath.nn import Dense, NeuralNetwork
from magmath.optim import Adam
from magmath.parallel import Asynchronous
from processes import is_gone

X = np.random.default_rng(0).standard_normal((10_000, 64)).astype(np.float32)
Y = X[:, :10].argmax(axis=1)


class InTheMiddle:
    """A reporter that does something once, in the middle of the second epoch or a later one."""

    def __init__(self, act: Callable[[], None]) -> None:
        self.act = act
        self.steps = self.epochs = 0
        self.when = 0.0

    def begin(self, epochs: int, steps: int) -> None:
        self.steps = steps

    def step(self, done: int, loss: float, samples_per_second: float) -> None:
        if not self.when and self.epochs and 0 < done < self.steps:
            self.when = time.monotonic()
            self.act()

    def epoch(self, record: Any) -> None:
        self.epochs += 1

    def end(self) -> None: ...


def network() -> NeuralNetwork:
    layers = [Dense(512, activation="relu"), Dense(512, activation="relu"), Dense(10)]
    return NeuralNetwork(layers, loss="cross_entropy", optimizer=Adam(1e-3), seed=1)


def train_for_long(net: NeuralNetwork, reporter: InTheMiddle, strategy: Any) -> None:
    net.fit(X, Y, batch_size=100, epochs=10**6, strategy=strategy, reporter=reporter)


STRATEGIES = ["data", Asynchronous(3)]


def check_trains(net: NeuralNetwork, case: object) -> None:
    first, second = net.fit(X, Y, batch_size=100, epochs=2, strategy="data").records
    assert second.loss < first.loss, case


def test_a_worker_killed_in_fit_is_lost_and_the_next_pool_trains(no_leftovers: None) -> None:
    """With each strategy; the pool that trains after a loss is the next one that loses a worker."""
    for strategy in STRATEGIES:
        with mm.init(2, device="cpu", threads=1) as pool:
            check_trains(network(), f"before {strategy}")
            pids = [int(counters["pid"]) for counters in pool.stats()]
            reporter = InTheMiddle(partial(os.kill, pids[1], signal.SIGKILL))
            with pytest.raises(WorkerLost, match=rf"worker 1 on .+ \(process {pids[1]}\)"):
                train_for_long(network(), reporter, strategy)
            assert time.monotonic() - reporter.when < 30, strategy
            assert pool.closed, strategy
            assert all(is_gone(pid) for pid in pids), strategy
    with mm.init(2, device="cpu", threads=1):
        check_trains(network(), "at the end")


def test_ctrl_c_in_fit_keeps_what_was_learnt_and_the_pool(no_leftovers: None) -> None:
    with mm.init(2, device="cpu", threads=1) as pool:
        pids = [int(counters["pid"]) for counters in pool.stats()]
        for strategy in STRATEGIES:
            net = network()
            unlearned = network().evaluate(X, Y)["loss"]
            reporter = InTheMiddle(lambda: os.kill(os.getpid(), signal.SIGINT))
            with pytest.raises(KeyboardInterrupt):
                train_for_long(net, reporter, strategy)
            assert time.monotonic() - reporter.when < 30, strategy
            assert net.evaluate(X, Y)["loss"] < 0.9 * unlearned, strategy
            check_trains(net, strategy)
            assert [int(counters["pid"]) for counters in pool.stats()] == pids, strategy
    assert all(is_gone(pid) for pid in pids)
