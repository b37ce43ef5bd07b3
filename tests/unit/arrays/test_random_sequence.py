"""Random numbers are a sequence: eager, compiled, looped and distributed code draws the same one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import current

DRAWS: list[Callable[[Any], mm.Array]] = [
    lambda source: source.normal(shape=(3,)),
    lambda source: source.uniform(-1.0, 2.0, (3,)),
    lambda source: mm.astype(source.integers(0, 100, (3,)), mm.float32),
    lambda source: mm.astype(source.permutation(3), mm.float32),
    lambda source: source.laplace(0.0, 2.0, 3),
    lambda source: source.gamma([0.5, 2.0, 30.0]),
    lambda source: mm.astype(source.poisson(20.0, 3), mm.float32),
    lambda source: mm.astype(source.binomial(50, 0.4, 3), mm.float32),
]


def dropped(x: mm.Array, source: Any) -> mm.Array:
    """Dropout as users write it."""
    return mm.where(source.uniform(shape=x.shape) > 0.5, x * 2, 0.0)


class Drawing:
    """A state that changes by random numbers of two generators, in ways that must not matter."""

    def __init__(self, draws: list[int]) -> None:
        self.sources: list[Any] = [mm.random, mm.random.Generator(7)]
        self.draws = draws
        self.state = mm.variable("state", np.zeros(3, np.float32))
        self.compiled = mm.compile(self.next)

    def next(self, x: mm.Array) -> mm.Array:
        """The next value; draws several times, and assigns a variable."""
        for draw in self.draws:
            x = x + DRAWS[draw % len(DRAWS)](self.sources[draw // len(DRAWS)])
        y = dropped(x, self.sources[0])
        self.state.assign(self.state + y)
        return y

    def run(self, ways: list[int]) -> list[np.ndarray[Any, Any]]:
        """Some blocks of steps, each done in a way: eager, compiled, in a loop."""
        x, result = mm.zeros(3), []
        for way in ways:
            if way == 2:
                x = mm.fori_loop(5, 8, lambda i, z: self.next(z), x)
            else:
                for _ in range(3):
                    x = self.compiled(x) if way == 1 else self.next(x)
            result += [x.numpy(), self.state.numpy(), DRAWS[0](self.sources[1]).numpy()]
        return result


@pytest.mark.parametrize(
    ("kind", "workers"), [("inline", 1), ("planned", 1), ("shared", 3), ("messages", 2)]
)
@settings(max_examples=15, deadline=None)
@given(
    draws=st.lists(st.integers(0, 2 * len(DRAWS) - 1), min_size=1, max_size=3),
    ways=st.lists(st.integers(0, 2), min_size=1, max_size=3),
)
def test_all_ways_draw_one_sequence(
    kind: str, workers: int, draws: list[int], ways: list[int]
) -> None:
    with current("inline"):
        mm.random.seed(3)
        expected = Drawing(draws).run([0] * len(ways))
    with current(kind, workers):
        mm.random.seed(3)
        for value, known in zip(Drawing(draws).run(ways), expected, strict=True):
            np.testing.assert_allclose(value, known, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 2)])
def test_minimize_draws_as_a_loop_that_writes_the_loss_anew(kind: str, workers: int) -> None:
    def loss(v: mm.Variable) -> mm.Array:
        return mm.sum(dropped(v, mm.random) * mm.random.normal(shape=(3,)))

    result = []
    with current(kind, workers):
        for how in ("anew", "again", "steps"):
            mm.random.seed(5)
            v, descent = mm.variable("v", np.ones(3)), mm.optim.GradientDescent(0.1)
            if how == "anew":
                values = [descent.minimize(loss(v), [v]) for _ in range(4)]
            elif how == "again":
                expression = loss(v)
                values = [descent.minimize(expression, [v]) for _ in range(4)]
            else:
                values = [descent.minimize(loss(v), [v], steps=4)]
            result.append((values[-1], *v.tolist(), *mm.random.uniform(shape=2).tolist()))
    for other in result[1:]:
        np.testing.assert_allclose(other, result[0], rtol=1e-6)


def test_generators_of_ones_own() -> None:
    first, second, other = (mm.random.Generator(seed) for seed in (1, 1, 2))
    numbers = [g.normal(shape=5).numpy() for g in (first, second, other)]
    np.testing.assert_array_equal(numbers[0], numbers[1])
    assert not np.array_equal(numbers[0], numbers[2])
    assert not np.array_equal(numbers[0], first.normal(shape=5).numpy())
    mm.random.seed(1)
    assert not np.array_equal(numbers[0], mm.random.normal(shape=5).numpy())
    drawn = [mm.random.default_rng().normal(shape=5).numpy() for _ in range(2)]
    assert not np.array_equal(*drawn)
    assert repr(second) == "Generator(seed=1, drawn=1)"
    with pytest.raises(Exception, match="seed must be an integer"):
        mm.random.Generator(-1)
