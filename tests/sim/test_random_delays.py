"""Results do not depend on when each worker does its part, and no worker waits for ever.

Workers sleep for random times around commands, barriers and messages, and differ in the moment from
which they use native segments (`core/debugging.py`). A deadlock ends by the watchdog, which shows
the stacks of all workers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from random import Random
from threading import current_thread
from typing import Any

import numpy as np
import pytest

import magmath as mm
from engines import debugged
from executors import Compiled
from magmath.bench import numpy_programs
from magmath.bench.numpy_programs.agreement import difference
from magmath.comm.delayed import DelayedCommunicator
from magmath.comm.isolated_communicator import IsolatedCommunicator
from magmath.core.debugging import LONG_SECONDS, Delays
from magmath.core.options import DEBUG
from magmath.executor import native_build, tiers
from random_programs import numbers, operands, placed, random_program

POOLS = [("shared", 2), ("shared", 3), ("messages", 3), ("hosts", 3), ("exact", 2)]
pytestmark = pytest.mark.timeout(100)


class Late(Compiled):
    """Compiles in this process; each worker gets the code at another time."""

    def __init__(self, source: str, arithmetic: str = "fast") -> None:
        self._delays = Delays("late", current_thread().name)
        self._is_given = False
        super().__init__(source, arithmetic)

    def function(self) -> Callable[[int], int] | None:  # type: ignore[override]
        self._is_given = self._is_given or not self._delays.should_defer()
        return super().function() if self._is_given else None


@pytest.fixture(autouse=True)
def _native_early(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every program that is run again is compiled; Python floats are NumPy's."""
    monkeypatch.setattr(native_build, "NativeBuild", Late)
    monkeypatch.setattr(tiers, "COMPILE_AFTER_SECONDS", 0.0)
    monkeypatch.setattr(tiers, "SHORT_SECONDS", 0.0)
    monkeypatch.setattr(tiers, "SAMPLE_SECONDS", 0.0)
    mm.set_default_dtype("float64")
    yield
    mm.set_default_dtype("float32")


@pytest.mark.parametrize(("kind", "workers"), POOLS, ids=[f"{k}-{n}" for k, n in POOLS])
def test_random_programs(kind: str, workers: int) -> None:
    choice = Random(f"{kind} {workers}")
    for seed in range(2):
        program, names = random_program(choice, steps=5)
        given = operands(seed, choice)
        expected = program(np, *given)
        with debugged(f"delays={seed}", kind, workers):
            arrays = placed(choice, *given)
            for _ in range(5):
                for one, known in zip(numbers(program(mm, *arrays)), expected, strict=True):
                    np.testing.assert_allclose(one, known, rtol=1e-6, atol=1e-8, err_msg=str(names))


@pytest.mark.parametrize("name", ["gaussian_process", "group_statistics", "gaussian_mixture"])
def test_ordinary_programs(name: str) -> None:
    program = numpy_programs.load(name)
    data = program.data(program.SIZES[0] // 16)
    expected = program.main(np, *data)
    with debugged("delays=1", "shared", 2):
        arrays = [mm.asarray(x) for x in data]
        for _ in range(2):
            assert difference(program.main(mm, *arrays), expected) < 1e-8


@pytest.mark.parametrize("workers", [2, 3])
def test_one_worker_computes_for_all_while_each_has_work_of_its_own(workers: int) -> None:
    values = np.random.default_rng(0)
    a, x = values.random((150, 150)) + 150 * np.eye(150), values.random((300, 20))
    with debugged("delays=2", "shared", workers):
        compiled = mm.compile(lambda a, x: (mm.linalg.inv(a), (x * 2.0 + x) * x - 1.0))
        operands = mm.asarray(a), mm.asarray(x)
        for _ in range(15):
            inverse, other = compiled(*operands)
        np.testing.assert_allclose(inverse.numpy(), np.linalg.inv(a), atol=1e-12)
        np.testing.assert_array_equal(other.numpy(), (x * 2.0 + x) * x - 1.0)


@pytest.mark.parametrize("kind", ["shared", "messages"])
def test_loops_of_many_steps(kind: str) -> None:
    """Executors of the steps change while the workers are at different steps."""
    x = np.random.default_rng(0).random((40, 5))
    known = x
    for i in range(60):
        known = (known - known.mean(axis=0)) * 0.9 + i
    with debugged("delays=3", kind, 2):
        actual: Any = mm.fori_loop(
            0,
            60,
            lambda i, v: (v - v.mean(axis=0)) * 0.9 + i,
            mm.asarray(x, layout=mm.Layout.split(0)),
        )
        np.testing.assert_allclose(actual.numpy(), known, rtol=1e-9)


@pytest.mark.parametrize("kind", ["shared", "messages", "hosts"])
def test_asynchronous_updates(kind: str) -> None:
    """Dropout, running statistics and the losses of all steps are as without delays."""
    x = np.random.default_rng(0).normal(size=(14, 5))
    ends = []
    for number, strategy in enumerate(["data", mm.parallel.Asynchronous(0, servers=3)]):
        with debugged(f"delays={number}", kind, 3):
            layers = [mm.nn.Dense(7), mm.nn.BatchNorm(), mm.nn.Dropout(0.5, seed=1), mm.nn.Dense(5)]
            net = mm.nn.NeuralNetwork(
                layers, optimizer="momentum", loss="mean_squared_error", seed=1
            )
            history = net.fit(x, x, batch_size=6, epochs=1, strategy=strategy)
            free = net.fit(x, x, batch_size=6, epochs=1, strategy=mm.parallel.Asynchronous(4))
            assert all(one["max"] <= 4 for one in free.delays)
            ends.append(history.step_losses)
    for result in ends[1:]:
        np.testing.assert_allclose(result, ends[0], rtol=1e-9)


# the switch ---------------------------------------------------------------------------------------


def test_delays_are_those_of_the_seed_and_differ_between_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)

    def drawn(seed: int, rank: int) -> list[float]:
        monkeypatch.setenv(DEBUG.name, f"delays={seed}")
        slept.clear()
        comm = DelayedCommunicator(IsolatedCommunicator(rank, 2, shares_memory=False))
        for _ in range(200):
            comm.barrier()
        return [*slept]

    first = drawn(1, 0)
    assert first == drawn(1, 0)
    assert first != drawn(1, 1)
    assert first != drawn(2, 0)
    assert 0.01 < max(first) <= LONG_SECONDS
    assert 60 < len(first) < 180
    monkeypatch.setenv(DEBUG.name, "")
    slept.clear()
    assert not Delays("none").should_defer()
    Delays("none").sleep()
    assert not slept
