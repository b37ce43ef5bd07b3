"""No result depends on memory that was never written: with every allocation, and every temporary
of every step, filled with bytes that no program writes, the results are the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pytest
import torch

import magmath as mm
from engines import current, debugged
from magmath import nn
from magmath.bench import numpy_programs
from magmath.bench.numpy_programs.agreement import difference
from magmath.core.debugging import FILL_BYTE, Debugging, debugging
from magmath.core.options import DEBUG
from magmath.errors import OptionError
from magmath.memory.chunk_sources import PrivateSource
from magmath.memory.heap import Heap
from magmath.ops import OPERATIONS
from magmath.parallel import STRATEGIES, Asynchronous, DataParallel, Hybrid, WeightAveraging
from random_programs import UNTRACEABLE, numbers, operands, placed, random_program

POOLS = [
    ("inline", 1),
    ("planned", 1),
    ("shared", 1),
    *[(kind, n) for kind in ("shared", "messages", "exact") for n in (2, 3)],
    ("hosts", 3),
    ("overlapped", 2),
]
NAMES = [f"{kind}-{workers}" for kind, workers in POOLS]
SHARED, MESSAGES, EXACT = ("shared", 2), ("messages", 3), ("exact", 2)
TRAINED: list[tuple[Any, list[tuple[str, int]]]] = [
    ("auto", [SHARED]),
    ("data", [MESSAGES, EXACT]),
    ("model", [MESSAGES]),
    ("model-input", [SHARED]),
    ("allreduce", [MESSAGES]),
    ("ring", [SHARED]),
    ("tree", [MESSAGES]),
    ("sharded", [SHARED, EXACT]),
    ("parameter-server", [MESSAGES]),
    (DataParallel(messages="1-bit"), [MESSAGES, EXACT]),
    (DataParallel(messages="bfloat16"), [SHARED, EXACT]),
    (DataParallel(messages="float16"), [SHARED, EXACT]),
    (DataParallel("sharded", messages="1-bit"), [SHARED, EXACT]),
    (DataParallel("ring", accumulate=2, messages="bfloat16"), [MESSAGES, EXACT]),
    (Hybrid({"0": "output", "3": "input"}), [MESSAGES, EXACT]),
    (WeightAveraging(2), [SHARED, EXACT]),
    (Asynchronous(2, schedule=[0, 2, 1]), [SHARED, EXACT]),
]
"""Strategies, and the pools on which each of them trains."""


@pytest.fixture(autouse=True)
def _in_float64() -> Iterator[None]:
    mm.set_default_dtype("float64")
    yield
    mm.set_default_dtype("float32")


def bits(result: list[Any]) -> list[bytes]:
    return [x.tobytes() for x in numbers(result)]


@pytest.mark.parametrize(("kind", "workers"), POOLS, ids=NAMES)
def test_random_programs(kind: str, workers: int) -> None:
    """Run several times: later runs use the memory of earlier ones."""
    for seed in range(2):
        choice = Random(f"{kind} {workers} {seed}")
        program, names = random_program(choice)
        given = operands(seed, choice)
        expected = program(np, *given)
        state = choice.getstate()
        actual = []
        with debugged("fill", kind, workers):
            arrays = placed(choice, *given)
            run = partial(program, mm)
            forms = [run] if UNTRACEABLE & {*names} else [run, mm.compile(run)]
            for form in forms:
                actual += [numbers(form(*arrays)) for _ in range(2)]
        for results in actual:
            for one, known in zip(results, expected, strict=True):
                np.testing.assert_allclose(one, known, rtol=1e-6, atol=1e-8, err_msg=str(names))
        if kind == "exact":
            choice.setstate(state)
            with current(kind, workers):
                assert bits(program(mm, *placed(choice, *given))) == bits(actual[0]), names


@pytest.mark.parametrize("name", numpy_programs.NAMES)
def test_ordinary_programs(name: str) -> None:
    program = numpy_programs.load(name)
    data = program.data(program.SIZES[0] // 8)
    expected = program.main(np, *data)
    for kind, workers in (("inline", 1), ("shared", 2)):
        with debugged("fill", kind, workers):
            ours = program.main(mm, *map(mm.asarray, data))
            assert difference(ours, expected) < 1e-8, kind


def trained(strategy: Any) -> list[bytes]:
    """Train with batch norm, dropout and a smaller last batch; return the bits of all values."""
    values = np.random.default_rng(3)
    x, y = values.normal(size=(14, 7)), values.integers(0, 5, 14)
    layers = [nn.Dense(9), nn.BatchNorm(), nn.ReLU(), nn.Dense(5), nn.Dropout(0.2, seed=1)]
    net = nn.NeuralNetwork(layers, optimizer=mm.optim.Momentum(0.1), seed=1)
    net.fit(x, y, batch_size=10, epochs=1, strategy=strategy)
    state = [v.numpy() for v in net.module.state_dict().values()]
    assert all(np.isfinite(v).all() for v in state)
    return [np.array(net.history.step_losses).tobytes(), *map(np.ndarray.tobytes, state)]


@pytest.mark.parametrize(
    ("strategy", "pool"),
    [(strategy, pool) for strategy, pools in TRAINED for pool in pools],
    ids=str,
)
def test_strategies(strategy: Any, pool: tuple[str, int]) -> None:
    """Bit for bit: the same pool without filling selects the same kernels."""
    with debugged("", *pool):
        expected = trained(strategy)
    with debugged("fill", *pool):
        assert trained(strategy) == expected


def test_every_named_strategy_is_trained() -> None:
    """Without a schedule, asynchronous updates depend on the times of the workers."""
    names = {strategy for strategy, _ in TRAINED if isinstance(strategy, str)}
    assert names == set(STRATEGIES) - {"asynchronous"}


# the switch ---------------------------------------------------------------------------------------


def test_memory_is_filled_whenever_it_is_allocated() -> None:
    heap = Heap(PrivateSource(torch.device("cpu")), chunk_bytes=4096, should_fill=True)
    for _ in range(2):
        block = heap.allocate(100)
        assert (heap.local(block) == FILL_BYTE).all()
        heap.local(block).zero_()
        heap.free(block)


@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 2), ("messages", 2)])
def test_a_kernel_that_writes_nothing_is_found(
    kind: str, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the first run and in later ones, whether its result is returned or a temporary."""
    broken = replace(OPERATIONS["cumulative_sum"], kernel=lambda call: lambda: None)
    x = np.ones((300, 50))
    with debugged("fill", kind, workers):
        given = mm.asarray(x)
        compiled = mm.compile(lambda x: (mm.cumsum(x, axis=1), mm.cumsum(x * 2, axis=1) * 2))
        for result, known in zip(compiled(given), (x, 4 * x), strict=True):
            np.testing.assert_array_equal(result.numpy(), known.cumsum(1))
        monkeypatch.setitem(OPERATIONS, "cumulative_sum", broken)
        mm.evaluate(mm.cumsum(given + 1, axis=1))
        compiled = mm.compile(lambda x: (mm.cumsum(x, axis=1), mm.cumsum(x + x, axis=1) * 2))
        for _ in range(3):
            for result in compiled(given):
                assert (np.abs(result.numpy()) > 1e300).all()


def test_values_of_the_debug_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, expected in [
        ("", Debugging()),
        ("fill", Debugging(fill=True)),
        ("delays=7,fill", Debugging(fill=True, delays=7)),
        ("vectors=16", Debugging(vectors=16)),
        (
            "without=fold-epilogues,without=hoisting",
            Debugging(without=frozenset({"fold-epilogues", "hoisting"})),
        ),
    ]:
        monkeypatch.setenv(DEBUG.name, text)
        assert debugging() == expected
    for text in ("fil", "delays", "delays=x", "fill=1", "without", "without=fuse", "vectors=8"):
        monkeypatch.setenv(DEBUG.name, text)
        with pytest.raises(OptionError, match="the switches are fill, delays=SEED, vectors=BYTES"):
            debugging()
