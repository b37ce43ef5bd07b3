"""Compiled functions as builtins of Python: their arguments, results and errors."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magmath.codegen.aot_cache import AotModule

CODE = AotModule(
    """
def mixed(a: int64, b: float32, c: float64, d: uint8, e: int64[1]) -> float64:
    return float64(a) + float64(b) + c + float64(d) + float64(e[0])

def same(a: int64) -> int64:
    return a

def unsigned(a: uint64) -> uint64:
    return a

def half(a: float32) -> float32:
    return a / 2

def put(place: int64[1], value: int64):
    place[0] = value

def answer(place: int64[1]) -> int64:
    place[0] = 1
    while load_acquire(place, 1) == 0:
        usleep(uint32(1))
    return place[1]
""",
    ("mixed", "same", "unsigned", "half", "put", "answer"),
)
WORDS = st.integers(-(2**63), 2**63 - 1)
SINGLE = st.floats(-1e6, 1e6, width=32)


@given(WORDS)
def test_whole_numbers(number: int) -> None:
    assert CODE.function("same")(number) == number
    assert CODE.function("same")(number + 2**64) == number
    assert CODE.function("unsigned")(number) == number % 2**64
    memory = np.zeros(1, np.int64)
    CODE.function("put")(memory.ctypes.data, number)
    assert memory[0] == number


@given(st.integers(-(2**40), 2**40), SINGLE, SINGLE, st.integers(0, 255), st.integers(0, 2**40))
def test_numbers_of_several_types(a: int, b: float, c: float, d: int, e: int) -> None:
    memory = np.array([e])
    assert CODE.function("mixed")(a, b, c, d, memory.ctypes.data) == pytest.approx(
        a + b + c + d + e
    )
    assert CODE.function("half")(b) == np.float32(b) / 2


@pytest.mark.parametrize("given", [("1",), (1.5,), (None,), (), (1, 2)])
def test_what_does_not_fit_raises(given: tuple[object, ...]) -> None:
    with pytest.raises(TypeError):
        CODE.function("same")(*given)
    assert CODE.function("same")(5) == 5


def test_references_are_given_back() -> None:
    number = 1 << 40
    before = sys.getrefcount(number)
    for _ in range(1000):
        CODE.function("same")(number)
    assert sys.getrefcount(number) == before


def test_other_threads_run_meanwhile() -> None:
    shared = np.zeros(2, np.int64)

    def write() -> None:
        while not shared[0]:
            pass
        shared[1] = 7

    thread = threading.Thread(target=write)
    thread.start()
    assert CODE.function("answer")(shared.ctypes.data) == 7
    thread.join()
