"""A worker that is slower than the others shows in timelines and in the advice of explanations."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import magmath as mm
from engines import current
from magmath import nn
from magmath.errors import MagmathError
from magmath.graph import KernelCall
from magmath.ops import OPERATIONS
from magmath.parallel import measured_timeline, save_timeline

SECONDS = 0.01
"""The least time of a product on a worker of full speed."""
X = np.random.default_rng(1).normal(size=(48, 10)).astype(np.float32)
Y = np.arange(48) % 4


def slow_products(factors: dict[int, float]) -> Any:
    """Products that sleep; on some workers for a multiple of the time."""
    original = OPERATIONS["gemm"]

    def kernel(call: KernelCall) -> Callable[[], object]:
        ready = original.kernel(call)
        pause = SECONDS * factors.get(call.context.rank, 1.0)

        def run() -> None:
            time.sleep(pause)
            ready()

        return run

    return replace(original, kernel=kernel)


@pytest.mark.parametrize("workers", [2, 3])
def test_a_straggler_shows(workers: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with current("shared", workers):
        monkeypatch.setitem(OPERATIONS, "gemm", slow_products({1: 3.0}))
        net = nn.NeuralNetwork([nn.Dense(8, activation="relu"), nn.Dense(4)], seed=1)
        net.fit(X, Y, batch_size=24, epochs=0, strategy="data")
        assert net.explain().advice() == ""
        with mm.profile() as profile:
            net.fit(X, Y, batch_size=24, epochs=2, strategy="data")
        for result in (profile, net.explain()):
            advice = result.advice()
            assert advice.startswith("worker 1 computes ")
            assert 1.5 < float(advice.split()[3]) < 4.5
            assert "mm.parallel.Asynchronous" in advice
            assert advice in str(result)
            assert len(advice.splitlines()) == 1
        timeline = measured_timeline(net.explain())
        busy = [timeline.busy_seconds(worker, "compute") for worker in range(workers)]
        waits = [timeline.busy_seconds(worker, "communicate") for worker in range(workers)]
        assert busy[1] > 1.5 * max(busy[:1] + busy[2:])
        assert waits[1] < min(waits[:1] + waits[2:])
        save_timeline(timeline, tmp_path / "step.svg")
        assert "(wait)" in (tmp_path / "step.svg").read_text()
        save_timeline(timeline, tmp_path / "step.json")
        events = json.loads((tmp_path / "step.json").read_text())["traceEvents"]
        assert {event["pid"] for event in events} == set(range(workers))


def test_equal_workers_get_no_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the batch does not divide: the shares of workers are compared only if equal."""
    with current("shared", 3):
        monkeypatch.setitem(OPERATIONS, "gemm", slow_products({}))
        net = nn.NeuralNetwork([nn.Dense(8, activation="relu"), nn.Dense(4)], seed=2)
        with mm.profile() as profile:
            net.fit(X, Y, batch_size=25, epochs=1, strategy="data")
        assert profile.advice() == ""


def test_nothing_was_measured() -> None:
    with current("inline"):
        net = nn.NeuralNetwork([nn.Dense(4)], seed=1)
        net.fit(X, Y, epochs=0)
        with pytest.raises(MagmathError, match="measured_timeline: needs the times of workers"):
            measured_timeline(net.explain())
