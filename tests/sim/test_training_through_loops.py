"""Training steps are divided at their long loops: losses, parameters, buffers and random numbers are
those of unrolled loops, for every strategy and number of workers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import pytest

import magmath as mm
from engines import current
from magmath import nn
from magmath.ops import counted_loops
from magmath.parallel import (
    STRATEGIES,
    Asynchronous,
    Auto,
    CompiledStep,
    DataParallel,
    WeightAveraging,
)
from magmath.transform import traced_loop

SAMPLES, LENGTH, WIDTH = 12, 3, 3
DRAW = np.random.default_rng(3)
X = DRAW.normal(size=(SAMPLES, LENGTH, WIDTH))
Y = DRAW.integers(0, 2, SAMPLES)
WEIGHT = DRAW.normal(size=(WIDTH, WIDTH))
INLINE, SHARED, MESSAGES = ("inline", 1), ("shared", 2), ("messages", 3)
NAMED: dict[str, list[tuple[str, int]]] = {
    "data": [INLINE, SHARED, MESSAGES],
    "auto": [SHARED, MESSAGES],
    "sharded": [SHARED, MESSAGES],
    "model": [SHARED, MESSAGES],
    "model-input": [MESSAGES],
    "allreduce": [SHARED],
    "ring": [MESSAGES],
    "tree": [SHARED],
    "parameter-server": [MESSAGES],
}
"""Pools of the strategies that give the numbers of one worker."""
ACCUMULATED = Auto(accumulate=2)
OF_PARTS = [
    (ACCUMULATED, INLINE),
    (ACCUMULATED, SHARED),
    (DataParallel("ring", accumulate=2), MESSAGES),
]
"""They give the numbers of one worker that accumulates the gradients of as many parts."""
OTHERS = [
    (DataParallel(messages="1-bit"), MESSAGES),
    (WeightAveraging(2, every=2), INLINE),
    (WeightAveraging(2, every=2), SHARED),
    (Asynchronous(2, schedule=[0, 1]), MESSAGES),
]


@contextmanager
def limits(operations: int) -> Iterator[None]:
    """Unroll loops of up to this many operations."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counted_loops, "MAX_UNROLLED", operations)
        patch.setattr(traced_loop, "MIN_TRACED_STEPS", 1)
        yield


class Noisy(nn.Module):
    """A loop whose steps draw random numbers and assign a running statistic."""

    def __init__(self) -> None:
        self.weight = nn.Parameter(WEIGHT)
        self.seen = nn.Buffer(mm.zeros((WIDTH,)))

    def __call__(self, x: mm.Array) -> mm.Array:
        def step(h: mm.Array, row: mm.Array) -> Any:
            noise = mm.random.uniform(size=row.shape, dtype=row.dtype)
            h = mm.tanh(h @ self.weight + row * noise)
            self.seen.assign(self.seen * 0.5 + mm.mean(h, axis=0))
            return h, h

        _, hs = mm.scan(step, mm.zeros(x[:, 0].shape, dtype=x.dtype), mm.swapaxes(x, 0, 1))
        return mm.swapaxes(hs, 0, 1)


class Network(nn.Module):
    def __init__(self) -> None:
        self.noisy = Noisy()
        self.gru = nn.GRU(4, layers=2, dropout=0.25)
        self.out = nn.Dense(2)

    def __call__(self, x: mm.Array) -> mm.Array:
        return self.out(self.gru(self.noisy(x))[0][:, -1])


@pytest.fixture(autouse=True)
def _in_float64() -> Iterator[None]:
    mm.set_default_dtype(mm.float64)
    yield
    mm.set_default_dtype(mm.float32)


def fitted(strategy: Any, batch: int) -> list[Any]:
    network = Network()
    trainer = mm.train.Trainer(network, optimizer=mm.optim.Momentum(0.1), seed=1, strategy=strategy)
    losses = [trainer.fit(X, Y, batch_size=batch, epochs=2).step_losses for _ in range(2)]
    return [losses, *[v.numpy() for v in network.state_dict().values()]]


def stepped(strategy: Any) -> list[Any]:
    mm.random.seed(5)
    network = Network()
    network(X[:2])
    step = CompiledStep(
        lambda x, y: nn.losses.cross_entropy(network(x), y), network,
        mm.optim.Momentum(0.1), strategy,
    )  # fmt: skip
    losses = [float(step(X[i : i + 6], Y[i : i + 6])) for i in (0, 6, 0, 6)]
    step.collect()
    return [losses, *[v.numpy() for v in network.state_dict().values()]]


def check_equal(actual: list[Any], expected: list[Any]) -> None:
    for x, y in zip(actual, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-8, atol=1e-11)


@cache
def unrolled(strategy: Any, pool: Any) -> list[Any]:
    """What a strategy makes of unrolled loops."""
    with current(*pool), limits(10**9):
        return fitted(strategy, batch_of(strategy))


def batch_of(strategy: Any) -> int:
    """Return a size of batches that leaves a last batch of other size."""
    return 4 if isinstance(strategy, WeightAveraging) else 8


def check_fit(strategy: Any, pool: Any, expected: list[Any]) -> None:
    with current(*pool), limits(-1):
        check_equal(fitted(strategy, batch_of(strategy)), expected)


@pytest.mark.parametrize(
    ("strategy", "pool"), [(name, pool) for name in NAMED for pool in NAMED[name]], ids=str
)
def test_named_strategies_through_loops_equal_one_worker(strategy: str, pool: Any) -> None:
    check_fit(strategy, pool, unrolled("data", INLINE))


def test_every_named_strategy_is_compared() -> None:
    assert set(NAMED) == set(STRATEGIES) - {"asynchronous"}


@pytest.mark.parametrize(("strategy", "pool"), OF_PARTS, ids=str)
def test_accumulation_through_loops_equals_one_worker(strategy: Any, pool: Any) -> None:
    check_fit(strategy, pool, unrolled(ACCUMULATED, INLINE))


@pytest.mark.parametrize(("strategy", "pool"), OTHERS, ids=str)
def test_fit_through_loops_equals_fit_of_unrolled_loops(strategy: Any, pool: Any) -> None:
    check_fit(strategy, pool, unrolled(strategy, pool))


@pytest.mark.parametrize(
    ("strategy", "pool"),
    [
        ("auto", INLINE),
        ("auto", SHARED),
        ("sharded", MESSAGES),
        (WeightAveraging(2, every=2), MESSAGES),
    ],
    ids=str,
)
def test_compiled_steps_through_loops(strategy: Any, pool: Any) -> None:
    with current(*pool):
        with limits(10**9):
            expected = stepped(strategy)
        with limits(-1):
            check_equal(stepped(strategy), expected)


class Assigns(mm.train.Callback):
    """Assigns another rate at the beginning of each epoch, and after each step."""

    def on_epoch_begin(self, trainer: Any, epoch: int) -> None:
        trainer.optimizer.learning_rate = 0.1 / (1 + epoch)

    def on_step_end(self, trainer: Any, done: int, loss: float, speed: float) -> None:
        trainer.optimizer.learning_rate *= 0.5


schedules = mm.optim.schedules
RATES: dict[str, Any] = {
    "per epoch": lambda: (schedules.Exponential(0.1, 0.2), []),
    "per step": lambda: (schedules.Exponential(0.1, 0.7, per="step"), []),
    "function": lambda: (lambda epoch: 0.1 / (1 + epoch), []),
    "plateau": lambda: (schedules.Plateau(0.1, 0.2, patience=0, threshold=0.9), []),
    "callback": lambda: (0.1, [mm.train.LearningRateSchedule(lambda epoch: 0.1 * (epoch != 1))]),
    "assigned": lambda: (0.1, [Assigns()]),
}


@pytest.mark.parametrize("groups", [{}, {"*_bias": {"learning_rate": lambda n: 0.2 * (n != 1)}}])
@pytest.mark.parametrize("kind", RATES)
def test_rates_that_change_through_loops(kind: str, groups: Any) -> None:
    """Each step of divided programs has the rate that it has in unrolled ones."""
    result = []
    for operations in (10**9, -1):
        rate, callbacks = RATES[kind]()
        with current("inline"), limits(operations):
            network = nn.Sequential(nn.RNN(3))
            loss = lambda outputs, y: mm.mean(outputs[0] ** 2)  # noqa: E731
            momentum = mm.optim.Momentum(rate, groups=groups)
            trainer = mm.train.Trainer(network, loss, momentum, metrics=(), seed=1)
            losses = [
                trainer.fit(X, Y, batch_size=5, epochs=2, callbacks=callbacks).step_losses
                for _ in range(2)
            ]
            result.append([losses, *[v.numpy() for v in network.state_dict().values()]])
    check_equal(*result)


def test_planning_does_not_depend_on_the_number_of_steps() -> None:
    """The traces, and the instructions of the programs, are as many."""
    sizes = []
    with current("shared", 2):
        for length in (300, 900):
            network = nn.Sequential(nn.RNN(3))
            loss = lambda outputs, y: mm.mean(outputs[0] ** 2)  # noqa: E731
            trainer = mm.train.Trainer(network, loss, "sgd", metrics=(), seed=1)
            trainer.fit(np.zeros((4, length, 2)), np.zeros(4), batch_size=2)
            sizes.append(len(trainer.explain().instructions))
    assert sizes[0] == sizes[1] < 300


def test_a_simulated_step_runs_the_programs_of_its_loops() -> None:
    """It lasts as long as all steps of the loops, of which it lists as many tasks for any length."""
    tasks, seconds = [], []
    with current("shared", 2):
        for length in (300, 900):
            network = nn.Sequential(nn.RNN(3))
            loss = lambda outputs, y: mm.mean(outputs[0] ** 2)  # noqa: E731
            trainer = mm.train.Trainer(network, loss, "sgd", metrics=(), seed=1)
            trainer.fit(np.zeros((4, length, 2)), np.zeros(4), batch_size=2)
            step = trainer.simulate(times="predicted")
            tasks.append(len(step.timeline.tasks))
            seconds.append(step.seconds)
    assert tasks[0] == tasks[1]
    assert seconds[1] > 2 * seconds[0]


def test_loops_are_explained_unrolled_before_the_first_step() -> None:
    with current("shared", 2), limits(-1):
        network = nn.Sequential(nn.RNN(3))
        loss = lambda outputs, y: mm.mean(outputs[0] ** 2)  # noqa: E731
        trainer = mm.train.Trainer(network, loss, "sgd", metrics=(), seed=1)
        x, y = np.zeros((4, 40, 2)), np.zeros(4)
        trainer.fit(x, y, batch_size=2, epochs=0)
        assert "layers 0.layers.0.0: " in str(trainer.explain())
        assert trainer.simulate(times="predicted").seconds > 0
        trainer.fit(x, y, batch_size=2)
        assert "programs in order" in str(trainer.explain())
