"""Results without dimensions are numbers, which updates replace; arrays without dimensions and
views are changed under all names. Programs give NumPy's results."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import current

Makes = Callable[[Any, Any, Any], Any]

MAKERS: list[Makes] = [
    lambda np, x, n: x.sum(),
    lambda np, x, n: x[1],
    lambda np, x, n: x.argmax(),
    lambda np, x, n: np.linalg.norm(x),
    lambda np, x, n: (x > 2).any(),
    lambda np, x, n: np.sqrt(x[2]),
    lambda np, x, n: x[(0,)],
    lambda np, x, n: x[0, ...],
    lambda np, x, n: x[1:2].reshape(()),
    lambda np, x, n: np.zeros((), dtype=np.float64),
    lambda np, x, n: np.ones((), dtype=np.float64),
    lambda np, x, n: np.zeros_like(x[0, ...]),
    lambda np, x, n: np.full_like(n, 2),
    lambda np, x, n: np.array(3),
    lambda np, x, n: np.full((), 2.5, dtype=np.float64),
    lambda np, x, n: np.array(n),
    lambda np, x, n: n.copy(),
    lambda np, x, n: n.reshape(n.shape),
    lambda np, x, n: n + 1,
    lambda np, x, n: x[n.size - 1 :],
]
UPDATES = [
    operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv,
]  # fmt: skip
OPERANDS = [2, 0.5, 3, numpy.float64(1.5)]


@st.composite
def programs(draw: st.DrawFn) -> list[Any]:
    """Draw steps that make numbers and arrays, give them other names, and update them."""
    names = st.integers(0, 3)
    steps: list[Any] = [("make", i, draw(st.integers(0, len(MAKERS) - 1)), i) for i in range(4)]
    for _ in range(draw(st.integers(2, 14))):
        kind = draw(st.sampled_from(["make", "name", "keep", "update", "update", "with", "item"]))
        name, other = draw(names), draw(names)
        number = draw(st.integers(0, 100))
        steps.append((kind, name, number, other))
    return steps


def run(np: Any, steps: list[Any], x: Any, start: Any) -> list[Any]:
    """Run a program on an array and a number; return the values of all names, and kept ones."""
    named: list[Any] = [start] * 4
    kept: list[Any] = [x]
    for kind, name, number, other in steps:
        update = UPDATES[number % len(UPDATES)]
        operand = OPERANDS[number % len(OPERANDS)]
        try:
            if kind == "make":
                named[name] = MAKERS[number % len(MAKERS)](np, x, named[other])
            elif kind == "name":
                named[name] = named[other]
            elif kind == "keep":
                kept.append(named[name])
            elif kind == "update":
                named[name] = update(named[name], operand)
            elif kind == "with":
                named[name] += named[other]
            else:
                x[number % 3] += operand
        except (TypeError, ValueError):  # another type, or shape, for an array
            kept.append(np.asarray(-1))
    return [*kept, *named, start]


@pytest.fixture
def floats_of_numpy() -> Iterator[None]:
    mm.set_default_dtype(mm.float64)
    yield
    mm.set_default_dtype(mm.float32)


@pytest.mark.usefixtures("floats_of_numpy")
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("planned", 1), ("shared", 2)])
@settings(max_examples=25, deadline=None)
@given(steps=programs())
def test_updates_of_numbers(kind: str, workers: int, compiled: bool, steps: list[Any]) -> None:
    values = numpy.asarray([1.0, 2.0, 4.0])
    expected = run(numpy, steps, values.copy(), values.sum())
    with current(kind, workers):
        x = mm.asarray(values)

        def program(x: Any, start: Any) -> Any:
            return run(mm, steps, x, start)

        actual = (mm.compile(program) if compiled else program)(x, x.sum())
        for one, value in zip(actual, expected, strict=True):
            assert one.dtype == value.dtype
            numpy.testing.assert_allclose(one.numpy(), value, rtol=1e-12)


@pytest.mark.usefixtures("floats_of_numpy")
@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("planned", 1), ("shared", 2)])
@pytest.mark.parametrize("make", MAKERS)
def test_repeated_calls_make_numbers_or_arrays_as_the_first(
    kind: str, workers: int, make: Makes
) -> None:
    values = numpy.asarray([1.0, 2.0, 4.0])

    def made_and_updated(np: Any) -> list[Any]:
        x = np.asarray(values.copy())
        made = make(np, x, x.sum())
        other = made
        with suppress(TypeError):  # another type, for an array
            other += 1
        return [made, other, x]

    expected = made_and_updated(numpy)
    with current(kind, workers):
        for _ in range(5):  # calls on small arrays are repeated from the third one on
            for one, value in zip(made_and_updated(mm), expected, strict=True):
                numpy.testing.assert_allclose(one.numpy(), value, rtol=1e-12)


def test_numbers_of_callers_are_not_changed() -> None:
    def next_of(s: Any) -> Any:
        s += 1
        return s

    s = mm.sum(mm.ones(3))
    assert (float(next_of(s)), float(mm.compile(next_of)(s)), float(s)) == (4, 4, 3)
    body = lambda i, s: next_of(s)  # noqa: E731
    assert (float(mm.fori_loop(0, 3, body, s)), float(s)) == (6, 3)
    assert (float(mm.grad(lambda s: next_of(s) ** 2)(s)), float(s)) == (8, 3)


def test_writes_change_numbers_under_all_names() -> None:
    s = mm.sum(mm.ones(3))
    other = s
    s[...] = 5
    mm.add(s, 1, out=s)
    s[()] += 1
    assert (float(s), float(other)) == (7, 7)


def test_numbers_and_bytes_as_python_asks_for_them() -> None:
    x = mm.asarray([[-1.75, 2.5], [3.0, 4.0]])
    assert [math.trunc(x[0, 0]), math.floor(x[0, 0]), math.ceil(x[0, 0])] == [-1, -2, -1]
    assert x.tobytes("F") == x.T.tobytes() == x.numpy().tobytes("F")
