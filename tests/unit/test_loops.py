"""Loops on the workers compute the same as Python's loops."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import magmath as mm
from engines import current
from magmath.errors import DTypeError, MagmathError, ShapeError, TracingError
from magmath.runtime import Pool

KINDS = [("inline", 1), ("shared", 2), ("messages", 3)]


@pytest.fixture(params=KINDS, ids=[f"{n}-{kind}" for kind, n in KINDS], autouse=True)
def pool(request: pytest.FixtureRequest) -> Iterator[Pool]:
    with current(*request.param) as pool:
        yield pool


def test_steps_follow_each_other(pool: Pool) -> None:
    x, y = np.arange(6.0), np.ones(6)
    given, other = mm.asarray(x), mm.asarray(y, layout=mm.Layout.split(0))
    result = mm.fori_loop(0, 5, lambda i, z: z + 2 * other * i, given)
    np.testing.assert_allclose(result.numpy(), x + 2 * y * 10)
    np.testing.assert_array_equal(given.numpy(), x)  # what was given stays as it is


@pytest.mark.parametrize("steps", [0, 1, 2, 7])
def test_states_may_change_places(steps: int) -> None:
    def body(i: Any, state: dict[str, Any]) -> dict[str, Any]:
        return {"a": state["b"], "b": state["a"] + state["b"]}

    start = {"a": mm.asarray([0, 3]), "b": mm.asarray([1, 4])}
    a, b = np.array([0, 3]), np.array([1, 4])
    for _ in range(steps):
        a, b = b, a + b
    result = mm.fori_loop(0, steps, body, start)
    np.testing.assert_array_equal(result["a"].numpy(), a)
    np.testing.assert_array_equal(result["b"].numpy(), b)


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_states_may_become_equal(steps: int) -> None:
    """One expression of one of the states as the next value of all of them."""

    def body(i: Any, state: list[Any]) -> list[Any]:
        return [mm.sin(state[0] + 1)] * 2

    a = np.array([0.0, 3.0])
    for _ in range(steps):
        a = np.sin(a + 1)
    for result in mm.fori_loop(0, steps, body, [mm.asarray([0.0, 3.0], dtype="float64"), a]):
        np.testing.assert_allclose(result.numpy(), a)


def test_many_steps_are_one_message(pool: Pool) -> None:
    x = mm.asarray(np.zeros(3))
    float(mm.sum(mm.fori_loop(0, 10, lambda i, z: z + 1, x)))

    def messages(steps: int) -> int:
        before = pool.traffic.messages
        result = mm.fori_loop(0, steps, lambda i, z: z + 1, x)
        sent = pool.traffic.messages - before
        np.testing.assert_array_equal(result.numpy(), np.full(3, steps))
        return sent

    assert messages(10) == messages(500)


def test_loops_within_functions_and_loops() -> None:
    @mm.compile
    def inner(x: mm.Array) -> mm.Array:
        return mm.fori_loop(1, 4, lambda i, z: z * i, x)

    np.testing.assert_array_equal(inner(mm.asarray([1.0, 2.0])).numpy(), [6, 12])
    twice = mm.fori_loop(
        0, 2, lambda i, z: mm.fori_loop(0, 3, lambda j, w: w + j, z), mm.asarray(0)
    )
    assert int(twice) == 6


def test_bodies_that_change_their_state_are_refused() -> None:
    x = mm.zeros(3)
    with pytest.raises(ShapeError, match=r"given \(3,\) float32 and returned \(\) float32"):
        mm.fori_loop(0, 3, lambda i, z: mm.sum(z), x)
    with pytest.raises(DTypeError, match="returned .3,. float64"):
        mm.fori_loop(0, 3, lambda i, z: mm.astype(z, "float64"), x)
    with pytest.raises(
        MagmathError, match="structure of arrays that it receives; it returned tuple of 2 arrays"
    ):
        mm.fori_loop(0, 3, lambda i, z: (z, z), x)
    number = mm.asarray(0)
    for run in (lambda f: f(), lambda f: mm.compile(f)()):
        with pytest.raises(DTypeError, match="fori_loop: cannot put float.. into .* int64"):
            run(lambda: mm.fori_loop(0, 3, lambda i, z: 2.7, number))
        with pytest.raises(DTypeError, match="scan: cannot put float.. into .* int64"):
            run(lambda: mm.scan(lambda c, x: ((c[0], 0.5), None), (number, number), mm.ones(3)))
        with pytest.raises(DTypeError, match="while_loop: cannot put complex64 into .* float32"):
            run(lambda: mm.while_loop(lambda z: mm.all(z < 3), lambda z: 2j, mm.ones(())))


def test_ranges_of_numbers_not_yet_known_are_refused() -> None:
    x = mm.zeros(3)
    with pytest.raises(TracingError, match=r"arange: .*write start \+ step \* mm\.arange\(n\)"):
        mm.fori_loop(0, 3, lambda n, x: x + mm.arange(n), x)
    with pytest.raises(TracingError, match=r"linspace: .*argument of it; write start"):
        mm.fori_loop(0, 3, lambda n, x: x + mm.linspace(0.0, n, 3), x)
