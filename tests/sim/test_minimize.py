"""Optimizer steps are equal for all layouts of the variables, even if states must be moved."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

import magmath as mm
from engines import current
from magmath import Layout

COSTS = np.arange(32.0).reshape(16, 2)
RULES = [
    Layout.replicated(), Layout.split(0), Layout.split(1), Layout.cyclic(0, block=3), Layout.on(0)
]  # fmt: skip
OPTIMIZERS: list[Callable[[], mm.optim.Optimizer]] = [
    lambda: mm.optim.GradientDescent(0.01),
    lambda: mm.optim.Momentum(0.01, nesterov=True),
    lambda: mm.optim.Adam(0.1),
]


def trajectory(make: Callable[[], mm.optim.Optimizer], rule: Layout | None) -> list[float]:
    """The values of a weighted sum of squares before each of five steps, and the last weights."""
    weights = mm.variable("weights", np.cos(COSTS), layout=rule)
    expression = mm.sum(mm.square(weights) * mm.asarray(COSTS))
    optimizer = make()
    values = [optimizer.minimize(expression, [weights]) for _ in range(5)]
    return [*values, *np.asarray(weights).ravel()]


@pytest.mark.parametrize("make", OPTIMIZERS, ids=["descent", "momentum", "adam"])
@pytest.mark.parametrize(
    ("kind", "workers"),
    [("shared", 1), ("shared", 3), ("messages", 2), ("exact", 1), ("exact", 3), ("exact", 4)],
)
def test_steps_do_not_depend_on_layouts(
    make: Callable[[], mm.optim.Optimizer], kind: str, workers: int
) -> None:
    with current("inline"):
        expected = trajectory(make, None)
    with current(kind, workers):
        actual = {str(rule): trajectory(make, rule) for rule in RULES}
    for rule, values in actual.items():
        np.testing.assert_allclose(values, expected, rtol=1e-10, atol=1e-10, err_msg=rule)


def test_variable_is_stored_in_its_layout() -> None:
    with current("shared", 3) as pool:
        for rule in RULES[1:]:
            v = mm.variable("v", COSTS, layout=rule)
            assert v.layout == rule.bind(COSTS.shape, pool.mesh)
            v.assign(COSTS + 1)
            assert v.layout == rule.bind(COSTS.shape, pool.mesh)
            np.testing.assert_array_equal(np.asarray(v), COSTS + 1)


def test_an_expression_keeps_its_value_and_is_minimized_from_present_values() -> None:
    with current("inline"):
        x = mm.variable("x", 3.0)
        y, loss = x * 2.0, mm.square(x)
        assert (float(x), float(y)) == (3.0, 6.0)
        descent = mm.optim.GradientDescent(0.25)
        assert descent.minimize(loss, [x]) == 9.0
        assert (float(x), float(y), float(loss)) == (1.5, 6.0, 9.0)
        assert descent.minimize(loss, [x]) == 2.25
        assert (float(x), float(y), float(loss)) == (0.75, 6.0, 9.0)


def moved_trajectory(
    make: Callable[[], mm.optim.Optimizer], moves: Sequence[tuple[int, Layout]], *, again: bool
) -> list[float]:
    """The values of a weighted sum before each of eight steps, and the last weights; `moves` are
    the layouts into which the weights (0), the costs (1) or the states are moved between them.
    `again`: each step writes the expression again."""
    weights, costs = mm.variable("weights", np.cos(COSTS)), mm.variable("costs", COSTS)
    optimizer = make()
    expression, values = mm.sum(mm.square(weights) * costs), []
    for i in range(8):
        values.append(optimizer.minimize(expression, [weights]))
        if moves:
            (states,) = optimizer.variable_states.of([weights])
            variables = [weights, costs, *states.states.values()]
            number, rule = moves[i % len(moves)]
            variables[number % len(variables)].move(rule)
        if again:
            expression = mm.sum(mm.square(weights) * costs)
    return [*values, *np.asarray(weights).ravel()]


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("make", OPTIMIZERS, ids=["descent", "momentum", "adam"])
@pytest.mark.parametrize(("kind", "workers"), [("shared", 3), ("messages", 2)])
def test_variables_and_states_may_be_moved_between_steps(
    make: Callable[[], mm.optim.Optimizer], kind: str, workers: int, again: bool
) -> None:
    random = np.random.default_rng(0)
    moves = [(int(random.integers(4)), RULES[random.integers(len(RULES))]) for _ in range(8)]
    with current("inline"):
        expected = moved_trajectory(make, (), again=again)
    with current(kind, workers):
        actual = moved_trajectory(make, moves, again=again)
    np.testing.assert_allclose(actual, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("steps", [0, 1, 2])
@pytest.mark.parametrize("make", OPTIMIZERS, ids=["descent", "momentum", "adam"])
def test_an_expression_does_not_depend_on_a_variable_that_was_converted(
    make: Callable[[], mm.optim.Optimizer], steps: int
) -> None:
    with current("inline"):
        x, optimizer = mm.variable("x", [3.0, 1.0]), make()
        loss = mm.sum(mm.square(x))
        for _ in range(steps):
            optimizer.minimize(loss, [x])
        before = x.numpy()
        x.convert(mm.float64)
        with pytest.raises(mm.errors.GradientError, match="depends on none of the variables"):
            optimizer.minimize(loss, [x])
        np.testing.assert_array_equal(x.numpy(), before)


def test_the_former_value_of_a_converted_variable_is_a_constant() -> None:
    """Also of one that does not exist any more."""
    with current("inline"):
        descent = mm.optim.GradientDescent(0.25)
        x, scale, offset = (mm.variable(name, 1.0) for name in ("x", "scale", "offset"))
        loss = scale * mm.square(x) + offset * x
        scale.convert(mm.float64)
        scale.assign(100.0)
        del offset
        descent.minimize(loss, [x])
        assert float(x) == 1.0 - 0.25 * 3.0
        loss = mm.astype(scale, mm.float32) * x
        descent.minimize(loss, [x])
        scale.convert(mm.float32)
        with pytest.raises(mm.errors.GradientError, match="build the expression again"):
            descent.minimize(loss, [x])
