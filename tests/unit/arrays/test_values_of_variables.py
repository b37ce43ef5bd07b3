"""Gradients by a variable through its value itself, which a view of all elements, an argument of a
function or the state of a loop is, without an operation in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import magmath as mm
from engines import current
from magmath import nn

POOLS = [("inline", 1), ("planned", 1), ("shared", 2)]
VALUES: dict[str, Callable[[Any], Any]] = {
    "itself": lambda w: w,
    "slice": lambda w: w[:],
    "transposed": lambda w: w.T,
    "positive": lambda w: +w,
    "reshaped": lambda w: mm.reshape(w, w.shape),
    "broadcast": lambda w: mm.broadcast_to(w, w.shape),
    "rolled": lambda w: mm.roll(w, 0),
    "part": lambda w: mm.split(w, 1)[0],
    "sum": lambda w: w + 0,
}


def _cube(x: Any) -> Any:
    return mm.sum(x**3)


def _doubled_in_loop(x: Any) -> Any:
    return mm.while_loop(lambda h: mm.sum(h) < 50, lambda h: 2 * h, x)


def _scanned(x: Any) -> Any:
    counter = mm.variable("counter", 0.0)

    def step(product: Any, row: Any) -> tuple[Any, Any]:
        counter.assign(counter + 1)  # such a loop is another program
        return product * row, product

    return mm.scan(step, mm.ones((), dtype="float64"), x)[0]


USES: dict[str, tuple[Callable[[Any], Any], list[float]]] = {
    "doubled": (lambda x: mm.sum(2 * x), [2, 2]),
    "compiled": (lambda x: mm.sum(mm.compile(lambda y: 2 * y)(x)), [2, 2]),
    "penalty": (lambda x: mm.sum(mm.grad(_cube)(x) ** 2), [36, 288]),
    "inner step": (lambda x: _cube(x - 0.1 * mm.grad(_cube)(x)), [0.588, -0.384]),
    "inner value": (lambda x: mm.value_and_grad(_cube)(x)[0], [3, 12]),
    "vjp": (lambda x: mm.sum(mm.vjp(lambda y: y**3, x)[0]), [3, 12]),
    "jvp": (lambda x: mm.sum(mm.jvp(lambda y: y**3, (x,), (mm.ones(2),))[1]), [6, 12]),
    "jacobian": (lambda x: mm.sum(mm.jacobian(lambda y: y**3)(x)), [6, 12]),
    "hessian": (lambda x: mm.sum(mm.hessian(_cube)(x)), [6, 6]),
    "while_loop": (lambda x: mm.sum(_doubled_in_loop(x)), [32, 32]),
    "fori_loop": (lambda x: mm.sum(mm.fori_loop(0, 3, lambda _, h: 2 * h, x)), [8, 8]),
    "scan": (_scanned, [2, 1]),
    "vmap": (lambda x: mm.sum(mm.vmap(lambda y: y**2)(x)), [2, 4]),
}


@pytest.mark.parametrize("pool", POOLS, ids=lambda pool: pool[0])
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("value", VALUES)
def test_gradients_pass_through_the_value(pool: tuple[str, int], use: str, value: str) -> None:
    function, expected = USES[use]
    with current(*pool):
        w = mm.variable("w", [1.0, 2.0], dtype="float64")
        for is_evaluated in (False, True):
            x = VALUES[value](w)
            if is_evaluated:
                mm.evaluate(x)
            np.testing.assert_allclose(mm.grad(function(x), w), expected, rtol=1e-12)
        found = mm.value_and_grad(lambda: function(VALUES[value](w)), [w])[1][w]
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("pool", POOLS, ids=lambda pool: pool[0])
def test_an_evaluated_value_is_not_that_of_a_later_assignment(pool: tuple[str, int]) -> None:
    with current(*pool):
        w = mm.variable("w", [1.0, 2.0])
        x, y = w[:], w[:]
        mm.evaluate(x)
        w.assign([3.0, 4.0])
        np.testing.assert_array_equal([x, y, w], [[1, 2], [1, 2], [3, 4]])


def _targets(x: Any) -> Any:
    """Return outputs of a network that does not exist any more."""
    return nn.Dense(2).build((1, 3))(x)


@pytest.mark.parametrize("pool", POOLS, ids=lambda pool: pool[0])
def test_what_was_computed_from_lost_variables_is_read(pool: tuple[str, int]) -> None:
    with current(*pool):
        x = mm.ones((4, 3))
        expected = np.asarray(_targets(x)).shape
        y = _targets(x)
        difference = mm.compile(lambda z: z - y)(mm.zeros(expected))
        np.testing.assert_array_equal(difference, -np.asarray(y))
        y = _targets(x)
        state = mm.while_loop(lambda h: mm.sum(h) < -1, lambda h: h + y, mm.zeros(expected))
        np.testing.assert_array_equal(state, np.zeros(expected))
        y = _targets(x)
        trainer = mm.train.Trainer(nn.Dense(2), lambda outputs, _: mm.mean((outputs - y) ** 2))
        history = trainer.fit(np.ones((4, 3)), np.zeros((4, 2)), batch_size=4, epochs=2)
        assert history.loss[1] < history.loss[0]


@pytest.mark.parametrize("pool", POOLS, ids=lambda pool: pool[0])
@pytest.mark.parametrize("loop", ["fori_loop", "scan"])
def test_gradients_pass_through_loops_that_assign_what_they_read(
    pool: tuple[str, int], loop: str
) -> None:
    with current(*pool):
        v, start = mm.variable("v", np.ones(3)), mm.asarray(np.arange(1.0, 4.0))

        def step(_: Any, c: Any) -> Any:
            product = c * v
            v.assign(v * 2)
            return product

        def result(c: Any) -> Any:
            v.assign(mm.ones(3))
            if loop == "fori_loop":
                return mm.sum(mm.fori_loop(0, 3, step, c))
            return mm.sum(mm.scan(lambda h, x: (step(x, h), h), c, mm.ones(3))[0])

        for gradient in (mm.grad(result), mm.compile(mm.grad(result))):
            np.testing.assert_allclose(gradient(start), [8, 8, 8])
        value, by_variable = mm.value_and_grad(lambda: result(start), [v])
        assert float(value) == 48
        np.testing.assert_allclose(by_variable[v], [14, 28, 42])  # of each value that was read
        np.testing.assert_array_equal(mm.hessian(result)(start), np.zeros((3, 3)))
