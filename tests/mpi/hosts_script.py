"""A controller of workers on two hosts; its first argument says what it does with them.

It prints a line for each result, which `test_hosts_processes.py` checks.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any

import numpy as np

import magmath as mm

DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(120, 30)).astype(np.float32)
Y = DRAW.integers(0, 5, 120)
A, B = DRAW.normal(size=(90, 70)), DRAW.normal(size=(70, 50))
TIMEOUT = 2.0


def products() -> list[np.ndarray]:
    layouts = [mm.Layout.split(0), mm.Layout.split(1), mm.Layout.replicated()]
    return [
        np.asarray(mm.asarray(A, layout=first) @ mm.asarray(B, layout=second))
        for first in layouts
        for second in layouts
    ]


def network() -> mm.nn.NeuralNetwork:
    layers = [mm.nn.Dense(40, activation="relu"), mm.nn.Dropout(0.2, seed=2), mm.nn.Dense(5)]
    return mm.nn.NeuralNetwork(layers, optimizer="momentum", seed=1)


def trained(strategy: Any = "data") -> dict[str, np.ndarray]:
    net = network()
    net.fit(X, Y, batch_size=40, epochs=2, strategy=strategy)
    return {name: value.numpy() for name, value in net.module.state_dict().items()}


def is_asynchronous(weights: dict[str, np.ndarray]) -> bool:
    """Without delays, the same training; with delays, all updates within the bound."""
    same = equal(trained(mm.parallel.Asynchronous(0)), weights, 1e-4)
    history = network().fit(
        X, Y, batch_size=10, epochs=20, strategy=mm.parallel.Asynchronous(4, servers=4)
    )
    delays = [np.arange(5)[: len(x["histogram"])] @ x["histogram"] for x in history.delays]
    counts = [sum(one["histogram"]) for one in history.delays]
    print(history, history.delays[-1], flush=True)
    learns = history.loss[-1] < 0.8 * history.loss[0]
    within = all(one["max"] <= 4 for one in history.delays)
    return same and learns and within and counts == [12] * 20 and sum(delays) > 0


def equal(actual: Any, expected: Any, limit: float) -> bool:
    names = expected if isinstance(expected, dict) else range(len(expected))
    return all(np.allclose(actual[name], expected[name], limit, limit) for name in names)


def lose(command: str) -> None:
    """Run a command that loses workers during computation; print what the controller notices."""
    a = mm.asarray(A, layout=mm.Layout.split(0))
    start = time.monotonic()
    try:
        while True:
            mm.evaluate(a @ a.T)
            if command:
                subprocess.run(command, shell=True, check=True)
                command, start = "", time.monotonic()
    except mm.errors.WorkerLost as error:
        print(f"lost after {time.monotonic() - start:.1f} s: {error}", flush=True)


def main(what: str, cut: str, hosts: list[str]) -> None:
    exact = what == "kill"
    with mm.init(0, deterministic=exact):
        expected, weights = products(), trained()
    mm.init(3, hosts=hosts, deterministic=exact, heartbeat_timeout=TIMEOUT)
    pool = mm.pool()
    print(pool, flush=True)
    print("address", pool._transport.address, flush=True)  # type: ignore[attr-defined]
    print("products", equal(products(), expected, 1e-12), flush=True)
    print("training", equal(trained(), weights, 0.0 if exact else 1e-4), flush=True)
    if not exact:
        print("asynchronous", is_asynchronous(weights), flush=True)
    hellos = pool._queue.hellos
    if what == "kill":
        there = [str(hello.pid) for hello in hellos if hello.host == "host-b"]
        cut = f"kill -{signal.SIGKILL.value} {' '.join(there)}"
    lose(cut)
    with mm.init(0):
        print("afterwards", float(mm.sum(mm.ones(3))), os.getpid(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
