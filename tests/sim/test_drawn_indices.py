"""Indices that a program draws: ranges that contain them, and variables that survive those that are
out of range."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import magmath as mm
from engines import current
from magmath.arrays.variables.variable import overwrite
from magmath.engine.drawn_indices import DrawnIndices
from magmath.engine.fallible_operations import unchecked_operands
from magmath.graph import Graph
from magmath.passes.expand import expand
from magmath.transform import specialization

N = 10
POOLS = [("inline", 1), ("planned", 1), ("shared", 2), ("messages", 3)]


@pytest.fixture(params=POOLS, ids=lambda p: f"{p[0]}-{p[1]}")
def pool(request: pytest.FixtureRequest) -> Iterator[None]:
    with current(*request.param):
        yield


IN_RANGE: dict[str, Callable[[], Any]] = {
    "integers": lambda: mm.random.integers(0, N, 40),
    "negative integers": lambda: mm.random.integers(-N, N, (5, 8)),
    "remainder": lambda: mm.random.integers(0, 1000, 40) % N,
    "permutation": lambda: mm.random.permutation(N)[2:9],
    "floor of uniform": lambda: (mm.random.random(400) * N).astype(int),
    "choice": lambda: mm.random.choice(N, 40),
    "argsort": lambda: mm.argsort(mm.random.random(N)),
    "argmax": lambda: mm.argmax(mm.random.random((5, N)), axis=1),
    "clip": lambda: mm.clip(mm.random.integers(-50, 50, 40), -3, N - 1),
    "minimum": lambda: mm.minimum(mm.random.integers(0, 100, 40), N - 1),
    "sum and difference": lambda: mm.random.integers(0, 6, 40) + mm.random.integers(-9, 5, 40),
    "product": lambda: mm.random.integers(-3, 4, 40) * mm.random.integers(0, 4, 40),
    "parts of several": lambda: mm.concatenate(
        [mm.random.integers(0, N, 4), mm.random.permutation(N)[::-1]]
    ),
    "narrow type": lambda: mm.random.integers(0, N, 40, dtype=mm.int8),
}
"""Expressions whose values are all positions of an axis of N."""
OUT_OF_RANGE: dict[str, Callable[[], Any]] = {
    "integers": lambda: mm.random.integers(0, N + 1, 40),
    "negative integers": lambda: mm.random.integers(-N - 1, N, 40),
    "remainder": lambda: mm.random.integers(0, 1000, 40) % (N + 1),
    "permutation": lambda: mm.random.permutation(N + 3),
    "floor of uniform": lambda: (mm.random.random(40) * (N + 2)).astype(int),
    "sum": lambda: mm.random.integers(0, N, 40) + 1,
    "product that overflows": lambda: mm.random.integers(0, 2**62, 4) * 4 + N,
    "truth values": lambda: mm.random.integers(-1, 2, 40).astype(bool).astype(int) * 20 - 20,
    "unknown": lambda: mm.random.poisson(50.0, 40),
}
"""Expressions some of whose values are, or may be, no positions of such an axis."""


def _indices_of_taken(positions: Any) -> tuple[DrawnIndices, list[Any]]:
    graph = expand(Graph((mm.take(mm.variable("v", mm.zeros(N)), positions, axis=0).node,)))
    numbers = [leaf for leaf in graph.leaves if leaf.operation.name == "scalar"]
    drawn = unchecked_operands(graph).drawn
    assert len(drawn) == 1
    return DrawnIndices(graph, drawn, numbers), [leaf.value for leaf in numbers]


@pytest.mark.parametrize("kind", IN_RANGE)
def test_indices_of_a_known_range_are_in_range(kind: str) -> None:
    with current("inline", 1):
        mm.random.seed(3)
        positions = IN_RANGE[kind]()
        indices, numbers = _indices_of_taken(positions)
        assert not indices.can_be_out_of_range(numbers)
        values = positions.numpy()
        assert ((values >= -N) & (values < N)).all()


@pytest.mark.parametrize("kind", OUT_OF_RANGE)
def test_other_indices_can_be_out_of_range(kind: str) -> None:
    with current("inline", 1):
        indices, numbers = _indices_of_taken(OUT_OF_RANGE[kind]())
        assert indices.can_be_out_of_range(numbers)


@pytest.mark.parametrize("kind", OUT_OF_RANGE)
def test_a_compiled_step_that_draws_an_index_out_of_range_changes_no_variable(
    pool: None, kind: str
) -> None:
    v, count = mm.variable("v", mm.zeros(N)), mm.variable("count", mm.zeros(3))

    @mm.compile
    def step() -> None:
        count.assign(count + 1)
        v.assign(v + mm.sum(mm.take(v + 1, OUT_OF_RANGE[kind](), axis=0)))

    for _ in range(3):
        with pytest.raises(IndexError):
            step()
        assert count.numpy().tolist() == [0.0] * 3
        assert not v.numpy().any()


@pytest.mark.parametrize("way", ["compile", "minimize", "loop"])
def test_the_range_is_that_of_the_numbers_of_a_run(pool: None, way: str) -> None:
    """One program runs with a range that fits, one that does not, and one that fits again."""
    w = mm.variable("w", mm.ones(N))
    descent = mm.optim.GradientDescent(0.1)

    def step(count: int) -> None:
        positions = mm.random.integers(0, count, 60)
        if way == "minimize":
            descent.minimize(mm.sum(mm.take(w, positions, axis=0)), [w], steps=3)
            return

        def assign(*_: Any) -> Any:
            drawn = mm.random.integers(0, count, 60)
            w.assign(w - 0.1 * mm.sum(mm.take(w, drawn, axis=0)) / 60)
            return 0.0

        if way == "compile":
            compiled = mm.compile(assign)
            compiled()
            compiled()
        else:
            mm.fori_loop(0, 3, assign, 0.0)

    for count in (N, N + 5, N - 1, N + 5):
        before = w.numpy()
        if count <= N:
            step(count)
            assert (w.numpy() != before).any()
        else:
            with pytest.raises(IndexError):
                step(count)
            np.testing.assert_array_equal(w.numpy(), before)


@pytest.mark.parametrize("count", [N, N + 1])
def test_only_steps_that_can_draw_a_position_out_of_range_copy_variables(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[bool] = []

    def record(*arguments: Any, can_fail: bool) -> Any:
        answers.append(can_fail)
        return overwrite(*arguments, can_fail=can_fail)

    monkeypatch.setattr(specialization, "overwrite", record)
    with current("shared", 2):
        w = mm.variable("w", mm.ones((N, 4)))

        @mm.compile
        def step() -> None:
            w.assign(w * 0.5 + mm.mean(mm.take(w, mm.random.integers(0, count, 1), axis=0)))

        step()
        step()
    assert answers == [count > N] * 2
