"""Steps of optimizers in branches and loops: those that are taken count, and have their own rates."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import current
from magmath.errors import MagmathError

CHOICES = 3
"""The truth values that a program reads."""


@pytest.fixture(autouse=True, params=[("inline", 1), ("shared", 2)], ids=lambda kind: str(kind[0]))
def pool(request: pytest.FixtureRequest) -> Iterator[None]:
    with current(*request.param):
        yield


def _branches() -> st.SearchStrategy[Any]:
    """Programs: "update", and ("cond", i, program, program) by the truth value i."""

    def nested(block: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        branches = st.tuples(st.just("cond"), st.integers(0, CHOICES - 1), block, block)
        return st.lists(st.just("update") | branches, max_size=2)

    return st.recursive(st.lists(st.just("update"), max_size=2), nested, max_leaves=4)


def _loops() -> st.SearchStrategy[Any]:
    """These programs with loops: ("for", n, program) and ("while", n, program)."""
    loops = st.tuples(st.just("for"), st.sampled_from([2, 40]), _branches()) | st.tuples(
        st.just("while"), st.integers(0, 3), _branches()
    )
    return st.tuples(_branches(), loops).map(lambda parts: [*parts[0], parts[1]])


def _run(block: Any, choices: Any, update: Any) -> None:
    """Run a program with the control flow of magmath."""
    for item in block:
        if item == "update":
            update()
        else:
            FLOWS[item[0]](item[1], *[partial(_run, b, choices, update) for b in item[2:]], choices)


def _cond(i: int, first: Any, second: Any, choices: Any) -> None:
    mm.cond(choices[i], first, second)


def _for(count: int, body: Any, choices: Any) -> None:
    mm.fori_loop(0, count, lambda i, x: (body(), x)[1], 0.0)


def _while(count: int, body: Any, choices: Any) -> None:
    mm.while_loop(lambda i: i < count, lambda i: (body(), i + 1)[1], mm.asarray(0))


FLOWS: dict[str, Any] = {"cond": _cond, "for": _for, "while": _while}


def _expected(block: Any, choices: Any, update: Any) -> None:
    """Run a program with the control flow of Python."""
    for item in block:
        if item == "update":
            update()
        elif item[0] == "cond":
            _expected(item[2] if choices[item[1]] else item[3], choices, update)
        else:
            for _ in range(item[1]):
                _expected(item[2], choices, update)


def _rate(step: int) -> float:
    return 1.0 + step * step


RUNS = st.lists(st.lists(st.booleans(), min_size=CHOICES, max_size=CHOICES), max_size=2)


def _compare(block: Any, runs: list[list[bool]], rate: Any, *, compiled: bool) -> None:
    """Compare the steps and the sum of the rates of all updates with those of Python's control
    flow."""
    w = mm.variable("w", 0.0, dtype="float64")
    optimizer = mm.optim.GradientDescent(rate)
    steps, total = 0, 0.0

    def count() -> None:
        nonlocal steps, total
        total += rate(steps) if callable(rate) else rate
        steps += 1

    def program(*choices: mm.Array) -> None:
        _run(block, choices, lambda: optimizer.update({w: mm.asarray(-1.0, dtype="float64")}))

    function = mm.compile(program) if compiled else program
    for choices in runs:
        function(*map(mm.asarray, choices))
        _expected(block, choices, count)
        assert optimizer.steps == steps
        assert int(optimizer.state_dict()["steps"]) == steps
        np.testing.assert_allclose(float(w), total)
    optimizer.restore_steps(7)
    assert optimizer.steps == 7


@settings(max_examples=12)
@given(_loops(), RUNS, st.booleans())
def test_only_steps_that_are_taken_count(
    block: Any, runs: list[list[bool]], compiled: bool
) -> None:
    _compare(block, runs, 0.5, compiled=compiled)


@settings(max_examples=20)
@given(_branches(), RUNS, st.booleans())
@example(  # the branch that is not taken is traced, and the number of its second step unknown
    [("cond", 0, [], [("cond", 0, [], ["update"]), "update"])], [[True] * CHOICES], False
)
def test_a_schedule_counts_steps_that_are_taken(
    block: Any, runs: list[list[bool]], compiled: bool
) -> None:
    """Or an error says that the number of the step depends on values."""
    with suppress(MagmathError) if compiled else nullcontext():
        _compare(block, runs, _rate, compiled=compiled)


def test_a_step_in_a_branch_has_the_rate_of_its_number() -> None:
    """Accumulated gradients are applied in each third step."""
    block = [("cond", 0, ["update"], [])]
    runs = [[i % 3 == 2, False, False] for i in range(9)]
    _compare(block, runs, _rate, compiled=True)
    _compare(["update", ("cond", 0, ["update", "update"], ["update"])], runs, _rate, compiled=True)


def test_a_step_whose_number_depends_on_values_needs_a_number_as_rate() -> None:
    block = [("cond", 0, ["update"], []), "update"]
    with pytest.raises(MagmathError, match=r"depends on values \(mm\.cond, mm\.while_loop\)"):
        _compare(block, [[True] * CHOICES], _rate, compiled=True)
    _compare(block, [[True] * CHOICES, [False] * CHOICES], 0.1, compiled=True)


def test_another_pool_continues_the_count() -> None:
    optimizer = mm.optim.GradientDescent(_rate)

    @mm.compile
    def step(w: mm.Array, taken: mm.Array) -> None:
        mm.cond(taken, lambda: optimizer.update({w: mm.ones(2)}), lambda: None)

    for steps, kind in ((2, "planned"), (4, "messages")):
        with current(kind, 1):
            w = mm.variable("w", mm.zeros(2))
            for taken in (True, False, True):
                step(w, mm.asarray(taken))
            assert optimizer.steps == steps
            np.testing.assert_allclose(w.numpy(), -_rate(steps - 2) - _rate(steps - 1))
