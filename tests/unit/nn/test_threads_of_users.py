"""Modules in several threads of the user: what one thread does with them changes no results of
others."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import magmath as mm
from engines import current
from magmath import nn
from magmath.api.random import drawing_from, initial_values_from
from magmath.engine import session
from magmath.engine.programs.program_modes import DEFAULT_MODES
from magmath.engine.traces.stream_state import StreamState

X = np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)


@pytest.fixture(autouse=True)
def _pool() -> Iterator[None]:
    with current("inline", 1):
        yield


@contextmanager
def while_another_thread_is_in(block: Callable[[threading.Event, threading.Event], None]) -> Any:
    """Run the body after another thread has entered a block, and before it leaves it."""
    entered, leave = threading.Event(), threading.Event()
    thread = threading.Thread(target=block, args=(entered, leave))
    thread.start()
    assert entered.wait(30)
    try:
        yield
    finally:
        leave.set()
        thread.join()


def test_the_precision_of_a_thread_is_its_own() -> None:
    module = nn.Sequential(nn.Dense(16, "relu"), nn.Dense(3)).build((1, 8))
    exact = module(X).numpy()

    def mixed(entered: threading.Event, leave: threading.Event) -> None:
        with nn.precision("mixed-bfloat16"):
            entered.set()
            leave.wait()

    with while_another_thread_is_in(mixed):
        np.testing.assert_array_equal(module(X).numpy(), exact)
    with nn.precision("mixed-bfloat16"):
        assert np.any(module(X).numpy() != exact)


def test_the_modes_of_the_programs_of_a_thread_are_its_own() -> None:
    """Blocks of two threads that overlap leave nothing behind."""
    engine = session.engine()
    training = engine.modes.of_training()
    own = engine.in_modes(training)

    def in_training(entered: threading.Event, leave: threading.Event) -> None:
        with engine.in_modes(training):
            entered.set()
            leave.wait()

    with while_another_thread_is_in(in_training):
        assert engine.modes == DEFAULT_MODES
        own.__enter__()
    assert engine.modes == training
    own.__exit__(None, None, None)
    assert engine.modes == DEFAULT_MODES


def test_compiled_functions_see_the_mode_while_another_thread_has_set_one() -> None:
    module = nn.Sequential(nn.Dense(64), nn.Dropout(0.5)).build((1, 8))
    other = nn.Dense(2).build((1, 8))

    def evaluating(entered: threading.Event, leave: threading.Event) -> None:
        with other.mode(False):
            entered.set()
            leave.wait()

    compiled = mm.compile(lambda x: module(x))
    with while_another_thread_is_in(evaluating):
        assert (compiled(X).numpy() == 0).any()
    module.eval()
    assert (compiled(X).numpy() != 0).all()


@pytest.mark.parametrize("block", [initial_values_from, drawing_from])
def test_random_numbers_of_a_thread_are_its_own(block: Callable[[StreamState], Any]) -> None:
    def drawn() -> list[Any]:
        network = nn.NeuralNetwork([nn.Dense(3)], loss="mean_squared_error", seed=1)
        network.build((1, 8))
        mm.random.seed(5)
        initial = nn.Dense(2).build((1, 8)).parameters()[0]
        return [network.module.parameters()[0].tolist(), initial.tolist(), mm.random.rand().item()]

    def other(entered: threading.Event, leave: threading.Event) -> None:
        with block(StreamState(7)):
            entered.set()
            leave.wait()

    alone = drawn()
    with while_another_thread_is_in(other):
        assert drawn() == alone


def test_threads_draw_different_numbers() -> None:
    switch_interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            draws = pool.map(
                lambda _: [tuple(mm.random.rand(4).tolist()) for _ in range(200)], range(4)
            )
        numbers = [number for one in draws for number in one]
    finally:
        sys.setswitchinterval(switch_interval)
    assert len(set(numbers)) == len(numbers)
