"""magmath's contestant of communication over a simulated network, overlapped or not."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, final

import numpy as np

import magmath as mm
from magmath.bench.contestants.common import VERSIONS
from magmath.bench.peers.service import Contestant
from magmath.core.python_processes import module_command
from magmath.engine import session
from magmath.runtime import PoolOptions, start_pool
from magmath.runtime.pool import Pool
from magmath.runtime.transport.processes import ProcessTransport
from magmath.runtime.transport_interface import WorkerOptions

_NEVER = 1 << 62
_INPUTS = 784


def overlap() -> Contestant:
    """Return the contestant of training steps, or of replication during products."""
    return Overlap()


@final
class Overlap(Contestant):
    """Starts its own pool for each case."""

    def __init__(self) -> None:
        self._work: Callable[[], float]

    def versions(self) -> dict[str, str]:
        return VERSIONS

    def prepare(self, case: dict[str, Any]) -> dict[str, Any]:
        mm.shutdown()
        session.set_current_pool(_start_pool(case))
        engine = session.engine()
        if not case["overlapped"]:
            engine.environment = replace(engine.environment, overlap_min_bytes=_NEVER)
        self._work = _training(case) if case["what"] == "training" else _replication(case)
        self._work()
        return {}

    def round(self) -> float:
        start = time.perf_counter()
        self._work()
        return time.perf_counter() - start

    def finish(self) -> dict[str, Any]:
        check = self._work()
        mm.shutdown()
        return {"check": check}


def _start_pool(case: dict[str, Any]) -> Pool:
    """Start a pool on the hosts of a case, or on a simulated network."""
    if case["hosts"] is not None:
        return start_pool(
            PoolOptions(case["workers"], hosts=case["hosts"], device="cpu", threads=1)
        )
    command = (*module_command("magmath.bench.simulated_network"), str(case["bandwidth"]))
    options = WorkerOptions("cpu", 1)
    return Pool(ProcessTransport(case["workers"], options, worker_command=command))


def _training(case: dict[str, Any]) -> Callable[[], float]:
    """Return a function that trains an epoch of `steps` batches and returns the loss."""
    width, batch = case["width"], case["batch"]
    random = np.random.default_rng(0)
    count = batch * case["steps"]
    images = mm.asarray(random.random((count, _INPUTS), dtype=np.float32))
    labels = mm.asarray(random.integers(0, 10, count))
    hidden = [mm.nn.Dense(width, activation="relu") for _ in range(case["layers"])]
    network = mm.nn.NeuralNetwork(
        [*hidden, mm.nn.Dense(10)],
        loss="cross_entropy",
        optimizer=mm.optim.GradientDescent(0.01),
    )

    def epoch() -> float:
        history = network.fit(
            images, labels, batch_size=batch, epochs=1, shuffle=False, strategy="data", metrics=()
        )
        return history.loss[-1]

    return epoch


def _replication(case: dict[str, Any]) -> Callable[[], float]:
    """Return a function that replicates a new array in each step, computes products, and uses
    both."""
    overlapped = case["overlapped"]
    random = np.random.default_rng(0)
    rows = mm.asarray(random.random((2048, 4096), dtype=np.float32), layout=mm.Layout.split(0))
    factor = mm.asarray(random.random((1024, 1024), dtype=np.float32), layout=mm.Layout.split(0))
    whole = factor.replicate()

    def work() -> float:
        total = 0.0
        for step in range(case["steps"]):
            array = rows * (step + 1)
            mm.evaluate(array)
            copy = array.replicate(wait=not overlapped)
            product = factor
            for _ in range(4):
                product = (product @ whole) / 512.0
            mm.evaluate(product)
            total += float(copy[0, 0]) + float(product[0, 0])
        return total

    return work
