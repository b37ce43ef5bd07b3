"""Optimizer steps are equal for all layouts of the variables, even if states must be moved."""

from __future__ import annotations

from collections.abc import Callable

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
